//! `redis+quorum://[user:password@]host[:port],[user:password@]host[:port],…[/db]`

use std::fmt;

use tenure_core::quorum::Quorum;

use crate::{DEFAULT_PORT, Endpoint, Form, Login, Mode, Node, Nodes, RedisUrl};
use tenure_backend::ConnectError;

/// How a quorum is written.
pub(super) static FORM: Form = Form {
    schemes: ["redis+quorum", "rediss+quorum"],
    text: "redis+quorum://[user:password@]host1[:port],host2[:port],host3[:port][/db] \
           (rediss+quorum:// for TLS; a login before the first host counts for all that have none \
           of their own)",
    host: "node",
    port: DEFAULT_PORT,
};

/// A parsed address.
#[derive(Clone, Debug)]
pub(crate) struct QuorumAddress {
    nodes: Vec<RedisUrl>,
    shown: String,
}

impl QuorumAddress {
    /// Whether an address is meant for this parser.
    pub(crate) fn is_meant(address: &str) -> bool {
        FORM.is_meant(address)
    }

    /// Parses an address. No error repeats a part in which a password could stand.
    pub(crate) fn parse(address: &str) -> Result<Self, ConnectError> {
        parse(address).map_err(ConnectError::Address)
    }

    /// The nodes, each with its login.
    pub(crate) fn nodes(&self) -> &[RedisUrl] {
        &self.nodes
    }
}

fn parse(address: &str) -> Result<QuorumAddress, String> {
    let mut parts = FORM.parse(address)?;
    if let Some(name) = ["mode", "replicas"].iter().find(|name| parts.options.take(name).is_some())
    {
        return Err(format!(
            "?{name}= does not go with several nodes, which are a mode of their own: write {}",
            FORM.text
        ));
    }
    let database = parts.options.take_database(&parts.path)?;
    parts.no_more_options()?;
    let hosts = parts.hosts()?;
    Quorum::of(hosts.len()).map_err(|error| error.to_string())?;
    let shared = hosts.first().and_then(|host| host.login.clone()).unwrap_or_default();
    let each = hosts.iter().map(|host| {
        let Node { host: name, port } = host.node.clone();
        let login = host.login.clone().unwrap_or_else(|| shared.clone());
        RedisUrl {
            place: Endpoint::Tcp { host: name, port, tls: parts.tls.clone() },
            login: Login { database, ..login },
            mode: Mode::Available,
        }
    });
    let names: Vec<Node> = hosts.iter().map(|host| host.node.clone()).collect();
    let scheme = FORM.schemes[usize::from(parts.tls.is_some())];
    let shown = format!("{scheme}://{}/{database}", Nodes(&names));
    Ok(QuorumAddress { nodes: each.collect(), shown })
}

/// Without logins and files: fit for logs.
impl fmt::Display for QuorumAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
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
        assert!(
            matches!(&address.nodes()[1].place, Endpoint::Tcp { tls: Some(tls), .. } if tls.ca.is_some())
        );
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
