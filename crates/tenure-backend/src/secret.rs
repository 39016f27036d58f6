//! Text that must never be shown: passwords, and addresses that may contain one.

use std::fmt;

/// Text that is used but never shown: `Debug` and `Display` print stars. Only
/// [`reveal`](Self::reveal) returns it, so that a search for that word finds every place where it
/// is used.
///
/// ```
/// # use tenure_backend::Secret;
/// let password = Secret::new("correct horse");
/// assert_eq!(format!("{password} {password:?}"), "*** ***");
/// assert_eq!(password.reveal(), "correct horse");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Makes the text a secret.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Secret(text.into())
    }

    /// The text itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
