//! DEBUG CLUSTERLINK and DROP-CLUSTER-PACKET-FILTER: tests make trouble on the bus.

use store_cluster::NodeId;

use crate::commands::prelude::*;

/// Connections that are to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KilledLinks {
    /// Of which node.
    pub node: NodeId,
    /// Those that were opened from here.
    pub to: bool,
    /// Those that were opened from there.
    pub from: bool,
}

pub(crate) fn kill_links(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let Some(cluster) = cx.server.cluster.as_deref_mut() else {
        let text = "ERR Debug option only available for cluster mode enabled setup!";
        return Err(CommandError::text(text));
    };
    let (way, name) = (request.arg(3), request.arg(4));
    let is_all = is_word(way, "all");
    let (to, from) = (is_all || is_word(way, "to"), is_all || is_word(way, "from"));
    if !is_word(request.arg(2), "KILL") || !(to || from) {
        return Err(CommandError::SYNTAX);
    }
    let node = NodeId::parse(name).filter(|id| cluster.machine.nodes().find(*id).is_some());
    let unknown = || CommandError::new([b"ERR Unknown node ", name].concat());
    cluster.killed_links.push(KilledLinks { node: node.ok_or_else(unknown)?, to, from });
    cx.reply.ok();
    Ok(())
}

pub(crate) fn drop_packets(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let kind = integer(request.arg(2))?;
    if let Some(cluster) = cx.server.cluster.as_deref_mut() {
        cluster.dropped_kind = u16::try_from(kind).ok();
    }
    cx.reply.ok();
    Ok(())
}
