//! `string.gsub`.

use std::ffi::c_int;

use super::pattern::{Capture, Matcher};
use super::{push_capture, push_captures, push_text, raise};
use crate::context::Context;
use crate::library::Output;
use crate::lua::{Handler, Kind, Raise, Stack};

/// What a match is replaced by.
enum Replacement<'a> {
    /// Text with `%1` for captures.
    Text(&'a [u8]),
    /// What a table holds for the first capture.
    Table,
    /// What a function answers for the captures.
    Function(Handler),
}

const REPLACEMENT: c_int = 3;

pub(super) fn gsub(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let (subject, pattern) = (stack.pin(1)?, stack.pin(2)?);
    let kind = stack.kind(REPLACEMENT);
    let count_max = match stack.is_absent(4) {
        true => subject.len() as i64 + 1,
        // C counts in 32 bits.
        false => i64::from(stack.check_c_integer(4)? as i32),
    };
    let replacement = match kind {
        Kind::String | Kind::Number => Replacement::Text(stack.pin(REPLACEMENT)?),
        Kind::Table => Replacement::Table,
        Kind::Function => Replacement::Function(stack.push_handler()),
        _ => return Err(stack.bad_argument(REPLACEMENT, "string/function/table expected")),
    };
    let rest = pattern.strip_prefix(b"^");
    let matcher = Matcher::new(context, subject, rest.unwrap_or(pattern));
    let output = Output::new(context);
    let mut substitution = Substitution { subject, matcher, replacement, output };
    let count = substitution.run(stack, rest.is_some(), count_max)?;
    substitution.output.push_onto(stack)?;
    stack.push_number(count as f64);
    Ok(2)
}

struct Substitution<'a> {
    subject: &'a [u8],
    matcher: Matcher<'a>,
    replacement: Replacement<'a>,
    output: Output<'a>,
}

impl Substitution<'_> {
    /// Writes the new text and answers how many matches there were.
    fn run(
        &mut self,
        stack: &mut Stack<'_>,
        is_anchored: bool,
        count_max: i64,
    ) -> Result<i64, Raise> {
        let (mut at, mut count) = (0, 0);
        while count < count_max {
            stack.context().spend(1)?;
            let end = self.matcher.match_at(at).map_err(|stop| raise(stack, stop))?;
            if let Some(end) = end {
                count += 1;
                self.replace(stack, at, end)?;
            }
            match end {
                Some(end) if end > at => at = end,
                _ if at < self.subject.len() => {
                    self.output.push(self.subject[at])?;
                    at += 1;
                }
                _ => break,
            }
            if is_anchored {
                break;
            }
        }
        self.matcher.settle()?;
        self.output.extend(&self.subject[at..])?;
        Ok(count)
    }

    fn replace(&mut self, stack: &mut Stack<'_>, start: usize, end: usize) -> Result<(), Raise> {
        match self.replacement {
            Replacement::Text(text) => return self.insert_text(stack, text, start, end),
            Replacement::Table => {
                self.push_numbered(stack, 0, start, end)?;
                stack.get_indexed(REPLACEMENT)?;
            }
            Replacement::Function(handler) => {
                stack.push_copy(REPLACEMENT);
                let captures = self.matcher.captures();
                let count = push_captures(stack, self.subject, captures, Some((start, end)))?;
                stack.call_value(count, 1, handler)?;
            }
        }
        let value = stack.top();
        if !stack.truth(value) {
            self.output.extend(&self.subject[start..end])?;
        } else if stack.stringify(value) {
            let text = stack.bytes(value).unwrap_or_default();
            self.output.extend(text)?;
        } else {
            let kind = stack.kind(value).name();
            return Err(stack.fail(format!("invalid replacement value (a {kind})")));
        }
        stack.pop(1);
        Ok(())
    }

    fn insert_text(
        &mut self,
        stack: &mut Stack<'_>,
        text: &[u8],
        start: usize,
        end: usize,
    ) -> Result<(), Raise> {
        let context = stack.context();
        let mut rest = text;
        while let Some(percent) = rest.iter().position(|byte| *byte == b'%') {
            self.output.extend(&rest[..percent])?;
            context.spend(1)?;
            match rest.get(percent + 1).copied() {
                // C finds the zero behind the end of its string.
                None => self.output.push(0)?,
                Some(b'0') => self.output.extend(&self.subject[start..end])?,
                Some(digit @ b'1'..=b'9') => {
                    self.insert_capture(stack, usize::from(digit - b'1'), start, end)?;
                }
                Some(byte) => self.output.push(byte)?,
            }
            rest = rest.get(percent + 2..).unwrap_or_default();
        }
        self.output.extend(rest)
    }

    fn insert_capture(
        &mut self,
        stack: &mut Stack<'_>,
        index: usize,
        start: usize,
        end: usize,
    ) -> Result<(), Raise> {
        self.push_numbered(stack, index, start, end)?;
        let value = stack.top();
        stack.stringify(value);
        let text = stack.bytes(value).unwrap_or_default();
        self.output.extend(text)?;
        stack.pop(1);
        Ok(())
    }

    /// Pushes the capture of that index; without any, the first is the whole match.
    fn push_numbered(
        &self,
        stack: &mut Stack<'_>,
        index: usize,
        start: usize,
        end: usize,
    ) -> Result<(), Raise> {
        let captures: &[Capture] = self.matcher.captures();
        match captures.get(index) {
            Some(capture) => push_capture(stack, self.subject, *capture),
            None if index == 0 => push_text(stack, &self.subject[start..end]),
            None => Err(stack.fail("invalid capture index")),
        }
    }
}
