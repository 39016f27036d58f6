//! MEMORY: what takes how many bytes.

use super::info::human;
use super::prelude::*;

pub(super) const TABLE: &[Command] = &[Command::container("memory", MEMORY_SUBCOMMANDS).docs(
    Group::Server,
    "4.0.0",
    "O(1)",
    "What takes how many bytes.",
)];

const OF_ALL_SHARDS: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

const MEMORY_SUBCOMMANDS: &[Command] = &[
    Command::new("doctor", Exactly(2), 0, memory_doctor).tips(OF_ALL_SHARDS).docs(
        Group::Server,
        "4.0.0",
        "O(1)",
        "What is wrong with memory, in words.",
    ),
    Command::new("help", Exactly(2), LOADING | STALE, memory_help).docs(
        Group::Server,
        "4.0.0",
        "O(1)",
        "What the subcommands do.",
    ),
    Command::new("malloc-stats", Exactly(2), 0, memory_malloc_stats).tips(OF_ALL_SHARDS).docs(
        Group::Server,
        "4.0.0",
        "O(1)",
        "What the allocator tells.",
    ),
    Command::new("purge", Exactly(2), 0, memory_purge)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Server, "4.0.0", "O(1)", "Gives memory back where that is possible."),
    Command::new("stats", Exactly(2), 0, memory_stats).tips(OF_ALL_SHARDS).docs(
        Group::Server,
        "4.0.0",
        "O(1)",
        "Where memory goes.",
    ),
    Command::new("usage", AtLeast(3), READ, memory_usage).keys(&[KeySpec::one(2, RO)]).docs(
        Group::Server,
        "4.0.0",
        "O(N)",
        "Bytes of a key and its value.",
    ),
];

fn memory_usage(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let mut at = 3;
    while let Some(option) = request.get(at) {
        let value = request.get(at + 1).filter(|_| is_word(option, "SAMPLES"));
        // Every value knows its size, so no samples are taken.
        if integer(value.ok_or(CommandError::SYNTAX)?)? < 0 {
            return Err(CommandError::SYNTAX);
        }
        at += 2;
    }
    match cx.db.entry(request.arg(2)).map(|entry| entry.memory()) {
        Some(bytes) => cx.reply.count(bytes),
        None => cx.reply.null(),
    }
    Ok(())
}

/// Where memory goes, in bytes.
struct Account {
    used: usize,
    peak: usize,
    base: usize,
    data: usize,
    resident: usize,
    keys: usize,
    clients: usize,
}

fn account(cx: &Context<'_>) -> Account {
    let keys = (0..cx.db.database_count()).map(|db| cx.db.counts(db).0).sum();
    let (base, data) = (cx.server.base_memory, cx.db.memory());
    let clients = cx.server.sessions.iter().map(|session| session.output.capacity()).sum();
    let used = base + data;
    Account {
        used,
        peak: cx.server.stats.memory_peak.max(used),
        base,
        data,
        resident: cx.server.host.usage().resident_bytes as usize,
        keys,
        clients,
    }
}

fn memory_stats(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let (account, scripts) = (account(cx), cx.server.scripting.usage());
    let share = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    let ratio = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
    let databases: Vec<(usize, usize, usize)> = (0..cx.db.database_count())
        .map(|db| (db, cx.db.counts(db).0, cx.db.counts(db).1))
        .filter(|(_, keys, _)| *keys > 0)
        .collect();
    let reply = &mut cx.reply;
    reply.map(27 + databases.len());
    let mut count = |name: &str, value: usize| {
        reply.bulk(name.as_bytes());
        reply.count(value);
    };
    count("peak.allocated", account.peak);
    count("total.allocated", account.used);
    count("startup.allocated", account.base);
    count("replication.backlog", 0);
    count("clients.slaves", 0);
    count("clients.normal", account.clients);
    count("cluster.links", 0);
    count("aof.buffer", 0);
    count("lua.caches", scripts.script_bytes);
    count("functions.caches", scripts.library_bytes);
    for (db, keys, volatile) in databases {
        reply.bulk(format!("db.{db}").as_bytes());
        reply.map(3);
        reply.bulk(b"overhead.hashtable.main");
        reply.count(keys * size_of::<usize>());
        reply.bulk(b"overhead.hashtable.expires");
        reply.count(volatile * size_of::<usize>());
        reply.bulk(b"overhead.hashtable.slot-to-keys");
        reply.count(0);
    }
    let mut count = |name: &str, value: usize| {
        reply.bulk(name.as_bytes());
        reply.count(value);
    };
    count("overhead.total", account.base);
    count("keys.count", account.keys);
    count("keys.bytes-per-key", account.data.checked_div(account.keys).unwrap_or(0));
    count("dataset.bytes", account.data);
    reply.bulk(b"dataset.percentage");
    reply.double(share(account.data, account.used));
    reply.bulk(b"peak.percentage");
    reply.double(share(account.used, account.peak));
    for name in ["allocator.allocated", "allocator.active"] {
        reply.bulk(name.as_bytes());
        reply.count(account.used);
    }
    reply.bulk(b"allocator.resident");
    reply.count(account.resident);
    let over = account.resident as i64 - account.used as i64;
    for (name, part, bytes) in [
        ("allocator-fragmentation", account.used, 0),
        ("allocator-rss", account.resident, over),
        ("rss-overhead", account.used, 0),
    ] {
        reply.bulk(format!("{name}.ratio").as_bytes());
        reply.double(ratio(part, account.used));
        reply.bulk(format!("{name}.bytes").as_bytes());
        reply.integer(bytes);
    }
    reply.bulk(b"fragmentation");
    reply.double(ratio(account.resident, account.used));
    reply.bulk(b"fragmentation.bytes");
    reply.integer(over);
    Ok(())
}

fn memory_doctor(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    /// Below this, nothing can be said.
    const WORTH_LOOKING: usize = 5 * 1024 * 1024;
    let account = account(cx);
    let mut text = String::new();
    if account.used < WORTH_LOOKING {
        text.push_str("There is too little data to tell whether memory is used well.\n");
    } else {
        if account.peak > account.used * 3 / 2 {
            text.push_str(&format!("At the peak {} were in use.\n", human(account.peak)));
        }
        if account.resident > account.used * 7 / 5 {
            let resident = human(account.resident);
            text.push_str(&format!("The process holds {resident}, far more than is counted.\n"));
        }
        if text.is_empty() {
            text.push_str("Nothing is wrong with memory.\n");
        }
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn memory_malloc_stats(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let text = "The allocator is that of the program around this store: it is not asked.";
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn memory_purge(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.ok();
    Ok(())
}

fn memory_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    super::help::reply(
        cx,
        "MEMORY",
        &[
            ("DOCTOR", "What is wrong with memory, in words."),
            ("MALLOC-STATS", "What the allocator tells."),
            ("PURGE", "Give memory back where that is possible."),
            ("STATS", "Where memory goes."),
            ("USAGE <key> [SAMPLES <count>]", "Bytes of a key and its value."),
        ],
    );
    Ok(())
}
