//! SORT: the elements of a list, set or sorted set, in another order.

use std::cmp::Ordering;

use store_types::number::parse_f64;
use store_types::{Element, Encoding, End, Hash, List, SortedSet};

use super::collection::count_further;
use super::partial_sort::partial_sort;
use super::prelude::*;
use crate::acl;
use crate::context::Caller;
use crate::key_finder::FoundKey;
use crate::keyspace::{Data, Keyspace, StringRef, ValueRef};
use crate::session::session_flag;

const READ_SPECS: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS), KeySpec::unknown(RO | ACCESS)];
const WRITE_SPECS: &[KeySpec] =
    &[KeySpec::one(1, RO | ACCESS), KeySpec::unknown(RO | ACCESS), KeySpec::unknown(OW | UPDATE)];
const CATEGORIES: u32 = category::SET | category::SORTED_SET | category::LIST | category::DANGEROUS;

pub(super) const TABLE: &[Command] = &[
    Command::new("sort", AtLeast(2), WRITE | GROWS, sort)
        .keys(WRITE_SPECS)
        .keys_found_by(find_keys)
        .categories(CATEGORIES)
        .docs(
            Group::Generic,
            "1.0.0",
            "O(N+M*log(M))",
            "Sorts elements, and optionally stores them.",
        )
        .arguments(
            "key#k@0 ?pattern#p@1=BY ?offset_count#b=LIMIT(offset#i count#i) \
             ?*+pattern#p@1=GET ?order#o(asc#t=ASC desc#t=DESC) ?sorting#t=ALPHA \
             ?destination#k@2=STORE",
        ),
    Command::new("sort_ro", AtLeast(2), READ, sort_ro)
        .keys(READ_SPECS)
        .keys_found_by(find_keys_ro)
        .categories(CATEGORIES)
        .docs(Group::Generic, "7.0.0", "O(N+M*log(M))", "Sorts elements, never storing them.")
        .arguments(
            "key#k@0 ?pattern#p@1=BY ?offset_count#b=LIMIT(offset#i count#i) \
             ?*+pattern#p@1=GET ?order#o(asc#t=ASC desc#t=DESC) ?sorting#t=ALPHA",
        ),
];

/// The key to sort and, of several, the last one to store in, as the command itself finds it. What
/// BY and GET name depends on the elements.
fn find_keys(request: Request<'_>) -> Option<Vec<FoundKey>> {
    let mut keys = find_keys_ro(request)?;
    // With arguments that make no sense the command touches nothing.
    let target = parse_options(request, true).ok().and_then(|options| options.target);
    keys.extend(target.map(|arg| FoundKey { arg, access: OW | UPDATE }));
    Some(keys)
}

fn find_keys_ro(_: Request<'_>) -> Option<Vec<FoundKey>> {
    Some(vec![FoundKey { arg: 1, access: RO | ACCESS }])
}

fn sort(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = parse_options(request, true)?;
    run(cx, request, options)
}

fn sort_ro(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = parse_options(request, false)?;
    run(cx, request, options)
}

/// By what elements are ordered.
enum By<'a> {
    Elements,
    Pattern(&'a [u8]),
    /// A pattern without `*`: not at all.
    Nothing,
}

struct SortOptions<'a> {
    by: By<'a>,
    is_descending: bool,
    is_alphabetic: bool,
    /// Offset and count as they were given.
    limit: (i64, i64),
    gets: Vec<&'a [u8]>,
    /// Which argument names the key to store in.
    target: Option<usize>,
}

fn parse_options(request: Request<'_>, may_store: bool) -> Result<SortOptions<'_>, CommandError> {
    let mut options = SortOptions {
        by: By::Elements,
        is_descending: false,
        is_alphabetic: false,
        limit: (0, -1),
        gets: Vec::new(),
        target: None,
    };
    let mut at = 2;
    while let Some(word) = request.get(at) {
        let is = |name| is_word(word, name);
        let value = request.get(at + 1);
        at += 2;
        match value {
            Some(offset) if is("LIMIT") && at < request.len() => {
                options.limit = (integer(offset)?, integer(request.arg(at))?);
                at += 1;
            }
            Some(_) if is("STORE") && may_store => options.target = Some(at - 1),
            Some(pattern) if is("BY") => {
                let is_real = pattern.contains(&b'*');
                // One constant pattern is enough: Redis does not sort then, whatever follows.
                let is_nothing = !is_real || matches!(options.by, By::Nothing);
                options.by = if is_nothing { By::Nothing } else { By::Pattern(pattern) };
            }
            Some(pattern) if is("GET") => options.gets.push(pattern),
            _ => {
                at -= 1;
                match word {
                    _ if is("ASC") => options.is_descending = false,
                    _ if is("DESC") => options.is_descending = true,
                    _ if is("ALPHA") => options.is_alphabetic = true,
                    _ => return Err(CommandError::SYNTAX),
                }
            }
        }
    }
    Ok(options)
}

/// Which keys BY and GET read only shows when they are read, so they need a user who may read
/// all of them, and a server that has all of them.
fn check_permissions(cx: &Context<'_>, options: &SortOptions<'_>) -> CommandResult {
    let is_clustered = cx.server.cluster.is_some();
    let is_restricted =
        cx.session.has(session_flag::RESTRICTED) && !acl::may_read_all_keys(cx, cx.row);
    if !is_clustered && !is_restricted {
        return Ok(());
    }
    let option = match options.by {
        By::Pattern(_) => "BY",
        _ if !options.gets.is_empty() => "GET",
        By::Elements | By::Nothing => return Ok(()),
    };
    let reason = match is_clustered {
        true => "in Cluster mode",
        false => "due to insufficient ACL permissions",
    };
    let text = format!("ERR {option} option of SORT denied {reason}.");
    Err(CommandError::new(text))
}

fn run(cx: &mut Context<'_>, request: Request<'_>, mut options: SortOptions<'_>) -> CommandResult {
    check_permissions(cx, &options)?;
    let key = request.arg(1);
    let (is_set, is_small_sorted_set) = match cx.db.read(key) {
        Some(ValueRef::Object(value)) => match value.data() {
            Data::Set(_) => (true, false),
            Data::SortedSet(set) => (false, set.encoding() == Encoding::Listpack),
            _ => (false, false),
        },
        _ => (false, false),
    };
    if is_small_sorted_set && let Some(mut set) = cx.db.write_as::<SortedSet>(key)? {
        // For OBJECT ENCODING only: Redis sorts the large form, and keeps it.
        set.convert(&cx.server.limits);
    }
    // Sets have no order of their own, and what is stored must be the same everywhere.
    let must_agree = options.target.is_some() || cx.caller == Caller::Script;
    if matches!(options.by, By::Nothing) && is_set && must_agree {
        options.by = By::Elements;
        options.is_alphabetic = true;
    }
    let elements = load(cx.db, key, &options)?;
    let elements = match options.by {
        By::Nothing => elements,
        By::Elements => {
            let weights = elements.iter().map(|element| Some(element.clone())).collect();
            order(elements, weights, &options)?
        }
        By::Pattern(pattern) => {
            let weight = |element: &Vec<u8>| look_up(cx.db, pattern, element);
            let weights = elements.iter().map(weight).collect();
            order(elements, weights, &options)?
        }
    };
    match options.target {
        Some(target) => store(cx, request.arg(target), &elements, &options.gets),
        None => reply(cx, &elements, &options.gets),
    }
    Ok(())
}

/// The elements that take part: all of them, or with nothing to order only those wanted.
fn load(
    db: &mut Keyspace,
    key: &[u8],
    options: &SortOptions<'_>,
) -> Result<Vec<Vec<u8>>, CommandError> {
    let data = match db.peek(key) {
        None => return Ok(Vec::new()),
        Some(ValueRef::Object(value)) => value.data(),
        Some(_) => return Err(CommandError::WRONG_TYPE),
    };
    let is_ordered = matches!(options.by, By::Nothing);
    let len = match data {
        Data::List(list) => list.len(),
        Data::Set(set) => set.len(),
        Data::SortedSet(set) => set.len(),
        Data::Hash(_) | Data::Stream(_) => return Err(CommandError::WRONG_TYPE),
    };
    let wanted = if is_ordered { window(options.limit, len) } else { 0..len };
    let is_back = is_ordered && options.is_descending;
    // The last ones of the value are the first ones in descending order.
    let place = if is_back { len - wanted.end..len - wanted.start } else { wanted };
    let mut elements: Vec<Vec<u8>> = match data {
        Data::List(list) => list.range(place).map(Element::to_vec).collect(),
        Data::SortedSet(set) => set.range(place).map(|(member, _)| member.to_vec()).collect(),
        Data::Set(set) => {
            set.iter().skip(place.start).take(place.len()).map(Element::to_vec).collect()
        }
        Data::Hash(_) | Data::Stream(_) => Vec::new(),
    };
    if is_back {
        elements.reverse();
    }
    Ok(elements)
}

/// What LIMIT leaves of `len` elements.
fn window((offset, count): (i64, i64), len: usize) -> std::ops::Range<usize> {
    let start = usize::try_from(offset).unwrap_or(0).min(len);
    let count = usize::try_from(count).unwrap_or(len);
    start..start.saturating_add(count).min(len)
}

/// Orders the elements by their weights, and keeps those that LIMIT leaves.
fn order(
    elements: Vec<Vec<u8>>,
    weights: Vec<Option<Vec<u8>>>,
    options: &SortOptions<'_>,
) -> Result<Vec<Vec<u8>>, CommandError> {
    let wanted = window(options.limit, elements.len());
    let turned = |order: Ordering| if options.is_descending { order.reverse() } else { order };
    if options.is_alphabetic {
        let mut weighed: Vec<_> = weights.into_iter().zip(elements).collect();
        partial_sort(&mut weighed, wanted.clone(), |a, b| {
            turned(a.0.as_deref().map(to_zero).cmp(&b.0.as_deref().map(to_zero)))
        });
        return Ok(weighed.drain(wanted).map(|(_, element)| element).collect());
    }
    let mut weighed = Vec::with_capacity(elements.len());
    for (weight, element) in weights.into_iter().zip(elements) {
        let number = weight.as_deref().map_or(Some(0.0), number_of).ok_or(NOT_NUMBERS)?;
        weighed.push((number, element));
    }
    // Equal numbers are told apart by their elements, so that every server agrees.
    let compare = |a: &(f64, Vec<u8>), b: &(f64, Vec<u8>)| {
        let numbers = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
        turned(numbers.then_with(|| a.1.cmp(&b.1)))
    };
    partial_sort(&mut weighed, wanted.clone(), compare);
    Ok(weighed.drain(wanted).map(|(_, element)| element).collect())
}

const NOT_NUMBERS: CommandError =
    CommandError::text("ERR One or more scores can't be converted into double");

/// A text ends at its first zero, as for C's `strcoll` and `strtod`.
fn to_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number as C's `strtod` takes it: the empty text is zero, spaces may stand in front.
fn number_of(text: &[u8]) -> Option<f64> {
    let text = to_zero(text);
    if text.is_empty() {
        return Some(0.0);
    }
    parse_f64(text.trim_ascii_start())
}

/// The value that `pattern` names for an element: a string, or behind `->` a field of a hash.
fn look_up(db: &mut Keyspace, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let behind = &pattern[star + 1..];
    let arrow = behind.windows(2).position(|pair| pair == b"->");
    let (rest, field) = match arrow {
        Some(at) if at + 2 < behind.len() => (&behind[..at], Some(&behind[at + 2..])),
        _ => (behind, None),
    };
    let key = [&pattern[..star], element, rest].concat();
    match (db.read(&key)?, field) {
        (ValueRef::Integer(number), None) => Some(StringRef::Integer(number).to_vec()),
        (ValueRef::Bytes(bytes), None) => Some(bytes.to_vec()),
        (ValueRef::Object(value), Some(field)) => match value.data() {
            Data::Hash(hash) => hash_value(hash, field),
            _ => None,
        },
        _ => None,
    }
}

fn hash_value(hash: &Hash, field: &[u8]) -> Option<Vec<u8>> {
    hash.get(field).map(Element::to_vec)
}

fn reply(cx: &mut Context<'_>, elements: &[Vec<u8>], gets: &[&[u8]]) {
    cx.reply.array(elements.len() * gets.len().max(1));
    for element in elements {
        if gets.is_empty() {
            cx.reply.bulk(element);
        }
        for pattern in gets {
            let value = look_up(cx.db, pattern, element);
            cx.reply.bulk_or_null(value.as_deref());
        }
    }
}

fn store(cx: &mut Context<'_>, target: &[u8], elements: &[Vec<u8>], gets: &[&[u8]]) {
    let mut list = List::new();
    for element in elements {
        if gets.is_empty() {
            list.push(End::Back, element, &cx.server.limits);
        }
        for pattern in gets {
            let value = look_up(cx.db, pattern, element).unwrap_or_default();
            list.push(End::Back, &value, &cx.server.limits);
        }
    }
    cx.reply.count(list.len());
    if list.is_empty() {
        cx.db.delete_target(target);
        return;
    }
    let len = list.len();
    cx.db.set_object(target, list);
    // Whoever waits for a list there has one now, also when another value was overwritten.
    cx.db.signal_ready(target);
    cx.db.changed(event_class::LIST, "sortstore", target);
    count_further(cx, len - 1);
}
