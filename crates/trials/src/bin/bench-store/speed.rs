//! Throughput and processor time per operation, by redis-benchmark.

use std::process::Command;

use testkit::RedisServer;

use crate::report::verdict;
use crate::servers::{PerSide, SIDES, cpu_us, start, start_program};
use crate::{Result, Scale};

/// What redis-benchmark calls them, and how much of the usual number of requests each gets.
const TESTS: [Test; 7] = [
    Test { name: "get", share: 1.0 },
    Test { name: "set", share: 1.0 },
    Test { name: "incr", share: 1.0 },
    Test { name: "lpush", share: 1.0 },
    Test { name: "hset", share: 1.0 },
    Test { name: "zadd", share: 1.0 },
    // Ten keys each.
    Test { name: "mset", share: 0.2 },
];
/// A pipeline, and how many times the requests of a run at pipeline 1 it gets.
const PIPELINES: [(usize, f64); 3] = [(1, 1.0), (16, 6.0), (64, 8.0)];
/// Different keys, fields and members.
const KEYS: &str = "100000";
/// Requests that set keys before GET is measured: what is measured is not how fast nothing is
/// found.
const PRELOADED: usize = 400_000;

struct Test {
    name: &'static str,
    share: f64,
}

/// One row of the table.
struct Row {
    test: &'static str,
    value_len: usize,
    pipeline: usize,
    best: PerSide<Best>,
    /// That of an earlier version of ours, if it was asked for.
    before: Best,
}

/// The best over all rounds.
#[derive(Clone, Copy, Debug)]
struct Best {
    requests_per_second: f64,
    cpu_us: f64,
}

impl Default for Best {
    fn default() -> Self {
        Self { requests_per_second: 0.0, cpu_us: f64::MAX }
    }
}

/// The table.
pub(crate) struct Speeds {
    rows: Vec<Row>,
    rounds: usize,
    has_before: bool,
}

pub(crate) fn measure(scale: &Scale) -> Result<Speeds> {
    measure_some(scale, |_| true)
}

/// The rows of one command.
pub(crate) fn measure_one(scale: &Scale, test: &str) -> Result<Speeds> {
    measure_some(scale, |name| name == test)
}

fn measure_some(scale: &Scale, is_wanted: impl Fn(&str) -> bool) -> Result<Speeds> {
    let mut rows = Vec::new();
    for &value_len in scale.value_lens {
        for Test { name, .. } in TESTS.iter().filter(|test| is_wanted(test.name)) {
            for (pipeline, _) in PIPELINES {
                let (best, before) = (PerSide::default(), Best::default());
                rows.push(Row { test: name, value_len, pipeline, best, before });
            }
        }
    }
    for round in 1..=scale.rounds {
        for side in SIDES {
            eprintln!("speed: round {round} of {}, {side:?}", scale.rounds);
            run_all(&start(side)?, scale, &mut rows, |row| row.best.side_mut(side))?;
        }
        if let Some(program) = &scale.before {
            eprintln!("speed: round {round} of {}, before", scale.rounds);
            run_all(&start_program(program)?, scale, &mut rows, |row| &mut row.before)?;
        }
    }
    Ok(Speeds { rows, rounds: scale.rounds, has_before: scale.before.is_some() })
}

fn run_all(
    server: &RedisServer,
    scale: &Scale,
    rows: &mut [Row],
    best_of: impl Fn(&mut Row) -> &mut Best,
) -> Result {
    let mut preloaded_len = None;
    for row in rows {
        if preloaded_len != Some(row.value_len) {
            server.cli(&["FLUSHALL"]);
            load(server, &Load { test: "set", pipeline: 64, ..Load::of(row, PRELOADED) })?;
            preloaded_len = Some(row.value_len);
        }
        for _ in 0..repeats(row) {
            let run = run_once(server, &Load::of(row, requests(row, scale)))?;
            let best = best_of(row);
            best.requests_per_second = best.requests_per_second.max(run.requests_per_second);
            best.cpu_us = best.cpu_us.min(run.cpu_us);
        }
    }
    Ok(())
}

fn run_once(server: &RedisServer, of_row: &Load) -> Result<Best> {
    let before = cpu_us(server)?;
    let requests_per_second = load(server, of_row)?;
    let cpu_us = (cpu_us(server)? - before) / of_row.requests as f64;
    // The list would grow from run to run, by a kibibyte at a time.
    server.cli(&["DEL", "mylist"]);
    Ok(Best { requests_per_second, cpu_us })
}

/// How often a row is run in a round. One request at a time is mostly the system's work, which
/// other guests of the machine disturb most; three tries find a quiet moment for both sides.
fn repeats(row: &Row) -> usize {
    match row.pipeline == 1 && bound(row.test, row.pipeline).must < 1.0 {
        true => 3,
        false => 1,
    }
}

fn requests(row: &Row, scale: &Scale) -> usize {
    let share = TESTS.iter().find(|test| test.name == row.test).map_or(1.0, |test| test.share);
    let pipeline = PIPELINES.iter().find(|(pipeline, _)| *pipeline == row.pipeline);
    (scale.requests as f64 * share * pipeline.map_or(1.0, |(_, times)| *times)) as usize
}

/// One call of redis-benchmark.
pub(crate) struct Load {
    pub(crate) test: &'static str,
    pub(crate) value_len: usize,
    pub(crate) pipeline: usize,
    pub(crate) requests: usize,
}

impl Load {
    fn of(row: &Row, requests: usize) -> Self {
        Self { test: row.test, value_len: row.value_len, pipeline: row.pipeline, requests }
    }
}

/// Returns requests per second.
pub(crate) fn load(server: &RedisServer, load: &Load) -> Result<f64> {
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port().to_string(), "--csv", "-t", load.test, "-r", KEYS])
        .args(["-d", &load.value_len.to_string(), "-P", &load.pipeline.to_string()])
        .args(["-n", &load.requests.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // "test","rps",… and below it one line of values.
    let value = text.lines().nth(1).and_then(|line| line.split(',').nth(1));
    let number = value.and_then(|value| value.trim_matches('"').parse().ok());
    number.filter(|_| output.status.success()).ok_or_else(|| {
        format!("redis-benchmark: {text}{}", String::from_utf8_lossy(&output.stderr)).into()
    })
}

impl Speeds {
    pub(crate) fn print(&self) {
        println!(
            "Server CPU per request in µs, least of {} rounds; best throughput.\n",
            self.rounds
        );
        println!(
            "| command | bytes | pipeline | requests/s | redis-server | CPU | redis-server | \
             ratio | must | aim |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|");
        for Row { test, value_len, pipeline, best: PerSide { ours, theirs }, .. } in &self.rows {
            let ratio = ours.cpu_us / theirs.cpu_us;
            let bound = bound(test, *pipeline);
            println!(
                "| {} | {value_len} | {pipeline} | {:.0} | {:.0} | {:.2} | {:.2} | {ratio:.2} | {} | {} |",
                test.to_uppercase(),
                ours.requests_per_second,
                theirs.requests_per_second,
                ours.cpu_us,
                theirs.cpu_us,
                verdict(ratio, bound.must),
                bound.aim.map(|aim| verdict(ratio, aim)).unwrap_or_default(),
            );
        }
        if self.has_before {
            self.print_before();
        }
    }

    /// The ratios of the earlier version, and by how much they have grown.
    fn print_before(&self) {
        println!("\n| command | bytes | pipeline | ratio before | ratio now | worse by |");
        println!("|---|---|---|---|---|---|");
        for Row { test, value_len, pipeline, best: PerSide { ours, theirs }, before } in &self.rows
        {
            let (earlier, now) = (before.cpu_us / theirs.cpu_us, ours.cpu_us / theirs.cpu_us);
            println!(
                "| {} | {value_len} | {pipeline} | {earlier:.2} | {now:.2} | {} |",
                test.to_uppercase(),
                growth_verdict(now - earlier),
            );
        }
    }
}

/// By how much a ratio may grow from one version to the next.
const GROWTH_MAX: f64 = 0.03;

fn growth_verdict(growth: f64) -> String {
    match growth <= GROWTH_MAX {
        true => format!("{growth:+.2}"),
        false => format!("**{growth:+.2}**"),
    }
}

/// How our CPU per request may compare with redis-server's.
struct Bound {
    must: f64,
    aim: Option<f64>,
}

fn bound(test: &str, pipeline: usize) -> Bound {
    let (must, aim) = match (test, pipeline) {
        ("get", 1) => (0.90, Some(0.85)),
        ("get", 16) => (0.75, Some(0.60)),
        ("get", _) => (0.55, Some(0.45)),
        ("set", 1) => (0.95, Some(0.85)),
        ("set", 16) => (0.80, Some(0.60)),
        ("set", _) => (0.70, Some(0.45)),
        _ => (1.05, None),
    };
    Bound { must, aim }
}
