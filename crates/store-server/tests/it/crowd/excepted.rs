//! What is not compared: the one list, with a reason each. `cargo xtask compat` prints it.

use std::cell::Cell;

/// Why a field may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It cannot be equal on two servers.
    Nature,
    /// A field of ours that Redis does not have.
    OursAlone,
}

pub(super) struct Excepted {
    /// The request whose answer it is in.
    place: &'static str,
    /// The field. `*` stands for any text.
    field: &'static str,
    pub(super) why: Why,
    reason: &'static str,
}

const fn nature(place: &'static str, field: &'static str, reason: &'static str) -> Excepted {
    Excepted { place, field, why: Why::Nature, reason }
}

const fn ours_alone(place: &'static str, field: &'static str, reason: &'static str) -> Excepted {
    Excepted { place, field, why: Why::OursAlone, reason }
}

pub(super) const EXCEPTED: &[Excepted] = &[
    nature("INFO", "redis_build_id", "names the build"),
    nature("INFO", "gcc_version", "names the compiler"),
    nature("INFO", "monotonic_clock", "names the library's clock"),
    nature("INFO", "process_id", "a process each"),
    nature("INFO", "executable", "a program each"),
    nature("INFO", "tcp_port", "a port each"),
    nature("INFO", "run_id", "drawn at the start"),
    nature("INFO", "master_replid", "drawn at the start"),
    nature("INFO", "master_repl_offset", "there is no replication here"),
    nature("INFO", "second_repl_offset", "there is no replication here"),
    nature("INFO", "server_time_usec", "the moment"),
    nature("INFO", "uptime_in_seconds", "the moment"),
    nature("INFO", "lru_clock", "the moment"),
    nature("INFO", "rdb_last_save_time", "the moment"),
    nature("INFO", "used_cpu_*", "what it cost"),
    nature("INFO", "instantaneous_*", "what it was in the last moment"),
    nature("INFO", "total_net_*", "texts about the server itself differ in length"),
    nature("INFO", "total_reads_processed", "how requests fall into turns of the loop"),
    nature("INFO", "total_writes_processed", "how replies fall into turns of the loop"),
    nature("INFO", "cmdstat_*/usec*", "what it took"),
    nature("INFO", "latency_percentiles_usec_*/p*", "what it took"),
    nature("INFO", "db*/avg_ttl", "measured now and then, in milliseconds"),
    nature("INFO", "aof_current_size", "our lines of checksums and of moments count"),
    nature("INFO", "aof_base_size", "our snapshots name another version"),
    nature("INFO", "mem_allocator", "another allocator"),
    nature("INFO", "used_memory*", "sizes in memory of another program"),
    nature("INFO", "allocator_*", "sizes in memory of another program"),
    nature("INFO", "rss_overhead_*", "sizes in memory of another program"),
    nature("INFO", "client_recent_max_input_buffer", "sizes in memory of another program"),
    nature("INFO", "aof_buffer_length", "what is written at the end of a turn"),
    nature("INFO", "aof_pending_bio_fsync", "what a thread has not done yet"),
    nature("INFO", "reply_buffer_*", "our buffers grow and shrink otherwise"),
    nature("INFO", "client_recent_max_output_buffer", "sizes in memory of another program"),
    nature("INFO", "mem_*", "sizes in memory of another program"),
    ours_alone("INFO", "tenure_*", "about this store"),
    ours_alone("INFO", "acl_access_denied_auth", "newer versions of Redis have it"),
    nature("CLIENT LIST", "fd", "descriptors are numbered by the process"),
    nature("CLIENT LIST", "age", "whole seconds end at another moment"),
    nature("CLIENT LIST", "idle", "whole seconds end at another moment"),
    nature("CLIENT LIST", "qbuf-free", "Redis sets 20 kB aside to read, we share a buffer"),
    nature("CLIENT LIST", "rbs", "sizes of buffers and structures, which are others"),
    nature("CLIENT LIST", "rbp", "sizes of buffers and structures, which are others"),
    nature("CLIENT LIST", "tot-mem", "sizes of buffers and structures, which are others"),
    nature("CLIENT INFO", "fd", "descriptors are numbered by the process"),
    nature("CLIENT INFO", "age", "whole seconds end at another moment"),
    nature("CLIENT INFO", "idle", "whole seconds end at another moment"),
    nature("CLIENT INFO", "qbuf-free", "Redis sets 20 kB aside to read, we share a buffer"),
    nature("CLIENT INFO", "rbs", "sizes of buffers and structures, which are others"),
    nature("CLIENT INFO", "rbp", "sizes of buffers and structures, which are others"),
    nature("CLIENT INFO", "tot-mem", "sizes of buffers and structures, which are others"),
    nature("ACL LOG 100", "*/age-seconds", "the moment"),
    nature("ACL LOG 100", "*/client-info/*", "see CLIENT LIST"),
    nature("SLOWLOG", "*/0", "the moment"),
    nature("SLOWLOG", "*/1", "what it took"),
    nature("LATENCY HISTOGRAM", "*/histogram_usec/*", "what it took"),
    nature("MEMORY STATS", "*", "sizes in memory of another program"),
    nature("CONFIG GET *", "port", "a port each"),
    nature("CONFIG GET *", "bind", "the tests start redis-server on one address"),
    nature("CONFIG GET *", "dir", "a folder each"),
    ours_alone("CONFIG GET *", "aof-checksum", "about this store"),
    nature("a key", "*/seen-time", "the moment"),
    nature("a key", "*/pel/*/2", "the moment"),
    nature("a key", "*/pending/*/1", "the moment"),
];

/// How often each row of the list has hidden a difference.
pub(super) struct Usage {
    hidden: Vec<Cell<usize>>,
}

impl Usage {
    pub(super) fn new() -> Self {
        Self { hidden: EXCEPTED.iter().map(|_| Cell::new(0)).collect() }
    }

    /// Whether a difference in this field is excepted; counts it.
    pub(super) fn hides(&self, place: &str, field: &str) -> bool {
        let row = EXCEPTED.iter().position(|row| {
            row.why != Why::OursAlone && row.place == place && is_like(row.field, field)
        });
        if let Some(row) = row {
            self.hidden[row].set(self.hidden[row].get() + 1);
        }
        row.is_some()
    }

    /// Whether this field is one that Redis does not have.
    pub(super) fn is_ours_alone(&self, place: &str, field: &str) -> bool {
        let row = EXCEPTED.iter().position(|row| {
            row.why == Why::OursAlone && row.place == place && is_like(row.field, field)
        });
        if let Some(row) = row {
            self.hidden[row].set(self.hidden[row].get() + 1);
        }
        row.is_some()
    }

    /// A line per row.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(row, hidden): (&Excepted, &Cell<usize>)| {
            let Excepted { place, field, why, reason } = row;
            let why = match why {
                Why::Nature => String::new(),
                Why::OursAlone => "ours alone: ".to_owned(),
            };
            let name = format!("{place} {field}");
            format!("{name:<50} {:>7} hidden  {why}{reason}", hidden.get())
        };
        EXCEPTED.iter().zip(&self.hidden).map(line).collect()
    }
}

/// Whether a text is like a pattern in which `*` stands for any text.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((front, rest)) => text.strip_prefix(front).is_some_and(|text| {
            (0..=text.len()).any(|at| text.is_char_boundary(at) && is_like(rest, &text[at..]))
        }),
    }
}

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, text) in [("a", "a"), ("a*", "a"), ("a*/b", "axx/b"), ("*/2", "17/2")] {
        assert!(is_like(pattern, text), "{pattern} {text}");
    }
    for (pattern, text) in [("a", "ab"), ("a*/b", "axx/bc"), ("*/2", "17/22")] {
        assert!(!is_like(pattern, text), "{pattern} {text}");
    }
}
