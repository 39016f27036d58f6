//! A full sync: how long it takes, what it does to the primary, and what it costs under writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{fill, follow, rounded, start_primary, start_replica};
use crate::report::Figures;
use crate::servers::{PerSide, Side, info, resident_bytes};
use crate::{Result, Scale};

const TURN_MS_MAX: f64 = 5.0;
/// Of what copy-on-write costs redis-server.
const MEMORY_RATIO_MAX: f64 = 0.5;
const MIB: f64 = (1 << 20) as f64;

/// What a full sync showed.
#[derive(Default)]
struct Seen {
    seconds: f64,
    /// The longest turn of ours; the fork of theirs, which is not all.
    stall_ms: f64,
    extra_mib: f64,
}

pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    let (small, large) = (scale.sync_keys, scale.sync_keys / 10);
    for (keys, value_len) in [(small, 200), (large, 10 * 1024)] {
        let mut best: Option<PerSide<Seen>> = None;
        for _ in 0..scale.loads {
            let round = PerSide::measure(|side| sync_quietly(side, keys, value_len))?;
            best = Some(match best {
                None => round,
                Some(before) => PerSide {
                    ours: before.ours.least(round.ours),
                    theirs: before.theirs.least(round.theirs),
                },
            });
        }
        let PerSide { ours, theirs } = best.ok_or("no round")?;
        let what = format!("full sync of {keys} values of {value_len} bytes: time to link up");
        let limit = rounded(theirs.seconds);
        figures.must(&what, (rounded(ours.seconds), "s"), format!("{limit:.2} s"), limit);
        let fork = format!("fork alone {:.2} ms", theirs.stall_ms);
        let what = "the same: longest turn of the primary, CPU time";
        figures.must(what, (ours.stall_ms, "ms"), fork, TURN_MS_MAX);
    }
    let seen = PerSide::measure(|side| sync_under_writes(side, small, 200))?;
    let (ours, theirs) = (seen.ours.extra_mib, seen.theirs.extra_mib);
    let what = format!("full sync of {small} values of 200 bytes, all overwritten: extra memory");
    let limit = rounded(theirs * MEMORY_RATIO_MAX);
    figures.must(&what, (ours, "MiB"), format!("{theirs:.2} MiB"), limit);
    let what = "the same: time to link up";
    let figure = |seen: &Seen| format!("{:.2} s", seen.seconds);
    figures.note(what, figure(&seen.ours), figure(&seen.theirs));
    let what = "the same: longest turn of the primary, CPU time";
    let fork = format!("fork alone {:.2} ms", seen.theirs.stall_ms);
    figures.must(what, (seen.ours.stall_ms, "ms"), fork, TURN_MS_MAX);
    Ok(())
}

impl Seen {
    fn least(self, other: Self) -> Self {
        Self {
            seconds: self.seconds.min(other.seconds),
            stall_ms: self.stall_ms.min(other.stall_ms),
            extra_mib: self.extra_mib.min(other.extra_mib),
        }
    }
}

fn sync_quietly(side: Side, keys: usize, value_len: usize) -> Result<Seen> {
    let (primary, replica) = (start_primary(side)?, start_replica(side)?);
    fill(&primary, 0..keys, value_len)?;
    primary.cli(&["CONFIG", "RESETSTAT"]);
    let seconds = follow(&replica, &primary)?;
    Ok(Seen { seconds, stall_ms: stall_ms(side, &primary)?, extra_mib: 0.0 })
}

fn stall_ms(side: Side, primary: &testkit::RedisServer) -> Result<f64> {
    match side {
        Side::Ours => Ok(info(primary, "stats", "tenure_longest_turn_usec")? / 1e3),
        Side::Theirs => Ok(info(primary, "stats", "latest_fork_usec")? / 1e3),
    }
}

/// All keys are overwritten while they are sent, again and again.
fn sync_under_writes(side: Side, keys: usize, value_len: usize) -> Result<Seen> {
    let (primary, replica) = (start_primary(side)?, start_replica(side)?);
    fill(&primary, 0..keys, value_len)?;
    let resident_before = resident_bytes(&primary)?;
    primary.cli(&["CONFIG", "RESETSTAT"]);
    let done = AtomicBool::new(false);
    let (seconds, resident_max) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<(), String> {
            const STEP: usize = 1000;
            // From the far end, so that the walk does not go ahead of the writes.
            for first in (0..keys).step_by(STEP).rev().cycle() {
                if done.load(Ordering::Relaxed) {
                    return Ok(());
                }
                fill(&primary, first..first + STEP, value_len)
                    .map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        let watcher = scope.spawn(|| -> Result<f64, String> {
            let mut resident_max = resident_before;
            while !done.load(Ordering::Relaxed) {
                let resident = resident_bytes(&primary).map_err(|error| error.to_string())?;
                resident_max = resident_max.max(resident);
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(resident_max)
        });
        let followed = follow(&replica, &primary);
        done.store(true, Ordering::Relaxed);
        writer.join().expect("the writer does not panic")?;
        let resident_max = watcher.join().expect("the watcher does not panic")?;
        followed.map(|seconds| (seconds, resident_max))
    })?;
    let copied = match side {
        Side::Ours => 0.0,
        // Of the child, page by page; the server counts them.
        Side::Theirs => info(&primary, "persistence", "rdb_last_cow_size")?,
    };
    let extra_mib = (resident_max - resident_before + copied) / MIB;
    Ok(Seen { seconds, stall_ms: stall_ms(side, &primary)?, extra_mib })
}
