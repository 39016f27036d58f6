//! What a node says instead of carrying a request out.

use redis::ServerError;

use super::node::Node;
use super::slot::Slot;

/// Why a node did not carry a request out. In each case nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// Another node has the slot.
    Moved {
        /// The slot.
        slot: Slot,
        /// Its owner.
        to: Node,
    },
    /// The slot is on its way, and these keys are there already: ask there, for this once.
    Ask {
        /// The slot.
        slot: Slot,
        /// The node that is to have it.
        to: Node,
    },
    /// The slot is on its way, and some of these keys are here, some there.
    TryAgain,
    /// The cluster serves nothing, or nobody has the slot.
    Down,
}

impl Redirect {
    /// The redirection in an error reply, if it is one. `asked` is the node that said so.
    pub fn parse(error: &ServerError, asked: &Node) -> Option<Self> {
        Self::from_words(error.code(), error.details().unwrap_or_default(), asked)
    }

    /// The same for the text of an error reply: `MOVED 3999 127.0.0.1:6381`.
    pub fn from_text(text: &str, asked: &Node) -> Option<Self> {
        let (code, words) = text.split_once(' ').unwrap_or((text, ""));
        Self::from_words(code, words, asked)
    }

    fn from_words(code: &str, words: &str, asked: &Node) -> Option<Self> {
        match code {
            "MOVED" => {
                let (slot, to) = target(words, asked)?;
                Some(Redirect::Moved { slot, to })
            }
            "ASK" => {
                let (slot, to) = target(words, asked)?;
                Some(Redirect::Ask { slot, to })
            }
            "TRYAGAIN" => Some(Redirect::TryAgain),
            "CLUSTERDOWN" => Some(Redirect::Down),
            _ => None,
        }
    }
}

/// `3999 127.0.0.1:6381`; an empty host is the one that was asked.
fn target(words: &str, asked: &Node) -> Option<(Slot, Node)> {
    let (slot, place) = words.trim().split_once(' ')?;
    let (host, port) = place.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let host = match host.trim_matches(['[', ']']) {
        "" | "?" => asked.host.clone(),
        host => host.to_owned(),
    };
    Some((Slot::numbered(slot.parse().ok()?)?, Node { host, port }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(reply: &str) -> Option<Redirect> {
        Redirect::from_text(reply, &Node { host: "asked".into(), port: 1 })
    }

    fn at(host: &str, port: u16) -> Node {
        Node { host: host.into(), port }
    }

    #[test]
    fn every_redirection_is_understood() {
        let slot = Slot::numbered(3999).unwrap();
        let cases = [
            ("MOVED 3999 10.0.0.1:6381", Redirect::Moved { slot, to: at("10.0.0.1", 6381) }),
            ("MOVED 3999 ::1:6381", Redirect::Moved { slot, to: at("::1", 6381) }),
            ("MOVED 3999 :6381", Redirect::Moved { slot, to: at("asked", 6381) }),
            (
                "ASK 3999 node-2.example:7000",
                Redirect::Ask { slot, to: at("node-2.example", 7000) },
            ),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Redirect::TryAgain),
            ("CLUSTERDOWN Hash slot not served", Redirect::Down),
        ];
        for (reply, expected) in cases {
            assert_eq!(parsed(reply), Some(expected), "{reply}");
        }
    }

    #[test]
    fn nonsense_is_no_redirection() {
        for reply in ["MOVED x", "MOVED 16384 a:1", "MOVED 1 a:0", "MOVED 1 a", "ERR MOVED 1 a:1"] {
            assert_eq!(parsed(reply), None, "{reply}");
        }
    }
}
