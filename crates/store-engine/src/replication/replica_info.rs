//! What INFO and ROLE tell on a replica.

use std::fmt::Write;

use store_replica::LinkPhase;

use crate::commands::prelude::*;
use crate::replication::LinkFacts;
use crate::state::ServerState;

/// The lines of INFO replication behind `role`, on a replica.
pub(crate) fn write_link(
    server: &ServerState,
    link: &LinkFacts,
    text: &mut String,
) -> std::fmt::Result {
    let settings = server.config.settings();
    let offset = server.replication.offset();
    let is_syncing = link.phase == LinkPhase::Sync;
    let status = if link.is_linked() { "up" } else { "down" };
    write!(text, "master_host:{}\r\nmaster_port:{}\r\n", link.host, link.port)?;
    write!(text, "master_link_status:{status}\r\n")?;
    let silent = if link.is_linked() { link.silent_seconds as i64 } else { -1 };
    write!(text, "master_last_io_seconds_ago:{silent}\r\n")?;
    write!(text, "master_sync_in_progress:{}\r\n", i32::from(is_syncing))?;
    write!(text, "slave_read_repl_offset:{}\r\n", link.read_offset)?;
    write!(text, "slave_repl_offset:{offset}\r\n")?;
    if is_syncing {
        write_transfer(link, text)?;
    }
    if let Some(seconds) = link.down_seconds {
        write!(text, "master_link_down_since_seconds:{seconds}\r\n")?;
        if link.is_stopped {
            write!(text, "tenure_master_link_stopped:1\r\n")?;
        }
    }
    write!(text, "slave_priority:{}\r\n", settings.replica.priority)?;
    write!(text, "slave_read_only:{}\r\n", i32::from(settings.replication.read_only))?;
    write!(text, "replica_announced:{}\r\n", i32::from(settings.replica.is_announced))
}

fn write_transfer(link: &LinkFacts, text: &mut String) -> std::fmt::Result {
    let (total, read) = (link.payload_bytes.unwrap_or(0), link.received_bytes);
    let percent = if total > 0 { read as f64 / total as f64 * 100.0 } else { 0.0 };
    write!(text, "master_sync_total_bytes:{total}\r\n")?;
    write!(text, "master_sync_read_bytes:{read}\r\n")?;
    write!(text, "master_sync_left_bytes:{}\r\n", total as i64 - read as i64)?;
    write!(text, "master_sync_perc:{percent:.2}\r\n")?;
    write!(text, "master_sync_last_io_seconds_ago:{}\r\n", link.silent_seconds)
}

/// ROLE on a replica.
pub(crate) fn reply_role(cx: &mut Context<'_>, link: &LinkFacts) {
    let state: &[u8] = match link.phase {
        LinkPhase::Connect => b"connect",
        LinkPhase::Connecting => b"connecting",
        LinkPhase::Handshake => b"handshake",
        LinkPhase::Sync => b"sync",
        LinkPhase::Connected => b"connected",
    };
    let offset = cx.server.replication.offset();
    cx.reply.array(5);
    cx.reply.bulk(b"slave");
    cx.reply.bulk(link.host.as_bytes());
    cx.reply.integer(i64::from(link.port));
    cx.reply.bulk(state);
    cx.reply.integer(if link.is_linked() { offset as i64 } else { -1 });
}
