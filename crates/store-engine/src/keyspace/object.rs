//! Values that are not strings, by kind.

use std::ops::{Deref, DerefMut};

use super::entry::{NewValue, ValueRef};
use super::value::Value;
use super::{Expiry, Keyspace};
use crate::error::CommandError;

/// A kind of value that is not a string: one variant of [`Value`].
pub trait Object: Sized {
    /// The value as this kind, if it is.
    fn of(value: &Value) -> Option<&Self>;
    /// The value as this kind, for changes.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// This kind as a value.
    fn into_value(self) -> Value;
    /// Bytes of memory behind it; must be cheap, it is asked on every change.
    fn memory(&self) -> usize;
}

/// A value open for changes; when it goes out of scope its memory is counted anew.
pub struct ValueMut<'a, T: Object> {
    object: &'a mut T,
    before: usize,
    entry_memory: &'a mut usize,
}

impl<T: Object> Deref for ValueMut<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object
    }
}

impl<T: Object> DerefMut for ValueMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.object
    }
}

impl<T: Object> Drop for ValueMut<'_, T> {
    fn drop(&mut self) {
        *self.entry_memory = *self.entry_memory - self.before + self.object.memory();
    }
}

impl Keyspace {
    /// Reads a value of kind `T`: a hit or miss, and an access. Fails on another kind.
    pub fn read_as<T: Object>(&mut self, key: &[u8]) -> Result<Option<&T>, CommandError> {
        object_of(self.read(key))
    }

    /// Looks at a value of kind `T` with a write in mind. Fails on another kind.
    pub fn peek_as<T: Object>(&mut self, key: &[u8]) -> Result<Option<&T>, CommandError> {
        object_of(self.peek(key))
    }

    /// Opens a value of kind `T` for changes. Fails on another kind.
    ///
    /// When it is left empty, [`take`](Self::take) the key: Redis knows no empty collections.
    pub fn write_as<T: Object>(
        &mut self,
        key: &[u8],
    ) -> Result<Option<ValueMut<'_, T>>, CommandError> {
        let Some(found) = self.find(key) else { return Ok(None) };
        self.touch_access(found);
        let table = &mut self.databases[self.selected];
        let (entry, entry_memory) = table.entry_and_memory(found.place);
        let object = entry.object_mut().and_then(T::of_mut).ok_or(CommandError::WRONG_TYPE)?;
        let before = object.memory();
        Ok(Some(ValueMut { object, before, entry_memory }))
    }

    /// Opens a value of kind `T` for changes, made by `create` when the key is not there.
    ///
    /// A key that waiters wait for is signalled when created; signal it also when it grows.
    pub fn write_or_create<T: Object>(
        &mut self,
        key: &[u8],
        create: impl FnOnce() -> T,
    ) -> Result<ValueMut<'_, T>, CommandError> {
        if !self.contains(key) {
            let value = NewValue::Object(Box::new(create().into_value()));
            self.set(key, value, Expiry::Clear);
        }
        Ok(self.write_as(key)?.expect("the key is there by now"))
    }

    /// Sets a key to an object, whatever was there before; the expiry goes.
    pub fn set_object<T: Object>(&mut self, key: &[u8], object: T) {
        self.set(key, NewValue::Object(Box::new(object.into_value())), Expiry::Clear);
    }
}

fn object_of<T: Object>(value: Option<ValueRef<'_>>) -> Result<Option<&T>, CommandError> {
    match value {
        None => Ok(None),
        Some(ValueRef::Object(value)) => T::of(value).map(Some).ok_or(CommandError::WRONG_TYPE),
        Some(_) => Err(CommandError::WRONG_TYPE),
    }
}
