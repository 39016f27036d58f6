//! Positions on the earth, kept as the scores of a sorted set.

mod search;

use store_resp::ReplyWriter;
use store_types::geo::Position;
use store_types::number::{Extended, IntText, parse_f64};
use store_types::{Inserted, SortedSet};

use super::collection::count_further;
use super::prelude::*;
use crate::notifications;
use search::{georadius, georadiusbymember, geosearch, geosearchstore};

const STORE_KEYS_BY_MEMBER: &[KeySpec] = &[
    KeySpec::one(1, RO | ACCESS),
    KeySpec::after("STORE", 5, OW | UPDATE),
    KeySpec::after("STOREDIST", 5, OW | UPDATE),
];
const STORE_KEYS: &[KeySpec] = &[
    KeySpec::one(1, RO | ACCESS),
    KeySpec::after("STORE", 6, OW | UPDATE),
    KeySpec::after("STOREDIST", 6, OW | UPDATE),
];

const UNIT: &[HistoryEntry] = &[("7.0.0", "Units may be written in capitals.")];

pub(super) const TABLE: &[Command] = &[
    Command::new("geoadd", AtLeast(5), WRITE | GROWS, geoadd)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::GEO)
        .docs(Group::Geo, "3.2.0", "O(log N)", "Adds members at positions.")
        .arguments(
            "key#k@0 ?condition#o^6.2.0(nx#t=NX xx#t=XX) ?change#t=CH^6.2.0 \
             *longitude_latitude_member#b(longitude#d latitude#d member#s)",
        )
        .history(&[("6.2.0", "Takes CH, NX and XX.")]),
    Command::new("geodist", AtLeast(4), READ, geodist)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::GEO)
        .docs(Group::Geo, "3.2.0", "O(1)", "The distance between two members.")
        .arguments("key#k@0 member1#s member2#s ?unit#o(m#t=M km#t=KM ft#t=FT mi#t=MI)"),
    Command::new("geohash", AtLeast(2), READ, geohash)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::GEO)
        .docs(Group::Geo, "3.2.0", "O(1)", "The positions of members as geohashes.")
        .arguments("key#k@0 *member#s"),
    Command::new("geopos", AtLeast(2), READ, geopos)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::GEO)
        .docs(Group::Geo, "3.2.0", "O(1)", "The positions of members.")
        .arguments("key#k@0 *member#s"),
    Command::new("georadius", AtLeast(6), WRITE | GROWS, georadius)
        .keys(STORE_KEYS)
        .keys_found_by(search::georadius_keys)
        .categories(category::GEO)
        .docs(Group::Geo, "3.2.0", "O(N+log M)", "Members around a position.")
        .arguments(
            "key#k@0 longitude#d latitude#d radius#d unit#o(m#t=M km#t=KM ft#t=FT \
             mi#t=MI) ?withcoord#t=WITHCOORD ?withdist#t=WITHDIST ?withhash#t=WITHHASH \
             ?count#b(count#i=COUNT ?any#t=ANY^6.2.0) ?order#o(asc#t=ASC desc#t=DESC) \
             ?key#k@1=STORE ?key#k@2=STOREDIST",
        )
        .history(&[("6.2.0", "COUNT takes ANY."), ("7.0.0", "Units may be written in capitals.")])
        .deprecated("6.2.0", "`GEOSEARCH` or `GEOSEARCHSTORE`, `BYRADIUS`"),
    Command::new("georadius_ro", AtLeast(6), READ, search::georadius_ro)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::GEO)
        .docs(Group::Geo, "3.2.10", "O(N+log M)", "Members around a position, never stored.")
        .arguments(
            "key#k@0 longitude#d latitude#d radius#d unit#o(m#t=M km#t=KM ft#t=FT \
             mi#t=MI) ?withcoord#t=WITHCOORD ?withdist#t=WITHDIST ?withhash#t=WITHHASH \
             ?count#b(count#i=COUNT ?any#t=ANY^6.2.0) ?order#o(asc#t=ASC desc#t=DESC)",
        )
        .history(&[("6.2.0", "COUNT takes ANY.")])
        .deprecated("6.2.0", "`GEOSEARCH … BYRADIUS`"),
    Command::new("georadiusbymember", AtLeast(5), WRITE | GROWS, georadiusbymember)
        .keys(STORE_KEYS_BY_MEMBER)
        .keys_found_by(search::georadiusbymember_keys)
        .categories(category::GEO)
        .docs(Group::Geo, "3.2.0", "O(N+log M)", "Members around a member.")
        .arguments(
            "key#k@0 member#s radius#d unit#o(m#t=M km#t=KM ft#t=FT mi#t=MI) \
             ?withcoord#t=WITHCOORD ?withdist#t=WITHDIST ?withhash#t=WITHHASH \
             ?count#b(count#i=COUNT ?any#t=ANY) ?order#o(asc#t=ASC desc#t=DESC) \
             ?key#k@1=STORE ?key#k@2=STOREDIST",
        )
        .history(UNIT)
        .deprecated("6.2.0", "`GEOSEARCH` or `GEOSEARCHSTORE`, `FROMMEMBER … BYRADIUS`"),
    Command::new("georadiusbymember_ro", AtLeast(5), READ, search::georadiusbymember_ro)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::GEO)
        .docs(Group::Geo, "3.2.10", "O(N+log M)", "Members around a member, never stored.")
        .arguments(
            "key#k@0 member#s radius#d unit#o(m#t=M km#t=KM ft#t=FT mi#t=MI) \
             ?withcoord#t=WITHCOORD ?withdist#t=WITHDIST ?withhash#t=WITHHASH \
             ?count#b(count#i=COUNT ?any#t=ANY) ?order#o(asc#t=ASC desc#t=DESC)",
        )
        .deprecated("6.2.0", "`GEOSEARCH … FROMMEMBER … BYRADIUS`"),
    Command::new("geosearch", AtLeast(7), READ, geosearch)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::GEO)
        .docs(Group::Geo, "6.2.0", "O(N+log M)", "Members within a circle or a box.")
        .arguments(
            "key#k@0 from#o(member#s=FROMMEMBER \
             longitude_latitude#b=FROMLONLAT(longitude#d latitude#d)) \
             by#o(circle#b(radius#d=BYRADIUS unit#o(m#t=M km#t=KM ft#t=FT mi#t=MI)) \
             box#b(width#d=BYBOX height#d unit#o(m#t=M km#t=KM ft#t=FT mi#t=MI))) \
             ?order#o(asc#t=ASC desc#t=DESC) ?count#b(count#i=COUNT ?any#t=ANY) \
             ?withcoord#t=WITHCOORD ?withdist#t=WITHDIST ?withhash#t=WITHHASH",
        )
        .history(UNIT),
    Command::new("geosearchstore", AtLeast(8), WRITE | GROWS, geosearchstore)
        .keys(&[KeySpec::one(1, OW | UPDATE), KeySpec::one(2, RO | ACCESS)])
        .categories(category::GEO)
        .docs(Group::Geo, "6.2.0", "O(N+log M)", "Stores the members within a circle or a box.")
        .arguments(
            "destination#k@0 source#k@1 from#o(member#s=FROMMEMBER \
             longitude_latitude#b=FROMLONLAT(longitude#d latitude#d)) \
             by#o(circle#b(radius#d=BYRADIUS unit#o(m#t=M km#t=KM ft#t=FT mi#t=MI)) \
             box#b(width#d=BYBOX height#d unit#o(m#t=M km#t=KM ft#t=FT mi#t=MI))) \
             ?order#o(asc#t=ASC desc#t=DESC) ?count#b(count#i=COUNT ?any#t=ANY) \
             ?storedist#t=STOREDIST",
        )
        .history(UNIT),
];

/// Parses a longitude and the latitude behind it.
fn parse_position(request: Request<'_>, at: usize) -> Result<Position, CommandError> {
    let number = |at| parse_f64(request.arg(at)).ok_or(CommandError::NOT_FLOAT);
    let position = Position { longitude: number(at)?, latitude: number(at + 1)? };
    if position.is_valid() {
        return Ok(position);
    }
    let Position { longitude, latitude } = position;
    let text = format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}");
    Err(CommandError::new(text))
}

/// Metres per unit.
fn parse_unit(word: &[u8]) -> Result<f64, CommandError> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let found = units.iter().find(|(name, _)| is_word(word, name));
    found
        .map(|(_, metres)| *metres)
        .ok_or(CommandError::text("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

fn position_of(set: &SortedSet, member: &[u8]) -> Option<Position> {
    set.score(member).map(Position::from_score)
}

fn reply_position(reply: &mut ReplyWriter, position: Position) {
    reply.array(2);
    for coordinate in [position.longitude, position.latitude] {
        let text = Extended::from_f64(coordinate).map(Extended::to_text).unwrap_or_default();
        if reply.is_resp3() {
            reply.raw(format!(",{text}\r\n").as_bytes());
        } else {
            reply.bulk(text.as_bytes());
        }
    }
}

fn reply_distance(reply: &mut ReplyWriter, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

/// When GEOADD adds or moves.
#[derive(Clone, Copy, Default)]
struct Conditions {
    only_new: bool,
    only_known: bool,
    counts_moved: bool,
}

fn geoadd(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (mut conditions, mut first) = (Conditions::default(), 2);
    while let Some(word) = request.get(first) {
        match word {
            _ if is_word(word, "NX") => conditions.only_new = true,
            _ if is_word(word, "XX") => conditions.only_known = true,
            _ if is_word(word, "CH") => conditions.counts_moved = true,
            _ => break,
        }
        first += 1;
    }
    let rest = request.len() - first;
    if rest == 0 || !rest.is_multiple_of(3) || (conditions.only_new && conditions.only_known) {
        return Err(CommandError::SYNTAX);
    }
    let mut scores = Vec::with_capacity(rest / 3);
    for at in (first..request.len()).step_by(3) {
        let score = parse_position(request, at)?.to_score().ok_or(CommandError::SYNTAX)?;
        scores.push((score, request.arg(at + 2)));
    }
    let (added, moved) = add_all(cx, request.arg(1), conditions, &scores)?;
    if added + moved > 0 {
        cx.db.changed(event_class::SORTED_SET, "zadd", request.arg(1));
        count_further(cx, added + moved - 1);
        propagate_added(cx, request, first, &scores);
    }
    cx.reply.count(if conditions.counts_moved { added + moved } else { added });
    Ok(())
}

fn add_all(
    cx: &mut Context<'_>,
    key: &[u8],
    conditions: Conditions,
    scores: &[(f64, &[u8])],
) -> Result<(usize, usize), CommandError> {
    let limits = &cx.server.limits;
    if cx.db.peek_as::<SortedSet>(key)?.is_none() && conditions.only_known {
        return Ok((0, 0));
    }
    let mut set = cx.db.write_or_create(key, SortedSet::new)?;
    let (mut added, mut moved) = (0, 0);
    for (score, member) in scores {
        let is_known =
            (conditions.only_new || conditions.only_known).then(|| set.score(member).is_some());
        if is_known.is_some_and(|is_known| is_known == conditions.only_new) {
            continue;
        }
        match set.insert(member, *score, limits) {
            Inserted::Added => added += 1,
            Inserted::Moved { .. } => moved += 1,
            Inserted::Unchanged => {}
        }
    }
    Ok((added, moved))
}

/// As ZADD, which is what it comes to.
fn propagate_added(
    cx: &mut Context<'_>,
    request: Request<'_>,
    first: usize,
    scores: &[(f64, &[u8])],
) {
    if !cx.db.changes.propagating {
        return;
    }
    let texts: Vec<IntText> = scores.iter().map(|(score, _)| IntText::new(*score as i64)).collect();
    let mut args = vec![&b"ZADD"[..]];
    args.extend(request.args_from(1).take(first - 1));
    for (text, (_, member)) in texts.iter().zip(scores) {
        args.extend([text.as_bytes(), member]);
    }
    cx.propagate_instead(&args);
}

fn geopos(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let set = cx.db.read_as::<SortedSet>(request.arg(1))?;
    cx.reply.array(request.len() - 2);
    for member in request.args_from(2) {
        match set.and_then(|set| position_of(set, member)) {
            Some(position) => reply_position(&mut cx.reply, position),
            None => cx.reply.null_array(),
        }
    }
    Ok(())
}

fn geohash(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let set = cx.db.read_as::<SortedSet>(request.arg(1))?;
    cx.reply.array(request.len() - 2);
    for member in request.args_from(2) {
        match set.and_then(|set| position_of(set, member)) {
            Some(position) => cx.reply.bulk(&position.to_geohash()),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

fn geodist(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let unit = match request.len() {
        4 => 1.0,
        5 => parse_unit(request.arg(4))?,
        _ => return Err(CommandError::SYNTAX),
    };
    let set = cx.db.read_as::<SortedSet>(request.arg(1))?;
    let position = |member| set.and_then(|set| position_of(set, member));
    match (position(request.arg(2)), position(request.arg(3))) {
        (Some(from), Some(to)) => reply_distance(&mut cx.reply, from.distance(to) / unit),
        _ => cx.reply.null(),
    }
    Ok(())
}
