//! `string.format`.

use std::ffi::c_int;

use crate::context::Context;
use crate::library::Output;
use crate::lua::{CValue, Raise, Stack, format_value};
use crate::number::{to_c_int, to_c_integer, to_c_unsigned};

/// Signs that may stand before a width.
const FLAGS: &[u8] = b"-+ #0";
/// Strings this long are written whole, whatever the width.
const WHOLE_MIN: usize = 100;
/// Bytes that are looked through at once.
const PIECE: usize = 4096;

pub(super) fn format(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let mut rest = stack.pin(1)?;
    let last = stack.top();
    let mut argument = 1;
    let mut output = Output::new(context);
    while !rest.is_empty() {
        let piece = &rest[..rest.len().min(PIECE)];
        let literal = piece.iter().position(|byte| *byte == b'%').unwrap_or(piece.len());
        output.extend(&rest[..literal])?;
        context.spend(literal as u64 / 8)?;
        rest = &rest[literal..];
        let Some((b'%', behind)) = rest.split_first() else { continue };
        rest = behind;
        if rest.first() == Some(&b'%') {
            output.push(b'%')?;
            rest = &rest[1..];
            continue;
        }
        argument += 1;
        if argument > last {
            return Err(stack.bad_argument(argument, "no value"));
        }
        let item = Item::read(stack, rest)?;
        rest = rest.get(item.modifiers.len() + 1..).unwrap_or_default();
        item.write(stack, argument, &mut output)?;
    }
    output.push_onto(stack)?;
    Ok(1)
}

/// What stands behind a `%`.
struct Item<'a> {
    /// Flags, width and precision.
    modifiers: &'a [u8],
    letter: u8,
}

impl<'a> Item<'a> {
    fn read(stack: &mut Stack<'_>, text: &'a [u8]) -> Result<Self, Raise> {
        let at = |index: usize| text.get(index).copied().unwrap_or(0);
        let flags = text.iter().take_while(|byte| FLAGS.contains(byte)).count();
        if flags > FLAGS.len() {
            return Err(stack.fail("invalid format (repeated flags)"));
        }
        let two_digits = |from: usize| match (at(from).is_ascii_digit(), at(from + 1)) {
            (true, second) => from + 1 + usize::from(second.is_ascii_digit()),
            (false, _) => from,
        };
        let mut end = two_digits(flags);
        if at(end) == b'.' {
            end = two_digits(end + 1);
        }
        if at(end).is_ascii_digit() {
            return Err(stack.fail("invalid format (width or precision too long)"));
        }
        Ok(Self { modifiers: &text[..end], letter: at(end) })
    }

    fn write(
        &self,
        stack: &mut Stack<'_>,
        argument: c_int,
        output: &mut Output<'_>,
    ) -> Result<(), Raise> {
        let value = match self.letter {
            b'c' => CValue::Int(to_c_int(stack.check_number(argument)?)),
            b'd' | b'i' => CValue::Long(to_c_integer(stack.check_number(argument)?)),
            b'o' | b'u' | b'x' | b'X' => {
                CValue::Long(to_c_unsigned(stack.check_number(argument)?) as i64)
            }
            b'e' | b'E' | b'f' | b'g' | b'G' => CValue::Double(stack.check_number(argument)?),
            b'q' => return quote(stack, argument, output),
            b's' => return self.write_text(stack, argument, output),
            letter => {
                let letter = if letter == 0 { &[][..] } else { &[letter][..] };
                return Err(stack.fail([b"invalid option '%", letter, b"' to 'format'"].concat()));
            }
        };
        match (value, self.modifiers) {
            (CValue::Long(number), []) if self.letter == b'd' => {
                output.extend(number.to_string().as_bytes())
            }
            _ => output.extend(&format_value(self.modifiers, self.letter, value)),
        }
    }

    fn write_text(
        &self,
        stack: &mut Stack<'_>,
        argument: c_int,
        output: &mut Output<'_>,
    ) -> Result<(), Raise> {
        let text = stack.check_bytes(argument)?;
        let has_precision = self.modifiers.contains(&b'.');
        if !has_precision && text.len() >= WHOLE_MIN {
            return output.extend(text);
        }
        // C's strings end at a zero, and a precision has two digits at most.
        let text = &text[..text.len().min(WHOLE_MIN)];
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        match self.modifiers {
            [] => output.extend(text),
            modifiers => output.extend(&format_value(modifiers, b's', CValue::Text(text))),
        }
    }
}

/// A string that Lua reads back as it was.
fn quote(stack: &mut Stack<'_>, argument: c_int, output: &mut Output<'_>) -> Result<(), Raise> {
    let text = stack.check_bytes(argument)?;
    output.push(b'"')?;
    for byte in text {
        match byte {
            b'"' | b'\\' | b'\n' => output.extend(&[b'\\', *byte])?,
            b'\r' => output.extend(b"\\r")?,
            0 => output.extend(b"\\000")?,
            _ => output.push(*byte)?,
        }
    }
    output.push(b'"')
}
