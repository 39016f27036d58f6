//! A password that cannot be printed by accident.

use std::fmt;

/// Text that is used but never shown: `Debug` and `Display` print a placeholder.
///
/// ```
/// let password = tenure::backend::Secret::new("hunter2");
/// assert_eq!(format!("{password} {password:?}"), "*** ***");
/// assert_eq!(password.reveal(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Takes the text into custody.
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
