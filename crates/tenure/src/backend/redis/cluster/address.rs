//! `redis+cluster://[user:password@]host[:port],host[:port],…`

use std::fmt;

use crate::backend::ConnectError;
use crate::backend::redis::mode::{Mode, ModeOptions};
use crate::backend::redis::node::Node;
use crate::backend::redis::url::{
    self, Login, Place, RedisUrl, Suffix, TlsFiles, parse_credentials, parse_query,
};

/// The address as people write it, for messages.
const FORM: &str = "redis+cluster://[user:password@]host1[:port],host2[:port] (any nodes of the \
                    cluster; rediss+cluster:// for TLS)";
const NODE_PORT: u16 = 6379;
/// More nodes than anybody names: they tell of the others.
const SEEDS_MAX: usize = 31;

/// A parsed address.
#[derive(Clone, Debug)]
pub(in crate::backend::redis) struct ClusterAddress {
    seeds: Vec<Node>,
    login: Login,
    tls: Option<TlsFiles>,
    mode: Mode,
}

impl ClusterAddress {
    /// Whether an address is meant for this parser.
    pub(in crate::backend::redis) fn is_meant(address: &str) -> bool {
        address.split_once("://").is_some_and(|(scheme, _)| {
            ["redis+cluster", "rediss+cluster"].contains(&scheme.to_ascii_lowercase().as_str())
        })
    }

    /// Parses an address. No error repeats a part in which a password could stand.
    pub(in crate::backend::redis) fn parse(address: &str) -> Result<Self, ConnectError> {
        parse(address.trim()).map_err(ConnectError::Address)
    }

    /// The nodes that the address names.
    pub(super) fn seeds(&self) -> &[Node] {
        &self.seeds
    }

    /// The address of one node.
    pub(super) fn node_at(&self, node: &Node) -> RedisUrl {
        let place = Place::network(node.host.clone(), node.port, self.tls.clone());
        RedisUrl { place, login: self.login.clone(), mode: self.mode }
    }

    /// How far a grant must have got before it counts.
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// What a person should know before using this address.
    pub(super) fn warning(&self) -> Option<String> {
        self.seeds.first().and_then(|seed| self.node_at(seed).warning())
    }
}

/// Without logins and files: fit for logs.
impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "rediss+cluster" } else { "redis+cluster" };
        let seeds: Vec<_> = self.seeds.iter().map(ToString::to_string).collect();
        write!(f, "{scheme}://{}{}", seeds.join(","), Suffix(self.mode, '?'))
    }
}

fn parse(address: &str) -> Result<ClusterAddress, String> {
    if address.chars().any(char::is_control) {
        return Err("it contains control characters".into());
    }
    let (scheme, rest) = address.split_once("://").ok_or_else(|| format!("write {FORM}"))?;
    let is_encrypted = scheme.eq_ignore_ascii_case("rediss+cluster");
    let parts = url::Parts::split(rest)?;
    let login = parse_credentials(parts.credentials)?;
    let database = parts.path.trim_matches('/');
    let mut tls =
        TlsFiles { insecure: url::parse_fragment(parts.fragment)?, ..TlsFiles::default() };
    let mut mode = ModeOptions::default();
    for (name, value) in parse_query(parts.query)? {
        match name.as_str() {
            _ if mode.take(&name, &value)? => {}
            "db" if value == "0" => {}
            "db" => return Err(only_one_database()),
            _ if tls.take_option(&name, &value) => {
                if !is_encrypted {
                    return Err(format!("?{name}= needs rediss+cluster://"));
                }
            }
            _ => return Err(url::unknown_option(&name, FORM)),
        }
    }
    if !["", "0"].contains(&database) {
        return Err(only_one_database());
    }
    if tls.insecure && !is_encrypted {
        return Err("#insecure needs rediss+cluster://".into());
    }
    let tls = is_encrypted.then_some(tls.checked()?);
    Ok(ClusterAddress { seeds: seeds(parts.hosts)?, login, tls, mode: mode.checked()? })
}

fn only_one_database() -> String {
    "a cluster has database 0 only: write nothing after the hosts".into()
}

fn seeds(hosts: &str) -> Result<Vec<Node>, String> {
    let mut seeds: Vec<Node> = Vec::new();
    for host in hosts.split(',') {
        let (host, port) = url::parse_host(host, NODE_PORT)?;
        let seed = Node { host, port };
        if seeds.contains(&seed) {
            return Err(format!("the node {seed} stands there twice: name each once"));
        }
        seeds.push(seed);
    }
    match seeds.len() > SEEDS_MAX {
        true => Err(format!("more than {SEEDS_MAX} nodes: a few are enough to find the others")),
        false => Ok(seeds),
    }
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
            ("redis+cluster://a/3", "database 0 only"),
            ("redis+cluster://a?db=3", "database 0 only"),
            ("redis+cluster://a?ca=/x", "needs rediss+cluster://"),
            ("redis+cluster://a#insecure", "needs rediss+cluster://"),
            ("redis+cluster://a?pool=4", "unknown option \"pool\""),
            ("redis+cluster://a?mode=strict", "add &replicas=1"),
            ("redis+cluster://a\nb", "control characters"),
        ];
        for (address, expected) in cases {
            let error = ClusterAddress::parse(address).unwrap_err().to_string();
            assert!(error.contains(expected), "{address}: {error}");
            assert!(!error.contains("c4nary"), "{address}: {error}");
        }
        let many = (0..32).map(|number| format!("h{number}")).collect::<Vec<_>>().join(",");
        assert!(ClusterAddress::parse(&format!("redis+cluster://{many}")).is_err());
    }
}
