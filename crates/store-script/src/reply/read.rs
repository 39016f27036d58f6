//! RESP to Lua values.
//!
//! The bytes come from our own server, but nothing here trusts them: what is malformed becomes an
//! error for the script.

use std::ffi::{CStr, c_int};

use crate::library::redis::push_error_table;
use crate::lua::{Raise, Stack};

/// Replies nested deeper are refused: no command comes near, and each level is a Rust frame.
const DEPTH_MAX: usize = 64;

/// Pushes the reply that `bytes` are. Whether it is an error.
pub(crate) fn push(stack: &mut Stack<'_>, bytes: &[u8]) -> Result<bool, Raise> {
    let mut reader = Reader { bytes, at: 0 };
    match reader.value(stack, 0) {
        Ok(()) => Ok(bytes.first() == Some(&b'-') || bytes.first() == Some(&b'!')),
        Err(Stop::Raise(raise)) => Err(raise),
        Err(Stop::Malformed) => {
            stack.set_top(0);
            push_error_table(stack, b"ERR malformed reply")?;
            Ok(true)
        }
    }
}

enum Stop {
    Malformed,
    Raise(Raise),
}

impl From<Raise> for Stop {
    fn from(raise: Raise) -> Self {
        Stop::Raise(raise)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, stack: &mut Stack<'_>, depth: usize) -> Result<(), Stop> {
        if depth > DEPTH_MAX || stack.reserve(5).is_err() {
            return Err(Stop::Malformed);
        }
        stack.context().spend(8)?;
        let kind = *self.bytes.get(self.at).ok_or(Stop::Malformed)?;
        let line = self.line()?;
        match kind {
            b':' => stack.push_number(integer(line)? as f64),
            b'+' => wrap(stack, c"ok", line)?,
            b'-' => push_error(stack, line)?,
            b'(' => wrap(stack, c"big_number", line)?,
            b'_' => stack.push_nil(),
            b'#' => stack.push_boolean(line == b"t"),
            b',' => push_double(stack, line)?,
            b'$' | b'!' | b'=' => self.string(stack, kind, line)?,
            b'*' | b'>' => self.array(stack, integer(line)?, depth)?,
            b'%' => self.map(stack, integer(line)?, depth)?,
            b'~' => self.set(stack, integer(line)?, depth)?,
            b'|' => self.skip_attribute(stack, integer(line)?, depth)?,
            _ => return Err(Stop::Malformed),
        }
        Ok(())
    }

    /// The rest of the line behind the type byte.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at + 1..];
        let end = rest.iter().position(|byte| *byte == b'\r').ok_or(Stop::Malformed)?;
        if rest.get(end + 1) != Some(&b'\n') {
            return Err(Stop::Malformed);
        }
        self.at += 1 + end + 2;
        Ok(&rest[..end])
    }

    fn string(&mut self, stack: &mut Stack<'_>, kind: u8, line: &[u8]) -> Result<(), Stop> {
        let length = integer(line)?;
        if length < 0 {
            stack.push_boolean(false);
            return Ok(());
        }
        let length = usize::try_from(length).map_err(|_| Stop::Malformed)?;
        let end = self.at.checked_add(length).ok_or(Stop::Malformed)?;
        let body = self.bytes.get(self.at..end).ok_or(Stop::Malformed)?;
        self.at = end + 2;
        match kind {
            b'$' => stack.push_bytes(body)?,
            b'!' => push_error(stack, body)?,
            _ => push_verbatim(stack, body)?,
        }
        Ok(())
    }

    fn array(&mut self, stack: &mut Stack<'_>, length: i64, depth: usize) -> Result<(), Stop> {
        if length < 0 {
            stack.push_boolean(false);
            return Ok(());
        }
        stack.push_table(length as usize, 0)?;
        let table = stack.top();
        for position in 1..=length {
            self.value(stack, depth + 1)?;
            stack.set_item(table, position as c_int)?;
        }
        Ok(())
    }

    fn map(&mut self, stack: &mut Stack<'_>, length: i64, depth: usize) -> Result<(), Stop> {
        stack.push_table(0, 1)?;
        stack.push_table(0, length.max(0) as usize)?;
        let table = stack.top();
        for _ in 0..length {
            self.value(stack, depth + 1)?;
            self.value(stack, depth + 1)?;
            stack.set_entry(table)?;
        }
        stack.set_field(table - 1, c"map");
        Ok(())
    }

    fn set(&mut self, stack: &mut Stack<'_>, length: i64, depth: usize) -> Result<(), Stop> {
        stack.push_table(0, 1)?;
        stack.push_table(0, length.max(0) as usize)?;
        let table = stack.top();
        for _ in 0..length {
            self.value(stack, depth + 1)?;
            stack.push_boolean(true);
            stack.set_entry(table)?;
        }
        stack.set_field(table - 1, c"set");
        Ok(())
    }

    /// Attributes tell about the reply that follows, which is what scripts see.
    fn skip_attribute(
        &mut self,
        stack: &mut Stack<'_>,
        length: i64,
        depth: usize,
    ) -> Result<(), Stop> {
        for _ in 0..length.saturating_mul(2) {
            self.value(stack, depth + 1)?;
            stack.pop(1);
        }
        self.value(stack, depth + 1)
    }
}

fn integer(line: &[u8]) -> Result<i64, Stop> {
    let text = std::str::from_utf8(line).map_err(|_| Stop::Malformed)?;
    text.parse().map_err(|_| Stop::Malformed)
}

fn wrap(stack: &mut Stack<'_>, name: &CStr, text: &[u8]) -> Result<(), Raise> {
    stack.push_table(0, 1)?;
    let table = stack.top();
    stack.push_bytes(text)?;
    stack.set_field(table, name);
    Ok(())
}

/// The second field keeps the server from counting an error twice that a script passes on.
fn push_error(stack: &mut Stack<'_>, text: &[u8]) -> Result<(), Raise> {
    match text.contains(&b' ') {
        true => push_error_table(stack, text)?,
        false => push_error_table(stack, &[b"ERR ", text].concat())?,
    }
    let table = stack.top();
    stack.push_boolean(true);
    stack.set_field(table, c"ignore_error_stats_update");
    Ok(())
}

fn push_double(stack: &mut Stack<'_>, line: &[u8]) -> Result<(), Stop> {
    let (number, _) = crate::number::parse_prefix(line).ok_or(Stop::Malformed)?;
    stack.push_table(0, 1)?;
    let table = stack.top();
    stack.push_number(number);
    stack.set_field(table, c"double");
    Ok(())
}

fn push_verbatim(stack: &mut Stack<'_>, body: &[u8]) -> Result<(), Stop> {
    let (format, text) = body.split_at_checked(3).ok_or(Stop::Malformed)?;
    let text = text.strip_prefix(b":").ok_or(Stop::Malformed)?;
    stack.push_table(0, 1)?;
    stack.push_table(0, 2)?;
    let table = stack.top();
    stack.push_bytes(text)?;
    stack.set_field(table, c"string");
    stack.push_bytes(format)?;
    stack.set_field(table, c"format");
    stack.set_field(table - 1, c"verbatim_string");
    Ok(())
}
