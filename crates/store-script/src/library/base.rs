//! Replacements for functions of Lua's own libraries that would do harm as they are.

use std::ffi::{CString, c_int};

use super::Entry;
use crate::context::Context;
use crate::lua::{Kind, Raise, Stack};
use crate::random::Random;

/// Replacements in the globals.
pub(crate) const GLOBALS: &[Entry] =
    &[(c"unpack", unpack), (c"collectgarbage", collectgarbage), (c"gcinfo", gcinfo)];
/// Replacements in `math`.
pub(crate) const MATH: &[Entry] = &[(c"random", random), (c"randomseed", randomseed)];

/// `loadstring` with the globals of EVAL scripts.
pub(crate) fn loadstring_of_scripts(
    stack: &mut Stack<'_>,
    context: &Context,
) -> Result<c_int, Raise> {
    loadstring(stack, context, |environments| &environments.script)
}

/// `loadstring` with the globals of functions.
pub(crate) fn loadstring_of_functions(
    stack: &mut Stack<'_>,
    context: &Context,
) -> Result<c_int, Raise> {
    loadstring(stack, context, |environments| &environments.function)
}

fn loadstring(
    stack: &mut Stack<'_>,
    context: &Context,
    choose: fn(&crate::context::Environments) -> &crate::lua::Function,
) -> Result<c_int, Raise> {
    let source = stack.check_bytes(1)?.to_vec();
    let name = if stack.is_absent(2) { source.clone() } else { stack.check_bytes(2)?.to_vec() };
    if source.len() > context.limits().source_max {
        return answer_failure(stack, b"chunk is too long");
    }
    // Names end at a zero, as strings of C do.
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    let name = CString::new(name).unwrap_or_default();
    if let Err(text) = stack.compile(&source, &name) {
        if context.is_killed() {
            return Err(Raise::Killed);
        }
        return answer_failure(stack, &text);
    }
    if let Some(environments) = context.environments.borrow().as_ref() {
        stack.set_environment(choose(environments));
    }
    Ok(1)
}

fn answer_failure(stack: &mut Stack<'_>, text: &[u8]) -> Result<c_int, Raise> {
    stack.push_nil();
    stack.push_bytes(text)?;
    Ok(2)
}

/// `unpack` counts in 32 bits in Lua 5.1 and overflows (CVE-2025-46817).
fn unpack(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    if stack.kind(1) != Kind::Table {
        return Err(Raise::Type(1, c"table"));
    }
    let first = stack.optional_integer(2, 1)?;
    let last = stack.optional_integer(3, stack.raw_length(1) as i64)?;
    if first > last {
        return Ok(0);
    }
    let count = last.checked_sub(first).and_then(|count| count.checked_add(1));
    let count = count.and_then(|count| usize::try_from(count).ok());
    let in_range = i32::try_from(first).is_ok() && i32::try_from(last).is_ok();
    match count.filter(|count| in_range && stack.reserve(*count).is_ok()) {
        Some(count) => {
            context.spend(count as u64)?;
            for position in first..=last {
                stack.get_item(1, position as c_int);
            }
            Ok(count as c_int)
        }
        None => Err(stack.fail("too many results to unpack")),
    }
}

/// Scripts may ask for the count and for a collection, and change nothing about the collector:
/// what one sets would last for the next.
fn collectgarbage(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let option = match stack.is_absent(1) {
        true => b"collect".to_vec(),
        false => stack.check_bytes(1)?.to_vec(),
    };
    match option.as_slice() {
        b"count" => stack.push_number(context.memory() as f64 / 1024.0),
        b"collect" => {
            collect(stack, context)?;
            stack.push_number(0.0);
        }
        b"step" => stack.push_boolean(false),
        b"setpause" | b"setstepmul" => stack.push_number(200.0),
        b"stop" | b"restart" => stack.push_number(0.0),
        _ => {
            let text = format!("invalid option '{}'", String::from_utf8_lossy(&option));
            return Err(stack.bad_argument(1, &text));
        }
    }
    Ok(1)
}

/// Two cycles: what was found in use before the call may be garbage only in the second.
fn collect(stack: &mut Stack<'_>, context: &Context) -> Result<(), Raise> {
    /// What a step costs, in units of work.
    const STEP: u64 = 50_000;
    for _ in 0..2 {
        loop {
            let is_over = stack.step_garbage();
            context.spend(STEP)?;
            if is_over {
                break;
            }
        }
    }
    Ok(())
}

fn gcinfo(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    stack.push_number((context.memory() / 1024) as f64);
    Ok(1)
}

fn random(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let mut generator = context.random.get();
    let fraction = generator.fraction();
    context.random.set(generator);
    let (low, high, argument) = match stack.top() {
        0 => {
            stack.push_number(fraction);
            return Ok(1);
        }
        1 => (1, stack.check_integer(1)? as i32, 1),
        2 => (stack.check_integer(1)? as i32, stack.check_integer(2)? as i32, 2),
        _ => return Err(stack.fail("wrong number of arguments")),
    };
    if low > high {
        return Err(stack.bad_argument(argument, "interval is empty"));
    }
    let width = f64::from(high) - f64::from(low) + 1.0;
    stack.push_number((fraction * width).floor() + f64::from(low));
    Ok(1)
}

fn randomseed(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let seed = stack.check_integer(1)? as i32;
    context.random.set(Random::seeded(seed));
    Ok(0)
}
