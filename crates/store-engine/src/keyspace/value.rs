//! The kinds of values that are not strings.

/// A value behind a key that is not a string: each kind is one variant, boxed by the entry.
#[derive(Debug)]
pub enum Value {}

impl Value {
    /// Bytes of memory behind the value, without the value's own size.
    pub fn memory(&self) -> usize {
        match *self {}
    }

    /// The kind as TYPE names it.
    pub fn type_name(&self) -> &'static str {
        match *self {}
    }

    /// The form as OBJECT ENCODING names it.
    pub fn encoding_name(&self) -> &'static str {
        match *self {}
    }
}
