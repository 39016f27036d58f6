//! `redis+cluster://[user:password@]host[:port],host[:port],…`

use std::fmt;

use crate::address::{Access, Form};
use crate::mode::Mode;
use crate::node::{Node, Nodes};
use crate::url::{DEFAULT_PORT, RedisUrl, Suffix};
use tenure_backend::ConnectError;

/// How a cluster is written.
static FORM: Form = Form {
    schemes: ["redis+cluster", "rediss+cluster"],
    text: "redis+cluster://[user:password@]host1[:port],host2[:port] (any nodes of the cluster; \
           rediss+cluster:// for TLS)",
    host: "node",
    port: DEFAULT_PORT,
};

/// A parsed address.
#[derive(Clone, Debug)]
pub(crate) struct ClusterAddress {
    seeds: Vec<Node>,
    access: Access,
}

impl ClusterAddress {
    /// Whether an address is meant for this parser.
    pub(crate) fn is_meant(address: &str) -> bool {
        FORM.is_meant(address)
    }

    /// Parses an address. No error repeats a part in which a password could stand.
    pub(crate) fn parse(address: &str) -> Result<Self, ConnectError> {
        parse(address).map_err(ConnectError::Address)
    }

    /// The nodes that the address names.
    pub(super) fn seeds(&self) -> &[Node] {
        &self.seeds
    }

    /// The address of one node.
    pub(super) fn node_at(&self, node: &Node) -> RedisUrl {
        self.access.to(node)
    }

    /// The addresses of the nodes that it names.
    pub(crate) fn each(&self) -> impl Iterator<Item = RedisUrl> {
        self.seeds.iter().map(|seed| self.node_at(seed))
    }

    /// How far a grant must have got before it counts.
    pub(super) fn mode(&self) -> Mode {
        self.access.mode
    }

    /// What a person should know before using this address.
    pub(super) fn warning(&self) -> Option<String> {
        self.seeds.first().and_then(|seed| self.node_at(seed).warning())
    }
}

/// Without logins and files: fit for logs.
impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = FORM.schemes[usize::from(self.access.tls.is_some())];
        write!(f, "{scheme}://{}{}", Nodes(&self.seeds), Suffix(self.access.mode, '?'))
    }
}

fn parse(address: &str) -> Result<ClusterAddress, String> {
    let mut parts = FORM.parse(address)?;
    let login = parts.login()?;
    let mode = parts.options.take_mode()?;
    if parts.options.take_database(&parts.path)? != 0 {
        return Err("a cluster has database 0 only: write nothing after the hosts".into());
    }
    parts.no_more_options()?;
    let seeds = parts.nodes()?;
    Ok(ClusterAddress { seeds, access: Access { login, tls: parts.tls, mode } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_understood() {
        let text = "rediss+cluster://app:s%40crt@a,b:7000,[::1]:7001/0?ca=/ca.pem&mode=strict\
                    &replicas=1";
        let address = ClusterAddress::parse(text).unwrap();
        let shown = "rediss+cluster://a:6379,b:7000,[::1]:7001?mode=strict&replicas=1";
        assert_eq!(address.to_string(), shown);
        let node = address.node_at(&Node { host: "10.0.0.7".into(), port: 6380 });
        assert_eq!(node.to_string(), "rediss://10.0.0.7:6380/0?mode=strict&replicas=1");
        assert_eq!(node.login.password.as_ref().unwrap().reveal(), "s@crt");
        assert!(!format!("{address:?} {address}").contains("s@crt"));
        assert!(ClusterAddress::is_meant("Redis+Cluster://a") && address.warning().is_none());
        assert!(ClusterAddress::parse("rediss+cluster://a#insecure").unwrap().warning().is_some());
    }

    #[test]
    fn a_bad_address_says_what_to_write_and_keeps_the_secret() {
        let cases = [
            ("redis+cluster://", "host is missing"),
            ("redis+cluster://u:c4nary@a,,b", "host is missing"),
            ("redis+cluster://a,a:6379", "twice"),
            ("redis+cluster://u:c4nary@a:x", "port is not"),
            ("redis+cluster://u@a", "user without password"),
            ("redis+cluster://u:c4nary@a,u:other@b", "one login counts for all nodes"),
            ("redis+cluster://a,u:c4nary@b", "one login counts for all nodes"),
            ("redis+cluster://u:c4,nary@b", "%2C"),
            ("redis+cluster://a/3", "database 0 only"),
            ("redis+cluster://a?db=3", "database 0 only"),
            ("redis+cluster://a?ca=/x", "needs rediss+cluster://"),
            ("redis+cluster://a#insecure", "needs rediss+cluster://"),
            ("redis+cluster://a?pool=4", "unknown option \"pool\""),
            ("redis+cluster://a?mode=strict", "add &replicas=N"),
            ("redis+cluster://a\nb", "control characters"),
        ];
        for (address, expected) in cases {
            let error = ClusterAddress::parse(address).unwrap_err().to_string();
            assert!(error.contains(expected), "{address}: {error}");
            assert!(!error.contains("c4nary"), "{address}: {error}");
        }
        let same = ClusterAddress::parse("redis+cluster://u:c4nary@a,u:c4nary@b").unwrap();
        assert_eq!(same.to_string(), "redis+cluster://a:6379,b:6379", "nothing is unclear there");
        let many = (0..32).map(|number| format!("h{number}")).collect::<Vec<_>>().join(",");
        assert!(ClusterAddress::parse(&format!("redis+cluster://{many}")).is_err());
    }
}
