//! What CLUSTER tells: INFO, NODES, SLOTS, SHARDS, LINKS.

use std::fmt::Write as _;

use store_cluster::{Cluster, LinkId, Node, NodeIndex};
use store_resp::slot::SLOT_COUNT;

use super::ClusterState;
use crate::commands::prelude::*;
use crate::config::{EndpointType, Settings};
use crate::session::Session;

/// Where a client reaches a node.
pub(super) struct Endpoint {
    /// `None` where it is the one that the client knows already.
    pub(super) host: Option<String>,
    pub(super) port: u16,
}

/// As the settings want clients to be told.
pub(super) fn endpoint_of(settings: &Settings, session: &Session, node: &Node) -> Endpoint {
    let host = match settings.cluster.endpoint {
        EndpointType::Ip => Some(node.address.ip.to_string()),
        EndpointType::Hostname => Some(node.hostname.as_deref().unwrap_or("?").to_owned()),
        EndpointType::Unknown => None,
    };
    Endpoint { host, port: port_for(settings, session, node) }
}

/// Clients without TLS are told the port without TLS, where there is one.
fn port_for(settings: &Settings, session: &Session, node: &Node) -> u16 {
    let wants_plain = settings.tls.encrypts_bus && !session.origin.is_encrypted;
    match node.address.plain_port {
        0 => node.address.port,
        plain if wants_plain => plain,
        _ => node.address.port,
    }
}

/// CLUSTER INFO.
pub(super) fn info(state: &ClusterState) -> String {
    let machine = &state.machine;
    let (mut fine, mut suspected, mut failed) = (0, 0, 0);
    for (_, node) in machine.nodes().iter() {
        let count = match (node.is_failed(), node.is_suspected()) {
            (true, _) => &mut failed,
            (false, true) => &mut suspected,
            (false, false) => &mut fine,
        };
        *count += usize::from(node.slot_count);
    }
    let me = machine.me();
    let my_epoch = me.master.map_or(me.config_epoch, |master| machine.nodes()[master].config_epoch);
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        _ = write!(text, "{name}:{value}\r\n");
    };
    line("cluster_state", &if machine.is_ok() { "ok" } else { "fail" });
    line("cluster_slots_assigned", &machine.slots_owned());
    line("cluster_slots_ok", &fine);
    line("cluster_slots_pfail", &suspected);
    line("cluster_slots_fail", &failed);
    line("cluster_known_nodes", &machine.nodes().len());
    line("cluster_size", &machine.size());
    line("cluster_current_epoch", &machine.current_epoch());
    line("cluster_my_epoch", &my_epoch);
    for (counts, way) in [(&state.sent, "sent"), (&state.received, "received")] {
        for (kind, count) in counts.named() {
            line(&format!("cluster_stats_messages_{kind}_{way}"), &count);
        }
        line(&format!("cluster_stats_messages_{way}"), &counts.total());
    }
    line("total_cluster_links_buffer_limit_exceeded", &state.links_overrun);
    if machine.was_never_in_step() {
        line("tenure_never_in_step", &1);
    }
    text
}

/// CLUSTER NODES.
pub(super) fn nodes(cx: &Context<'_>, machine: &Cluster) -> String {
    let mut text = String::new();
    for (index, node) in machine.nodes().iter() {
        write_node(cx, machine, &mut text, index, node);
        text.push('\n');
    }
    text
}

pub(super) fn write_node(
    cx: &Context<'_>,
    machine: &Cluster,
    text: &mut String,
    index: NodeIndex,
    node: &Node,
) {
    let port = port_for(cx.server.config.settings(), cx.session, node);
    machine.write_line(text, index, node, port);
}

/// How far the data of a node is, as it is known here.
fn offset_of(machine: &Cluster, index: NodeIndex, node: &Node) -> u64 {
    if index == machine.my_index() { machine.data().offset } else { node.offset }
}

/// CLUSTER SLOTS: stretches of slots with who serves them.
pub(super) fn slots(cx: &mut Context<'_>, machine: &Cluster) {
    let mut ranges: Vec<(u16, u16, NodeIndex)> = Vec::new();
    for slot in 0..SLOT_COUNT {
        let Some(owner) = machine.owner(slot) else { continue };
        match ranges.last_mut() {
            Some((_, last, of)) if *of == owner && *last + 1 == slot => *last = slot,
            _ => ranges.push((slot, slot, owner)),
        }
    }
    cx.reply.array(ranges.len());
    for (first, last, owner) in ranges {
        let is_shown = |index: NodeIndex, node: &Node| {
            !node.is_failed() && offset_of(machine, index, node) > 0
        };
        let replicas = machine.nodes().replicas_of(owner);
        let replicas: Vec<_> = replicas.filter(|(index, node)| is_shown(*index, node)).collect();
        cx.reply.array(3 + replicas.len());
        cx.reply.integer(i64::from(first));
        cx.reply.integer(i64::from(last));
        reply_place(cx, &machine.nodes()[owner]);
        replicas.into_iter().for_each(|(_, node)| reply_place(cx, node));
    }
}

/// A node in CLUSTER SLOTS.
fn reply_place(cx: &mut Context<'_>, node: &Node) {
    let settings = cx.server.config.settings();
    let endpoint = endpoint_of(settings, cx.session, node);
    let kind = settings.cluster.endpoint;
    cx.reply.array(4);
    match &endpoint.host {
        Some(host) => cx.reply.bulk(host.as_bytes()),
        None => cx.reply.null(),
    }
    cx.reply.integer(i64::from(endpoint.port));
    cx.reply.bulk(&node.id.text());
    let ip = Some(&node.address.ip).filter(|_| kind != EndpointType::Ip);
    let hostname = node.hostname.as_ref().filter(|_| kind != EndpointType::Hostname);
    cx.reply.map(usize::from(ip.is_some()) + usize::from(hostname.is_some()));
    for (name, value) in [("ip", ip), ("hostname", hostname)] {
        if let Some(value) = value {
            cx.reply.bulk(name.as_bytes());
            cx.reply.bulk(value.as_bytes());
        }
    }
}

/// CLUSTER SHARDS: masters with their slots and replicas.
pub(super) fn shards(cx: &mut Context<'_>, machine: &Cluster) {
    let masters = || machine.nodes().iter().filter(|(_, node)| !node.is_replica());
    cx.reply.array(masters().count());
    for (index, master) in masters() {
        let ranges = master.slots.ranges();
        let replicas: Vec<_> = machine.nodes().replicas_of(index).collect();
        cx.reply.map(2);
        cx.reply.bulk(b"slots");
        cx.reply.array(2 * ranges.len());
        for (first, last) in ranges {
            cx.reply.integer(i64::from(first));
            cx.reply.integer(i64::from(last));
        }
        cx.reply.bulk(b"nodes");
        cx.reply.array(1 + replicas.len());
        for (index, node) in std::iter::once((index, master)).chain(replicas) {
            reply_shard_node(cx, machine, index, node);
        }
    }
}

fn reply_shard_node(cx: &mut Context<'_>, machine: &Cluster, index: NodeIndex, node: &Node) {
    let settings = cx.server.config.settings();
    let (plain, tls) = match settings.tls.encrypts_bus {
        true => (node.address.plain_port, node.address.port),
        false => (node.address.port, 0),
    };
    let endpoint = endpoint_of(settings, cx.session, node).host.unwrap_or_default();
    let offset = offset_of(machine, index, node);
    let health = match node.is_failed() {
        true => "fail",
        false if node.is_replica() && offset == 0 => "loading",
        false => "online",
    };
    let role = if node.is_replica() { "replica" } else { "master" };
    let hostname = node.hostname.as_deref();
    let ports = [("port", plain), ("tls-port", tls)].into_iter().filter(|(_, port)| *port > 0);
    let fields = 6 + ports.clone().count() + usize::from(hostname.is_some());
    cx.reply.map(fields);
    let mut text = |name: &str, value: &[u8]| {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(value);
    };
    text("id", &node.id.text());
    for (name, port) in ports {
        cx.reply.bulk(name.as_bytes());
        cx.reply.integer(i64::from(port));
    }
    let mut text = |name: &str, value: &[u8]| {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(value);
    };
    text("ip", node.address.ip.as_bytes());
    text("endpoint", endpoint.as_bytes());
    if let Some(hostname) = hostname {
        text("hostname", hostname.as_bytes());
    }
    text("role", role.as_bytes());
    cx.reply.bulk(b"replication-offset");
    cx.reply.integer(offset as i64);
    cx.reply.bulk(b"health");
    cx.reply.bulk(health.as_bytes());
}

/// CLUSTER LINKS. Connections of strangers are not shown.
pub(super) fn links(cx: &mut Context<'_>, state: &ClusterState) {
    let links: Vec<_> =
        state.links.iter().filter_map(|link| Some((link, link.node.as_ref()?))).collect();
    cx.reply.array(links.len());
    for (link, node) in links {
        let direction = match link.link {
            LinkId::Dialled { .. } => "to",
            LinkId::Inbound(_) => "from",
        };
        cx.reply.map(6);
        cx.reply.bulk(b"direction");
        cx.reply.bulk(direction.as_bytes());
        cx.reply.bulk(b"node");
        cx.reply.bulk(&node.text());
        cx.reply.bulk(b"create-time");
        cx.reply.integer(link.opened_at_ms as i64);
        cx.reply.bulk(b"events");
        cx.reply.bulk(if link.is_waiting { b"rw" } else { b"r" });
        cx.reply.bulk(b"send-buffer-allocated");
        cx.reply.integer(link.allocated as i64);
        cx.reply.bulk(b"send-buffer-used");
        cx.reply.integer(link.used as i64);
    }
}
