//! HyperLogLog: how many distinct elements were added, within about one percent, in 12 KiB.
//!
//! The value is a string that clients may GET and SET, so its bytes are those of Redis: a header
//! of sixteen bytes, then the 16,384 registers either packed (dense) or run-length encoded
//! (sparse). All functions take such strings; they may come from outside and be damaged.
//!
//! ```text
//! "HYLL" | 0 dense, 1 sparse | 3 unused | cached count (u64, top bit: stale) | registers
//! ```

mod dense;
mod estimate;
mod murmur;
mod sparse;

use dense::{dense_get, dense_set};
use murmur::murmur64;

use crate::damage::Damaged;
use crate::limits::Limits;

/// How many registers there are.
pub const REGISTER_COUNT: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// Hash bits that are left to count zeros in.
const COUNT_BITS: u32 = 64 - INDEX_BITS;
const HEADER: usize = 16;
/// The only length of a dense value.
const DENSE_LEN: usize = HEADER + REGISTER_COUNT * 6 / 8;
const MAGIC: &[u8; 4] = b"HYLL";
/// The header byte with the flag that the cached count is stale.
const STALE_BYTE: usize = 15;

/// How the registers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Six bits each.
    Dense,
    /// Runs of equal registers.
    Sparse,
}

/// An empty value.
pub fn new() -> Vec<u8> {
    let mut value = Vec::with_capacity(HEADER + 2);
    value.extend_from_slice(MAGIC);
    value.resize(HEADER, 0);
    value[4] = 1;
    value.extend_from_slice(&sparse::EMPTY);
    value
}

/// The form of a value; `None` when the string is not a HyperLogLog at all.
pub fn form(value: &[u8]) -> Option<Form> {
    if value.len() < HEADER || !value.starts_with(MAGIC) {
        return None;
    }
    match value[4] {
        0 if value.len() == DENSE_LEN => Some(Form::Dense),
        1 => Some(Form::Sparse),
        _ => None,
    }
}

/// Adds an element; `true` when that changed a register. The cached count is then stale.
///
/// # Errors
/// [`Damaged`] when the registers are not well formed. The value may then be partly changed.
pub fn add(value: &mut Vec<u8>, element: &[u8], limits: &Limits) -> Result<bool, Damaged> {
    let hash = murmur64(element);
    let index = hash as usize % REGISTER_COUNT;
    let rest = hash >> INDEX_BITS | 1 << COUNT_BITS;
    let count = rest.trailing_zeros() as u8 + 1;
    set_register(value, index, count, limits)
}

/// Raises a register to `count`; `true` when it was lower.
fn set_register(
    value: &mut Vec<u8>,
    index: usize,
    count: u8,
    limits: &Limits,
) -> Result<bool, Damaged> {
    let changed = match checked_form(value)? {
        Form::Dense => dense_set(&mut value[HEADER..], index, count),
        Form::Sparse => match sparse::set(value, index, count, limits.hll_sparse_bytes_max)? {
            sparse::SparseUpdate::Unchanged => false,
            sparse::SparseUpdate::Changed => true,
            sparse::SparseUpdate::TooLarge => {
                to_dense(value)?;
                dense_set(&mut value[HEADER..], index, count)
            }
        },
    };
    if changed {
        mark_stale(value);
    }
    Ok(changed)
}

/// Turns the registers to the dense form; keeps the header.
///
/// # Errors
/// [`Damaged`] when the registers are not well formed; the value is then unchanged.
pub fn to_dense(value: &mut Vec<u8>) -> Result<(), Damaged> {
    if checked_form(value)? == Form::Dense {
        return Ok(());
    }
    let registers = Registers::of(value)?;
    value.truncate(HEADER);
    value.resize(DENSE_LEN, 0);
    value[4] = 0;
    for (index, &count) in registers.counts.iter().enumerate() {
        dense_set(&mut value[HEADER..], index, count);
    }
    Ok(())
}

/// Marks the cached count as stale.
pub fn mark_stale(value: &mut [u8]) {
    value[STALE_BYTE] |= 0x80;
}

/// The cached count, if it is not stale.
pub fn cached_count(value: &[u8]) -> Option<u64> {
    let bytes = value.get(8..HEADER)?.first_chunk::<8>()?;
    (value[STALE_BYTE] & 0x80 == 0).then(|| u64::from_le_bytes(*bytes))
}

/// Caches a count.
pub fn cache_count(value: &mut [u8], count: u64) {
    value[8..HEADER].copy_from_slice(&count.to_le_bytes());
}

/// Computes the count from the registers.
///
/// # Errors
/// [`Damaged`] when the registers are not well formed.
pub fn count(value: &[u8]) -> Result<u64, Damaged> {
    Registers::of(value).map(|registers| registers.count())
}

/// The runs of a sparse value in the notation of `PFDEBUG DECODE`; `None` for a dense one.
pub fn describe_runs(value: &[u8]) -> Option<String> {
    (form(value)? == Form::Sparse).then(|| sparse::describe(&value[HEADER..]))
}

fn checked_form(value: &[u8]) -> Result<Form, Damaged> {
    form(value).ok_or(Damaged::new("HyperLogLog", "not one"))
}

/// All registers of one value, or the highest of several.
#[derive(Clone, PartialEq, Eq)]
pub struct Registers {
    counts: Box<[u8; REGISTER_COUNT]>,
}

impl Default for Registers {
    fn default() -> Self {
        Self::new()
    }
}

impl Registers {
    /// All zero.
    pub fn new() -> Self {
        let counts = vec![0; REGISTER_COUNT].into_boxed_slice();
        Self { counts: counts.try_into().expect("made with this length") }
    }

    /// The registers of a value.
    ///
    /// # Errors
    /// [`Damaged`] when they are not well formed.
    pub fn of(value: &[u8]) -> Result<Self, Damaged> {
        let mut registers = Self::new();
        registers.merge(value)?;
        Ok(registers)
    }

    /// Raises every register to that of `value`.
    ///
    /// # Errors
    /// [`Damaged`] when the value's registers are not well formed.
    pub fn merge(&mut self, value: &[u8]) -> Result<(), Damaged> {
        match checked_form(value)? {
            Form::Dense => {
                for (index, count) in self.counts.iter_mut().enumerate() {
                    *count = dense_get(&value[HEADER..], index).max(*count);
                }
                Ok(())
            }
            Form::Sparse => sparse::for_each_run(&value[HEADER..], |run, range| {
                for count in &mut self.counts[range] {
                    *count = run.max(*count);
                }
            }),
        }
    }

    /// The estimated number of distinct elements.
    pub fn count(&self) -> u64 {
        estimate::estimate(&self.counts[..])
    }

    /// Each register's value.
    pub fn as_slice(&self) -> &[u8] {
        &self.counts[..]
    }

    /// Raises the registers of `value` to these, as PFMERGE writes its result: sparse stays sparse
    /// while it fits, unless `wanted` asks for the dense form.
    ///
    /// # Errors
    /// [`Damaged`] when the value's registers are not well formed.
    pub fn write_to(
        &self,
        value: &mut Vec<u8>,
        wanted: Form,
        limits: &Limits,
    ) -> Result<(), Damaged> {
        if wanted == Form::Dense {
            to_dense(value)?;
        }
        for (index, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            set_register(value, index, count, limits)?;
        }
        mark_stale(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
