//! INFO and TIME: what the server tells of itself.

use std::fmt::Write;

use super::memory::account;
use super::prelude::*;
use crate::REDIS_VERSION;
use crate::persistence::Loading;
use crate::pubsub::TopicKind;
use crate::sentinel::{self, SentinelRequest};
use crate::session::session_flag;

pub(super) const TABLE: &[Command] = &[
    Command::new("info", AtLeast(1), LOADING | STALE | SENTINEL | TELLS_OFFSET, info)
        .categories(category::DANGEROUS)
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .docs(Group::Server, "1.0.0", "O(1)", "Facts about the server.")
        .arguments("?*section#s")
        .history(&[("7.0.0", "Takes several sections.")]),
    Command::new("time", Exactly(1), LOADING | STALE | FAST, time)
        .tips(&["nondeterministic_output"])
        .docs(Group::Server, "2.6.0", "O(1)", "The server's clock: unix seconds and microseconds."),
];

/// One section of INFO.
struct Section {
    name: &'static str,
    title: &'static str,
    /// Whether plain INFO shows it.
    is_default: bool,
    servers: Servers,
    write: fn(&Context<'_>, &mut String) -> std::fmt::Result,
}

/// Which servers have a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Servers {
    All,
    Stores,
    Sentinels,
}

impl Servers {
    fn contains(self, is_sentinel: bool) -> bool {
        self == Self::All || (self == Self::Sentinels) == is_sentinel
    }
}

/// In the order in which they are told. A family with facts of its own adds them here.
const SECTIONS: &[Section] = &[
    Section {
        name: "server",
        title: "Server",
        is_default: true,
        servers: Servers::All,
        write: server,
    },
    Section {
        name: "clients",
        title: "Clients",
        is_default: true,
        servers: Servers::All,
        write: clients,
    },
    Section {
        name: "memory",
        title: "Memory",
        is_default: true,
        servers: Servers::Stores,
        write: memory,
    },
    Section {
        name: "persistence",
        title: "Persistence",
        is_default: true,
        servers: Servers::Stores,
        write: persistence,
    },
    Section {
        name: "stats",
        title: "Stats",
        is_default: true,
        servers: Servers::All,
        write: stats,
    },
    Section {
        name: "replication",
        title: "Replication",
        is_default: true,
        servers: Servers::Stores,
        write: replication,
    },
    Section { name: "cpu", title: "CPU", is_default: true, servers: Servers::All, write: cpu },
    Section {
        name: "modules",
        title: "Modules",
        is_default: true,
        servers: Servers::Stores,
        write: |_, _| Ok(()),
    },
    Section {
        name: "commandstats",
        title: "Commandstats",
        is_default: false,
        servers: Servers::Stores,
        write: commandstats,
    },
    Section {
        name: "errorstats",
        title: "Errorstats",
        is_default: true,
        servers: Servers::Stores,
        write: errorstats,
    },
    Section {
        name: "latencystats",
        title: "Latencystats",
        is_default: false,
        servers: Servers::Stores,
        write: latencystats,
    },
    Section {
        name: "cluster",
        title: "Cluster",
        is_default: true,
        servers: Servers::Stores,
        write: cluster,
    },
    Section {
        name: "keyspace",
        title: "Keyspace",
        is_default: true,
        servers: Servers::Stores,
        write: keyspace,
    },
    Section {
        name: "sentinel",
        title: "Sentinel",
        is_default: true,
        servers: Servers::Sentinels,
        write: |cx, text| text.write_str(&cx.server.sentinel.info),
    },
];

fn info(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let asked = |name: &str| request.args_from(1).any(|word| is_word(word, name));
    let everything = asked("all") || asked("everything");
    let defaults = request.len() == 1 || asked("default");
    let is_sentinel = cx.server.identity.is_sentinel;
    if is_sentinel && !sentinel::is_told(cx) {
        return sentinel::hold(cx, request, SentinelRequest::Tell);
    }
    let mut text = String::new();
    for section in SECTIONS.iter().filter(|section| section.servers.contains(is_sentinel)) {
        if everything || defaults && section.is_default || asked(section.name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str(&format!("# {}\r\n", section.title));
            let written = (section.write)(cx, &mut text);
            written.expect("writing to a string cannot fail");
        }
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn time(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    // The moment of a request stands still for keys; the time goes on within scripts and EXEC.
    let now_us = cx.busy_handler.now_us().unwrap_or_else(|| cx.db.now_us());
    cx.reply.array(2);
    cx.reply.bulk_integer((now_us / 1_000_000) as i64);
    cx.reply.bulk_integer((now_us % 1_000_000) as i64);
    Ok(())
}

/// `name:value` lines.
macro_rules! facts {
    ($text:ident, $($name:literal => $value:expr,)*) => {
        $(write!($text, concat!($name, ":{}\r\n"), $value)?;)*
    };
}

fn server(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    let (identity, now_ms) = (&cx.server.identity, cx.db.now_ms());
    let uptime = now_ms.saturating_sub(identity.started_at_ms) / 1000;
    let of_incarnation = now_ms.saturating_sub(identity.incarnation_since_ms) / 1000;
    let history = if identity.history_complete { "complete" } else { "unknown" };
    facts!(text,
        "redis_version" => REDIS_VERSION,
        "redis_git_sha1" => "00000000",
        "redis_git_dirty" => 0,
        "redis_build_id" => "0",
        "redis_mode" => cx.server.mode(),
        "tenure_version" => env!("CARGO_PKG_VERSION"),
        "tenure_incarnation" => identity.incarnation,
        "tenure_incarnation_seconds" => of_incarnation,
        "tenure_history" => history,
        "os" => identity.system,
        "arch_bits" => usize::BITS,
        "monotonic_clock" => "POSIX",
        "multiplexing_api" => "epoll",
        "atomicvar_api" => "c11-builtin",
        "gcc_version" => "0.0.0",
        "process_id" => identity.process_id,
        "process_supervised" => "no",
        "run_id" => identity.run_id,
        "tcp_port" => identity.tcp_port,
        "server_time_usec" => cx.db.now_us(),
        "uptime_in_seconds" => uptime,
        "uptime_in_days" => uptime / 86_400,
        "hz" => cx.server.config.settings().keys.hz,
        "configured_hz" => cx.server.config.settings().keys.hz,
        "lru_clock" => (now_ms / 1000) & 0x00ff_ffff,
        "executable" => identity.executable,
        "config_file" => identity.config_file,
        "io_threads_active" => 0,
    );
    Ok(())
}

fn clients(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    let sessions = || cx.server.sessions.iter();
    let waits = || sessions().filter_map(|session| session.blocked.as_ref());
    let timed = waits().filter(|blocked| blocked.deadline_ms.is_some());
    let leaving = sessions().filter(|session| session.has(session_flag::CLOSING));
    let unread = sessions().map(|session| session.output.unread());
    let input = sessions().map(|session| session.query_capacity);
    facts!(text,
        "connected_clients" => cx.server.sessions.count() - leaving.count(),
        "cluster_connections" => cx.server.cluster.as_ref().map_or(0, |it| it.links.len()),
        "maxclients" => cx.server.config.settings().clients.count_max,
        "client_recent_max_input_buffer" => input.max().unwrap_or(0),
        "client_recent_max_output_buffer" => unread.max().unwrap_or(0),
        "blocked_clients" => waits().count() + cx.server.postponed.len(),
        "tracking_clients" => cx.server.tracking.session_count(),
        "clients_in_timeout_table" => timed.count(),
    );
    Ok(())
}

fn memory(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    let (account, freeing) = (account(cx), cx.db.freeing_stats());
    let scripts = cx.server.scripting.usage();
    let machine_bytes = cx.server.platform.usage().machine_bytes;
    let (used, peak, resident) = (account.used, account.peak, account.resident);
    let fragmentation = format!("{:.2}", account.fragmentation());
    let over = account.fragmentation_bytes();
    let memory_max = cx.server.config.settings().memory.max;
    facts!(text,
        "used_memory" => used,
        "used_memory_human" => human(used),
        "used_memory_rss" => resident,
        "used_memory_rss_human" => human(resident),
        "used_memory_peak" => peak,
        "used_memory_peak_human" => human(peak),
        "used_memory_peak_perc" => format!("{:.2}%", account.peak_share()),
        "used_memory_overhead" => account.overhead,
        "used_memory_startup" => account.base,
        "used_memory_dataset" => account.dataset,
        "used_memory_dataset_perc" => format!("{:.2}%", account.dataset_share()),
        "allocator_allocated" => used,
        "allocator_active" => used,
        "allocator_resident" => resident,
        "total_system_memory" => machine_bytes,
        "total_system_memory_human" => human(machine_bytes as usize),
        "used_memory_lua" => scripts.machine,
        "used_memory_vm_eval" => scripts.machine,
        "used_memory_lua_human" => human(scripts.machine),
        "used_memory_scripts_eval" => scripts.script_bytes,
        "number_of_cached_scripts" => scripts.scripts,
        "number_of_functions" => scripts.functions,
        "number_of_libraries" => scripts.libraries,
        "used_memory_vm_functions" => 0,
        "used_memory_vm_total" => scripts.machine,
        "used_memory_vm_total_human" => human(scripts.machine),
        "used_memory_functions" => scripts.library_bytes,
        "used_memory_scripts" => scripts.script_bytes + scripts.library_bytes,
        "used_memory_scripts_human" => human(scripts.script_bytes + scripts.library_bytes),
        "maxmemory" => memory_max,
        "maxmemory_human" => human(memory_max),
        "maxmemory_policy" => cx.server.config.settings().memory.eviction.policy.name(),
        "allocator_frag_ratio" => "1.00",
        "allocator_frag_bytes" => 0,
        "allocator_rss_ratio" => fragmentation,
        "allocator_rss_bytes" => over,
        "rss_overhead_ratio" => "1.00",
        "rss_overhead_bytes" => 0,
        "mem_fragmentation_ratio" => fragmentation,
        "mem_fragmentation_bytes" => over,
        "mem_not_counted_for_evict" => account.uncounted(),
        "mem_replication_backlog" => account.backlog,
        "mem_total_replication_buffers" => account.backlog + account.unread,
        "mem_clients_slaves" => account.unread,
        "mem_clients_normal" => account.clients,
        "mem_cluster_links" => cx.server.cluster_memory(),
        "mem_aof_buffer" => account.file_buffer,
        "mem_allocator" => cx.server.platform.allocator_name(),
        "active_defrag_running" => 0,
        "lazyfree_pending_objects" => freeing.pending_objects,
        "lazyfreed_objects" => freeing.freed_objects,
    );
    Ok(())
}

/// Bytes in the unit a human would choose.
pub(super) fn human(bytes: usize) -> String {
    let value = bytes as f64;
    let units = [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)];
    match units.iter().rev().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.2}{unit}", value / (1u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

fn persistence(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    let (loading, aof) = (&cx.server.persistence.loading, &cx.server.persistence.aof);
    let (saving, replication) = (&cx.server.saving, &cx.server.replication);
    let progress = cx.db.snapshot_progress();
    let seconds = |seconds: Option<u64>| seconds.map_or(-1, |seconds| seconds as i64);
    facts!(text,
        "loading" => i32::from(loading.is_some()),
        "async_loading" => i32::from(cx.server.persistence.is_loading_aside),
        "current_cow_peak" => 0,
        "current_cow_size" => 0,
        "current_cow_size_age" => 0,
        "current_fork_perc" => "0.00",
        "current_save_keys_processed" => progress.map_or(0, |progress| progress.keys_done),
        "current_save_keys_total" => progress.map_or(0, |progress| progress.keys_total),
        "rdb_changes_since_last_save" => cx.db.dirty,
        "rdb_bgsave_in_progress" => u8::from(saving.is_running() || replication.is_syncing),
        "rdb_last_save_time" => saving.saved_at_ms / 1000,
        "rdb_last_bgsave_status" => if saving.is_ok { "ok" } else { "err" },
        "rdb_last_bgsave_time_sec" => seconds(saving.last_seconds),
        "rdb_current_bgsave_time_sec" => seconds(saving.running_seconds(cx.db.now_ms())),
        "rdb_saves" => saving.count,
        "rdb_last_cow_size" => 0,
        "rdb_last_load_keys_expired" => saving.loaded_ended,
        "rdb_last_load_keys_loaded" => saving.loaded_keys,
        "aof_enabled" => i32::from(aof.is_on),
        "aof_rewrite_in_progress" => i32::from(aof.is_rewriting),
        "aof_rewrite_scheduled" => i32::from(aof.is_scheduled),
        "aof_last_rewrite_time_sec" => aof.last_rewrite_seconds.map_or(-1, |s| s as i64),
        "aof_current_rewrite_time_sec" => rewriting_seconds(cx),
        "aof_last_bgrewrite_status" => if aof.last_rewrite_failed { "err" } else { "ok" },
        "aof_rewrites" => aof.rewrites,
        "aof_rewrites_consecutive_failures" => aof.rewrite_failures,
        "aof_last_write_status" => if aof.trouble.is_none() { "ok" } else { "err" },
        "aof_last_cow_size" => 0,
        "module_fork_in_progress" => 0,
        "module_fork_last_cow_size" => 0,
    );
    if aof.is_on {
        facts!(text,
            "aof_current_size" => aof.current_size,
            "aof_base_size" => aof.base_size,
            "aof_pending_rewrite" => i32::from(aof.is_scheduled),
            "aof_buffer_length" => aof.buffer_len,
            "aof_pending_bio_fsync" => i32::from(aof.is_syncing),
            "aof_delayed_fsync" => aof.delayed_syncs,
        );
    }
    loading.map_or(Ok(()), |loading| loading_facts(cx, text, &loading))
}

fn rewriting_seconds(cx: &Context<'_>) -> i64 {
    let aof = &cx.server.persistence.aof;
    let since_ms = cx.db.now_ms().saturating_sub(aof.rewrite_started_at_ms);
    if aof.is_rewriting { (since_ms / 1000) as i64 } else { -1 }
}

fn loading_facts(cx: &Context<'_>, text: &mut String, loading: &Loading) -> std::fmt::Result {
    let Loading { started_at_ms, total_bytes, loaded_bytes, .. } = *loading;
    let seconds = cx.db.now_ms().saturating_sub(started_at_ms) as f64 / 1000.0;
    let left = total_bytes.saturating_sub(loaded_bytes) as f64;
    let eta = match loaded_bytes {
        0 => 1.0,
        done => seconds * left / done as f64,
    };
    facts!(text,
        "loading_start_time" => started_at_ms / 1000,
        "loading_total_bytes" => total_bytes,
        "loading_rdb_used_mem" => 0,
        "loading_loaded_bytes" => loaded_bytes,
        "loading_loaded_perc" => format!("{:.2}", 100.0 * loaded_bytes as f64 / total_bytes.max(1) as f64),
        "loading_eta_seconds" => eta as u64,
    );
    Ok(())
}

fn stats(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    let (keys, stats, measured) = (cx.db.stats, &cx.server.stats, &cx.server.measured);
    let (pubsub, tracking) = (&cx.server.pubsub, &cx.server.tracking);
    let rates = cx.server.rate_meter.rates(cx.db.now_ms(), cx.server.amounts());
    let exceeded_us = cx.server.eviction.exceeded_us(cx.db.now_us());
    let syncs = cx.server.replication.counted_syncs();
    let kilobytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    facts!(text,
        "total_connections_received" => cx.server.stats.connections,
        "total_commands_processed" => stats.commands,
        "instantaneous_ops_per_sec" => rates.commands,
        "total_net_input_bytes" => measured.input_bytes,
        "total_net_output_bytes" => measured.output_bytes,
        "total_net_repl_input_bytes" => cx.server.replication.received_bytes,
        "total_net_repl_output_bytes" => cx.server.replication.sent_bytes,
        "instantaneous_input_kbps" => kilobytes(rates.input_bytes),
        "instantaneous_output_kbps" => kilobytes(rates.output_bytes),
        "instantaneous_input_repl_kbps" => kilobytes(rates.received_bytes),
        "instantaneous_output_repl_kbps" => kilobytes(rates.sent_bytes),
        "rejected_connections" => measured.rejected_connections,
        "sync_full" => syncs.full,
        "sync_partial_ok" => syncs.partial_done,
        "sync_partial_err" => syncs.partial_refused,
        "expired_keys" => keys.expired,
        "expired_stale_perc" => "0.00",
        "expired_time_cap_reached_count" => 0,
        "expire_cycle_cpu_milliseconds" => 0,
        "evicted_keys" => keys.evicted,
        "evicted_clients" => measured.evicted_clients,
        "total_eviction_exceeded_time" => exceeded_us.0 / 1000,
        "current_eviction_exceeded_time" => exceeded_us.1 / 1000,
        "keyspace_hits" => keys.hits,
        "keyspace_misses" => keys.misses,
        "pubsub_channels" => pubsub.topics(TopicKind::Channel).len(),
        "pubsub_patterns" => pubsub.topics(TopicKind::Pattern).len(),
        "pubsubshard_channels" => pubsub.topics(TopicKind::Shard).len(),
        "latest_fork_usec" => 0,
        "total_forks" => 0,
        "migrate_cached_sockets" => 0,
        "slave_expires_tracked_keys" => cx.db.own_volatile_len(),
        "active_defrag_hits" => 0,
        "active_defrag_misses" => 0,
        "active_defrag_key_hits" => 0,
        "active_defrag_key_misses" => 0,
        "total_active_defrag_time" => 0,
        "current_active_defrag_time" => 0,
        "tracking_total_keys" => tracking.key_count(),
        "tracking_total_items" => tracking.item_count(),
        "tracking_total_prefixes" => tracking.prefix_count(),
        "unexpected_error_replies" => stats.unexpected_errors,
        "total_error_replies" => stats.error_replies,
        "dump_payload_sanitizations" => 0,
        "total_reads_processed" => measured.reads,
        "total_writes_processed" => measured.writes,
        "io_threaded_reads_processed" => 0,
        "io_threaded_writes_processed" => 0,
        "reply_buffer_shrinks" => 0,
        "reply_buffer_expands" => 0,
        "acl_access_denied_auth" => stats.auth_failures,
        "tenure_longest_turn_usec" => measured.longest_turn_us,
    );
    Ok(())
}

fn replication(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    crate::replication::write_info(cx.server, text)
}

fn cpu(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    let usage = cx.server.platform.usage();
    let seconds = |micros: u64| format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    facts!(text,
        "used_cpu_sys" => seconds(usage.cpu_system_us),
        "used_cpu_user" => seconds(usage.cpu_user_us),
        "used_cpu_sys_children" => "0.000000",
        "used_cpu_user_children" => "0.000000",
        "used_cpu_sys_main_thread" => seconds(usage.cpu_system_us),
        "used_cpu_user_main_thread" => seconds(usage.cpu_user_us),
    );
    Ok(())
}

fn commandstats(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    for row in cx.server.registry.rows() {
        let stats = row.stats;
        if stats.calls + stats.rejected == 0 {
            continue;
        }
        let each = stats.micros as f64 / stats.calls.max(1) as f64;
        write!(
            text,
            "cmdstat_{}:calls={},usec={},usec_per_call={each:.2},rejected_calls={},\
             failed_calls={}\r\n",
            row.full_name, stats.calls, stats.micros, stats.rejected, stats.failed
        )?;
    }
    Ok(())
}

fn errorstats(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    for (code, count) in &cx.server.stats.errors {
        let code = String::from_utf8_lossy(code);
        write!(text, "errorstat_{code}:count={count}\r\n")?;
    }
    Ok(())
}

fn latencystats(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    let percentiles = &cx.server.config.settings().logs.percentiles;
    for row in cx.server.registry.rows() {
        let Some(histogram) = &row.histogram else { continue };
        let facts: Vec<String> = percentiles
            .iter()
            .map(|percentile| {
                let value = percentile.parse().map_or(0.0, |wanted| histogram.percentile(wanted));
                format!("p{percentile}={value:.3}")
            })
            .collect();
        write!(text, "latency_percentiles_usec_{}:{}\r\n", row.full_name, facts.join(","))?;
    }
    Ok(())
}

fn cluster(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    facts!(text, "cluster_enabled" => u8::from(cx.server.cluster.is_some()),);
    Ok(())
}

fn keyspace(cx: &Context<'_>, text: &mut String) -> std::fmt::Result {
    for db in 0..cx.db.database_count() {
        let (keys, volatile) = cx.db.counts(db);
        if keys > 0 {
            let ttl = cx.db.average_ttl_ms(db);
            write!(text, "db{db}:keys={keys},expires={volatile},avg_ttl={ttl}\r\n")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn bytes_get_the_unit_a_human_would_choose() {
        let texts = [0, 1023, 1024, 1_039_616, 12_738_560, 25_276_518_400].map(human);
        assert_eq!(texts, ["0B", "1023B", "1.00K", "1015.25K", "12.15M", "23.54G"]);
    }
}
