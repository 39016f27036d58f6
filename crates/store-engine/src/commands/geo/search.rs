//! Members within a circle or a box: GEOSEARCH, and GEORADIUS of old.

use std::cmp::Ordering;
use std::ops::Range;

use store_types::geo::{Area, Position, Shape};
use store_types::number::parse_f64;
use store_types::{ScoreBound, SortedSet};

use super::super::collection::count_further;
use super::super::partial_sort::partial_sort;
use super::super::prelude::*;
use super::{STORE_KEYS, STORE_KEYS_BY_MEMBER};
use super::{parse_position, parse_unit, position_of, reply_distance, reply_position};
use crate::key_finder::{FoundKey, by_specs};

/// Which of the commands runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Radius { stores: bool },
    RadiusByMember { stores: bool },
    Search,
    SearchStore,
}

impl Form {
    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }

    fn may_store(self) -> bool {
        matches!(self, Form::Radius { stores: true } | Form::RadiusByMember { stores: true })
    }

    fn source(self) -> usize {
        if self == Form::SearchStore { 2 } else { 1 }
    }
}

pub(super) fn georadius(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    search(cx, request, Form::Radius { stores: true })
}

pub(super) fn georadius_ro(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    search(cx, request, Form::Radius { stores: false })
}

pub(super) fn georadiusbymember(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    search(cx, request, Form::RadiusByMember { stores: true })
}

pub(super) fn georadiusbymember_ro(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    search(cx, request, Form::RadiusByMember { stores: false })
}

pub(super) fn geosearch(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    search(cx, request, Form::Search)
}

pub(super) fn geosearchstore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    search(cx, request, Form::SearchStore)
}

/// The keys of GEORADIUS, found as the command itself finds them.
pub(super) fn georadius_keys(request: Request<'_>) -> Option<Vec<FoundKey>> {
    radius_keys(request, Form::Radius { stores: true }, STORE_KEYS)
}

/// The keys of GEORADIUSBYMEMBER, found as the command itself finds them.
pub(super) fn georadiusbymember_keys(request: Request<'_>) -> Option<Vec<FoundKey>> {
    radius_keys(request, Form::RadiusByMember { stores: true }, STORE_KEYS_BY_MEMBER)
}

fn radius_keys(request: Request<'_>, form: Form, specs: &[KeySpec]) -> Option<Vec<FoundKey>> {
    let Ok(query) = (Parser { request, form, set: None }).parse() else {
        // The command stores nothing then; clients that only ask for keys get what Redis tells.
        return by_specs(specs, request);
    };
    let source = FoundKey { arg: form.source(), access: RO | ACCESS };
    let target = query.stores_at.map(|arg| FoundKey { arg, access: OW | UPDATE });
    Some([Some(source), target].into_iter().flatten().collect())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Nearest,
    Farthest,
}

/// Where to look from.
#[derive(Clone, Copy)]
enum Centre {
    Given(Position),
    /// That of a member; `None` when there is no set that it could be in.
    Member(Option<Position>),
}

impl Centre {
    fn position(self) -> Option<Position> {
        match self {
            Centre::Given(position) => Some(position),
            Centre::Member(position) => position,
        }
    }
}

/// What was asked for.
struct Query {
    centre: Option<Centre>,
    shape: Option<Shape>,
    /// Metres per unit.
    unit: f64,
    with_distance: bool,
    with_score: bool,
    with_position: bool,
    order: Option<Order>,
    count: Option<usize>,
    /// Whether any `count` will do, not only the nearest.
    any: bool,
    /// Which argument names the key to store in.
    stores_at: Option<usize>,
    stores_distance: bool,
}

/// A member that was found.
struct Hit {
    member: Vec<u8>,
    score: f64,
    position: Position,
    /// In metres.
    distance: f64,
}

fn search(cx: &mut Context<'_>, request: Request<'_>, form: Form) -> CommandResult {
    let key = request.arg(form.source());
    let set = cx.db.read_as::<SortedSet>(key)?;
    let query = Parser { request, form, set }.parse()?;
    let centre = query.centre.and_then(Centre::position);
    let (Some(set), Some(centre), Some(shape)) = (set, centre, query.shape) else {
        match query.stores_at {
            Some(target) => store(cx, request.arg(target), &query, form, Vec::new()),
            None => cx.reply.array(0),
        }
        return Ok(());
    };
    let limit = query.count.filter(|_| query.any);
    let mut hits = find(set, &Area { centre, shape }, limit);
    // The first few of no order are of no use.
    let order = query.order.or(query.count.filter(|_| !query.any).map(|_| Order::Nearest));
    if let Some(order) = order {
        let wanted = 0..query.count.unwrap_or(usize::MAX).min(hits.len());
        sort(&mut hits, order, wanted);
    }
    hits.truncate(query.count.unwrap_or(usize::MAX));
    match query.stores_at {
        Some(target) => store(cx, request.arg(target), &query, form, hits),
        None => reply_hits(cx, &query, hits),
    }
    Ok(())
}

fn find(set: &SortedSet, area: &Area, limit: Option<usize>) -> Vec<Hit> {
    let limit = limit.unwrap_or(usize::MAX);
    let mut hits = Vec::new();
    for scores in area.score_ranges() {
        let first = set.count_below(ScoreBound::At(scores.start));
        let end = set.count_below(ScoreBound::At(scores.end));
        for (member, score) in set.range(first..end.max(first)) {
            if hits.len() >= limit {
                return hits;
            }
            let position = Position::from_score(score);
            if let Some(distance) = area.distance_inside(position) {
                hits.push(Hit { member: member.to_vec(), score, position, distance });
            }
        }
    }
    hits
}

fn sort(hits: &mut [Hit], order: Order, wanted: Range<usize>) {
    let near = |a: &Hit, b: &Hit| a.distance.partial_cmp(&b.distance).unwrap_or(Ordering::Equal);
    match order {
        Order::Nearest => partial_sort(hits, wanted, near),
        Order::Farthest => partial_sort(hits, wanted, |a, b| near(b, a)),
    }
}

fn reply_hits(cx: &mut Context<'_>, query: &Query, hits: Vec<Hit>) {
    let reply = &mut cx.reply;
    let facts = [query.with_distance, query.with_score, query.with_position];
    let fact_count = facts.iter().filter(|wanted| **wanted).count();
    reply.array(hits.len());
    for hit in hits {
        if fact_count > 0 {
            reply.array(1 + fact_count);
        }
        reply.bulk(&hit.member);
        if query.with_distance {
            reply_distance(reply, hit.distance / query.unit);
        }
        if query.with_score {
            reply.integer(hit.score as i64);
        }
        if query.with_position {
            reply_position(reply, hit.position);
        }
    }
}

fn store(cx: &mut Context<'_>, target: &[u8], query: &Query, form: Form, hits: Vec<Hit>) {
    cx.reply.count(hits.len());
    if hits.is_empty() {
        cx.db.delete_target(target);
        return;
    }
    let mut set = SortedSet::new();
    for hit in &hits {
        let score = if query.stores_distance { hit.distance / query.unit } else { hit.score };
        set.insert(&hit.member, score, &cx.server.limits);
    }
    cx.db.set_object(target, set);
    let event = if form.is_search() { "geosearchstore" } else { "georadiusstore" };
    cx.db.changed(event_class::SORTED_SET, event, target);
    count_further(cx, hits.len() - 1);
}

struct Parser<'a, 's> {
    request: Request<'a>,
    form: Form,
    set: Option<&'s SortedSet>,
}

impl Parser<'_, '_> {
    fn parse(&self) -> Result<Query, CommandError> {
        let mut query = Query {
            centre: None,
            shape: None,
            unit: 1.0,
            with_distance: false,
            with_score: false,
            with_position: false,
            order: None,
            count: None,
            any: false,
            stores_at: (self.form == Form::SearchStore).then_some(1),
            stores_distance: false,
        };
        let mut at = self.fixed(&mut query)?;
        while at < self.request.len() {
            at += self.option(at, &mut query)?;
        }
        self.check(&query)?;
        Ok(query)
    }

    /// What is in front of the options; returns where those begin.
    fn fixed(&self, query: &mut Query) -> Result<usize, CommandError> {
        match self.form {
            Form::Search => Ok(2),
            Form::SearchStore => Ok(3),
            Form::Radius { .. } => {
                query.centre = Some(Centre::Given(parse_position(self.request, 2)?));
                self.circle(4, query)?;
                Ok(6)
            }
            Form::RadiusByMember { .. } => {
                query.centre = Some(self.member(2)?);
                // Without the set, Redis does not look at the radius.
                if self.set.is_some() {
                    self.circle(3, query)?;
                }
                Ok(5)
            }
        }
    }

    fn member(&self, at: usize) -> Result<Centre, CommandError> {
        let Some(set) = self.set else { return Ok(Centre::Member(None)) };
        match position_of(set, self.request.arg(at)) {
            Some(position) => Ok(Centre::Member(Some(position))),
            None => Err(CommandError::text("ERR could not decode requested zset member")),
        }
    }

    fn circle(&self, at: usize, query: &mut Query) -> CommandResult {
        let radius = self.length(at, "ERR need numeric radius")?;
        if radius < 0.0 {
            return Err(CommandError::text("ERR radius cannot be negative"));
        }
        query.unit = parse_unit(self.request.arg(at + 1))?;
        query.shape = Some(Shape::Circle { radius: radius * query.unit });
        Ok(())
    }

    fn rectangle(&self, at: usize, query: &mut Query) -> CommandResult {
        let width = self.length(at, "ERR need numeric width")?;
        let height = self.length(at + 1, "ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err(CommandError::text("ERR height or width cannot be negative"));
        }
        query.unit = parse_unit(self.request.arg(at + 2))?;
        let (width, height) = (width * query.unit, height * query.unit);
        query.shape = Some(Shape::Rectangle { width, height });
        Ok(())
    }

    fn length(&self, at: usize, error: &'static str) -> Result<f64, CommandError> {
        parse_f64(self.request.arg(at)).ok_or(CommandError::text(error))
    }

    /// Takes the option at `at` and returns how many arguments it has, itself included.
    fn option(&self, at: usize, query: &mut Query) -> Result<usize, CommandError> {
        let word = self.request.arg(at);
        let left = self.request.len() - at - 1;
        let is = |name| is_word(word, name);
        match word {
            _ if is("WITHDIST") => query.with_distance = true,
            _ if is("WITHHASH") => query.with_score = true,
            _ if is("WITHCOORD") => query.with_position = true,
            _ if is("ANY") => query.any = true,
            _ if is("ASC") => query.order = Some(Order::Nearest),
            _ if is("DESC") => query.order = Some(Order::Farthest),
            _ if is("STOREDIST") && self.form == Form::SearchStore => query.stores_distance = true,
            _ if is("COUNT") && left >= 1 => {
                let count = integer(self.request.arg(at + 1))?;
                if count <= 0 {
                    return Err(CommandError::text("ERR COUNT must be > 0"));
                }
                query.count = Some(count as usize);
                return Ok(2);
            }
            _ if self.form.may_store() && left >= 1 && (is("STORE") || is("STOREDIST")) => {
                query.stores_at = Some(at + 1);
                query.stores_distance = is("STOREDIST");
                return Ok(2);
            }
            _ if self.form.is_search() => return self.search_option(at, query),
            _ => return Err(CommandError::SYNTAX),
        }
        Ok(1)
    }

    /// Options that say where GEOSEARCH looks; each of two kinds shuts the other out.
    fn search_option(&self, at: usize, query: &mut Query) -> Result<usize, CommandError> {
        let word = self.request.arg(at);
        let left = self.request.len() - at - 1;
        let is_given = matches!(query.centre, Some(Centre::Given(_)));
        let is_member = matches!(query.centre, Some(Centre::Member(_)));
        if is_word(word, "FROMMEMBER") && left >= 1 && !is_given {
            query.centre = Some(self.member(at + 1)?);
            return Ok(2);
        }
        if is_word(word, "FROMLONLAT") && left >= 2 && !is_member {
            query.centre = Some(Centre::Given(parse_position(self.request, at + 1)?));
            return Ok(3);
        }
        let is_circle = matches!(query.shape, Some(Shape::Circle { .. }));
        let is_rectangle = matches!(query.shape, Some(Shape::Rectangle { .. }));
        if is_word(word, "BYRADIUS") && left >= 2 && !is_rectangle {
            self.circle(at + 1, query)?;
            return Ok(3);
        }
        if is_word(word, "BYBOX") && left >= 3 && !is_circle {
            self.rectangle(at + 1, query)?;
            return Ok(4);
        }
        Err(CommandError::SYNTAX)
    }

    fn check(&self, query: &Query) -> CommandResult {
        let with_facts = query.with_distance || query.with_score || query.with_position;
        if query.stores_at.is_some() && with_facts {
            let subject = match self.form {
                Form::SearchStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            return Err(CommandError::new(format!(
                "ERR {subject} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let name = String::from_utf8_lossy(self.request.arg(0));
        if query.centre.is_none() {
            return Err(CommandError::new(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"
            )));
        }
        if self.form.is_search() && query.shape.is_none() {
            return Err(CommandError::new(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"
            )));
        }
        if query.any && query.count.is_none() {
            return Err(CommandError::text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }
}
