//! Lua values to RESP.

use std::ffi::c_int;

use crate::context::Context;
use crate::host::Protocol;
use crate::lua::{Kind, Stack};
use crate::number::{ALL_DIGITS, format_general};

/// Values nested deeper are answered with an error: each level is a Rust frame, and clients give
/// up long before.
const DEPTH_MAX: usize = 128;
/// What one element costs of the reply's limit, besides its bytes.
const ELEMENT_COST: usize = 16;

/// Where a reply goes.
pub(crate) struct Target<'a> {
    /// Pays for the work.
    pub(crate) context: &'a Context,
    /// Receives the reply.
    pub(crate) bytes: &'a mut Vec<u8>,
    /// What the client speaks.
    pub(crate) client: Protocol,
    /// What the script chose with `redis.setresp`, which decides how booleans look.
    pub(crate) script: Protocol,
    /// Bytes and elements that remain.
    pub(crate) room: usize,
}

/// Appends the value on top, or an error in its place when it is too large.
pub(crate) fn write_value(stack: &mut Stack<'_>, target: &mut Target<'_>) {
    let start = target.bytes.len();
    let index = stack.top();
    if target.value(stack, index, 0).is_err() {
        target.bytes.truncate(start);
        target.error(b"ERR the reply of the script is too large", false);
    }
}

/// Appends an error. Zeros end it, line ends become spaces.
pub(crate) fn write_error(bytes: &mut Vec<u8>, text: &[u8]) {
    line(bytes, b'-', trim_end(text));
}

/// The reply has used up its room, or the script is killed.
struct TooLarge;

impl Target<'_> {
    fn value(&mut self, stack: &mut Stack<'_>, index: c_int, depth: usize) -> Result<(), TooLarge> {
        self.spend(ELEMENT_COST)?;
        match stack.kind(index) {
            Kind::String => self.bulk(stack.bytes(index).unwrap_or_default())?,
            Kind::Number => {
                let number = stack.number(index).unwrap_or_default();
                self.header(b':', to_integer(number));
            }
            Kind::Boolean => self.boolean(stack.truth(index)),
            Kind::Table => self.table(stack, index, depth)?,
            _ => self.null(),
        }
        Ok(())
    }

    fn spend(&mut self, cost: usize) -> Result<(), TooLarge> {
        self.room = self.room.checked_sub(cost).ok_or(TooLarge)?;
        self.context.spend(1 + cost as u64 / 4).map_err(|_| TooLarge)
    }

    fn header(&mut self, kind: u8, number: i64) {
        line(self.bytes, kind, number.to_string().as_bytes());
    }

    fn bulk(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        self.spend(bytes.len())?;
        self.header(b'$', bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// An error that the script returns, which the host may want to count.
    fn error(&mut self, text: &[u8], is_counted: bool) {
        write_error(self.bytes, text);
        self.context.with_host(|host| host.returned_error(text, is_counted));
    }

    fn null(&mut self) {
        match self.client {
            Protocol::Resp2 => self.bytes.extend_from_slice(b"$-1\r\n"),
            Protocol::Resp3 => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    fn boolean(&mut self, value: bool) {
        match (self.script, self.client) {
            (Protocol::Resp2, _) if !value => self.null(),
            (Protocol::Resp2, _) | (_, Protocol::Resp2) => self.header(b':', value.into()),
            _ => line(self.bytes, b'#', if value { b"t" } else { b"f" }),
        }
    }

    /// A table is what its special fields say, in this order, or else a list.
    fn table(&mut self, stack: &mut Stack<'_>, index: c_int, depth: usize) -> Result<(), TooLarge> {
        if depth >= DEPTH_MAX || stack.reserve(6).is_err() {
            self.error(b"ERR reached lua stack limit", false);
            return Ok(());
        }
        let value = stack.top() + 1;
        for special in SPECIALS {
            stack.get_field(index, special.name);
            let written = (special.write)(self, stack, Field { table: index, value }, depth)?;
            stack.set_top(value - 1);
            if written {
                return Ok(());
            }
        }
        self.list(stack, index, depth)
    }

    fn list(&mut self, stack: &mut Stack<'_>, index: c_int, depth: usize) -> Result<(), TooLarge> {
        let count = list_length(stack, index)?;
        self.header(b'*', count.into());
        for position in 1..=count {
            stack.get_item(index, position);
            let item = stack.top();
            self.value(stack, item, depth + 1)?;
            stack.pop(1);
        }
        Ok(())
    }

    fn aggregate(
        &mut self,
        stack: &mut Stack<'_>,
        index: c_int,
        depth: usize,
        kind: u8,
    ) -> Result<(), TooLarge> {
        let is_map = kind == b'%';
        let count = entry_count(stack, index)?;
        match self.client {
            Protocol::Resp3 => self.header(kind, count),
            Protocol::Resp2 => self.header(b'*', if is_map { count * 2 } else { count }),
        }
        stack.push_nil();
        while stack.next(index) {
            let value = stack.top();
            self.value(stack, value - 1, depth + 1)?;
            if is_map {
                self.value(stack, value, depth + 1)?;
            }
            stack.pop(1);
        }
        Ok(())
    }
}

/// How many items come before the first nil.
fn list_length(stack: &mut Stack<'_>, index: c_int) -> Result<c_int, TooLarge> {
    for position in 1..=c_int::MAX {
        stack.context().spend(2).map_err(|_| TooLarge)?;
        stack.get_item(index, position);
        let is_end = stack.kind(-1) == Kind::Nil;
        stack.pop(1);
        if is_end {
            return Ok(position - 1);
        }
    }
    Ok(c_int::MAX)
}

fn entry_count(stack: &mut Stack<'_>, index: c_int) -> Result<i64, TooLarge> {
    let mut count = 0;
    stack.push_nil();
    while stack.next(index) {
        stack.context().spend(4).map_err(|_| TooLarge)?;
        stack.pop(1);
        count += 1;
    }
    Ok(count)
}

/// A field that makes a table something else than a list.
struct Special {
    name: &'static std::ffi::CStr,
    /// Writes the field, if it is what it must be.
    write: fn(&mut Target<'_>, &mut Stack<'_>, Field, usize) -> Result<bool, TooLarge>,
}

/// Where the table and the value of its special field are on the stack.
#[derive(Clone, Copy)]
struct Field {
    table: c_int,
    value: c_int,
}

const SPECIALS: &[Special] = &[
    Special {
        name: c"err",
        write: |target, stack, field, _| {
            if stack.bytes(field.value).is_none() {
                return Ok(false);
            }
            stack.get_field(field.table, c"ignore_error_stats_update");
            let is_counted = stack.truth(-1);
            let text = stack.bytes(field.value).unwrap_or_default();
            target.spend(text.len())?;
            target.error(text, is_counted);
            Ok(true)
        },
    },
    Special {
        name: c"ok",
        write: |target, stack, Field { value: index, .. }, _| {
            let Some(text) = stack.bytes(index) else { return Ok(false) };
            target.spend(text.len())?;
            line(target.bytes, b'+', text);
            Ok(true)
        },
    },
    Special {
        name: c"double",
        write: |target, stack, Field { value: index, .. }, _| {
            let Some(number) = stack.number(index) else { return Ok(false) };
            let text = format_general(number, ALL_DIGITS);
            match target.client {
                Protocol::Resp2 => target.bulk(text.as_bytes())?,
                Protocol::Resp3 => line(target.bytes, b',', text.as_bytes()),
            }
            Ok(true)
        },
    },
    Special {
        name: c"map",
        write: |target, stack, Field { value: index, .. }, depth| {
            if stack.kind(index) != Kind::Table {
                return Ok(false);
            }
            target.aggregate(stack, index, depth, b'%')?;
            Ok(true)
        },
    },
    Special {
        name: c"set",
        write: |target, stack, Field { value: index, .. }, depth| {
            if stack.kind(index) != Kind::Table {
                return Ok(false);
            }
            target.aggregate(stack, index, depth, b'~')?;
            Ok(true)
        },
    },
    Special {
        name: c"big_number",
        write: |target, stack, Field { value: index, .. }, _| {
            let Some(text) = stack.bytes(index) else { return Ok(false) };
            let text = one_line(text);
            match target.client {
                Protocol::Resp2 => target.bulk(&text)?,
                Protocol::Resp3 => {
                    target.spend(text.len())?;
                    line(target.bytes, b'(', &text);
                }
            }
            Ok(true)
        },
    },
    Special { name: c"verbatim_string", write: write_verbatim },
];

fn write_verbatim(
    target: &mut Target<'_>,
    stack: &mut Stack<'_>,
    Field { value: index, .. }: Field,
    _: usize,
) -> Result<bool, TooLarge> {
    if stack.kind(index) != Kind::Table {
        return Ok(false);
    }
    stack.get_field(index, c"format");
    stack.get_field(index, c"string");
    let (Some(format), Some(text)) = (stack.bytes(index + 1), stack.bytes(index + 2)) else {
        return Ok(false);
    };
    match target.client {
        Protocol::Resp2 => target.bulk(text)?,
        Protocol::Resp3 => {
            target.spend(text.len())?;
            target.header(b'=', text.len() as i64 + 4);
            // Formats have three letters: others are cut or filled up.
            let letters = format.iter().copied().chain([b' '; 3]).take(3);
            target.bytes.extend(letters);
            target.bytes.push(b':');
            target.bytes.extend_from_slice(text);
            target.bytes.extend_from_slice(b"\r\n");
        }
    }
    Ok(true)
}

/// A line of the protocol: text up to its first zero, with spaces for line ends, since a line end
/// of the script's would begin a reply of its own making (CVE-2025-67733).
fn line(bytes: &mut Vec<u8>, kind: u8, text: &[u8]) {
    bytes.push(kind);
    bytes.extend_from_slice(&one_line(text));
    bytes.extend_from_slice(b"\r\n");
}

fn one_line(text: &[u8]) -> Vec<u8> {
    text.iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte })
        .collect()
}

fn trim_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
    &text[..end]
}

/// The integer that C casts a double to: what does not fit becomes the smallest.
fn to_integer(number: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&number) { number as i64 } else { i64::MIN }
}
