//! CONFIG: settings read and changed while the server runs.

use std::collections::BTreeMap;

use store_types::{Limits, glob};

use crate::commands::prelude::*;
use crate::config::{Config, Permission, Setting, Settings, rewrite_file};
use crate::effects::ServerRequest;
use crate::eviction;
use crate::keyspace::{AccessPolicy, Keyspace};
use crate::persistence::snapshot;
use crate::state::{ServerState, server_gate};

pub(crate) const TABLE: &[Command] = &[Command::container("config", CONFIG_SUBCOMMANDS).docs(
    Group::Server,
    "2.0.0",
    "O(1)",
    "About the settings of the server.",
)];

const CONFIG_SUBCOMMANDS: &[Command] = &[
    Command::new("get", AtLeast(3), ADMIN | NO_SCRIPT | LOADING | STALE, config_get)
        .docs(Group::Server, "2.0.0", "O(N)", "Settings that match patterns.")
        .arguments("*parameter#b(parameter#s)")
        .history(&[("7.0.0", "Takes several patterns.")]),
    Command::new("help", Exactly(2), LOADING | STALE, config_help).docs(
        Group::Server,
        "5.0.0",
        "O(1)",
        "What the subcommands do.",
    ),
    Command::new("resetstat", Exactly(2), ADMIN | NO_SCRIPT | LOADING | STALE, config_resetstat)
        .docs(Group::Server, "2.0.0", "O(1)", "Sets the counters of INFO to zero."),
    Command::new("rewrite", Exactly(2), ADMIN | NO_SCRIPT | LOADING | STALE, config_rewrite).docs(
        Group::Server,
        "2.8.0",
        "O(1)",
        "Writes the settings in force to the configuration file.",
    ),
    Command::new("set", AtLeast(4), ADMIN | NO_SCRIPT | LOADING | STALE, config_set)
        .secrets_found_by(secret_settings)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Server, "2.0.0", "O(N)", "Changes settings.")
        .arguments("*parameter_value#b(parameter#s value#s)")
        .history(&[("7.0.0", "Takes several settings.")]),
];

/// The new values of settings that are passwords.
fn secret_settings(request: Request<'_>) -> Vec<usize> {
    let is_secret = |at: &usize| {
        let name = String::from_utf8_lossy(request.arg(*at));
        Config::find(&name).is_some_and(|setting| setting.is_secret)
    };
    (2..request.len()).step_by(2).filter(is_secret).map(|at| at + 1).collect()
}

fn config_get(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let config = &cx.server.config;
    let mut found: BTreeMap<String, &str> = BTreeMap::new();
    for pattern in request.args_from(2) {
        let name = String::from_utf8_lossy(pattern);
        match Config::find(&name) {
            // A plain name is answered as it was asked for.
            Some(setting) => _ = found.insert(name.into_owned(), config.text_of(setting)),
            None => found.extend(matching(config, pattern)),
        }
    }
    cx.reply.map(found.len());
    for (name, value) in found {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn matching<'c>(config: &'c Config, pattern: &[u8]) -> impl Iterator<Item = (String, &'c str)> {
    let wanted = |name: &str| glob::matches(pattern, name.as_bytes(), glob::Case::Insensitive);
    let pairs = config.pairs().into_iter().filter(move |(name, _)| wanted(name));
    pairs.map(|(name, value)| (name.to_owned(), value))
}

/// Settings are kept, told and written as text: other bytes would be changed on the way.
const NO_TEXT: &str = "argument must be valid UTF-8";

fn config_set(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if !request.len().is_multiple_of(2) {
        return Err(CommandError::SYNTAX);
    }
    // All or nothing: changes are made to a copy.
    let mut config = cx.server.config.clone();
    let mut seen: Vec<&Setting> = Vec::new();
    for at in (2..request.len()).step_by(2) {
        let name = String::from_utf8_lossy(request.arg(at)).into_owned();
        let setting = Config::find(&name).ok_or_else(|| {
            let text = "ERR Unknown option or number of arguments for CONFIG SET";
            CommandError::new(format!("{text} - '{name}'"))
        })?;
        let changed = check_settable(cx, setting, &seen)
            .and_then(|()| str::from_utf8(request.arg(at + 1)).map_err(|_| NO_TEXT.to_owned()))
            .and_then(|value| config.set(setting, &[value]));
        changed.map_err(|reason| refused(&name, &reason))?;
        seen.push(setting);
    }
    let (before, platform) = (&cx.server.config, &cx.server.platform);
    if let Err(refusal) = platform.follow_settings(before, &mut config, &seen) {
        cx.server.effects.requests.extend(refusal.log.map(ServerRequest::Log));
        return Err(refused(refusal.setting, &refusal.reason));
    }
    cx.server.config = config;
    apply_settings(cx.db, cx.server);
    if seen.iter().any(|setting| setting.name == "maxmemory") {
        eviction::log_if_over(cx.db, cx.server);
    }
    crate::acl::refresh_all(cx);
    cx.server.effects.requests.push(ServerRequest::SettingsChanged);
    cx.reply.ok();
    Ok(())
}

fn refused(name: &str, reason: &str) -> CommandError {
    let text = format!("ERR CONFIG SET failed (possibly related to argument '{name}')");
    CommandError::new(format!("{text} - {reason}"))
}

fn check_settable(
    cx: &Context<'_>,
    setting: &'static Setting,
    seen: &[&Setting],
) -> Result<(), String> {
    let refuse = |reason: &str| Err(reason.to_owned());
    if setting.is_fixed {
        return refuse("can't set immutable config");
    }
    if setting.is_protected && !allows(cx, cx.server.config.settings().clients.protected_configs) {
        return refuse("can't set protected config");
    }
    if seen.iter().any(|other| other.name == setting.name) {
        return refuse("duplicate parameter");
    }
    Ok(())
}

/// Whether something is allowed to this session.
pub(crate) fn allows(cx: &Context<'_>, permission: Permission) -> bool {
    match permission {
        Permission::Everybody => true,
        Permission::Local => cx.session.origin.is_local,
        Permission::Nobody => false,
    }
}

fn config_resetstat(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.server.registry.reset_stats();
    cx.server.stats = Default::default();
    cx.server.measured = Default::default();
    cx.db.stats = Default::default();
    cx.db.reset_freed_count();
    cx.server.eviction.reset_stats();
    cx.server.saving.count = 0;
    cx.server.replication.reset_stats();
    cx.reply.ok();
    Ok(())
}

fn config_rewrite(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    rewrite(cx, rewrite_file)
}

/// Writes the configuration file as `renew` makes it of the settings and the text it has.
pub(crate) fn rewrite(cx: &mut Context<'_>, renew: fn(&Config, &str) -> String) -> CommandResult {
    let path = &cx.server.identity.config_file;
    if path.is_empty() {
        return Err(CommandError::text("ERR The server is running without a config file"));
    }
    let mut config = cx.server.config.clone();
    let lines = cx.server.acl.lines_for_file(crate::acl::commands::rule_context(cx.server));
    let lines = lines
        .map_err(|reason| CommandError::new(format!("ERR Rewriting config file: {reason}")))?;
    config.set_user_lines(&lines);
    let renew = |text: &str| renew(&config, text);
    cx.server
        .platform
        .rewrite_config(path, &renew)
        .map_err(|reason| CommandError::new(format!("ERR Rewriting config file: {reason}")))?;
    cx.reply.ok();
    Ok(())
}

fn config_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    crate::commands::help::reply(
        cx,
        "CONFIG",
        &[
            ("GET <pattern>", "The settings that match, with their values."),
            ("SET <directive> <value>", "Change a setting."),
            ("RESETSTAT", "Set the counters of INFO to zero."),
            ("REWRITE", "Write the settings to the configuration file."),
        ],
    );
    Ok(())
}

/// Brings everything that keeps a setting in its own form up to date.
pub(crate) fn apply_settings(db: &mut Keyspace, server: &mut ServerState) {
    let Settings { clients, snapshot, logs, memory, keys, .. } = server.config.settings();
    db.changes.event_mask = keys.event_mask;
    server.eviction.apply(memory.eviction);
    db.freeing = memory.freeing;
    db.set_access_policy(AccessPolicy {
        is_lfu: memory.eviction.policy.counts_accesses(),
        log_factor: memory.lfu_log_factor,
        decay_minutes: memory.lfu_decay_minutes,
    });
    db.set_expiry_effort(keys.expiry_effort);
    server.limits = Limits { hash_seed: server.limits.hash_seed, ..keys.limits };
    let latency_us = logs.latency_over_ms.saturating_mul(1000);
    let slow_us = u64::try_from(logs.slow_over_us).unwrap_or(u64::MAX);
    server.slow_from_us = if latency_us > 0 { slow_us.min(latency_us) } else { slow_us };
    if server.tracks_latency != logs.tracks_latency {
        server.tracks_latency = !server.tracks_latency;
        server.registry.reset_histograms();
    }
    server.acl.follow_requirepass(&clients.password);
    let keeps_files = server.platform.keeps_files();
    server.saving.points = if keeps_files { snapshot.points.clone() } else { Vec::new() };
    let memory_gate = (server_gate::MEMORY_LIMIT, memory.max > 0);
    for (gate, is_set) in crate::replication::role::gates(server).into_iter().chain([memory_gate]) {
        server.gates = if is_set { server.gates | gate } else { server.gates & !gate };
    }
    snapshot::guard_writes(server);
}
