//! LCS: what two strings have in common, in order.

use super::super::prelude::*;
use crate::keyspace::StringRef;

struct LcsOptions {
    wants_len: bool,
    wants_ranges: bool,
    wants_match_len: bool,
    match_len_min: i64,
}

/// The position of a run of common bytes in both strings, ends inclusive.
struct Match {
    a: (usize, usize),
    b: (usize, usize),
}

pub(super) fn lcs(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    // Both are looked for, even if one is no string.
    let (a, b) = (operand(cx, request.arg(1)), operand(cx, request.arg(2)));
    let (a, b) = (a?, b?);
    let options = parse_options(request)?;
    let cells = (a.len() as u64 + 1) * (b.len() as u64 + 1);
    if a.len() >= u32::MAX as usize - 1 || b.len() >= u32::MAX as usize - 1 {
        return Err(CommandError::text("ERR String too long for LCS"));
    }
    if cells * 4 > cx.server.config.settings().clients.bulk_max as u64 {
        let text = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
        return Err(CommandError::text(text));
    }
    let table = lengths(&a, &b);
    let total = table[(cells - 1) as usize];
    if options.wants_ranges {
        let matches = walk(&table, &a, &b, |_| {});
        reply_matches(cx, &options, matches, total);
    } else if options.wants_len {
        cx.reply.integer(i64::from(total));
    } else {
        let mut common = Vec::with_capacity(total as usize);
        walk(&table, &a, &b, |byte| common.push(byte));
        common.reverse();
        cx.reply.bulk(&common);
    }
    Ok(())
}

fn operand(cx: &mut Context<'_>, key: &[u8]) -> Result<Vec<u8>, CommandError> {
    let not_string = CommandError::text("ERR The specified keys must contain string values");
    let text = cx.db.read_string(key).map_err(|_| not_string)?;
    Ok(text.map(StringRef::to_vec).unwrap_or_default())
}

fn parse_options(request: Request<'_>) -> Result<LcsOptions, CommandError> {
    let mut options = LcsOptions {
        wants_len: false,
        wants_ranges: false,
        wants_match_len: false,
        match_len_min: 0,
    };
    let mut at = 3;
    while let Some(word) = request.get(at) {
        if is_word(word, "IDX") {
            options.wants_ranges = true;
        } else if is_word(word, "LEN") {
            options.wants_len = true;
        } else if is_word(word, "WITHMATCHLEN") {
            options.wants_match_len = true;
        } else if is_word(word, "MINMATCHLEN") && at + 1 < request.len() {
            at += 1;
            options.match_len_min = integer(request.arg(at))?.max(0);
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 1;
    }
    if options.wants_len && options.wants_ranges {
        let text = "ERR If you want both the length and indexes, please just use IDX.";
        return Err(CommandError::text(text));
    }
    Ok(options)
}

/// Cell `(i, j)` is the length of the longest common subsequence of the first `i` and `j` bytes.
fn lengths(a: &[u8], b: &[u8]) -> Vec<u32> {
    let width = b.len() + 1;
    let mut table = vec![0u32; (a.len() + 1) * width];
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            table[i * width + j] = if a[i - 1] == b[j - 1] {
                table[(i - 1) * width + j - 1] + 1
            } else {
                table[(i - 1) * width + j].max(table[i * width + j - 1])
            };
        }
    }
    table
}

/// Walks back from the end; `common` gets each common byte, the result its runs, last first.
fn walk(table: &[u32], a: &[u8], b: &[u8], mut common: impl FnMut(u8)) -> Vec<Match> {
    let width = b.len() + 1;
    let (mut i, mut j) = (a.len(), b.len());
    let mut matches: Vec<Match> = Vec::new();
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            common(a[i - 1]);
            (i, j) = (i - 1, j - 1);
            match matches.last_mut() {
                Some(run) if run.a.0 == i + 1 && run.b.0 == j + 1 => (run.a.0, run.b.0) = (i, j),
                _ => matches.push(Match { a: (i, i), b: (j, j) }),
            }
        } else if table[(i - 1) * width + j] > table[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    matches
}

fn reply_matches(cx: &mut Context<'_>, options: &LcsOptions, matches: Vec<Match>, total: u32) {
    let long_enough = |run: &&Match| (run.a.1 - run.a.0 + 1) as i64 >= options.match_len_min;
    let kept: Vec<&Match> = matches.iter().filter(long_enough).collect();
    cx.reply.map(2);
    cx.reply.bulk(b"matches");
    cx.reply.array(kept.len());
    for run in kept {
        cx.reply.array(2 + usize::from(options.wants_match_len));
        for (start, end) in [run.a, run.b] {
            cx.reply.array(2);
            cx.reply.count(start);
            cx.reply.count(end);
        }
        if options.wants_match_len {
            cx.reply.count(run.a.1 - run.a.0 + 1);
        }
    }
    cx.reply.bulk(b"len");
    cx.reply.integer(i64::from(total));
}
