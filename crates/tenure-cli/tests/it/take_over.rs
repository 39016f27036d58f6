//! How long nobody runs when the leader is told to end: from SIGTERM to the next child.
//!
//! `TRIAL_ROUNDS=100` makes it a measurement; `cargo xtask trial take-over` sets that.

use std::time::{Duration, Instant};

use testkit::{GENEROUS, Process};

use crate::stage::{Kind, Stage};

const SCRIPT: &str = "echo started; exec sleep 600";

fn measure(kind: Kind) {
    let rounds = std::env::var("TRIAL_ROUNDS").ok();
    let rounds = rounds.map_or(3, |text| text.parse().expect("TRIAL_ROUNDS is a number"));
    let stage = Stage::on(kind);
    let wrap = |id| stage.wrap(id, &["--ttl", "10s"], SCRIPT);
    let mut leader: Process = wrap("ada");
    assert_eq!(leader.next_line(GENEROUS), "started");
    let mut standby = wrap("bob");
    let mut took: Vec<Duration> = Vec::new();
    for round in 0..rounds {
        stage.wait_for_members(2);
        let asked_at = Instant::now();
        leader.terminate();
        assert_eq!(standby.next_line(GENEROUS), "started");
        took.push(asked_at.elapsed());
        leader.wait(GENEROUS);
        leader = std::mem::replace(&mut standby, wrap(if round % 2 == 0 { "ada" } else { "bob" }));
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() * share / 100).min(took.len() - 1)];
    let (middle, slow) = (at(50), at(99));
    eprintln!(
        "{kind:?}: SIGTERM to the next child, {rounds} rounds: p50 {middle:.1?}, p99 {slow:.1?}"
    );
}

#[test]
fn a_planned_take_over_on_redis() {
    measure(Kind::Redis);
}

#[test]
fn a_planned_take_over_on_our_own_store() {
    measure(Kind::Own);
}
