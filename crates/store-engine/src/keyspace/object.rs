//! Values that are not strings, by kind.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::entry::{NewValue, ValueRef};
use super::value::{Data, Value};
use super::{Expiry, Found, Keyspace};
use crate::error::CommandError;

/// A kind of value that is not a string: one variant of [`Data`].
pub trait Object: Sized {
    /// The value as this kind, if it is.
    fn of(data: &Data) -> Option<&Self>;
    /// The value as this kind, for changes.
    fn of_mut(data: &mut Data) -> Option<&mut Self>;
    /// This kind as a value.
    fn into_data(self) -> Data;
}

/// A value open for changes; when it goes out of scope its memory is counted anew.
pub struct ValueMut<'a, T: Object> {
    value: &'a mut Value,
    entry_memory: &'a mut usize,
    kind: PhantomData<T>,
}

impl<T: Object> Deref for ValueMut<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        T::of(&self.value.data).expect("the kind was checked when it was opened")
    }
}

impl<T: Object> DerefMut for ValueMut<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        T::of_mut(&mut self.value.data).expect("the kind was checked when it was opened")
    }
}

impl<T: Object> Drop for ValueMut<'_, T> {
    fn drop(&mut self) {
        let before = self.value.memory();
        self.value.count_change();
        *self.entry_memory = *self.entry_memory - before + self.value.memory();
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

    /// The value at a key that was read before in this request, without counting, touching or
    /// expiring anything: for commands that need several values in hand at once.
    pub fn look(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        let place = self.table().find(self.hash(key), key)?;
        Some(self.table().entry(place).value())
    }

    /// Opens a value of kind `T` for changes. Fails on another kind.
    ///
    /// When it is left empty, [`take`](Self::take) the key: Redis knows no empty collections.
    pub fn write_as<T: Object>(
        &mut self,
        key: &[u8],
    ) -> Result<Option<ValueMut<'_, T>>, CommandError> {
        match self.find(key) {
            Some(found) => self.open(found).map(Some),
            None => Ok(None),
        }
    }

    fn open<T: Object>(&mut self, found: Found) -> Result<ValueMut<'_, T>, CommandError> {
        self.touch_access(found);
        self.before_change(found);
        let table = &mut self.databases[self.selected];
        let (entry, entry_memory) = table.entry_and_memory(found.place);
        let value = entry.object_mut().ok_or(CommandError::WRONG_TYPE)?;
        T::of(&value.data).ok_or(CommandError::WRONG_TYPE)?;
        Ok(ValueMut { value, entry_memory, kind: PhantomData })
    }

    /// Opens a value of kind `T` for changes, made by `create` when the key is not there.
    ///
    /// A key that waiters wait for is signalled when created; signal it also when it grows.
    pub fn write_or_create<T: Object>(
        &mut self,
        key: &[u8],
        create: impl FnOnce() -> T,
    ) -> Result<ValueMut<'_, T>, CommandError> {
        if let Some(found) = self.find(key) {
            return self.open(found);
        }
        let value = NewValue::Object(Box::new(Value::new(create().into_data())));
        self.insert(key, value, None);
        Ok(self.write_as(key)?.expect("the key is there by now"))
    }

    /// Sets a key to an object, whatever was there before; the expiry goes.
    pub fn set_object<T: Object>(&mut self, key: &[u8], object: T) {
        self.set(key, NewValue::Object(Box::new(Value::new(object.into_data()))), Expiry::Clear);
    }
}

fn object_of<T: Object>(value: Option<ValueRef<'_>>) -> Result<Option<&T>, CommandError> {
    match value {
        None => Ok(None),
        Some(ValueRef::Object(value)) => {
            T::of(value.data()).map(Some).ok_or(CommandError::WRONG_TYPE)
        }
        Some(_) => Err(CommandError::WRONG_TYPE),
    }
}
