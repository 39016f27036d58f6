//! Lengths, strings and numbers of the format, from bytes of any origin.

use std::borrow::Cow;

use crate::damage::Damaged;
use crate::lzf::decompress;
use crate::number::{IntText, parse_f64};

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The bytes end within the value: with more of them it may be whole.
    #[error("the value is cut off")]
    Truncated,
    /// The value's type is not one that Redis 7.0 reads.
    #[error("unknown value type {0}")]
    UnknownType(u8),
    /// A collection without elements, which no key may hold.
    #[error("a collection without elements")]
    Empty,
    /// The bytes contradict themselves.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// Takes parts of values from the front of a run of bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    lacking: u64,
    is_forgiving: bool,
    mended: Option<Damaged>,
}

/// The first bits of a length say that a string of another form follows.
enum Length {
    Plain(u64),
    Encoded(u8),
}

impl<'a> Reader<'a> {
    /// A reader from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, lacking: 0, is_forgiving: false, mended: None }
    }

    /// One for what another server keeps, which may have looked at few of the bytes: values that
    /// redis-server takes although they contradict themselves are made whole where their meaning is
    /// plain.
    pub fn forgiving(bytes: &'a [u8]) -> Self {
        Self { is_forgiving: true, ..Self::new(bytes) }
    }

    /// What was wrong with the last value, if it was made whole.
    pub fn mended(&self) -> Option<Damaged> {
        self.mended
    }

    pub(super) fn is_forgiving(&self) -> bool {
        self.is_forgiving
    }

    pub(super) fn note_mended(&mut self, fault: Damaged) {
        self.mended = Some(fault);
    }

    /// The bytes not yet read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes the string lacks by which reading was cut off; 0 when it was not, or
    /// elsewhere. It is what the bytes say, so it may be any number.
    pub fn lacking(&self) -> u64 {
        self.lacking
    }

    /// One byte.
    ///
    /// # Errors
    /// [`LoadError::Truncated`] at the end, as for all that follow.
    pub fn byte(&mut self) -> Result<u8, LoadError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// So many bytes.
    ///
    /// # Errors
    /// [`LoadError::Truncated`].
    pub fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], LoadError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(LoadError::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    /// So many bytes, borrowed.
    ///
    /// # Errors
    /// [`LoadError::Truncated`].
    pub fn bytes(&mut self, count: u64) -> Result<&'a [u8], LoadError> {
        let split = usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count));
        let Some((bytes, rest)) = split else {
            self.lacking = count - self.rest.len() as u64;
            return Err(LoadError::Truncated);
        };
        self.rest = rest;
        Ok(bytes)
    }

    /// A length, or any other number that is small as a rule.
    ///
    /// # Errors
    /// [`LoadError::Truncated`], or [`LoadError::Damaged`] when it is no plain number.
    pub fn length(&mut self) -> Result<u64, LoadError> {
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Encoded(_) => Err(damaged("a length is not a number").into()),
        }
    }

    fn any_length(&mut self) -> Result<Length, LoadError> {
        let first = self.byte()?;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(u64::from(first)),
            (1, _) => Length::Plain(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            (2, 0x80) => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            (2, 0x81) => Length::Plain(u64::from_be_bytes(self.array()?)),
            (3, _) => Length::Encoded(first & 0x3f),
            _ => return Err(damaged("unknown form of a length").into()),
        })
    }

    /// A string in any of its forms.
    ///
    /// # Errors
    /// [`LoadError::Truncated`], or [`LoadError::Damaged`] when its form is unknown or it does not
    /// decompress.
    pub fn string(&mut self) -> Result<Cow<'a, [u8]>, LoadError> {
        let integer = match self.any_length()? {
            Length::Plain(length) => return self.bytes(length).map(Cow::Borrowed),
            Length::Encoded(0) => i64::from(i8::from_le_bytes(self.array()?)),
            Length::Encoded(1) => i64::from(i16::from_le_bytes(self.array()?)),
            Length::Encoded(2) => i64::from(i32::from_le_bytes(self.array()?)),
            Length::Encoded(3) => return self.compressed().map(Cow::Owned),
            Length::Encoded(_) => return Err(damaged("unknown form of a string").into()),
        };
        Ok(Cow::Owned(IntText::new(integer).as_bytes().to_vec()))
    }

    fn compressed(&mut self) -> Result<Vec<u8>, LoadError> {
        let packed_len = self.length()?;
        let length = self.length()?;
        let packed = self.bytes(packed_len)?;
        let length = usize::try_from(length).map_err(|_| damaged("a string of no size"))?;
        Ok(decompress(packed, length).ok_or(damaged("a string does not decompress"))?)
    }

    /// A score, as it was in memory.
    ///
    /// # Errors
    /// [`LoadError::Truncated`].
    pub fn double(&mut self) -> Result<f64, LoadError> {
        self.array().map(f64::from_le_bytes)
    }

    /// A score as text: the form of old versions.
    ///
    /// # Errors
    /// [`LoadError::Truncated`], or [`LoadError::Damaged`] when it is no number.
    pub fn text_double(&mut self) -> Result<f64, LoadError> {
        let refusal = damaged("a score is not a number");
        self.text_double_by(|text| parse_f64(text).ok_or(refusal.into()))
    }

    /// The same, with other rules for what is a number.
    pub(super) fn text_double_by(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<f64, LoadError>,
    ) -> Result<f64, LoadError> {
        match self.byte()? {
            253 => Ok(f64::NAN),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            length => parse(self.bytes(u64::from(length))?),
        }
    }

    /// A moment in Unix milliseconds.
    ///
    /// # Errors
    /// [`LoadError::Truncated`].
    pub fn milliseconds(&mut self) -> Result<i64, LoadError> {
        self.array().map(i64::from_le_bytes)
    }
}

fn damaged(reason: &'static str) -> Damaged {
    Damaged::new("value", reason)
}
