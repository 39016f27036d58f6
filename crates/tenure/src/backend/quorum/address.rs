//! `redis+quorum://[user:password@]host[:port],[user:password@]host[:port],…[/db]`

use std::fmt;

use tenure_core::quorum::Quorum;

use super::SCHEMES;
use crate::backend::ConnectError;
use crate::backend::redis::{Place, QuorumParts, RedisUrl};

/// The address as people write it, for messages.
const FORM: &str = "redis+quorum://[user:password@]host1[:port],host2[:port],host3[:port][/db] \
                    (rediss+quorum:// for TLS; a login before the first host counts for all that \
                    have none of their own)";

/// A parsed address.
#[derive(Clone, Debug)]
pub(super) struct QuorumAddress {
    nodes: Vec<RedisUrl>,
    is_encrypted: bool,
}

impl QuorumAddress {
    /// Parses an address. No error repeats a part in which a password could stand.
    pub(super) fn parse(address: &str) -> Result<Self, ConnectError> {
        parse(address.trim()).map_err(ConnectError::Address)
    }

    /// The nodes, each with its login.
    pub(super) fn nodes(&self) -> &[RedisUrl] {
        &self.nodes
    }
}

fn parse(address: &str) -> Result<QuorumAddress, String> {
    let (scheme, rest) = address.split_once("://").ok_or_else(|| format!("write {FORM}"))?;
    let is_encrypted = scheme.eq_ignore_ascii_case(SCHEMES[1]);
    let nodes = QuorumParts { rest, is_encrypted, form: FORM }.nodes()?;
    for (index, node) in nodes.iter().enumerate() {
        let is_same = |other: &RedisUrl| place(&other.place) == place(&node.place);
        if nodes[..index].iter().any(is_same) {
            return Err(format!("the node {node} stands there twice: name each node once"));
        }
    }
    Quorum::of(nodes.len()).map_err(|error| error.to_string())?;
    Ok(QuorumAddress { nodes, is_encrypted })
}

fn place(place: &Place) -> (String, u16) {
    match place {
        Place::Tcp { host, port } | Place::Tls { host, port, .. } => {
            (host.to_ascii_lowercase(), *port)
        }
        Place::Unix { path } => (path.display().to_string(), 0),
    }
}

/// Without logins and files: fit for logs.
impl fmt::Display for QuorumAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", SCHEMES[usize::from(self.is_encrypted)])?;
        for (index, node) in self.nodes.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let (host, port) = place(&node.place);
            match host.contains(':') {
                true => write!(f, "{comma}[{host}]:{port}")?,
                false => write!(f, "{comma}{host}:{port}")?,
            }
        }
        write!(f, "/{}", self.nodes.first().map_or(0, |node| node.login.database))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_understood() {
        let text = "rediss+quorum://app:s%40crt@a,b:7000,other:pw%2C2@[::1]:7001/3?ca=/ca.pem";
        let address = QuorumAddress::parse(text).unwrap();
        assert_eq!(address.to_string(), "rediss+quorum://a:6379,b:7000,[::1]:7001/3");
        let logins: Vec<_> = address
            .nodes()
            .iter()
            .map(|node| {
                let login = &node.login;
                (login.user.clone().unwrap(), login.password.as_ref().unwrap().reveal().to_owned())
            })
            .collect();
        let app = ("app".to_owned(), "s@crt".to_owned());
        assert_eq!(logins, [app.clone(), app, ("other".to_owned(), "pw,2".to_owned())]);
        assert!(matches!(&address.nodes()[1].place, Place::Tls { tls, .. } if tls.ca.is_some()));
        assert!(!format!("{address:?} {address}").contains("s@crt"));
    }

    #[test]
    fn a_bad_address_says_what_to_write_and_keeps_the_secret() {
        let cases = [
            ("redis+quorum://u:c4nary@a,b", "2 nodes are too few"),
            ("redis+quorum://a,b,c,d", "4 nodes are an even number"),
            ("redis+quorum://u:c4nary@a,b,A:6379", "twice"),
            ("redis+quorum://a,,c", "host is missing"),
            ("redis+quorum://a,b:x,c", "port is not"),
            ("redis+quorum://a,b,c?ca=/x", "needs rediss+quorum://"),
            ("redis+quorum://a,b,c#insecure", "needs rediss+quorum://"),
            ("redis+quorum://a,b,c?mode=strict&replicas=1", "mode"),
            ("redis+quorum://a,b,c?pool=4", "unknown option \"pool\""),
            ("redis+quorum://a,b,c/x", "database"),
            ("redis+quorum://u:c4nary@a,b/1,c", "database"),
        ];
        for (address, expected) in cases {
            let error = QuorumAddress::parse(address).unwrap_err().to_string();
            assert!(error.contains(expected), "{address}: {error}");
            assert!(!error.contains("c4nary"), "{address}: {error}");
        }
    }
}
