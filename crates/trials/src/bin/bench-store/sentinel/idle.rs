//! One sentinel over many primaries that are all well.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

use testkit::{GENEROUS, RedisServer, Sentinel, ServerProgram, wait_until};

use crate::report::Figures;
use crate::servers::{PerSide, SIDES, Side, cpu_us_of, pinned, resident_bytes_of};
use crate::{Result, Scale};

const PRIMARIES: usize = 50;
/// By how much we may exceed redis-sentinel.
const RATIO_MAX: f64 = 1.0;
/// The first questions to everybody shall not count.
const SETTLING: Duration = Duration::from_secs(3);
/// INFO is asked for every ten seconds: a shorter look would see it or not by chance.
const INFO_EVERY_SECONDS: u64 = 10;

/// What watching takes, the least of all rounds.
#[derive(Clone, Copy)]
struct Cost {
    cpu_ms: f64,
    megabytes: f64,
}

pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    let quiet = || RedisServer::builder().program(ServerProgram::redis()).start();
    let servers: Vec<RedisServer> = (0..PRIMARIES).map(|_| quiet()).collect();
    let none = Cost { cpu_ms: f64::MAX, megabytes: f64::MAX };
    let mut least = PerSide { ours: none, theirs: none };
    for _ in 0..scale.rounds.min(2) {
        for side in SIDES {
            let cost = watch(side, &servers)?;
            let least = least.side_mut(side);
            least.cpu_ms = least.cpu_ms.min(cost.cpu_ms);
            least.megabytes = least.megabytes.min(cost.megabytes);
        }
    }
    let PerSide { ours, theirs } = least;
    let what = format!("a sentinel over {PRIMARIES} primaries: CPU per second, ratio");
    let told = format!("{:.2} ms and {:.2} ms", ours.cpu_ms, theirs.cpu_ms);
    figures.must(&what, (ours.cpu_ms / theirs.cpu_ms, ""), told, RATIO_MAX);
    let what = format!("a sentinel over {PRIMARIES} primaries: resident memory, ratio");
    let told = format!("{:.2} MB and {:.2} MB", ours.megabytes, theirs.megabytes);
    figures.must(&what, (ours.megabytes / theirs.megabytes, ""), told, RATIO_MAX);
    Ok(())
}

fn watch(side: Side, servers: &[RedisServer]) -> Result<Cost> {
    let mut lines = String::new();
    for (index, server) in servers.iter().enumerate() {
        writeln!(lines, "sentinel monitor m{index} 127.0.0.1 {} 2", server.port())?;
    }
    let sentinel = Sentinel::start_alone(&pinned(side)?, &lines, None);
    wait_until("the sentinel to reach all primaries", GENEROUS, || {
        let told = sentinel.cli(&["SENTINEL", "MASTERS"]);
        // In its flags, and as the role that it reports.
        told.lines().filter(|line| *line == "master").count() == 2 * servers.len()
    });
    sleep(SETTLING);
    let before = cpu_us_of(sentinel.pid())?;
    sleep(Duration::from_secs(INFO_EVERY_SECONDS));
    let cpu_ms = (cpu_us_of(sentinel.pid())? - before) / 1e3 / INFO_EVERY_SECONDS as f64;
    Ok(Cost { cpu_ms, megabytes: resident_bytes_of(sentinel.pid())? / 1e6 })
}
