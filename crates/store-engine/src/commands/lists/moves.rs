//! Moving an element from an end of a list to an end of another.

use store_types::{End, List};

use super::super::collection::{first_filled, may_block, timeout_ms};
use super::super::prelude::*;
use super::ends::after_taking;
use super::{end, push_event};
use crate::context::Caller;
use crate::session::TimeoutReply;

/// From which end of which list to which.
struct Move<'a> {
    from: (&'a [u8], End),
    to: (&'a [u8], End),
}

impl<'a> Move<'a> {
    /// `source destination LEFT|RIGHT LEFT|RIGHT`.
    fn parse(request: Request<'a>) -> Result<Self, CommandError> {
        let (from, to) = (end(request.arg(3))?, end(request.arg(4))?);
        Ok(Self { from: (request.arg(1), from), to: (request.arg(2), to) })
    }

    /// `source destination`, from the back to the front.
    fn back_to_front(request: Request<'a>) -> Self {
        Self { from: (request.arg(1), End::Back), to: (request.arg(2), End::Front) }
    }

    /// Moves the element and writes it. The source must have one.
    fn make(&self, cx: &mut Context<'_>) -> CommandResult {
        let ((source, from), (target, to)) = (self.from, self.to);
        cx.db.peek_as::<List>(target)?;
        let Some(mut list) = cx.db.write_as::<List>(source)? else { return Ok(()) };
        let element =
            list.pop_with(from, |element| element.to_vec()).expect("a list is never empty");
        let mut is_empty = list.is_empty();
        drop(list);
        let mut list = cx.db.write_or_create(target, List::new)?;
        list.push(to, &element, &cx.server.limits);
        drop(list);
        is_empty &= source != target;
        cx.db.changed(event_class::LIST, push_event(to), target);
        after_taking(cx, source, from, is_empty);
        // Both ends together are one change, and none where one waited for it.
        cx.db.dirty -= if cx.caller == Caller::Resumed { 2 } else { 1 };
        cx.reply.bulk(&element);
        Ok(())
    }

    /// Moves if the source has something; waits for it otherwise, up to what `timeout` says.
    fn make_or_wait(
        &self,
        cx: &mut Context<'_>,
        request: Request<'_>,
        timeout: &[u8],
        plain: &[&[u8]],
    ) -> CommandResult {
        let timeout = timeout_ms(timeout)?;
        let source = std::iter::once(self.from.0);
        if first_filled::<List>(cx, source.clone())?.is_some() {
            self.make(cx)?;
            cx.propagate_instead(plain);
        } else if may_block(cx) {
            return cx.block(request, source, timeout, TimeoutReply::NullArray);
        } else {
            cx.reply.null();
        }
        Ok(())
    }
}

pub(super) fn lmove(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    make_or_null(cx, &Move::parse(request)?)
}

pub(super) fn rpoplpush(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    make_or_null(cx, &Move::back_to_front(request))
}

fn make_or_null(cx: &mut Context<'_>, wanted: &Move<'_>) -> CommandResult {
    if cx.db.peek_as::<List>(wanted.from.0)?.is_none() {
        cx.reply.null();
        return Ok(());
    }
    wanted.make(cx)
}

pub(super) fn blmove(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let [source, target, from, to, timeout] = [1, 2, 3, 4, 5].map(|at| request.arg(at));
    let plain = [b"LMOVE", source, target, from, to];
    Move::parse(request)?.make_or_wait(cx, request, timeout, &plain)
}

pub(super) fn brpoplpush(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let plain = [b"RPOPLPUSH", request.arg(1), request.arg(2)];
    Move::back_to_front(request).make_or_wait(cx, request, request.arg(3), &plain)
}
