//! ZADD and ZINCRBY.

use store_types::number::parse_f64;
use store_types::{Inserted, Limits, SortedSet};

use super::super::collection::count_further;
use super::super::prelude::*;

/// Options of ZADD.
#[derive(Clone, Copy, Default)]
struct ZaddOptions {
    /// NX: only new members.
    only_new: bool,
    /// XX: only members that are there.
    only_old: bool,
    /// GT: only upwards.
    only_up: bool,
    /// LT: only downwards.
    only_down: bool,
    /// CH: count changed scores too.
    count_changed: bool,
    /// INCR: add to the score.
    adds: bool,
}

impl ZaddOptions {
    /// Takes the options in front of the pairs; returns where the pairs begin.
    fn parse(&mut self, request: Request<'_>) -> usize {
        let mut at = 2;
        while let Some(word) = request.get(at) {
            // Scores are the common case, and no option begins as they do.
            if word.first().is_none_or(|byte| !byte.is_ascii_alphabetic()) {
                break;
            }
            let option = match word.to_ascii_lowercase().as_slice() {
                b"nx" => &mut self.only_new,
                b"xx" => &mut self.only_old,
                b"gt" => &mut self.only_up,
                b"lt" => &mut self.only_down,
                b"ch" => &mut self.count_changed,
                b"incr" => &mut self.adds,
                _ => break,
            };
            *option = true;
            at += 1;
        }
        at
    }

    fn check(self, pairs: usize) -> CommandResult {
        let text = if self.only_new && self.only_old {
            "ERR XX and NX options at the same time are not compatible"
        } else if self.only_new && (self.only_up || self.only_down)
            || self.only_up && self.only_down
        {
            "ERR GT, LT, and/or NX options at the same time are not compatible"
        } else if self.adds && pairs > 1 {
            "ERR INCR option supports a single increment-element pair"
        } else {
            return Ok(());
        };
        Err(CommandError::text(text))
    }

    /// Whether the score a member gets does not depend on the one it has.
    fn is_plain(self) -> bool {
        !(self.only_new || self.only_old || self.only_up || self.only_down || self.adds)
    }
}

/// What became of one pair.
#[derive(Clone, Copy)]
enum Added {
    New(f64),
    Changed(f64),
    /// The member has this score already.
    Same(f64),
    /// The options forbade it.
    Refused,
}

pub(super) fn zadd(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    add(cx, request, ZaddOptions::default())
}

pub(super) fn zincrby(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    add(cx, request, ZaddOptions { adds: true, ..ZaddOptions::default() })
}

fn add(cx: &mut Context<'_>, request: Request<'_>, mut options: ZaddOptions) -> CommandResult {
    let first = options.parse(request);
    let rest = request.len() - first;
    if rest == 0 || rest % 2 == 1 {
        return Err(CommandError::SYNTAX);
    }
    options.check(rest / 2)?;
    // All scores are checked before the first is used. Most requests have one.
    let mut score = score_of(request.arg(first))?;
    for at in (first + 2..request.len()).step_by(2) {
        score_of(request.arg(at))?;
    }
    let key = request.arg(1);
    if options.only_old && cx.db.peek_as::<SortedSet>(key)?.is_none() {
        reply(cx, options, (0, 0), Added::Refused);
        return Ok(());
    }
    let mut set = cx.db.write_or_create(key, SortedSet::new)?;
    let (mut new, mut changed, mut last) = (0, 0, Added::Refused);
    for at in (first..request.len()).step_by(2) {
        if at > first {
            score = score_of(request.arg(at))?;
        }
        last = add_one(&mut set, request.arg(at + 1), score, options, &cx.server.limits)?;
        new += usize::from(matches!(last, Added::New(_)));
        changed += usize::from(matches!(last, Added::Changed(_)));
    }
    drop(set);
    if new + changed > 0 {
        let event = if options.adds { "zincr" } else { "zadd" };
        cx.db.changed(event_class::SORTED_SET, event, key);
        count_further(cx, new + changed - 1);
    }
    reply(cx, options, (new, changed), last);
    Ok(())
}

fn score_of(arg: &[u8]) -> Result<f64, CommandError> {
    parse_f64(arg).ok_or(CommandError::NOT_FLOAT)
}

fn add_one(
    set: &mut SortedSet,
    member: &[u8],
    score: f64,
    options: ZaddOptions,
    limits: &Limits,
) -> Result<Added, CommandError> {
    let mut wanted = score;
    if !options.is_plain() {
        match set.score(member) {
            None if options.only_old => return Ok(Added::Refused),
            None => {}
            Some(_) if options.only_new => return Ok(Added::Refused),
            Some(current) => {
                if options.adds {
                    wanted += current;
                }
                if wanted.is_nan() {
                    return Err(CommandError::text("ERR resulting score is not a number (NaN)"));
                }
                if options.only_up && wanted <= current || options.only_down && wanted >= current {
                    return Ok(Added::Refused);
                }
            }
        }
    }
    Ok(match set.insert(member, wanted, limits) {
        Inserted::Added => Added::New(wanted),
        Inserted::Moved { .. } => Added::Changed(wanted),
        Inserted::Unchanged => Added::Same(wanted),
    })
}

fn reply(cx: &mut Context<'_>, options: ZaddOptions, (new, changed): (usize, usize), last: Added) {
    if !options.adds {
        return cx.reply.count(if options.count_changed { new + changed } else { new });
    }
    match last {
        Added::New(score) | Added::Changed(score) | Added::Same(score) => cx.reply.double(score),
        Added::Refused => cx.reply.null(),
    }
}
