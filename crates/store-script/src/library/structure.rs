//! `struct`: packs values into strings by a format, and unpacks them.
//!
//! Formats: `>` `<` byte order, `!n` alignment, `x` padding, `b B h H l L T i In I In` integers,
//! `f d` floats, `s` a string up to a zero, `cn` exactly n bytes, `c0` all (packing) or as many as
//! the number before says (unpacking).

use std::ffi::c_int;

use super::{Entry, Output};
use crate::context::Context;
use crate::lua::{Raise, Stack};

pub(crate) const ENTRIES: &[Entry] = &[(c"pack", pack), (c"unpack", unpack), (c"size", size)];

/// Integers may be this many bytes long.
const INTEGER_SIZE_MAX: usize = 32;
/// What `!` alone aligns to.
const DEFAULT_ALIGNMENT: usize = 8;

/// What a letter of the format asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Integer {
        signed: bool,
    },
    Float,
    Double,
    Padding,
    /// `c`
    Chars,
    /// `s`
    Text,
    /// Byte order, alignment or space: nothing to pack.
    Control,
}

/// Walks a format.
struct Format {
    text: Vec<u8>,
    at: usize,
    big_endian: bool,
    alignment: usize,
    /// `struct.size` passes over letters that mean nothing.
    ignores_unknown: bool,
}

impl Format {
    fn new(stack: &mut Stack<'_>) -> Result<Self, Raise> {
        stack.context().spend_bytes(stack.raw_length(1))?;
        let text = stack.check_bytes(1)?;
        // Formats end at a zero, as strings of C do.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        let big_endian = cfg!(target_endian = "big");
        Ok(Self { text, at: 0, big_endian, alignment: 1, ignores_unknown: false })
    }

    /// The next item and its size. Control items have taken effect already.
    fn next(&mut self, stack: &mut Stack<'_>) -> Result<Option<(Item, usize)>, Raise> {
        stack.context().spend(4)?;
        let Some(letter) = self.text.get(self.at).copied() else { return Ok(None) };
        self.at += 1;
        let signed = letter.is_ascii_lowercase();
        Ok(Some(match letter {
            b'b' | b'B' => (Item::Integer { signed }, 1),
            b'h' | b'H' => (Item::Integer { signed }, 2),
            b'l' | b'L' | b'T' => (Item::Integer { signed }, 8),
            b'i' | b'I' => (Item::Integer { signed }, self.integer_size(stack)?),
            b'f' => (Item::Float, 4),
            b'd' => (Item::Double, 8),
            b'x' => (Item::Padding, 1),
            b'c' => (Item::Chars, self.count(stack, 1)?),
            b's' => (Item::Text, 0),
            _ if self.ignores_unknown && letter.is_ascii_alphanumeric() => (Item::Control, 0),
            _ => {
                self.control(stack, letter)?;
                (Item::Control, 0)
            }
        }))
    }

    fn integer_size(&mut self, stack: &mut Stack<'_>) -> Result<usize, Raise> {
        let size = self.count(stack, 4)?;
        if size > INTEGER_SIZE_MAX {
            return Err(stack
                .fail(format!("integral size {size} is larger than limit of {INTEGER_SIZE_MAX}")));
        }
        Ok(size)
    }

    fn count(&mut self, stack: &mut Stack<'_>, default: usize) -> Result<usize, Raise> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let text = &self.text[self.at..self.at + digits];
        let count = text.iter().try_fold(0_i32, |count, digit| {
            count.checked_mul(10)?.checked_add(i32::from(digit - b'0'))
        });
        self.at += digits;
        match count {
            Some(count) => Ok(count as usize),
            None => Err(stack.fail("integral size overflow")),
        }
    }

    fn control(&mut self, stack: &mut Stack<'_>, letter: u8) -> Result<(), Raise> {
        match letter {
            b' ' => {}
            b'>' => self.big_endian = true,
            b'<' => self.big_endian = false,
            b'!' => {
                let alignment = self.count(stack, DEFAULT_ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(stack.fail(text));
                }
                self.alignment = alignment;
            }
            _ => {
                let text = [b"invalid format option '", &[letter][..], b"'"].concat();
                return Err(stack.bad_argument(1, text));
            }
        }
        Ok(())
    }

    /// Bytes to skip before an item, so that it lies at a multiple of its size.
    fn padding(&self, position: usize, item: Item, size: usize) -> usize {
        if size == 0 || item == Item::Chars {
            return 0;
        }
        // Sizes that are no power of two give odd results, the same as in Redis.
        let size = size.min(self.alignment);
        size.wrapping_sub(position & (size - 1)) & (size - 1)
    }

    fn in_order(&self, mut little: Vec<u8>) -> Vec<u8> {
        if self.big_endian {
            little.reverse();
        }
        little
    }
}

fn pack(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let mut format = Format::new(stack)?;
    let mut output = Output::new(context);
    let mut argument = 2;
    // A missing argument is told to be nil, as in Redis.
    stack.push_nil();
    while let Some((item, size)) = format.next(stack)? {
        for _ in 0..format.padding(output.len(), item, size) {
            output.push(0)?;
        }
        match item {
            Item::Control => continue,
            Item::Padding => output.push(0)?,
            Item::Integer { .. } => {
                let value = integer_bits(stack.check_number(argument)?);
                output.extend(&format.in_order(spread(value, size)))?;
            }
            Item::Float => {
                let value = stack.check_number(argument)? as f32;
                output.extend(&format.in_order(value.to_le_bytes().to_vec()))?;
            }
            Item::Double => {
                let value = stack.check_number(argument)?;
                output.extend(&format.in_order(value.to_le_bytes().to_vec()))?;
            }
            Item::Chars | Item::Text => pack_text(stack, &mut output, argument, item, size)?,
        }
        argument += c_int::from(item != Item::Padding);
    }
    output.push_onto(stack)?;
    Ok(1)
}

fn pack_text(
    stack: &mut Stack<'_>,
    output: &mut Output<'_>,
    argument: c_int,
    item: Item,
    size: usize,
) -> Result<(), Raise> {
    let text = stack.check_bytes(argument)?;
    let size = if size == 0 { text.len() } else { size };
    let Some(text) = text.get(..size) else {
        return Err(stack.bad_argument(argument + 1, "string too short"));
    };
    output.extend(text)?;
    if item == Item::Text {
        output.push(0)?;
    }
    Ok(())
}

/// A number as the integer that C casts it to.
fn integer_bits(number: f64) -> u64 {
    if number < 0.0 { number as i64 as u64 } else { number as u64 }
}

/// The low `size` bytes, lowest first.
fn spread(value: u64, size: usize) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(size, 0);
    bytes
}

fn unpack(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    let mut format = Format::new(stack)?;
    let data = stack.check_bytes(2)?.to_vec();
    stack.context().spend_bytes(data.len())?;
    let start = stack.optional_integer(3, 1)?;
    if start == 0 {
        return Err(stack.bad_argument(3, "offset must be 1 or greater"));
    }
    // A negative offset is a huge one in C, and past the end either way.
    let mut position = usize::try_from(start).map_or(usize::MAX, |start| start - 1);
    let mut count = 0;
    while let Some((item, size)) = format.next(stack)? {
        position = position.saturating_add(format.padding(position, item, size));
        let mut size = size;
        let mut field = slice(stack, &data, position, size)?;
        if stack.reserve(2).is_err() {
            return Err(stack.fail("stack overflow (too many results)"));
        }
        match item {
            Item::Control | Item::Padding => {}
            Item::Integer { signed } => {
                let bytes = format.in_order(field.to_vec());
                stack.push_number(gather(&bytes, signed));
            }
            Item::Float => {
                let bytes = format.in_order(field.to_vec());
                let bytes = bytes.try_into().expect("the item is four bytes long");
                stack.push_number(f32::from_le_bytes(bytes).into());
            }
            Item::Double => {
                let bytes = format.in_order(field.to_vec());
                let bytes = bytes.try_into().expect("the item is eight bytes long");
                stack.push_number(f64::from_le_bytes(bytes));
            }
            Item::Chars => {
                if size == 0 {
                    let Some(length) = (count > 0).then(|| stack.number_like(-1)).flatten() else {
                        return Err(stack.fail("format 'c0' needs a previous size"));
                    };
                    stack.pop(1);
                    count -= 1;
                    size = if length < 0.0 { usize::MAX } else { length as usize };
                    field = slice(stack, &data, position, size)?;
                }
                stack.push_bytes(field)?;
            }
            Item::Text => {
                let rest = &data[position..];
                let Some(length) = rest.iter().position(|byte| *byte == 0) else {
                    return Err(stack.fail("unfinished string in data"));
                };
                size = length + 1;
                stack.context().spend_bytes(size * 4)?;
                stack.push_bytes(&rest[..length])?;
            }
        }
        count += c_int::from(!matches!(item, Item::Control | Item::Padding));
        position += size;
    }
    stack.push_number((position + 1) as f64);
    Ok(count + 1)
}

fn slice<'a>(
    stack: &mut Stack<'_>,
    data: &'a [u8],
    position: usize,
    size: usize,
) -> Result<&'a [u8], Raise> {
    match position.checked_add(size).and_then(|end| data.get(position..end)) {
        Some(field) => Ok(field),
        None => Err(stack.bad_argument(2, "data string too short")),
    }
}

/// The integer of these bytes, lowest first. Bytes beyond the eighth do not count.
fn gather(bytes: &[u8], signed: bool) -> f64 {
    let mut value = 0_u64;
    for byte in bytes.iter().rev() {
        value = (value << 8) | u64::from(*byte);
    }
    if !signed {
        return value as f64;
    }
    let sign = (bytes.len() as u32 * 8).wrapping_sub(1);
    let mask = u64::MAX.wrapping_shl(sign);
    (if value & mask != 0 { value | mask } else { value }) as i64 as f64
}

fn size(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    let mut format = Format { ignores_unknown: true, ..Format::new(stack)? };
    let mut position = 0_usize;
    while let Some((item, size)) = format.next(stack)? {
        match item {
            Item::Text => return Err(stack.bad_argument(1, "option 's' has no fixed size")),
            Item::Chars if size == 0 => {
                return Err(stack.bad_argument(1, "option 'c0' has no fixed size"));
            }
            _ => {}
        }
        position += format.padding(position, item, size) + size;
    }
    stack.push_number(position as f64);
    Ok(1)
}
