//! Where a server is, as another one tells it.

use std::fmt;

use super::text::cleaned;

/// A server as sentinels or other servers name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", cleaned(&self.host), self.port),
            false => write!(f, "{}:{}", cleaned(&self.host), self.port),
        }
    }
}

/// Several of them as they stand in an address.
pub(crate) struct Nodes<'a>(pub(crate) &'a [Node]);

impl fmt::Display for Nodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{node}")?;
        }
        Ok(())
    }
}
