//! SCAN and what its relatives share: cursor, MATCH, COUNT.

use store_types::glob;

use super::prelude::*;

pub(super) const TABLE: &[Command] = &[Command::new("scan", AtLeast(2), READ, scan)
    .categories(category::KEYSPACE)
    .tips(&["nondeterministic_output", "request_policy:special"])
    .docs(Group::Generic, "2.8.0", "O(1)", "Some keys, and a cursor for the next ones.")
    .arguments("cursor#i ?pattern#p=MATCH ?count#i=COUNT ?type#s=TYPE^6.0.0")
    .history(&[("6.0.0", "Takes TYPE.")])];

/// Buckets looked into per wished key when they turn out empty, as in Redis.
const EMPTY_FACTOR: usize = 10;
const COUNT_DEFAULT: usize = 10;

/// The options of SCAN, SSCAN, HSCAN and ZSCAN.
pub(super) struct ScanOptions<'a> {
    /// How much to look at.
    pub(super) count: usize,
    pattern: Option<&'a [u8]>,
    /// Only keys of this kind; SCAN alone takes it.
    kind: Option<&'a [u8]>,
}

impl ScanOptions<'_> {
    /// Whether a key or member is wanted.
    pub(super) fn wants(&self, text: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, text, glob::Case::Sensitive))
    }
}

/// Parses a cursor as C's `strtoul` does: a sign and no digits at all are fine with it.
pub(super) fn parse_cursor(arg: &[u8]) -> Result<u64, CommandError> {
    let (is_negative, digits) = match arg {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
    let number: u64 =
        text.and_then(|text| text.parse().ok()).ok_or(CommandError::INVALID_CURSOR)?;
    Ok(if is_negative { number.wrapping_neg() } else { number })
}

/// Parses the options from argument `first` on.
pub(super) fn parse_options(
    request: Request<'_>,
    first: usize,
    takes_kind: bool,
) -> Result<ScanOptions<'_>, CommandError> {
    let mut options = ScanOptions { count: COUNT_DEFAULT, pattern: None, kind: None };
    let mut at = first;
    while let Some(word) = request.get(at) {
        let value = request.get(at + 1).ok_or(CommandError::SYNTAX)?;
        if is_word(word, "COUNT") {
            let count = integer(value)?;
            options.count = usize::try_from(count)
                .ok()
                .filter(|count| *count > 0)
                .ok_or(CommandError::SYNTAX)?;
        } else if is_word(word, "MATCH") {
            options.pattern = Some(value);
        } else if is_word(word, "TYPE") && takes_kind {
            options.kind = Some(value);
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 2;
    }
    Ok(options)
}

fn scan(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let mut cursor = parse_cursor(request.arg(1))?;
    let options = parse_options(request, 2, true)?;
    let now_ms = cx.db.now_ms();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut buckets_left = options.count.saturating_mul(EMPTY_FACTOR);
    let (mut seen, mut looked_at, mut ended) = (0, 0, Vec::new());
    while seen < options.count && buckets_left > 0 {
        cursor = cx.db.scan(cursor, &mut |entry| {
            seen += 1;
            if !options.wants(entry.key()) {
                return;
            }
            if entry.expires_at().is_some_and(|at| at < now_ms) {
                ended.push(entry.key().to_vec());
                return;
            }
            let kind = entry.value().type_name();
            looked_at += u64::from(options.kind.is_some());
            if options.kind.is_none_or(|wanted| is_word(wanted, kind)) {
                keys.push(entry.key().to_vec());
            }
        });
        buckets_left -= 1;
        if cursor == 0 {
            break;
        }
    }
    // To know a key's kind is to read it; and one that ended goes when it is found.
    cx.db.stats.hits += looked_at;
    cx.db.stats.misses += if options.kind.is_some() { ended.len() as u64 } else { 0 };
    for key in ended {
        cx.db.contains(&key);
    }
    cx.reply.array(2);
    cx.reply.bulk(cursor.to_string().as_bytes());
    cx.reply.array(keys.len());
    for key in keys {
        cx.reply.bulk(&key);
    }
    Ok(())
}
