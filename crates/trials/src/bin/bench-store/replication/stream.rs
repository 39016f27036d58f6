//! What follows a full sync: the cost of every write on either side, lagging replicas, WAIT.

use std::time::Duration;

use testkit::RedisServer;
use trials::clock;

use super::{Line, attach, await_in_step, fill, rounded, start_primary, write_request};
use crate::report::Figures;
use crate::servers::{PerSide, Side, cpu_us, resident_bytes};
use crate::speed::{Load, load};
use crate::{Result, Scale};

const REPLICAS: [usize; 3] = [0, 1, 3];
const REPLICA_CPU_RATIO_MAX: f64 = 0.9;
const PIPELINE: usize = 16;
const BACKLOG_EXTRA_PERCENT_MAX: f64 = 7.0;

pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    measure_cpu(scale, figures)?;
    measure_backlog(figures)?;
    measure_wait(scale, figures)
}

/// Processor time per SET.
#[derive(Clone, Copy)]
struct Cost {
    primary_us: f64,
    replica_us: f64,
}

fn measure_cpu(scale: &Scale, figures: &mut Figures) -> Result {
    let unknown = Cost { primary_us: f64::MAX, replica_us: f64::MAX };
    let mut best = [PerSide { ours: unknown, theirs: unknown }; REPLICAS.len()];
    for _ in 0..scale.rounds {
        for (count, best) in REPLICAS.into_iter().zip(&mut best) {
            let round = PerSide::measure(|side| cost_of_set(side, count, scale))?;
            for (best, round) in [(&mut best.ours, round.ours), (&mut best.theirs, round.theirs)] {
                best.primary_us = best.primary_us.min(round.primary_us);
                best.replica_us = best.replica_us.min(round.replica_us);
            }
        }
    }
    let alone = best[0];
    let figure = |us: f64| format!("{us:.2} µs");
    let what = "SET of 64 bytes, pipeline 16: CPU of a primary without replicas";
    figures.note(what, figure(alone.ours.primary_us), figure(alone.theirs.primary_us));
    for (count, best) in REPLICAS.into_iter().zip(best).skip(1) {
        let ours = rounded(best.ours.primary_us / alone.ours.primary_us);
        let theirs = rounded(best.theirs.primary_us / alone.theirs.primary_us);
        let what = format!("the same with {count} replicas, over none");
        figures.must(&what, (ours, ""), format!("{theirs:.2}"), theirs);
        let what = format!("the same with {count} replicas: CPU of the primary");
        figures.note(&what, figure(best.ours.primary_us), figure(best.theirs.primary_us));
    }
    let Cost { replica_us: theirs, .. } = best[1].theirs;
    let what = "the same: CPU of the replica per SET that it applies";
    let limit = rounded(theirs * REPLICA_CPU_RATIO_MAX);
    figures.must(what, (rounded(best[1].ours.replica_us), "µs"), figure(theirs), limit);
    Ok(())
}

fn cost_of_set(side: Side, count: usize, scale: &Scale) -> Result<Cost> {
    let primary = start_primary(side)?;
    let requests = scale.requests * 6;
    let of_set = |requests| Load { test: "set", value_len: 64, pipeline: PIPELINE, requests };
    // All keys are there already, and the allocators have what they need.
    load(&primary, &of_set(requests))?;
    let replicas = attach(side, &primary, count)?;
    let replicas_us = || replicas.iter().map(cpu_us).sum::<Result<f64>>();
    let (primary_before, replicas_before) = (cpu_us(&primary)?, replicas_us()?);
    load(&primary, &of_set(requests))?;
    await_in_step(&primary, &replicas)?;
    let per_request = |us: f64| us / requests as f64;
    Ok(Cost {
        primary_us: per_request(cpu_us(&primary)? - primary_before),
        replica_us: per_request(replicas_us()? - replicas_before) / count.max(1) as f64,
    })
}

/// Three replicas that read nothing while almost a whole backlog is written.
fn measure_backlog(figures: &mut Figures) -> Result {
    let extra = PerSide::measure(|side| {
        const KEYS: usize = 1000;
        const VALUE_LEN: usize = 1000;
        const TIMES: usize = 58;
        let primary = start_primary(side)?;
        let write = |times: usize| (0..times).try_for_each(|_| fill(&primary, 0..KEYS, VALUE_LEN));
        write(TIMES)?;
        let mut replicas = attach(side, &primary, 3)?;
        await_in_step(&primary, &replicas)?;
        replicas.iter_mut().for_each(RedisServer::pause);
        let offset = || Line::open(&primary)?.number("master_repl_offset");
        let (offset_before, resident_before) = (offset()?, resident_bytes(&primary)?);
        write(TIMES)?;
        let grown = resident_bytes(&primary)? - resident_before;
        let streamed = (offset()? - offset_before) as f64;
        replicas.iter_mut().for_each(RedisServer::resume);
        Ok((grown / streamed - 1.0) * 100.0)
    })?;
    let what = "backlog of 64 MiB with three replicas that read nothing: memory beyond one copy";
    let theirs = format!("{:.1} %", extra.theirs);
    figures.must(what, (extra.ours, "%"), theirs, BACKLOG_EXTRA_PERCENT_MAX);
    Ok(())
}

/// How long a write and its confirmation by one replica take together.
fn measure_wait(scale: &Scale, figures: &mut Figures) -> Result {
    let worst = PerSide { ours: (f64::MAX, f64::MAX), theirs: (f64::MAX, f64::MAX) };
    let mut best = worst;
    for _ in 0..scale.rounds {
        let round = PerSide::measure(|side| wait_us(side, scale.requests / 10))?;
        let least = |one: (f64, f64), other: (f64, f64)| (one.0.min(other.0), one.1.min(other.1));
        best.ours = least(best.ours, round.ours);
        best.theirs = least(best.theirs, round.theirs);
    }
    let mut tell = |what: &str, ours: f64, theirs: f64| {
        let limit = rounded(theirs);
        figures.must(what, (rounded(ours), "µs"), format!("{limit:.2} µs"), limit);
    };
    tell("SET and WAIT 1: p50", best.ours.0, best.theirs.0);
    tell("SET and WAIT 1: p99", best.ours.1, best.theirs.1);
    Ok(())
}

/// The median and the 99th percentile.
fn wait_us(side: Side, count: usize) -> Result<(f64, f64)> {
    let primary = start_primary(side)?;
    let replicas = attach(side, &primary, 1)?;
    await_in_step(&primary, &replicas)?;
    let mut line = Line::open(&primary)?;
    let mut request = Vec::new();
    write_request(&mut request, &["SET", "key", "value"]);
    write_request(&mut request, &["WAIT", "1", "10000"]);
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let asked_at = clock::now();
        std::io::Write::write_all(line.0.get_mut(), &request)?;
        line.reply()?;
        let confirmed = line.reply()?;
        took.push(clock::now().since(asked_at));
        if confirmed != ":1" {
            return Err(format!("WAIT: {confirmed}").into());
        }
    }
    took.sort_unstable();
    let at = |share: f64| -> Duration { took[((took.len() - 1) as f64 * share) as usize] };
    Ok((at(0.5).as_secs_f64() * 1e6, at(0.99).as_secs_f64() * 1e6))
}
