//! The side record of a resource: a hash that anybody may write into, field by field.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::{InstanceId, Token};

/// The fields that the protocol knows, in the order of their names in [`FIELDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    V,
    Holder,
    Token,
    Attempt,
    GrantedAt,
    RenewedAt,
    ExpiresAt,
    MaxTtl,
    Open,
    Incarnation,
    QuarantineUntil,
    QuarantineFrom,
    QuarantineWhy,
    QuarantineNoted,
    QuarantineCovers,
    PausedUntil,
    PausedFrom,
    Unrecorded,
    Claim,
    ClaimTo,
    ClaimToken,
    ClaimFrom,
    ClaimFromToken,
    Wish,
    WishTo,
    WishBy,
    WishToken,
    WishUntil,
    WishRefused,
    Before,
    BeforeLease,
    Undone,
    Unconfirmed,
    Grant,
    Refused,
}

/// The names of the side record's fields in the store.
pub const FIELDS: [&str; 35] = [
    "v",
    "holder",
    "token",
    "attempt",
    "granted_at",
    "renewed_at",
    "expires_at",
    "max_ttl",
    "open",
    "incarnation",
    "quarantine_until",
    "quarantine_from",
    "quarantine_why",
    "quarantine_noted",
    "quarantine_covers",
    "paused_until",
    "paused_from",
    "unrecorded",
    "claim",
    "claim_to",
    "claim_token",
    "claim_from",
    "claim_from_token",
    "wish",
    "wish_to",
    "wish_by",
    "wish_token",
    "wish_until",
    "wish_refused",
    "before",
    "before_lease",
    "undone",
    "unconfirmed",
    "grant",
    "refused",
];

/// What a field holds. Numbers are kept as such: most fields are numbers, and a simulated store
/// writes them all the time.
#[derive(Clone, Debug)]
pub(super) enum FieldValue {
    Empty,
    Number(i64),
    Text(InstanceId),
}

impl FieldValue {
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            FieldValue::Empty => Cow::Borrowed(""),
            FieldValue::Number(number) => Cow::Owned(number.to_string()),
            FieldValue::Text(text) => Cow::Borrowed(text.as_str()),
        }
    }

    /// A whole number from 0 to 2^53 - 1, or nothing: others may write what they like.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            FieldValue::Empty => None,
            FieldValue::Number(number) => Some(*number).filter(|number| (0..=MAX).contains(number)),
            FieldValue::Text(text) => number(text.as_str()),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            FieldValue::Empty => true,
            FieldValue::Number(_) => false,
            FieldValue::Text(text) => text.as_str().is_empty(),
        }
    }
}

impl PartialEq for FieldValue {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (FieldValue::Number(one), FieldValue::Number(other)) => one == other,
            _ => self.text() == other.text(),
        }
    }
}

impl From<i64> for FieldValue {
    fn from(number: i64) -> Self {
        FieldValue::Number(number)
    }
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        match text {
            "" => FieldValue::Empty,
            text => FieldValue::Text(InstanceId::seen(text)),
        }
    }
}

impl From<String> for FieldValue {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&InstanceId> for FieldValue {
    fn from(id: &InstanceId) -> Self {
        FieldValue::Text(id.clone())
    }
}

const MAX: i64 = Token::MAX.get() as i64;

/// A whole number from 0 to 2^53 - 1 in a text.
pub(super) fn number(text: &str) -> Option<i64> {
    let is_plain = (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| is_plain && *number <= MAX)
}

/// The text up to a bound in bytes.
pub(super) fn shortened(text: &str, len_max: usize) -> &str {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The hash itself.
#[derive(Clone, PartialEq)]
pub(super) struct Record {
    known: [Option<FieldValue>; FIELDS.len()],
    foreign: BTreeMap<String, String>,
}

impl Default for Record {
    fn default() -> Self {
        Record { known: [const { None }; FIELDS.len()], foreign: BTreeMap::new() }
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.fields()).finish()
    }
}

impl Record {
    pub(super) fn get(&self, field: Field) -> Option<&FieldValue> {
        self.known[field as usize].as_ref()
    }

    pub(super) fn set(&mut self, field: Field, value: impl Into<FieldValue>) {
        self.known[field as usize] = Some(value.into());
    }

    /// The number in a field, if it is one.
    pub(super) fn number(&self, field: Field) -> Option<i64> {
        self.get(field)?.number()
    }

    /// Whether a field is absent or empty.
    pub(super) fn is_empty(&self, field: Field) -> bool {
        self.get(field).is_none_or(FieldValue::is_empty)
    }

    /// Whether a field is there with exactly this text.
    pub(super) fn is(&self, field: Field, text: &str) -> bool {
        match self.get(field) {
            Some(FieldValue::Text(found)) => found.as_str() == text,
            Some(value) => value.text() == text,
            None => false,
        }
    }

    /// Whether two fields are equal as a script compares them: both may be absent.
    pub(super) fn same(&self, one: Field, other: Field) -> bool {
        self.get(one) == self.get(other)
    }

    /// The text of a field, empty where it is absent.
    pub(super) fn text(&self, field: Field) -> Cow<'_, str> {
        self.get(field).map_or(Cow::Borrowed(""), FieldValue::text)
    }

    /// Cuts what is longer than any text of ours, as scripts do when they read it.
    pub(super) fn shorten(&mut self, len_max: usize, refused_len_max: usize) {
        for (index, slot) in self.known.iter_mut().enumerate() {
            let is_refused = index == Field::Refused as usize;
            let len_max = if is_refused { refused_len_max } else { len_max };
            if let Some(FieldValue::Text(text)) = slot
                && text.as_str().len() > len_max
            {
                *slot = Some(shortened(text.as_str(), len_max).into());
            }
        }
    }

    /// A field by its name, whoever wrote it.
    pub(super) fn set_named(&mut self, name: &str, value: &str) {
        match FIELDS.iter().position(|known| *known == name) {
            Some(index) => self.known[index] = Some(value.into()),
            None => drop(self.foreign.insert(name.to_owned(), value.to_owned())),
        }
    }

    pub(super) fn remove_named(&mut self, name: &str) {
        match FIELDS.iter().position(|known| *known == name) {
            Some(index) => self.known[index] = None,
            None => drop(self.foreign.remove(name)),
        }
    }

    /// Whether the hash would not exist.
    pub(super) fn has_no_fields(&self) -> bool {
        self.foreign.is_empty() && self.known.iter().all(Option::is_none)
    }

    /// Every field with its text.
    pub(super) fn fields(&self) -> impl Iterator<Item = (String, String)> {
        let known = FIELDS.iter().zip(&self.known);
        let known = known.filter_map(|(name, value)| {
            Some(((*name).to_owned(), value.as_ref()?.text().into_owned()))
        });
        known.chain(self.foreign.iter().map(|(name, value)| (name.clone(), value.clone())))
    }
}
