//! The append-only file: how fast requests are taken with it, and how fast it is loaded.

use testkit::RedisServer;

use crate::report::Figures;
use crate::servers::{Expiry, PerSide, Side, info, insert, start_with};
use crate::speed::{Load, load};
use crate::{Result, Scale};

const POLICIES: [&str; 3] = ["always", "everysec", "no"];
/// Pipelines, and how many times the usual number of requests each gets.
const PIPELINES: [(usize, usize); 2] = [(1, 1), (16, 4)];
/// Loading is not to take longer than redis-server does, but for noise.
const LOAD_RATIO_MAX: f64 = 1.05;

pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    for policy in POLICIES {
        measure_speed(policy, scale, figures)?;
    }
    measure_loading(scale, figures)
}

/// The best of all rounds, in turn, so that a busy disk troubles both.
fn measure_speed(policy: &str, scale: &Scale, figures: &mut Figures) -> Result {
    let settings = ["--appendonly", "yes", "--appendfsync", policy];
    for (pipeline, times) in PIPELINES {
        let mut best = PerSide::<f64>::default();
        for _ in 0..scale.rounds.min(3) {
            let round = PerSide::measure(|side| {
                let server = start_with(side, &settings)?;
                // A sync takes as long as it takes: fewer tell as much.
                let share = if policy == "always" { 5 } else { 1 };
                let requests = scale.requests * times / share;
                load(&server, &Load { test: "set", value_len: 64, pipeline, requests })
            })?;
            best.ours = best.ours.max(round.ours);
            best.theirs = best.theirs.max(round.theirs);
        }
        let what = format!("SET of 64 bytes, appendfsync {policy}, pipeline {pipeline}");
        let figure = |per_second: f64| format!("{per_second:.0}/s");
        figures.note(&what, figure(best.ours), figure(best.theirs));
    }
    Ok(())
}

/// How long a server took to load what it had written.
#[derive(Clone, Copy)]
struct Loads {
    requests_s: f64,
    base_s: f64,
}

impl Loads {
    fn least(self, other: Self) -> Self {
        Self {
            requests_s: self.requests_s.min(other.requests_s),
            base_s: self.base_s.min(other.base_s),
        }
    }
}

fn measure_loading(scale: &Scale, figures: &mut Figures) -> Result {
    let keys = scale.snapshot_keys;
    let mut best = PerSide::measure(|side| load_side(side, keys))?;
    for _ in 1..scale.loads {
        let round = PerSide::measure(|side| load_side(side, keys))?;
        best.ours = best.ours.least(round.ours);
        best.theirs = best.theirs.least(round.theirs);
    }
    let mut tell = |what: &str, ours: f64, theirs: f64| {
        figures.must(what, (ours, "s"), format!("{theirs:.2} s"), slower_max(theirs));
    };
    let PerSide { ours, theirs } = best;
    tell(&format!("loading an AOF of {keys} SETs"), ours.requests_s, theirs.requests_s);
    let what = "the same after BGREWRITEAOF: an RDB preamble of all keys";
    tell(what, ours.base_s, theirs.base_s);
    Ok(())
}

/// How long loading may take when redis-server takes so long, in hundredths of a second.
pub(crate) fn slower_max(theirs_s: f64) -> f64 {
    (theirs_s * LOAD_RATIO_MAX * 100.0).round() / 100.0
}

fn load_side(side: Side, keys: usize) -> Result<Loads> {
    let settings = ["--appendonly", "yes", "--appendfsync", "no"];
    let settings = [&settings[..], &["--auto-aof-rewrite-percentage", "0"]].concat();
    let mut server = start_with(side, &settings)?;
    insert(&server, 0..keys, Expiry::Never)?;
    let requests_s = restart(&mut server, keys)?;
    rewrite(&server)?;
    let base_s = restart(&mut server, keys)?;
    Ok(Loads { requests_s, base_s })
}

fn rewrite(server: &RedisServer) -> Result {
    server.cli(&["BGREWRITEAOF"]);
    while info(server, "persistence", "aof_rewrite_in_progress")? > 0.0
        || info(server, "persistence", "aof_rewrite_scheduled")? > 0.0
    {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Ok(())
}

/// Starts the server again, and returns how long it says that loading took.
fn restart(server: &mut RedisServer, keys: usize) -> Result<f64> {
    const SAYS: &str = "DB loaded from append only file: ";
    server.restart();
    let found = server.cli(&["DBSIZE"]);
    if found != keys.to_string() {
        return Err(format!("{found} keys were loaded instead of {keys}").into());
    }
    let log = server.log();
    let line = log.iter().find_map(|line| line.split_once(SAYS));
    let seconds = line.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    seconds.ok_or_else(|| format!("no word of loading in {log:?}").into())
}
