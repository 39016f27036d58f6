//! Several servers as they are written in an address.

use std::fmt;

pub(crate) use store_client::cluster::Node;

/// Servers, separated by commas.
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
