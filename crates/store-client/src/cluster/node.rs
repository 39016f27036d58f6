//! Where a node is, as another one tells it.

use std::fmt::{self, Write as _};

/// How much of a host's name is shown: a name has 253 characters at the most.
const HOST_SHOWN_MAX: usize = 253;

/// The address of a server, as clients, sentinels or other servers give it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// Its name or address.
    pub host: String,
    /// The port for clients.
    pub port: u16,
}

/// One visible line, whatever a server said about its host.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_bracketed = self.host.contains(':');
        if is_bracketed {
            f.write_char('[')?;
        }
        for c in self.host.chars().take(HOST_SHOWN_MAX) {
            match c.is_ascii_graphic() {
                true => f.write_char(c)?,
                false => write!(f, "{}", c.escape_default())?,
            }
        }
        if is_bracketed {
            f.write_char(']')?;
        }
        write!(f, ":{}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_one_visible_line_whatever_its_host_is_said_to_be() {
        let shown = |host: &str| Node { host: host.into(), port: 1 }.to_string();
        assert_eq!(shown("node-1.example"), "node-1.example:1");
        assert_eq!(shown("::1"), "[::1]:1");
        assert_eq!(shown("a\n\u{1b}[31m\u{202e}"), r"a\n\u{1b}[31m\u{202e}:1");
        assert!(shown(&"x".repeat(10_000)).len() < 300);
    }
}
