//! Adding entries, and trimming old ones away.

use store_types::{Limits, Stream, StreamId, Trim, TrimTo};

use super::super::collection::count_further;
use super::super::prelude::*;
use super::id::{self, IdText};

/// Fields and values up to this many stand on the stack while they are added.
const FEW: usize = 32;
/// The text of one entry may not be longer: a node holds at least one.
const ENTRY_BYTES_MAX: usize = 1 << 30;

const TOO_LARGE: CommandError = CommandError::text("ERR Elements are too large to be stored");

/// Which id a new entry gets.
#[derive(Clone, Copy)]
enum NewId {
    /// `*`: the moment, or just behind the last one.
    Chosen,
    /// `ms-*`: only its number within the millisecond is chosen.
    Within(u64),
    Given(StreamId),
}

/// The options of XADD and XTRIM.
struct AddOptions {
    id: NewId,
    /// The argument with the id.
    id_at: usize,
    creates: bool,
    trimming: Option<Trimming>,
}

/// How to trim, and the argument that says how far.
#[derive(Clone, Copy)]
struct Trimming {
    to: TrimTo,
    to_at: usize,
    is_rough: bool,
    limit: Option<u64>,
    limit_at: Option<usize>,
}

pub(super) fn xadd(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = parse_options(request, true)?;
    let first = options.id_at + 1;
    if request.len() < first + 2 || !(request.len() - first).is_multiple_of(2) {
        return Err(CommandError::text("ERR wrong number of arguments for 'xadd' command"));
    }
    if matches!(options.id, NewId::Given(StreamId::MIN)) {
        return Err(CommandError::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let key = request.arg(1);
    if !options.creates && cx.db.peek_as::<Stream>(key)?.is_none() {
        cx.reply.null();
        return Ok(());
    }
    let now_ms = cx.db.now_ms();
    let limits = &cx.server.limits;
    let mut stream = cx.db.write_or_create(key, Stream::new)?;
    let id = choose_id(&stream, options.id, now_ms)?;
    add_fields(&mut stream, id, request, first, limits)?;
    let trimmed = options.trimming.map_or(0, |trimming| stream.trim(trimming.cut(limits)));
    let (len, first_id) = (stream.len(), stream.first_id());
    drop(stream);
    let text = IdText::new(id);
    cx.reply.bulk(text.as_bytes());
    cx.db.changed(event_class::STREAM, "xadd", key);
    if trimmed > 0 {
        cx.db.notify(event_class::STREAM, "xtrim", key);
    }
    if cx.db.changes.propagating {
        let id = (options.id_at, text.as_bytes());
        propagate(cx, request, Some(id), options.trimming, (len, first_id));
    }
    cx.db.signal_ready(key);
    Ok(())
}

fn choose_id(stream: &Stream, wanted: NewId, now_ms: u64) -> Result<StreamId, CommandError> {
    let last = stream.last_id();
    let Some(next) = last.next() else {
        return Err(CommandError::text(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    };
    let chosen = match wanted {
        NewId::Chosen if now_ms > last.ms => Some(StreamId::new(now_ms, 0)),
        NewId::Chosen => Some(next),
        // Behind the last id of a millisecond there is none, not one of the next. The text is
        // that of Redis 7.0, which takes this for the other failure it knows.
        NewId::Within(ms) if ms == last.ms && next.ms != ms => return Err(TOO_LARGE),
        NewId::Within(ms) if ms == last.ms => Some(next),
        NewId::Within(ms) => Some(StreamId::new(ms, 0)),
        NewId::Given(id) => Some(id),
    };
    chosen.filter(|id| *id > last).ok_or(CommandError::text(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    ))
}

fn add_fields(
    stream: &mut Stream,
    id: StreamId,
    request: Request<'_>,
    first: usize,
    limits: &Limits,
) -> CommandResult {
    let fields = request.args_from(first);
    if fields.clone().map(<[u8]>::len).sum::<usize>() > ENTRY_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    let count = fields.len();
    if count <= FEW {
        let mut few = [&b""[..]; FEW];
        few.iter_mut().zip(fields).for_each(|(place, field)| *place = field);
        stream.add(id, &few[..count], limits);
    } else {
        stream.add(id, &fields.collect::<Vec<_>>(), limits);
    }
    Ok(())
}

pub(super) fn xtrim(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = parse_options(request, false)?;
    let key = request.arg(1);
    let limits = &cx.server.limits;
    let Some(mut stream) = cx.db.write_as::<Stream>(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let removed = options.trimming.map_or(0, |trimming| stream.trim(trimming.cut(limits)));
    let (len, first_id) = (stream.len(), stream.first_id());
    drop(stream);
    if removed > 0 {
        cx.db.changed_after_event(event_class::STREAM, "xtrim", key);
        cx.db.signal_modified(key);
        count_further(cx, removed as usize - 1);
        if cx.db.changes.propagating {
            propagate(cx, request, None, options.trimming, (len, first_id));
        }
    }
    cx.reply.integer(removed as i64);
    Ok(())
}

impl Trimming {
    fn cut(self, limits: &Limits) -> Trim {
        if !self.is_rough {
            return Trim::Exactly(self.to);
        }
        // A hundred nodes at a time, so that no request takes long; zero means no limit.
        let nodes_worth = 100 * limits.stream_node_entries_max as u64;
        let usual = if nodes_worth == 0 { 10_000 } else { nodes_worth.min(1_000_000) };
        Trim::Roughly { to: self.to, removed_max: self.limit.unwrap_or(usual) }
    }
}

/// Propagates the id that was given and the cut that was made: how far a rough cut goes depends
/// on settings and on how entries lie.
fn propagate(
    cx: &mut Context<'_>,
    request: Request<'_>,
    id: Option<(usize, &[u8])>,
    trimming: Option<Trimming>,
    (len, first_id): (usize, StreamId),
) {
    let mut args: Vec<&[u8]> = request.args_from(0).collect();
    if let Some((at, text)) = id {
        args[at] = text;
    }
    let bound;
    if let Some(trimming) = trimming.filter(|trimming| trimming.is_rough) {
        bound = match trimming.to {
            TrimTo::MaxLen(_) => len.to_string(),
            // Of nothing: the cut took everything, the new entry included.
            TrimTo::MinId(_) if len == 0 => StreamId::MAX.to_string(),
            TrimTo::MinId(_) => first_id.to_string(),
        };
        args[trimming.to_at] = bound.as_bytes();
        args[trimming.to_at - 1] = b"=";
        // An exact cut takes no LIMIT.
        if let Some(at) = trimming.limit_at {
            args.drain(at..at + 2);
        }
    }
    cx.propagate_instead(&args);
}

/// Reads the options up to XADD's id, or all of XTRIM's.
fn parse_options(request: Request<'_>, is_add: bool) -> Result<AddOptions, CommandError> {
    let mut parser = Parser { request, at: 2, trim: None, limit: None, creates: true };
    let mut id = None;
    while id.is_none()
        && let Some(word) = request.get(parser.at)
    {
        if is_add && word == b"*" {
            id = Some(NewId::Chosen);
        } else if is_add && is_word(word, "NOMKSTREAM") {
            parser.creates = false;
            parser.at += 1;
        } else if !parser.trim_option(word)? {
            if !is_add {
                return Err(CommandError::SYNTAX);
            }
            id = Some(parse_new_id(word)?);
        }
    }
    let trimming = parser.finish(is_add)?;
    let id = id.unwrap_or(NewId::Chosen);
    Ok(AddOptions { id, id_at: parser.at, creates: parser.creates, trimming })
}

fn parse_new_id(word: &[u8]) -> Result<NewId, CommandError> {
    match StreamId::parse_open(word) {
        Some(ms) => Ok(NewId::Within(ms)),
        None => id::parse(word, 0).map(NewId::Given),
    }
}

struct Parser<'a> {
    request: Request<'a>,
    at: usize,
    trim: Option<(TrimTo, usize, bool)>,
    limit: Option<(u64, usize)>,
    creates: bool,
}

impl Parser<'_> {
    /// Takes MAXLEN, MINID or LIMIT with its argument; `false` when the word is something else.
    fn trim_option(&mut self, word: &[u8]) -> Result<bool, CommandError> {
        let Some(next) = self.request.get(self.at + 1) else { return Ok(false) };
        let is_length = is_word(word, "MAXLEN");
        if is_length || is_word(word, "MINID") {
            if self.trim.is_some() {
                return Err(CommandError::text(
                    "ERR syntax error, MAXLEN and MINID options at the same time are not \
                     compatible",
                ));
            }
            let has_sign = matches!(next, b"~" | b"=") && self.at + 2 < self.request.len();
            let to_at = self.at + 1 + usize::from(has_sign);
            let to = trim_to(is_length, self.request.arg(to_at))?;
            self.trim = Some((to, to_at, has_sign && next == b"~"));
            self.at = to_at + 1;
            return Ok(true);
        }
        if is_word(word, "LIMIT") {
            let error = CommandError::text("ERR The LIMIT argument must be >= 0.");
            let limit = u64::try_from(integer(next)?).map_err(|_| error)?;
            self.limit = Some((limit, self.at));
            self.at += 2;
            return Ok(true);
        }
        Ok(false)
    }

    fn finish(&self, is_add: bool) -> Result<Option<Trimming>, CommandError> {
        let Some((to, to_at, is_rough)) = self.trim else {
            if self.limit.is_some_and(|(limit, _)| limit > 0) {
                return Err(CommandError::text(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                ));
            }
            if !is_add {
                return Err(CommandError::text(
                    "ERR syntax error, XTRIM must be called with a trimming strategy",
                ));
            }
            return if self.limit.is_some() { Err(LIMIT_WITHOUT_TILDE) } else { Ok(None) };
        };
        if self.limit.is_some() && !is_rough {
            return Err(LIMIT_WITHOUT_TILDE);
        }
        let (limit, limit_at) = self.limit.unzip();
        Ok(Some(Trimming { to, to_at, is_rough, limit, limit_at }))
    }
}

const LIMIT_WITHOUT_TILDE: CommandError =
    CommandError::text("ERR syntax error, LIMIT cannot be used without the special ~ option");

fn trim_to(is_length: bool, text: &[u8]) -> Result<TrimTo, CommandError> {
    if !is_length {
        return id::parse(text, 0).map(TrimTo::MinId);
    }
    let error = CommandError::text("ERR The MAXLEN argument must be >= 0.");
    u64::try_from(integer(text)?).map(TrimTo::MaxLen).map_err(|_| error)
}
