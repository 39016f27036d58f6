//! The network between the nodes of a store and the instances.

use testkit::proxy::{Cut, Direction, Proxy, Rule};
use testkit::{Host, Network, RedisServer};

/// Which way nothing passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Both,
    /// What the first sends to the second.
    Forth,
    /// What the second sends to the first.
    Back,
}

/// Nodes come first in the numbering of hosts, then the places of instances.
pub(super) struct Net {
    kind: Kind,
    nodes: usize,
    places: usize,
}

enum Kind {
    /// Everybody on a host of their own: packets are really lost.
    Namespaces(Network),
    /// All on loopback; a proxy between each place and the only node, if there is but one.
    Loopback { proxies: Vec<Proxy>, why: String },
}

impl Net {
    pub(super) fn new(nodes: usize, places: usize, loopback: bool) -> Self {
        let network = match loopback {
            true => Err("not asked for".to_owned()),
            false => Network::create(nodes + places),
        };
        let kind = match network {
            Ok(network) => Kind::Namespaces(network),
            Err(why) => Kind::Loopback { proxies: Vec::new(), why },
        };
        Net { kind, nodes, places }
    }

    /// What this network cannot do, and why.
    pub(super) fn limits(&self) -> Option<String> {
        let Kind::Loopback { why, .. } = &self.kind else { return None };
        let what = match self.nodes {
            1 => "partitions by a proxy in front of each instance",
            _ => "no partitions",
        };
        Some(format!("no network namespaces ({why}): loopback, {what}"))
    }

    /// Whether nodes can be cut off from each other.
    pub(super) fn parts_nodes(&self) -> bool {
        matches!(self.kind, Kind::Namespaces(_))
    }

    /// Whether instances can be cut off from nodes.
    pub(super) fn parts_places(&self) -> bool {
        self.parts_nodes() || self.nodes == 1
    }

    pub(super) fn node(&self, node: usize) -> Host {
        self.host(node)
    }

    pub(super) fn place(&self, place: usize) -> Host {
        self.host(self.nodes + place)
    }

    fn host(&self, index: usize) -> Host {
        match &self.kind {
            Kind::Namespaces(network) => network.host(index).clone(),
            Kind::Loopback { .. } => Host::loopback(),
        }
    }

    /// The address of a store with one node, as seen from a place.
    pub(super) fn address_of(&mut self, server: &RedisServer, place: usize) -> String {
        let Kind::Loopback { proxies, .. } = &mut self.kind else { return server.url() };
        while proxies.len() < self.places {
            proxies.push(Proxy::in_front_of(server));
        }
        server.url_at(proxies[place].port())
    }

    /// Lets nothing pass between two nodes.
    pub(super) fn part_nodes(&mut self, first: usize, second: usize, way: Way) {
        let Kind::Namespaces(network) = &mut self.kind else { return };
        if way != Way::Back {
            network.cut(first, second);
        }
        if way != Way::Forth {
            network.cut(second, first);
        }
    }

    /// Lets nothing pass between a place and a node.
    pub(super) fn part_place(&mut self, place: usize, node: usize, way: Way) {
        match &mut self.kind {
            Kind::Namespaces(_) => self.part_nodes(self.nodes + place, node, way),
            Kind::Loopback { proxies, .. } => {
                let Some(proxy) = proxies.get(place) else { return };
                match way {
                    Way::Both => proxy.set_rules(Rule::Swallow),
                    Way::Forth => proxy.set_rule(Direction::ToServer, Rule::Swallow),
                    Way::Back => proxy.set_rule(Direction::ToClient, Rule::Swallow),
                }
            }
        }
    }

    pub(super) fn heal(&mut self) {
        match &mut self.kind {
            Kind::Namespaces(network) => network.heal(),
            Kind::Loopback { proxies, .. } => {
                for proxy in proxies {
                    // What was swallowed would be missing in the middle of a stream.
                    proxy.cut(Cut::Reset);
                    proxy.heal();
                }
            }
        }
    }
}
