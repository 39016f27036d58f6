//! Union, intersection and difference of sorted sets; plain sets count as ones with all scores 1.

use store_types::number::parse_f64;
use store_types::{Element, Limits, Set, SortedSet};

use super::super::collection::{begin_pair, begin_pairs, count_from, look_set, reply_element};
use super::super::prelude::*;
use super::store::store_or_delete;
use crate::keyspace::{Data, Keyspace, ValueRef};

/// What is made of several sorted sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// What the command does with the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Reply,
    Store,
    Count,
}

/// How the scores of a member in several inputs become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn parse(arg: &[u8]) -> Result<Self, CommandError> {
        let named = [("SUM", Self::Sum), ("MIN", Self::Min), ("MAX", Self::Max)];
        let found = named.into_iter().find(|(word, _)| is_word(arg, word));
        found.map(|(_, aggregate)| aggregate).ok_or(CommandError::SYNTAX)
    }

    /// Infinities that cancel each other out make zero. A comparison with NaN keeps `score`.
    fn combine(self, score: f64, other: f64) -> f64 {
        match self {
            Self::Sum => number_or_zero(score + other),
            Self::Min => {
                if other < score {
                    other
                } else {
                    score
                }
            }
            Self::Max => {
                if other > score {
                    other
                } else {
                    score
                }
            }
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What a request asks for, beyond its keys.
struct AlgebraOptions {
    /// Positions of the first key and behind the last.
    keys: (usize, usize),
    /// One per key, or none when all are 1.
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Count no further; 0 for no limit.
    limit: usize,
}

impl AlgebraOptions {
    /// Parses from the number of keys at `at` on, after the kinds of all keys were checked: that
    /// is the order in which Redis complains.
    fn parse(
        cx: &mut Context<'_>,
        request: Request<'_>,
        at: usize,
        operation: Operation,
        purpose: Purpose,
    ) -> Result<Self, CommandError> {
        let keys = parse_keys(cx, request, at)?;
        for at in keys.0..keys.1 {
            check_kind(cx, request.arg(at))?;
        }
        let mut options = Self {
            keys,
            weights: Vec::new(),
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: 0,
        };
        let combines = operation != Operation::Difference && purpose != Purpose::Count;
        let mut at = keys.1;
        while let Some(word) = request.get(at) {
            let left = request.len() - at;
            if combines && left > keys.1 - keys.0 && is_word(word, "WEIGHTS") {
                options.weights = parse_weights(request, at + 1, keys.1 - keys.0)?;
                at += 1 + options.weights.len();
            } else if combines && left >= 2 && is_word(word, "AGGREGATE") {
                options.aggregate = Aggregate::parse(request.arg(at + 1))?;
                at += 2;
            } else if purpose == Purpose::Reply && is_word(word, "WITHSCORES") {
                options.with_scores = true;
                at += 1;
            } else if purpose == Purpose::Count && left >= 2 && is_word(word, "LIMIT") {
                let error = CommandError::text("ERR LIMIT can't be negative");
                options.limit = count_from(request.arg(at + 1), 0, error)?;
                at += 2;
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(options)
    }

    fn sources<'a>(&self, db: &'a Keyspace, request: Request<'_>) -> Vec<Source<'a>> {
        let source = |(index, at): (usize, usize)| Source {
            content: Content::at(db, request.arg(at)),
            weight: self.weights.get(index).copied().unwrap_or(1.0),
        };
        (self.keys.0..self.keys.1).enumerate().map(source).collect()
    }
}

fn parse_keys(
    cx: &Context<'_>,
    request: Request<'_>,
    at: usize,
) -> Result<(usize, usize), CommandError> {
    let count = integer(request.arg(at))?;
    if count < 1 {
        let name = &cx.server.registry.row(cx.row).full_name;
        let text = format!("ERR at least 1 input key is needed for '{name}' command");
        return Err(CommandError::new(text));
    }
    let first = at + 1;
    if count as u64 > (request.len() - first) as u64 {
        return Err(CommandError::SYNTAX);
    }
    Ok((first, first + count as usize))
}

/// Reads the key, as statistics and expiry want it. Fails unless it holds a set of some kind.
fn check_kind(cx: &mut Context<'_>, key: &[u8]) -> CommandResult {
    match cx.db.read(key) {
        None => Ok(()),
        Some(value) if matches!(value.type_name(), "set" | "zset") => Ok(()),
        Some(_) => Err(CommandError::WRONG_TYPE),
    }
}

fn parse_weights(
    request: Request<'_>,
    first: usize,
    count: usize,
) -> Result<Vec<f64>, CommandError> {
    let weight = |arg| parse_f64(arg).ok_or(CommandError::text("ERR weight value is not a float"));
    request.args_from(first).take(count).map(weight).collect()
}

/// One input.
struct Source<'a> {
    content: Content<'a>,
    weight: f64,
}

#[derive(Clone, Copy)]
enum Content<'a> {
    Sorted(&'a SortedSet),
    Plain(&'a Set),
    Nothing,
}

impl<'a> Content<'a> {
    fn at(db: &'a Keyspace, key: &[u8]) -> Self {
        if let Some(ValueRef::Object(value)) = db.look(key)
            && let Data::SortedSet(set) = value.data()
        {
            return Self::Sorted(set);
        }
        look_set(db, key).map_or(Self::Nothing, Self::Plain)
    }

    fn len(self) -> usize {
        match self {
            Self::Sorted(set) => set.len(),
            Self::Plain(set) => set.len(),
            Self::Nothing => 0,
        }
    }

    fn score(self, member: Element<'_>) -> Option<f64> {
        match self {
            Self::Sorted(set) => member.with_bytes(|member| set.score(member)),
            Self::Plain(set) => set.contains_element(member).then_some(1.0),
            Self::Nothing => None,
        }
    }

    /// Visits members with their scores until `visit` says false.
    fn visit(self, visit: &mut dyn FnMut(Element<'a>, f64) -> bool) {
        match self {
            Self::Sorted(set) => {
                set.iter().all(|(member, score)| visit(member, score));
            }
            Self::Plain(set) => {
                set.iter().all(|member| visit(member, 1.0));
            }
            Self::Nothing => {}
        }
    }
}

/// The result, in the large form whatever its size.
fn compute(
    mut sources: Vec<Source<'_>>,
    operation: Operation,
    aggregate: Aggregate,
    limits: &Limits,
) -> SortedSet {
    // Sums of fractions depend on their order, and Redis begins with the smallest input.
    if operation != Operation::Difference {
        sources.sort_by_key(|source| source.content.len());
    }
    let largest = sources.iter().map(|source| source.content.len()).max().unwrap_or(0);
    let mut result = match operation {
        Operation::Union => SortedSet::large_with_capacity(largest, limits),
        _ => SortedSet::large_with_capacity(0, limits),
    };
    match operation {
        Operation::Union => unite(&sources, aggregate, &mut result, limits),
        Operation::Difference => subtract(&sources, &mut |member, score| {
            member.with_bytes(|member| result.insert(member, score, limits));
        }),
        Operation::Intersection => intersect(&sources, aggregate, &mut |member, score| {
            member.with_bytes(|member| result.insert(member, score, limits));
            true
        }),
    }
    result
}

fn unite(sources: &[Source<'_>], aggregate: Aggregate, result: &mut SortedSet, limits: &Limits) {
    for source in sources {
        source.content.visit(&mut |member, score| {
            let score = number_or_zero(source.weight * score);
            member.with_bytes(|member| {
                let combined = match result.score(member) {
                    None => score,
                    Some(before) => {
                        let combined = aggregate.combine(before, score);
                        // Zeros of either sign are equal, yet one may have to become the other.
                        if combined == before && combined.to_bits() != before.to_bits() {
                            result.remove(member);
                        }
                        combined
                    }
                };
                result.insert(member, combined, limits);
            });
            true
        });
    }
}

/// Visits what all inputs have until `visit` says false. The smallest input comes first.
fn intersect(
    sources: &[Source<'_>],
    aggregate: Aggregate,
    visit: &mut dyn FnMut(Element<'_>, f64) -> bool,
) {
    let Some((smallest, others)) = sources.split_first() else { return };
    smallest.content.visit(&mut |member, score| {
        let mut combined = number_or_zero(smallest.weight * score);
        for other in others {
            let Some(score) = other.content.score(member) else { return true };
            combined = aggregate.combine(combined, other.weight * score);
        }
        visit(member, combined)
    });
}

/// Visits what the first input alone has.
fn subtract(sources: &[Source<'_>], visit: &mut dyn FnMut(Element<'_>, f64)) {
    let Some((first, others)) = sources.split_first() else { return };
    first.content.visit(&mut |member, score| {
        if others.iter().all(|other| other.content.score(member).is_none()) {
            visit(member, score);
        }
        true
    });
}

pub(super) fn zunion(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_result(cx, request, Operation::Union)
}

pub(super) fn zinter(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_result(cx, request, Operation::Intersection)
}

pub(super) fn zdiff(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_result(cx, request, Operation::Difference)
}

fn reply_result(cx: &mut Context<'_>, request: Request<'_>, operation: Operation) -> CommandResult {
    let options = AlgebraOptions::parse(cx, request, 1, operation, Purpose::Reply)?;
    let sources = options.sources(cx.db, request);
    let result = compute(sources, operation, options.aggregate, &cx.server.limits);
    begin_pairs(&mut cx.reply, result.len(), options.with_scores);
    for (member, score) in result.iter() {
        begin_pair(&mut cx.reply, options.with_scores);
        reply_element(&mut cx.reply, member);
        if options.with_scores {
            cx.reply.double(score);
        }
    }
    Ok(())
}

pub(super) fn zunionstore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    store_result(cx, request, Operation::Union, "zunionstore")
}

pub(super) fn zinterstore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    store_result(cx, request, Operation::Intersection, "zinterstore")
}

pub(super) fn zdiffstore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    store_result(cx, request, Operation::Difference, "zdiffstore")
}

fn store_result(
    cx: &mut Context<'_>,
    request: Request<'_>,
    operation: Operation,
    event: &'static str,
) -> CommandResult {
    let options = AlgebraOptions::parse(cx, request, 2, operation, Purpose::Store)?;
    let sources = options.sources(cx.db, request);
    let limits = &cx.server.limits;
    let mut result = compute(sources, operation, options.aggregate, limits);
    result.compact(limits);
    store_or_delete(cx, request.arg(1), result, event);
    Ok(())
}

pub(super) fn zintercard(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = AlgebraOptions::parse(cx, request, 1, Operation::Intersection, Purpose::Count)?;
    let mut sources = options.sources(cx.db, request);
    sources.sort_by_key(|source| source.content.len());
    let mut len = 0;
    intersect(&sources, options.aggregate, &mut |_, _| {
        len += 1;
        len != options.limit
    });
    cx.reply.count(len);
    Ok(())
}
