//! The libraries that scripts find: ours, and Lua's where they need bounds.

pub(crate) mod base;
pub(crate) mod bit;
pub(crate) mod cjson;
pub(crate) mod cmsgpack;
pub(crate) mod redis;
pub(crate) mod string;
pub(crate) mod structure;
pub(crate) mod table;

use std::ffi::{CStr, c_int};

use crate::context::Context;
use crate::lua::{Native, Raise, Stack};

/// A name and what it does.
pub(crate) type Entry = (&'static CStr, Native);

/// Sets each native in the table at `table`.
pub(crate) fn set_all(stack: &mut Stack<'_>, table: c_int, entries: &[Entry]) {
    for (name, native) in entries {
        stack.push_native(*native);
        stack.set_field(table, name);
    }
}

/// A growing text that will become a Lua string: it may not outgrow what the run may use, and
/// every byte is paid for.
pub(crate) struct Output<'a> {
    bytes: Vec<u8>,
    length_max: usize,
    context: &'a Context,
}

/// Bytes that are copied between two payments.
const PIECE: usize = 64 << 10;

impl<'a> Output<'a> {
    pub(crate) fn new(context: &'a Context) -> Self {
        Self { bytes: Vec::new(), length_max: context.limits().memory_max, context }
    }

    /// With room for what is known to come. Fails when the run may not use that much.
    pub(crate) fn sized(context: &'a Context, length: usize) -> Result<Self, Raise> {
        if !context.has_memory_for(length) {
            return Err(Raise::Memory);
        }
        Ok(Self { bytes: Vec::with_capacity(length), ..Self::new(context) })
    }

    pub(crate) fn push(&mut self, byte: u8) -> Result<(), Raise> {
        self.context.spend(1)?;
        if self.bytes.len() >= self.length_max {
            return Err(Raise::Memory);
        }
        self.bytes.push(byte);
        Ok(())
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), Raise> {
        self.context.spend(1)?;
        for piece in bytes.chunks(PIECE) {
            self.context.spend_bytes(piece.len())?;
            if self.bytes.len() + piece.len() > self.length_max {
                return Err(Raise::Memory);
            }
            self.bytes.extend_from_slice(piece);
        }
        Ok(())
    }

    /// Appends `length` of its own bytes once more.
    pub(crate) fn repeat(&mut self, start: usize, length: usize) -> Result<(), Raise> {
        self.context.spend_bytes(length)?;
        if self.bytes.len() + length > self.length_max {
            return Err(Raise::Memory);
        }
        self.bytes.extend_from_within(start..start + length);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What was appended since it was `start` bytes long.
    pub(crate) fn tail_mut(&mut self, start: usize) -> &mut [u8] {
        &mut self.bytes[start..]
    }

    /// Pushes it as a string.
    pub(crate) fn push_onto(&self, stack: &mut Stack<'_>) -> Result<(), Raise> {
        self.context.spend_bytes(self.bytes.len())?;
        stack.push_bytes(&self.bytes)
    }
}
