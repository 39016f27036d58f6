//! HSCAN, SSCAN and ZSCAN: their common arguments and the form of their reply.

use store_resp::ReplyWriter;
use store_types::{Element, glob};

use super::collection::reply_element;
use super::prelude::*;

/// What Redis visits per call unless told otherwise.
const COUNT_DEFAULT: usize = 10;

/// MATCH and COUNT.
pub(super) struct Options<'a> {
    pattern: Option<&'a [u8]>,
    /// About how many elements to visit.
    pub(super) count: usize,
}

impl<'a> Options<'a> {
    /// Parses what follows the cursor.
    pub(super) fn parse(request: Request<'a>) -> Result<Self, CommandError> {
        let mut options = Self { pattern: None, count: COUNT_DEFAULT };
        let mut at = 3;
        while let Some(word) = request.get(at) {
            let value = request.get(at + 1).ok_or(CommandError::SYNTAX)?;
            if is_word(word, "COUNT") {
                let count = integer(value)?;
                if count < 1 {
                    return Err(CommandError::SYNTAX);
                }
                options.count = count as usize;
            } else if is_word(word, "MATCH") {
                options.pattern = (value != b"*").then_some(value);
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 2;
        }
        Ok(options)
    }

    /// Whether the pattern, if any, lets the element through.
    pub(super) fn admits(&self, element: Element<'_>) -> bool {
        let matches = |pattern| {
            element.with_bytes(|text| glob::matches(pattern, text, glob::Case::Sensitive))
        };
        self.pattern.is_none_or(matches)
    }
}

/// The cursor, read as C's `strtoul` reads it: that is what Redis does.
pub(super) fn cursor(arg: &[u8]) -> Result<u64, CommandError> {
    let (negative, digits) = match arg {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    // Without any digit `strtoul` reads zero and stops before the sign.
    if digits.is_empty() {
        return if arg.is_empty() { Ok(0) } else { Err(CommandError::INVALID_CURSOR) };
    }
    let mut value = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(CommandError::INVALID_CURSOR);
        }
        let next = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0')));
        value = next.ok_or(CommandError::INVALID_CURSOR)?;
    }
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// Where the visited elements go. The cursor stands before them but is known last.
pub(super) struct Found<'r> {
    reply: &'r mut ReplyWriter,
    start: usize,
    len: usize,
}

impl<'r> Found<'r> {
    /// Begins the reply.
    pub(super) fn begin(reply: &'r mut ReplyWriter) -> Self {
        Self { start: reply.len(), reply, len: 0 }
    }

    /// One more element.
    pub(super) fn push(&mut self, element: Element<'_>) {
        reply_element(self.reply, element);
        self.len += 1;
    }

    /// Ends the reply with the cursor of the next call.
    pub(super) fn end(self, next: u64) {
        let mut header = ReplyWriter::new(self.reply.protocol());
        header.array(2);
        header.bulk(next.to_string().as_bytes());
        header.array(self.len);
        self.reply.insert_at(self.start, header.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_what_strtoul_takes_for_one() {
        for (text, value) in [("0", 0), ("", 0), ("+7", 7), ("-1", u64::MAX), ("007", 7)] {
            assert_eq!(cursor(text.as_bytes()), Ok(value), "{text}");
        }
        for text in ["x", "1x", " 1", "-", "18446744073709551616", "1 "] {
            assert!(cursor(text.as_bytes()).is_err(), "{text}");
        }
    }
}
