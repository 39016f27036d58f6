//! A bounded slice of `cargo xtask torture`.

use std::path::Path;
use std::time::Duration;

use trials::torture::history::History;
use trials::torture::verdict::judge;
use trials::torture::{Budget, Mode, Topology, TortureOutcome, groups, run_group};

const TTL: Duration = Duration::from_secs(2);
const INSTANCE: &str = env!("CARGO_BIN_EXE_trial-instance");

/// Runs so many rounds of the rows with these names.
fn run(topology: Topology, mode: Mode, rows: &[&str], rounds: usize) -> Vec<TortureOutcome> {
    let found = groups().into_iter().find(|one| one.topology == topology && one.mode == mode);
    let mut group = found.unwrap();
    group.rows.retain(|row| rows.contains(&row.name));
    let budget = Budget {
        per_share: Duration::from_secs(60),
        rounds_max: rounds,
        ttl: TTL,
        seed: testkit::seed(),
        loopback: false,
        older_instance: None,
        own_store: Path::new(INSTANCE).with_file_name("tenure"),
        instance: INSTANCE.into(),
    };
    let outcomes = run_group(&group, &budget, &|words| println!("{words}"));
    print!("{}", trials::torture::table(&outcomes));
    for outcome in &outcomes {
        let words = &outcome.verdict;
        assert!(outcome.faulty.is_empty(), "{}: {:?}\n{words}", outcome.row.name, outcome.faulty);
    }
    outcomes
}

#[test]
fn a_single_server_keeps_its_promises_and_breaks_where_none_is_given() {
    let rows = ["promised", "flush", "clock step"];
    let outcomes = run(Topology::Single, Mode::Available, &rows, 4);
    // What was caught is still there when its file is read again.
    for caught in outcomes.iter().filter(|outcome| outcome.row.name != "promised") {
        let again = judge(&History::parse(&caught.history.to_string()).unwrap());
        assert_eq!(again, caught.verdict);
        assert!(again.is_broken() && !again.is_wrong_under_any_fault());
    }
}

#[test]
fn an_isolated_master_makes_two_leaders_in_mode_available() {
    run(Topology::Sentinel, Mode::Available, &["isolated primary"], 2);
}

#[test]
fn an_isolated_master_makes_no_second_leader_in_mode_strict() {
    run(Topology::Sentinel, Mode::Strict, &["promised: isolated primary"], 1);
}

#[test]
fn an_isolated_store_of_our_own_makes_two_leaders_in_mode_available_alone() {
    run(Topology::OwnSentinel, Mode::Available, &["isolated primary"], 2);
    run(Topology::OwnSentinel, Mode::Strict, &["promised: isolated primary"], 1);
}

#[test]
fn sentinels_of_our_own_let_nobody_lead_beside_an_isolated_store_in_mode_strict() {
    run(Topology::AllOwnSentinel, Mode::Strict, &["promised: isolated primary"], 1);
}

#[test]
fn a_cluster_of_our_own_stores_or_of_both_kinds_makes_no_second_leader_in_mode_strict() {
    run(Topology::OwnCluster, Mode::Strict, &["promised"], 2);
    run(Topology::MixedCluster, Mode::Strict, &["promised"], 2);
}

#[test]
fn of_three_independent_nodes_any_one_may_fail() {
    run(Topology::Quorum, Mode::Quorum, &["promised"], 2);
}

#[test]
fn of_three_independent_stores_of_our_own_any_one_may_fail() {
    run(Topology::OwnQuorum, Mode::Quorum, &["promised"], 1);
}
