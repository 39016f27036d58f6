//! Members within a range: told, counted, stored or removed.

use std::ops::Range;

use store_types::SortedSet;

use super::super::collection::{
    begin_pair, begin_pairs, count_further, remove_emptied, reply_element,
};
use super::super::prelude::*;
use super::bounds::Span;
use super::store::store_or_delete;

/// What the numbers of a range mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ranks,
    Scores,
    Members,
}

/// What a command of this family leaves to its options.
#[derive(Clone, Copy)]
struct Form {
    /// Which argument names the sorted set.
    key_at: usize,
    /// `None` where BYSCORE and BYLEX decide.
    kind: Option<Kind>,
    /// `None` where REV decides.
    reverse: Option<bool>,
    /// Whether WITHSCORES is allowed.
    takes_scores: bool,
}

impl Form {
    const fn of(kind: Kind, reverse: bool) -> Self {
        Self { key_at: 1, kind: Some(kind), reverse: Some(reverse), takes_scores: true }
    }
}

/// A range with its options.
struct Query<'a> {
    key: &'a [u8],
    span: Span<'a>,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    /// Negative for no limit.
    limit: i64,
}

impl<'a> Query<'a> {
    fn parse(request: Request<'a>, form: Form) -> Result<Self, CommandError> {
        let (mut kind, mut reverse) = (form.kind, form.reverse);
        let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
        let mut at = form.key_at + 3;
        while let Some(word) = request.get(at) {
            if form.takes_scores && is_word(word, "WITHSCORES") {
                with_scores = true;
            } else if is_word(word, "LIMIT") && at + 2 < request.len() {
                offset = integer(request.arg(at + 1))?;
                limit = integer(request.arg(at + 2))?;
                at += 2;
            } else if form.reverse.is_none() && is_word(word, "REV") {
                reverse = Some(true);
            } else if kind.is_none() && is_word(word, "BYLEX") {
                kind = Some(Kind::Members);
            } else if kind.is_none() && is_word(word, "BYSCORE") {
                kind = Some(Kind::Scores);
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 1;
        }
        let (kind, reverse) = (kind.unwrap_or(Kind::Ranks), reverse.unwrap_or(false));
        check_options(kind, limit, with_scores)?;
        let span = parse_span(request, form.key_at, kind, reverse)?;
        Ok(Self { key: request.arg(form.key_at), span, reverse, with_scores, offset, limit })
    }

    /// The ranks asked for, LIMIT applied.
    fn ranks(&self, set: &SortedSet) -> Range<usize> {
        let all = self.span.ranks(set, self.reverse);
        // Ranks come with no limit but one of -1, whose offset Redis ignores.
        if matches!(self.span, Span::Ranks(..)) || self.limit < 0 && self.offset == 0 {
            return all;
        }
        let Ok(offset) = usize::try_from(self.offset) else { return 0..0 };
        let skipped = offset.min(all.len());
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let len = limit.min(all.len() - skipped);
        if self.reverse {
            let end = all.end - skipped;
            end - len..end
        } else {
            let start = all.start + skipped;
            start..start + len
        }
    }
}

fn check_options(kind: Kind, limit: i64, with_scores: bool) -> CommandResult {
    if limit != -1 && kind == Kind::Ranks {
        return Err(CommandError::text(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if with_scores && kind == Kind::Members {
        return Err(CommandError::text(
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ));
    }
    Ok(())
}

/// The two limits behind the key. A reversed range of scores or texts begins with the higher.
fn parse_span(
    request: Request<'_>,
    key_at: usize,
    kind: Kind,
    reverse: bool,
) -> Result<Span<'_>, CommandError> {
    let (first, second) = (request.arg(key_at + 1), request.arg(key_at + 2));
    let (min, max) = if reverse { (second, first) } else { (first, second) };
    match kind {
        Kind::Ranks => Span::parse_ranks(first, second),
        Kind::Scores => Span::parse_scores(min, max),
        Kind::Members => Span::parse_members(min, max),
    }
}

pub(super) fn zrange(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    tell(cx, request, Form { key_at: 1, kind: None, reverse: None, takes_scores: true })
}

pub(super) fn zrevrange(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    tell(cx, request, Form::of(Kind::Ranks, true))
}

pub(super) fn zrangebyscore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    tell(cx, request, Form::of(Kind::Scores, false))
}

pub(super) fn zrevrangebyscore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    tell(cx, request, Form::of(Kind::Scores, true))
}

pub(super) fn zrangebylex(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    tell(cx, request, Form::of(Kind::Members, false))
}

pub(super) fn zrevrangebylex(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    tell(cx, request, Form::of(Kind::Members, true))
}

fn tell(cx: &mut Context<'_>, request: Request<'_>, form: Form) -> CommandResult {
    let query = Query::parse(request, form)?;
    let Some(set) = cx.db.read_as::<SortedSet>(query.key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    let mut members = set.range(query.ranks(set));
    let with_scores = query.with_scores;
    begin_pairs(&mut cx.reply, members.len(), with_scores);
    while let Some((member, score)) =
        if query.reverse { members.next_back() } else { members.next() }
    {
        begin_pair(&mut cx.reply, with_scores);
        reply_element(&mut cx.reply, member);
        if with_scores {
            cx.reply.double(score);
        }
    }
    Ok(())
}

pub(super) fn zrangestore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let form = Form { key_at: 2, kind: None, reverse: None, takes_scores: false };
    let query = Query::parse(request, form)?;
    let (mut result, limits) = (SortedSet::new(), &cx.server.limits);
    if let Some(set) = cx.db.read_as::<SortedSet>(query.key)? {
        let mut members = set.range(query.ranks(set));
        // The small form has no zero with a sign, so when it gives way can be seen: at once for
        // ranks, whose number is known, else when it is full.
        let is_large = members.len() > limits.zset_listpack_entries_max;
        if is_large && matches!(query.span, Span::Ranks(..)) {
            result = SortedSet::large_with_capacity(members.len(), limits);
        }
        while let Some((member, score)) =
            if query.reverse { members.next_back() } else { members.next() }
        {
            member.with_bytes(|member| result.insert(member, score, limits));
        }
    }
    store_or_delete(cx, request.arg(1), result, "zrangestore");
    Ok(())
}

pub(super) fn zcount(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    count(cx, request, Span::parse_scores(request.arg(2), request.arg(3))?)
}

pub(super) fn zlexcount(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    count(cx, request, Span::parse_members(request.arg(2), request.arg(3))?)
}

fn count(cx: &mut Context<'_>, request: Request<'_>, span: Span<'_>) -> CommandResult {
    let set = cx.db.read_as::<SortedSet>(request.arg(1))?;
    let len = set.map_or(0, |set| span.ranks(set, false).len());
    cx.reply.count(len);
    Ok(())
}

pub(super) fn zremrangebyrank(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let span = Span::parse_ranks(request.arg(2), request.arg(3))?;
    remove(cx, request.arg(1), span, "zremrangebyrank")
}

pub(super) fn zremrangebyscore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let span = Span::parse_scores(request.arg(2), request.arg(3))?;
    remove(cx, request.arg(1), span, "zremrangebyscore")
}

pub(super) fn zremrangebylex(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let span = Span::parse_members(request.arg(2), request.arg(3))?;
    remove(cx, request.arg(1), span, "zremrangebylex")
}

fn remove(cx: &mut Context<'_>, key: &[u8], span: Span<'_>, event: &'static str) -> CommandResult {
    let Some(mut set) = cx.db.write_as::<SortedSet>(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let ranks = span.ranks(&set, false);
    let removed = set.remove_range(ranks);
    let is_empty = set.is_empty();
    drop(set);
    if removed > 0 {
        cx.db.changed(event_class::SORTED_SET, event, key);
        count_further(cx, removed - 1);
    }
    if is_empty {
        remove_emptied(cx, key);
    }
    cx.reply.count(removed);
    Ok(())
}
