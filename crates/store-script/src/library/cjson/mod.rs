//! `cjson`: JSON from and to Lua values, with the settings and texts of the library that Redis has.

mod decode;
mod encode;

use std::ffi::c_int;

use super::{Entry, set_all};
use crate::context::Context;
use crate::lua::{Raise, Stack};
use crate::number::LUA_DIGITS;

const ENTRIES: &[Entry] = &[
    (c"encode", encode::encode),
    (c"decode", decode::decode),
    (c"encode_sparse_array", encode_sparse_array),
    (c"encode_max_depth", encode_max_depth),
    (c"decode_max_depth", decode_max_depth),
    (c"encode_number_precision", encode_number_precision),
    (c"encode_keep_buffer", encode_keep_buffer),
    (c"encode_invalid_numbers", encode_invalid_numbers),
    (c"decode_invalid_numbers", decode_invalid_numbers),
    (c"new", new),
];

/// Settings, which last for one run: no script may change what the next one sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    sparse_convert: bool,
    sparse_ratio: i32,
    sparse_safe: i32,
    encode_depth_max: i32,
    decode_depth_max: i32,
    precision: i32,
    keep_buffer: bool,
    encode_invalid: InvalidNumbers,
    decode_invalid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidNumbers {
    Off,
    On,
    Null,
}

/// The deepest nesting that the settings can allow: each level is a Rust frame.
const DEPTH_MAX: i32 = 1000;

impl Default for Settings {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: DEPTH_MAX,
            decode_depth_max: DEPTH_MAX,
            precision: LUA_DIGITS as i32,
            keep_buffer: true,
            encode_invalid: InvalidNumbers::Off,
            decode_invalid: true,
        }
    }
}

/// Pushes the library.
pub(crate) fn push(stack: &mut Stack<'_>) -> Result<(), Raise> {
    stack.push_table(0, 16)?;
    let table = stack.top();
    set_all(stack, table, ENTRIES);
    stack.push_null();
    stack.set_field(table, c"null");
    stack.push_bytes(b"cjson")?;
    stack.set_field(table, c"_NAME");
    stack.push_bytes(b"2.1.0")?;
    stack.set_field(table, c"_VERSION");
    Ok(())
}

fn new(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    push(stack)?;
    Ok(1)
}

/// Brings the stack to exactly `count` arguments.
fn settle_arguments(stack: &mut Stack<'_>, count: c_int) -> Result<(), Raise> {
    if stack.top() > count {
        return Err(stack.bad_argument(count + 1, "found too many arguments"));
    }
    stack.set_top(count);
    Ok(())
}

/// Reads an integer option, if one is given.
fn integer_option(
    stack: &mut Stack<'_>,
    index: c_int,
    value: &mut i32,
    range: (i32, i32),
) -> Result<(), Raise> {
    if stack.is_absent(index) {
        return Ok(());
    }
    let given = stack.check_integer(index)? as i32;
    if given < range.0 || given > range.1 {
        let text = format!("expected integer between {} and {}", range.0, range.1);
        // Redis names the first argument, whichever it is.
        return Err(stack.bad_argument(1, &text));
    }
    *value = given;
    Ok(())
}

/// Reads a boolean or one of `words` (by its place among them), if one is given.
fn word_option(
    stack: &mut Stack<'_>,
    index: c_int,
    value: &mut usize,
    words: &[&str],
) -> Result<(), Raise> {
    match stack.kind(index) {
        crate::lua::Kind::Nil | crate::lua::Kind::None => Ok(()),
        crate::lua::Kind::Boolean => {
            *value = usize::from(stack.truth(index));
            Ok(())
        }
        _ => {
            let given = String::from_utf8_lossy(stack.check_bytes(index)?).into_owned();
            match words.iter().position(|word| **word == *given) {
                Some(place) => *value = place,
                None => {
                    let text = format!("invalid option '{given}'");
                    return Err(stack.bad_argument(index, &text));
                }
            }
            Ok(())
        }
    }
}

fn encode_sparse_array(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    settle_arguments(stack, 3)?;
    let mut settings = context.json.get();
    let mut convert = usize::from(settings.sparse_convert);
    word_option(stack, 1, &mut convert, &["off", "on"])?;
    integer_option(stack, 2, &mut settings.sparse_ratio, (0, i32::MAX))?;
    integer_option(stack, 3, &mut settings.sparse_safe, (0, i32::MAX))?;
    settings.sparse_convert = convert == 1;
    context.json.set(settings);
    stack.push_boolean(settings.sparse_convert);
    stack.push_number(settings.sparse_ratio.into());
    stack.push_number(settings.sparse_safe.into());
    Ok(3)
}

fn encode_max_depth(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    settle_arguments(stack, 1)?;
    let mut settings = context.json.get();
    integer_option(stack, 1, &mut settings.encode_depth_max, (1, i32::MAX))?;
    context.json.set(settings);
    stack.push_number(settings.encode_depth_max.into());
    Ok(1)
}

fn decode_max_depth(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    settle_arguments(stack, 1)?;
    let mut settings = context.json.get();
    integer_option(stack, 1, &mut settings.decode_depth_max, (1, i32::MAX))?;
    context.json.set(settings);
    stack.push_number(settings.decode_depth_max.into());
    Ok(1)
}

fn encode_number_precision(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    settle_arguments(stack, 1)?;
    let mut settings = context.json.get();
    integer_option(stack, 1, &mut settings.precision, (1, LUA_DIGITS as i32))?;
    context.json.set(settings);
    stack.push_number(settings.precision.into());
    Ok(1)
}

/// Whether the buffer is kept is our own affair; the setting is there to be read back.
fn encode_keep_buffer(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    settle_arguments(stack, 1)?;
    let mut settings = context.json.get();
    let mut keep = usize::from(settings.keep_buffer);
    word_option(stack, 1, &mut keep, &["off", "on"])?;
    settings.keep_buffer = keep == 1;
    context.json.set(settings);
    stack.push_boolean(settings.keep_buffer);
    Ok(1)
}

fn encode_invalid_numbers(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    settle_arguments(stack, 1)?;
    let mut settings = context.json.get();
    let mut chosen = settings.encode_invalid as usize;
    word_option(stack, 1, &mut chosen, &["off", "on", "null"])?;
    settings.encode_invalid = match chosen {
        0 => InvalidNumbers::Off,
        1 => InvalidNumbers::On,
        _ => InvalidNumbers::Null,
    };
    context.json.set(settings);
    match settings.encode_invalid {
        InvalidNumbers::Off => stack.push_boolean(false),
        InvalidNumbers::On => stack.push_boolean(true),
        InvalidNumbers::Null => stack.push_bytes(b"null")?,
    }
    Ok(1)
}

fn decode_invalid_numbers(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    settle_arguments(stack, 1)?;
    let mut settings = context.json.get();
    let mut chosen = usize::from(settings.decode_invalid);
    word_option(stack, 1, &mut chosen, &["off", "on"])?;
    settings.decode_invalid = chosen == 1;
    context.json.set(settings);
    stack.push_boolean(settings.decode_invalid);
    Ok(1)
}
