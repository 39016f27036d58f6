//! The libraries that scripts find: ours, and Lua's where they need bounds.

pub(crate) mod base;
pub(crate) mod bit;
pub(crate) mod cjson;
pub(crate) mod cmsgpack;
pub(crate) mod redis;
pub(crate) mod structure;

use std::ffi::{CStr, c_int};

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

/// A growing text that will become a Lua string: it may not outgrow what the run may use.
pub(crate) struct Output {
    bytes: Vec<u8>,
    length_max: usize,
}

impl Output {
    pub(crate) fn new(stack: &Stack<'_>) -> Self {
        Self { bytes: Vec::new(), length_max: stack.context().limits().memory_max }
    }

    pub(crate) fn push(&mut self, byte: u8) -> Result<(), Raise> {
        self.extend(&[byte])
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), Raise> {
        if self.bytes.len() + bytes.len() > self.length_max {
            return Err(Raise::Memory);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}
