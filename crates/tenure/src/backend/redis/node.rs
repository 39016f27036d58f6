//! Where a server is, as another one tells it.

use std::fmt;

use super::text::cleaned;

/// A server as sentinels or other servers name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Node {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", cleaned(&self.host), self.port),
            false => write!(f, "{}:{}", cleaned(&self.host), self.port),
        }
    }
}
