//! `bit`: operations on 32 bits, with results in the signed range.

use std::ffi::c_int;

use super::Entry;
use crate::context::Context;
use crate::lua::{Raise, Stack};

pub(crate) const ENTRIES: &[Entry] = &[
    (c"tobit", tobit),
    (c"tohex", tohex),
    (c"bnot", bnot),
    (c"band", band),
    (c"bor", bor),
    (c"bxor", bxor),
    (c"lshift", lshift),
    (c"rshift", rshift),
    (c"arshift", arshift),
    (c"rol", rol),
    (c"ror", ror),
    (c"bswap", bswap),
];

/// The low 32 bits of the number at `index`, rounded to the nearest integer.
fn bits(stack: &Stack<'_>, index: c_int) -> Result<u32, Raise> {
    let number = stack.check_number(index)?;
    // Adding this moves the integer part into the low bits of the double.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    Ok((number + MAGIC).to_bits() as u32)
}

fn answer(stack: &mut Stack<'_>, bits: u32) -> Result<c_int, Raise> {
    stack.push_number(f64::from(bits as i32));
    Ok(1)
}

fn tobit(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    let bits = bits(stack, 1)?;
    answer(stack, bits)
}

fn bnot(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    let bits = bits(stack, 1)?;
    answer(stack, !bits)
}

fn bswap(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    let bits = bits(stack, 1)?;
    answer(stack, bits.swap_bytes())
}

fn fold(stack: &mut Stack<'_>, combine: fn(u32, u32) -> u32) -> Result<c_int, Raise> {
    let mut result = bits(stack, 1)?;
    for index in 2..=stack.top() {
        result = combine(result, bits(stack, index)?);
    }
    answer(stack, result)
}

fn band(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    fold(stack, |a, b| a & b)
}

fn bor(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    fold(stack, |a, b| a | b)
}

fn bxor(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    fold(stack, |a, b| a ^ b)
}

/// Shifts look at the low five bits of the distance alone, as the `wrapping_` shifts do.
fn shift(stack: &mut Stack<'_>, move_bits: fn(u32, u32) -> u32) -> Result<c_int, Raise> {
    let value = bits(stack, 1)?;
    let distance = bits(stack, 2)? & 31;
    answer(stack, move_bits(value, distance))
}

fn lshift(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    shift(stack, |value, distance| value << distance)
}

fn rshift(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    shift(stack, |value, distance| value >> distance)
}

fn arshift(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    shift(stack, |value, distance| ((value as i32) >> distance) as u32)
}

fn rol(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    shift(stack, u32::rotate_left)
}

fn ror(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    shift(stack, u32::rotate_right)
}

/// The last `n` hexadecimal digits, eight at most whatever is asked for (CVE-2024-31449); in upper
/// case when `n` is negative.
fn tohex(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    let value = bits(stack, 1)?;
    let wanted = if stack.top() < 2 { 8 } else { bits(stack, 2)? as i32 };
    let count = wanted.unsigned_abs().min(8) as usize;
    let digits = if wanted < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    stack.push_bytes(&digits.as_bytes()[8 - count..])?;
    Ok(1)
}
