//! Lua values to JSON.

use std::ffi::c_int;

use super::{DEPTH_MAX, InvalidNumbers, Settings};
use crate::context::Context;
use crate::library::Output;
use crate::lua::{Kind, Raise, Stack};
use crate::number::format_general;

pub(super) fn encode(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    if stack.top() != 1 {
        return Err(stack.bad_argument(1, "expected 1 argument"));
    }
    let output = Output::new(context);
    let mut encoder = Encoder { settings: context.json.get(), output };
    encoder.value(stack, 1, 0)?;
    encoder.output.push_onto(stack)?;
    Ok(1)
}

struct Encoder<'a> {
    settings: Settings,
    output: Output<'a>,
}

impl Encoder<'_> {
    /// Writes the value at `index`, a positive index.
    fn value(&mut self, stack: &mut Stack<'_>, index: c_int, depth: i32) -> Result<(), Raise> {
        match stack.kind(index) {
            Kind::String => self.string(stack.bytes(index).unwrap_or_default()),
            Kind::Number => self.number(stack, index),
            Kind::Boolean if stack.truth(index) => self.output.extend(b"true"),
            Kind::Boolean => self.output.extend(b"false"),
            Kind::Nil | Kind::LightUserdata => self.output.extend(b"null"),
            Kind::Table => self.table(stack, index, depth + 1),
            _ => Err(refuse(stack, index, "type not supported")),
        }
    }

    fn table(&mut self, stack: &mut Stack<'_>, index: c_int, depth: i32) -> Result<(), Raise> {
        if depth > self.settings.encode_depth_max || depth > DEPTH_MAX || stack.reserve(3).is_err()
        {
            return Err(stack.fail(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.list_length(stack, index)? {
            Some(length) if length > 0 => self.list(stack, index, length, depth),
            _ => self.object(stack, index, depth),
        }
    }

    /// The length of a table that is a list, where holes count.
    fn list_length(&self, stack: &mut Stack<'_>, index: c_int) -> Result<Option<i32>, Raise> {
        let mut longest = 0_i32;
        let mut items = 0_i32;
        stack.push_nil();
        while stack.next(index) {
            stack.context().spend(4)?;
            match stack.number(-2).filter(|key| *key >= 1.0 && key.floor() == *key) {
                Some(key) => {
                    // Positions beyond 32 bits do not count, as in C, and make an object.
                    if key <= f64::from(i32::MAX) {
                        longest = longest.max(key as i32);
                    }
                    items += 1;
                    stack.pop(1);
                }
                None => {
                    stack.pop(2);
                    return Ok(None);
                }
            }
        }
        let Settings { sparse_ratio, sparse_safe, sparse_convert, .. } = self.settings;
        let is_sparse = sparse_ratio > 0
            && i64::from(longest) > i64::from(items) * i64::from(sparse_ratio)
            && longest > sparse_safe;
        match is_sparse {
            false => Ok(Some(longest)),
            true if sparse_convert => Ok(None),
            true => Err(refuse(stack, index, "excessively sparse array")),
        }
    }

    fn list(
        &mut self,
        stack: &mut Stack<'_>,
        index: c_int,
        length: i32,
        depth: i32,
    ) -> Result<(), Raise> {
        self.output.push(b'[')?;
        for position in 1..=length {
            if position > 1 {
                self.output.push(b',')?;
            }
            stack.get_item(index, position);
            let item = stack.top();
            self.value(stack, item, depth)?;
            stack.pop(1);
        }
        self.output.push(b']')
    }

    fn object(&mut self, stack: &mut Stack<'_>, index: c_int, depth: i32) -> Result<(), Raise> {
        self.output.push(b'{')?;
        let mut is_first = true;
        stack.push_nil();
        while stack.next(index) {
            if !is_first {
                self.output.push(b',')?;
            }
            is_first = false;
            let value = stack.top();
            match stack.kind(value - 1) {
                Kind::Number => {
                    self.output.push(b'"')?;
                    self.number(stack, value - 1)?;
                    self.output.push(b'"')?;
                }
                Kind::String => self.string(stack.bytes(value - 1).unwrap_or_default())?,
                _ => {
                    return Err(refuse(stack, value - 1, "table key must be a number or string"));
                }
            }
            self.output.push(b':')?;
            self.value(stack, value, depth)?;
            stack.pop(1);
        }
        self.output.push(b'}')
    }

    fn number(&mut self, stack: &mut Stack<'_>, index: c_int) -> Result<(), Raise> {
        let number = stack.number(index).unwrap_or_default();
        if !number.is_finite() {
            match self.settings.encode_invalid {
                InvalidNumbers::Off => {
                    return Err(refuse(stack, index, "must not be NaN or Inf"));
                }
                InvalidNumbers::Null => return self.output.extend(b"null"),
                InvalidNumbers::On if number.is_nan() => return self.output.extend(b"nan"),
                InvalidNumbers::On => {}
            }
        }
        self.output.extend(format_general(number, self.settings.precision as usize).as_bytes())
    }

    fn string(&mut self, bytes: &[u8]) -> Result<(), Raise> {
        self.output.push(b'"')?;
        let mut rest = bytes;
        while let Some(length) = rest.iter().position(|byte| needs_escape(*byte)) {
            self.output.extend(&rest[..length])?;
            self.escape(rest[length])?;
            rest = &rest[length + 1..];
        }
        self.output.extend(rest)?;
        self.output.push(b'"')
    }

    fn escape(&mut self, byte: u8) -> Result<(), Raise> {
        match byte {
            b'"' => self.output.extend(b"\\\""),
            b'\\' => self.output.extend(b"\\\\"),
            b'/' => self.output.extend(b"\\/"),
            0x08 => self.output.extend(b"\\b"),
            b'\t' => self.output.extend(b"\\t"),
            b'\n' => self.output.extend(b"\\n"),
            0x0c => self.output.extend(b"\\f"),
            b'\r' => self.output.extend(b"\\r"),
            _ => self.output.extend(format!("\\u{byte:04x}").as_bytes()),
        }
    }
}

fn needs_escape(byte: u8) -> bool {
    matches!(byte, 0..=31 | 127 | b'"' | b'\\' | b'/')
}

fn refuse(stack: &mut Stack<'_>, index: c_int, reason: &str) -> Raise {
    let kind = stack.kind(index).name();
    stack.fail(format!("Cannot serialise {kind}: {reason}"))
}
