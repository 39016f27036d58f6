//! `cmsgpack`: MessagePack from and to Lua values.

use std::ffi::c_int;

use super::{Entry, Output, set_all};
use crate::context::Context;
use crate::lua::{Kind, Raise, Stack};

const ENTRIES: &[Entry] = &[
    (c"pack", pack),
    (c"unpack", unpack),
    (c"unpack_one", unpack_one),
    (c"unpack_limit", unpack_limit),
];

/// Tables nested deeper are packed as nil.
const PACK_DEPTH_MAX: usize = 16;
/// Data nested deeper is refused: each level takes up to three of Lua's 8,000 stack slots.
const UNPACK_DEPTH_MAX: usize = 2000;

/// Pushes the library.
pub(crate) fn push(stack: &mut Stack<'_>) -> Result<(), Raise> {
    stack.push_table(0, 8)?;
    let table = stack.top();
    set_all(stack, table, ENTRIES);
    stack.push_bytes(b"cmsgpack")?;
    stack.set_field(table, c"_NAME");
    stack.push_bytes(b"lua-cmsgpack 0.4.0")?;
    stack.set_field(table, c"_VERSION");
    Ok(())
}

fn pack(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let count = stack.top();
    if count == 0 {
        return Err(stack.bad_argument(0, "MessagePack pack needs input."));
    }
    if stack.reserve(count as usize).is_err() {
        return Err(stack.bad_argument(0, "Too many arguments for MessagePack pack."));
    }
    let mut output = Output::new(context);
    for index in 1..=count {
        pack_value(stack, &mut output, index, 0)?;
    }
    output.push_onto(stack)?;
    Ok(1)
}

fn pack_value(
    stack: &mut Stack<'_>,
    output: &mut Output<'_>,
    index: c_int,
    depth: usize,
) -> Result<(), Raise> {
    stack.context().spend(4)?;
    match stack.kind(index) {
        Kind::String => {
            let bytes = stack.bytes(index).unwrap_or_default();
            pack_length(output, bytes.len(), &STRING_HEADS)?;
            output.extend(bytes)
        }
        Kind::Boolean => output.push(if stack.truth(index) { 0xc3 } else { 0xc2 }),
        Kind::Number => pack_number(output, stack.number(index).unwrap_or_default()),
        Kind::Table if depth < PACK_DEPTH_MAX => pack_table(stack, output, index, depth),
        _ => output.push(0xc0),
    }
}

fn pack_number(output: &mut Output<'_>, number: f64) -> Result<(), Raise> {
    let integer = number as i64;
    // 2^63 saturates to an integer whose double is 2^63 again, and is none.
    if integer as f64 == number && integer != i64::MAX {
        return pack_integer(output, integer);
    }
    let short = number as f32;
    if f64::from(short) == number {
        output.push(0xca)?;
        output.extend(&short.to_be_bytes())
    } else {
        output.push(0xcb)?;
        output.extend(&number.to_be_bytes())
    }
}

fn pack_integer(output: &mut Output<'_>, value: i64) -> Result<(), Raise> {
    let bytes = value.to_be_bytes();
    let (head, size): (u8, usize) = match value {
        -32..=127 => return output.push(value as u8),
        128..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -128..=-33 => (0xd0, 1),
        -0x8000..=-129 => (0xd1, 2),
        -0x8000_0000..=-0x8001 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    output.push(head)?;
    output.extend(&bytes[8 - size..])
}

/// The bytes that announce a length: within the head itself, in 1, 2 or 4 bytes.
struct Heads {
    short: u8,
    short_max: usize,
    one: Option<u8>,
    two: u8,
    four: u8,
}

const STRING_HEADS: Heads =
    Heads { short: 0xa0, short_max: 31, one: Some(0xd9), two: 0xda, four: 0xdb };
const ARRAY_HEADS: Heads = Heads { short: 0x90, short_max: 15, one: None, two: 0xdc, four: 0xdd };
const MAP_HEADS: Heads = Heads { short: 0x80, short_max: 15, one: None, two: 0xde, four: 0xdf };

fn pack_length(output: &mut Output<'_>, length: usize, heads: &Heads) -> Result<(), Raise> {
    let bytes = (length as u32).to_be_bytes();
    if length <= heads.short_max {
        return output.push(heads.short | length as u8);
    }
    if let Some(head) = heads.one.filter(|_| length <= 0xff) {
        return output.extend(&[head, bytes[3]]);
    }
    if length <= 0xffff {
        return output.extend(&[heads.two, bytes[2], bytes[3]]);
    }
    output.push(heads.four)?;
    output.extend(&bytes)
}

fn pack_table(
    stack: &mut Stack<'_>,
    output: &mut Output<'_>,
    index: c_int,
    depth: usize,
) -> Result<(), Raise> {
    if stack.reserve(4).is_err() {
        return Err(stack.fail("stack overflow (in function mp_encode_lua_table)"));
    }
    let (count, is_list) = survey(stack, index)?;
    if is_list {
        pack_length(output, count, &ARRAY_HEADS)?;
        for position in 1..=count as c_int {
            stack.get_item(index, position);
            let item = stack.top();
            pack_value(stack, output, item, depth + 1)?;
            stack.pop(1);
        }
        return Ok(());
    }
    pack_length(output, count, &MAP_HEADS)?;
    stack.push_nil();
    while stack.next(index) {
        let value = stack.top();
        pack_value(stack, output, value - 1, depth + 1)?;
        pack_value(stack, output, value, depth + 1)?;
        stack.pop(1);
    }
    Ok(())
}

/// How many entries a table has, and whether their keys are 1 to that number.
fn survey(stack: &mut Stack<'_>, index: c_int) -> Result<(usize, bool), Raise> {
    let mut count = 0;
    let mut longest = 0.0_f64;
    let mut all_positions = true;
    stack.push_nil();
    while stack.next(index) {
        stack.context().spend(4)?;
        stack.pop(1);
        count += 1;
        match stack.number(-1).filter(|key| *key > 0.0 && key.floor() == *key) {
            Some(key) => longest = longest.max(key),
            None => all_positions = false,
        }
    }
    Ok((count, all_positions && longest == count as f64))
}

fn unpack(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    unpack_some(stack, 0, 0)
}

fn unpack_one(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    let offset = stack.optional_integer(2, 0)?;
    stack.check_bytes(1)?;
    // The offset must not remain below the results.
    stack.set_top(1);
    unpack_some(stack, 1, offset)
}

fn unpack_limit(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    let limit = stack.check_integer(2)?;
    let offset = stack.optional_integer(3, 0)?;
    stack.set_top(1);
    unpack_some(stack, limit, offset)
}

/// Unpacks `limit` values from `offset` on and tells where the rest starts; with both zero, all
/// values.
fn unpack_some(stack: &mut Stack<'_>, limit: i64, offset: i64) -> Result<c_int, Raise> {
    let data = stack.check_bytes(1)?.to_vec();
    stack.context().spend_bytes(data.len())?;
    if offset < 0 || limit < 0 {
        let text = format!(
            "Invalid request to unpack with offset of {offset} and limit of {}.",
            data.len()
        );
        return Err(stack.fail(text));
    }
    let offset = offset as usize;
    if offset > data.len() {
        let text = format!("Start offset {offset} greater than input length {}.", data.len());
        return Err(stack.fail(text));
    }
    let all = limit == 0 && offset == 0;
    let limit = if all { i64::MAX } else { limit };
    let mut reader = Reader { data: &data, at: offset };
    let mut count = 0;
    while reader.at < data.len() && count < limit {
        // One for the value, one for the place of the rest.
        if stack.reserve(2).is_err() {
            return Err(stack
                .fail("too many return values at once; use unpack_one or unpack_limit instead."));
        }
        match reader.value(stack) {
            Ok(()) => {}
            Err(Stop::Missing) => return Err(stack.fail("Missing bytes in input.")),
            Err(Stop::Malformed) => return Err(stack.fail("Bad data format in input.")),
            Err(Stop::Raise(raise)) => return Err(raise),
        }
        count += 1;
    }
    if !all {
        let next = if reader.at == data.len() { -1.0 } else { reader.at as f64 };
        stack.push_number(next);
        stack.insert(2);
        count += 1;
    }
    Ok(count as c_int)
}

enum Stop {
    Missing,
    Malformed,
    Raise(Raise),
}

impl From<Raise> for Stop {
    fn from(raise: Raise) -> Self {
        Stop::Raise(raise)
    }
}

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

/// A table that is being filled.
struct Open {
    table: c_int,
    /// Entries or items that are still missing.
    missing: usize,
    kind: OpenKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenKind {
    List {
        filled: c_int,
    },
    Map,
    /// A map whose next key lies on top.
    MapWithKey,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Stop> {
        let end = self.at.checked_add(count).ok_or(Stop::Missing)?;
        let bytes = self.data.get(self.at..end).ok_or(Stop::Missing)?;
        self.at = end;
        Ok(bytes)
    }

    fn number<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], Stop> {
        Ok(self.take(SIZE)?.try_into().expect("as many bytes as were taken"))
    }

    fn length(&mut self, size: usize) -> Result<usize, Stop> {
        Ok(self.take(size)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    /// Pushes the next value, without recursion: how deep it nests is for the data to say.
    fn value(&mut self, stack: &mut Stack<'_>) -> Result<(), Stop> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            if let Some(aggregate) = self.scalar_or_head(stack)? {
                if open.len() >= UNPACK_DEPTH_MAX || stack.reserve(4).is_err() {
                    return Err(stack.fail("Too deeply nested data in input.").into());
                }
                // The head may lie about how much follows, so it gets no room in advance.
                stack.push_table(0, 0)?;
                open.push(Open { table: stack.top(), ..aggregate });
            }
            // The value on top is whole, unless a table was opened that misses something.
            loop {
                match open.last_mut() {
                    None => return Ok(()),
                    Some(innermost) if innermost.table == stack.top() => {
                        if innermost.missing > 0 {
                            break;
                        }
                        open.pop();
                    }
                    Some(innermost) => {
                        innermost.fill(stack)?;
                        if innermost.kind == OpenKind::MapWithKey {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Pushes a value that is no table, or answers what table begins.
    fn scalar_or_head(&mut self, stack: &mut Stack<'_>) -> Result<Option<Open>, Stop> {
        stack.context().spend(8)?;
        let head = self.take(1)?[0];
        match head {
            0x00..=0x7f => stack.push_number(head.into()),
            0xe0..=0xff => stack.push_number((head as i8).into()),
            0xc0 => stack.push_nil(),
            0xc2 | 0xc3 => stack.push_boolean(head == 0xc3),
            0xca => stack.push_number(f32::from_be_bytes(self.number()?).into()),
            0xcb => stack.push_number(f64::from_be_bytes(self.number()?)),
            0xcc => stack.push_number(u8::from_be_bytes(self.number()?).into()),
            0xcd => stack.push_number(u16::from_be_bytes(self.number()?).into()),
            0xce => stack.push_number(u32::from_be_bytes(self.number()?).into()),
            // Unsigned by its definition, and signed in the library that Redis has.
            0xcf => stack.push_number(i64::from_be_bytes(self.number()?) as f64),
            0xd0 => stack.push_number(i8::from_be_bytes(self.number()?).into()),
            0xd1 => stack.push_number(i16::from_be_bytes(self.number()?).into()),
            0xd2 => stack.push_number(i32::from_be_bytes(self.number()?).into()),
            0xd3 => stack.push_number(i64::from_be_bytes(self.number()?) as f64),
            0xa0..=0xbf => stack.push_bytes(self.take(usize::from(head & 0x1f))?)?,
            0xd9..=0xdb => {
                let length = self.length(1 << (head - 0xd9))?;
                stack.context().spend_bytes(length)?;
                stack.push_bytes(self.take(length)?)?;
            }
            0x90..=0x9f => return Ok(Some(Open::list(usize::from(head & 0xf)))),
            0xdc | 0xdd => return Ok(Some(Open::list(self.length(2 << (head - 0xdc))?))),
            0x80..=0x8f => return Ok(Some(Open::map(usize::from(head & 0xf)))),
            0xde | 0xdf => return Ok(Some(Open::map(self.length(2 << (head - 0xde))?))),
            _ => return Err(Stop::Malformed),
        }
        Ok(None)
    }
}

impl Open {
    fn list(missing: usize) -> Self {
        Self { table: 0, missing, kind: OpenKind::List { filled: 0 } }
    }

    fn map(missing: usize) -> Self {
        Self { table: 0, missing, kind: OpenKind::Map }
    }

    /// Takes the value on top in.
    fn fill(&mut self, stack: &mut Stack<'_>) -> Result<(), Stop> {
        match self.kind {
            OpenKind::List { filled } => {
                stack.set_item(self.table, filled + 1)?;
                self.kind = OpenKind::List { filled: filled + 1 };
                self.missing -= 1;
            }
            OpenKind::Map => self.kind = OpenKind::MapWithKey,
            OpenKind::MapWithKey => {
                stack.set_entry(self.table)?;
                self.kind = OpenKind::Map;
                self.missing -= 1;
            }
        }
        Ok(())
    }
}
