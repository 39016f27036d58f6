//! Where a cluster is: a few of its nodes, and how to log in to all of them.

use redis::{Client, ConnectionAddr, ConnectionInfo};

use super::error::ClusterError;
use super::node::Node;

/// A node of each zone and a few more; the others are found by asking.
const SEEDS_MAX: usize = 32;

/// The nodes that an address names, and the login and encryption for every node.
#[derive(Clone)]
pub(super) struct ClusterSeeds {
    seeds: Vec<Node>,
    /// How a node is reached; only host and port differ.
    template: ConnectionInfo,
}

impl ClusterSeeds {
    /// Reads `redis+cluster://[user:password@]host[:port],host[:port],…`, or the address of one
    /// node. The error never repeats the text, in which a password may be.
    pub(super) fn parse(text: &str) -> Result<Self, ClusterError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(unusable)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "redis" | "redis+cluster" => "redis",
            "rediss" | "rediss+cluster" => "rediss",
            _ => return Err(unusable()),
        };
        let (authority, suffix) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let nodes = hosts.split(',').map(|host| format!("{scheme}://{login}{host}{suffix}"));
        let clients = nodes.map(|node| Client::open(node.as_str()).map_err(|_| refusal(&node)));
        Self::of_clients(clients.collect::<Result<Vec<_>, _>>()?)
    }

    /// The nodes of these clients. The first one's login and encryption count for all.
    pub(super) fn of_clients(clients: Vec<Client>) -> Result<Self, ClusterError> {
        let template = match clients.first() {
            Some(client) => client.get_connection_info().clone(),
            None => return Err(ClusterError::Address("no node is named".into())),
        };
        if template.redis_settings().db() != 0 {
            return Err(ClusterError::Address("a cluster has database 0 only".into()));
        }
        let seeds: Option<Vec<Node>> = clients
            .iter()
            .take(SEEDS_MAX)
            .map(|client| place(client.get_connection_info()))
            .collect();
        let seeds = seeds.ok_or_else(|| {
            ClusterError::Address("the nodes of a cluster are reached by TCP only".into())
        })?;
        Ok(Self { seeds, template })
    }

    pub(super) fn seeds(&self) -> &[Node] {
        &self.seeds
    }

    /// How to reach a node.
    pub(super) fn of_node(&self, node: &Node) -> ConnectionInfo {
        let addr = match self.template.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: node.host.clone(),
                port: node.port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(node.host.clone(), node.port),
        };
        self.template.clone().set_addr(addr)
    }
}

fn place(info: &ConnectionInfo) -> Option<Node> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(Node { host: host.clone(), port: *port })
        }
        _ => None,
    }
}

/// Why the address of one node is not taken.
fn refusal(node: &str) -> ClusterError {
    match node.strip_prefix("rediss://") {
        Some(rest) if Client::open(format!("redis://{rest}")).is_ok() => ClusterError::Address(
            "this program was built without TLS: enable the feature `tls` of store-client, or write \
             redis+cluster:// where the nodes take plain connections"
                .into(),
        ),
        _ => unusable(),
    }
}

fn unusable() -> ClusterError {
    let text = "not the address of a cluster: write redis+cluster://[user:password@]host1[:port],\
                host2[:port] (any nodes of it; rediss+cluster:// for TLS)";
    ClusterError::Address(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_some_nodes_and_the_login_for_all() {
        let address =
            ClusterSeeds::parse("redis+cluster://app:s%40crt@a,b:7000,[::1]:7001").unwrap();
        let seeds: Vec<_> = address.seeds().iter().map(ToString::to_string).collect();
        assert_eq!(seeds, ["a:6379", "b:7000", "[::1]:7001"]);
        let node = address.of_node(&Node { host: "10.0.0.7".into(), port: 6380 });
        assert_eq!(node.addr(), &ConnectionAddr::Tcp("10.0.0.7".into(), 6380));
        assert_eq!(node.redis_settings().username(), Some("app"));
        assert_eq!(node.redis_settings().password(), Some("s@crt"));
        assert_eq!(ClusterSeeds::parse("redis://a:7").unwrap().seeds().len(), 1);
    }

    #[test]
    fn what_needs_tls_says_so_where_there_is_none() {
        let encrypted = ClusterSeeds::parse("rediss+cluster://u:c4nary@a,b:7000");
        let told = refusal("rediss://u:c4nary@a").to_string();
        assert!(told.contains("built without TLS") && !told.contains("c4nary"), "{told}");
        match Client::open("rediss://a").is_ok() {
            true => assert_eq!(encrypted.unwrap().seeds().len(), 2),
            false => assert_eq!(encrypted.err().unwrap().to_string(), told),
        }
    }

    #[test]
    fn a_bad_address_says_what_to_write_and_keeps_the_secret() {
        let cases = [
            ("a:1", "write redis+cluster://"),
            ("http://a", "write redis+cluster://"),
            ("redis+cluster://u:c4nary@a,b:x", "write redis+cluster://"),
            ("redis+cluster://u:c4nary@a/3", "database 0 only"),
            ("unix:///x", "write redis+cluster://"),
        ];
        for (text, expected) in cases {
            let error = ClusterSeeds::parse(text).err().unwrap().to_string();
            assert!(error.contains(expected) && !error.contains("c4nary"), "{text}: {error}");
        }
    }
}
