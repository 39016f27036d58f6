//! MEMORY: what takes how many bytes.

use store_resp::ReplyWriter;

use super::info::human;
use super::prelude::*;
use crate::session::Session;

pub(super) const TABLE: &[Command] = &[Command::container("memory", MEMORY_SUBCOMMANDS).docs(
    Group::Server,
    "4.0.0",
    "O(1)",
    "Facts about memory.",
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
        .docs(
            Group::Server,
            "4.0.0",
            "O(1)",
            "Returns free memory to the system where that is possible.",
        ),
    Command::new("stats", Exactly(2), 0, memory_stats).tips(OF_ALL_SHARDS).docs(
        Group::Server,
        "4.0.0",
        "O(1)",
        "Where memory goes.",
    ),
    Command::new("usage", AtLeast(3), READ, memory_usage)
        .keys(&[KeySpec::one(2, RO)])
        .docs(Group::Server, "4.0.0", "O(N)", "Bytes of a key and its value.")
        .arguments("key#k@0 ?count#i=SAMPLES"),
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
pub(super) struct Account {
    /// All that is known of.
    pub(super) used: usize,
    pub(super) peak: usize,
    /// What was there before the first key.
    pub(super) base: usize,
    /// All but keys and values.
    pub(super) overhead: usize,
    /// Keys and values.
    pub(super) dataset: usize,
    pub(super) resident: usize,
    pub(super) keys: usize,
    /// What clients hold: requests, replies, what they watch and listen to.
    pub(super) clients: usize,
    /// Values that wait to be freed.
    pub(super) freeing: usize,
    /// Those of them that `maxmemory` counts.
    pub(super) counted_freeing: usize,
    /// What waits to be written to the append-only file.
    pub(super) file_buffer: usize,
    /// What is kept of the stream for replicas that ask for it again.
    pub(super) backlog: usize,
    /// What replicas have yet to read beyond that.
    pub(super) unread: usize,
}

impl Account {
    /// What `maxmemory` does not count.
    pub(super) fn uncounted(&self) -> usize {
        self.freeing - self.counted_freeing + self.file_buffer + self.unread
    }

    pub(super) fn dataset_share(&self) -> f64 {
        share(self.dataset, self.used.saturating_sub(self.base))
    }

    pub(super) fn peak_share(&self) -> f64 {
        share(self.used, self.peak)
    }

    /// What the process holds, beside what is known of.
    pub(super) fn fragmentation(&self) -> f64 {
        self.resident as f64 / self.used.max(1) as f64
    }

    pub(super) fn fragmentation_bytes(&self) -> i64 {
        self.resident as i64 - self.used as i64
    }
}

fn share(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

pub(super) fn account(cx: &Context<'_>) -> Account {
    let databases = || 0..cx.db.database_count();
    let keys = databases().map(|db| cx.db.counts(db).0).sum();
    let tables: usize = databases().map(|db| cx.db.table_memory(db)).sum();
    let scripts = cx.server.scripting.kept_bytes();
    let others: usize = cx.server.sessions.iter().map(Session::memory).sum();
    let clients = others + cx.session.memory() + cx.reply.output().memory();
    let tracking = cx.server.tracking.memory();
    let (base, freeing) = (cx.server.base_memory, cx.db.freeing_stats().pending_bytes);
    let file_buffer = cx.server.persistence.aof.buffer_len;
    let users = cx.server.acl.users_memory();
    let logs = cx.server.acl.log.memory() + cx.server.slow_log.memory();
    let (replication, config) = (&cx.server.replication, &cx.server.config);
    let (backlog, unread) = (replication.backlog_bytes(config), replication.unread_bytes(config));
    let buffers = file_buffer + backlog + unread;
    let beside = base + scripts + clients + freeing + buffers + tracking + users + logs;
    let (used, overhead) = (beside + cx.db.memory(), beside + tables);
    Account {
        used,
        peak: cx.server.stats.memory_peak.max(used),
        base,
        overhead,
        dataset: used - overhead,
        resident: cx.server.platform.usage().resident_bytes as usize,
        keys,
        clients,
        freeing,
        counted_freeing: cx.db.dropped_bytes(),
        file_buffer,
        backlog,
        unread,
    }
}

fn memory_stats(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let (account, scripts) = (account(cx), cx.server.scripting.usage());
    let databases: Vec<(usize, usize, usize)> = (0..cx.db.database_count())
        .filter(|db| cx.db.counts(*db).0 > 0)
        .map(|db| (db, cx.db.table_memory(db), cx.db.counts(db).1))
        .collect();
    let reply = &mut cx.reply;
    reply.map(27 + databases.len());
    count(reply, "peak.allocated", account.peak);
    count(reply, "total.allocated", account.used);
    count(reply, "startup.allocated", account.base);
    count(reply, "replication.backlog", account.backlog);
    count(reply, "clients.slaves", account.unread);
    count(reply, "clients.normal", account.clients);
    count(reply, "cluster.links", 0);
    count(reply, "aof.buffer", account.file_buffer);
    count(reply, "lua.caches", scripts.script_bytes);
    count(reply, "functions.caches", scripts.library_bytes);
    for (db, table, volatile) in databases {
        reply.bulk(format!("db.{db}").as_bytes());
        reply.map(3);
        count(reply, "overhead.hashtable.main", table);
        // There is no second table: the moment stands in the entry.
        count(reply, "overhead.hashtable.expires", volatile * size_of::<u64>());
        count(reply, "overhead.hashtable.slot-to-keys", 0);
    }
    count(reply, "overhead.total", account.overhead);
    count(reply, "keys.count", account.keys);
    let net = account.used - account.base;
    count(reply, "keys.bytes-per-key", net.checked_div(account.keys).unwrap_or(0));
    count(reply, "dataset.bytes", account.dataset);
    fraction(reply, "dataset.percentage", account.dataset_share());
    fraction(reply, "peak.percentage", account.peak_share());
    allocator_stats(reply, &account);
    Ok(())
}

/// The allocator is not asked, so what it holds beyond what is known of counts as resident.
fn allocator_stats(reply: &mut ReplyWriter, account: &Account) {
    count(reply, "allocator.allocated", account.used);
    count(reply, "allocator.active", account.used);
    count(reply, "allocator.resident", account.resident);
    fraction(reply, "allocator-fragmentation.ratio", 1.0);
    count(reply, "allocator-fragmentation.bytes", 0);
    fraction(reply, "allocator-rss.ratio", account.fragmentation());
    reply.bulk(b"allocator-rss.bytes");
    reply.integer(account.fragmentation_bytes());
    fraction(reply, "rss-overhead.ratio", 1.0);
    count(reply, "rss-overhead.bytes", 0);
    fraction(reply, "fragmentation", account.fragmentation());
    reply.bulk(b"fragmentation.bytes");
    reply.integer(account.fragmentation_bytes());
}

fn count(reply: &mut ReplyWriter, name: &str, value: usize) {
    reply.bulk(name.as_bytes());
    reply.count(value);
}

fn fraction(reply: &mut ReplyWriter, name: &str, value: f64) {
    reply.bulk(name.as_bytes());
    reply.double(value);
}

fn memory_doctor(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    /// Below this, nothing can be said.
    const WORTH_LOOKING: usize = 5 * 1024 * 1024;
    let account = account(cx);
    let mut text = String::new();
    if account.used < WORTH_LOOKING {
        text.push_str("There is too little data to tell whether memory is used well.\n");
    } else {
        for finding in findings(cx, &account) {
            text.push_str(&finding);
            text.push('\n');
        }
        if text.is_empty() {
            text.push_str("Nothing is wrong with memory.\n");
        }
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn findings(cx: &Context<'_>, account: &Account) -> Vec<String> {
    /// What a client holds only if it reads slowly, or asks for much.
    const CLIENT_LARGE: usize = 200 * 1024;
    let mut findings = Vec::new();
    if account.peak > account.used / 2 * 3 {
        findings.push(format!(
            "At the peak {} were in use, now {}: the allocator may keep the rest for later.",
            human(account.peak),
            human(account.used)
        ));
    }
    if account.resident > account.used / 5 * 7 {
        findings.push(format!(
            "The process holds {}, far more than the {} that are counted: memory is fragmented, \
             or the program around the store needs it.",
            human(account.resident),
            human(account.used)
        ));
    }
    if account.clients > CLIENT_LARGE * cx.server.sessions.count().max(1) {
        findings.push(format!(
            "Clients hold {}: find the largest with CLIENT LIST (tot-mem).",
            human(account.clients)
        ));
    }
    if account.freeing > account.used / 4 {
        let bytes = human(account.freeing);
        findings.push(format!("{bytes} wait to be freed in the background."));
    }
    let memory_max = cx.server.config.settings().memory.max;
    if memory_max > 0 && account.used - account.uncounted() > memory_max {
        findings.push(format!(
            "More is in use than maxmemory ({}) allows: choose a maxmemory-policy that may evict, \
             or raise the limit.",
            human(memory_max)
        ));
    }
    findings
}

fn memory_malloc_stats(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let name = cx.server.platform.allocator_name();
    let text = format!("The program around this store uses {name}; it is not asked for numbers.");
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// What FLUSHALL let go is freed at once, and the allocator is told to give it back.
fn memory_purge(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    while cx.db.drop_some() {}
    cx.server.platform.give_back_memory();
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
