//! Every example, run on a real server.

// A test that cannot go on ends there.
#![allow(clippy::unwrap_used)]

mod helpers;

use std::process::Command;
use std::time::{Duration, Instant};

use tenure::Tenure;
use tenure::blocking::wait;
use testkit::{GENEROUS, Process, RedisServer, TempFolder, wait_until};

/// A program on `server`, in an environment that knows nothing of Tenure but these settings.
fn start(program: &str, server: &RedisServer, arguments: &[&str]) -> Process {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TENURE_") {
            command.env_remove(name);
        }
    }
    command.arg(server.url()).args(arguments);
    command.env("TENURE_DEFAULTS__FRESH_STORE", "true").env("TENURE_DEFAULTS__TTL", "2s");
    Process::spawn(command)
}

/// The number at the end of a line.
fn last_number(line: &str) -> u64 {
    line.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("no number in {line:?}"))
}

#[test]
fn the_worker_that_stops_is_followed_by_the_one_that_waits() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_background_worker");
    let mut first = start(program, &server, &[]);
    let token = last_number(&first.next_line_with("leading with token", GENEROUS));
    let second = start(program, &server, &[]);
    second.next_line_with("candidate", GENEROUS);
    first.next_line_with("round 2", GENEROUS);
    assert!(!second.lines().iter().any(|line| line.contains("leading")), "two at once");

    first.terminate();
    let next = last_number(&second.next_line_with("leading with token", GENEROUS));
    assert!(next > token, "tokens must grow");
    first.next_line_with("stopped", GENEROUS);
    assert!(first.wait(GENEROUS).success());
}

#[test]
fn a_tick_runs_on_one_instance_only() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_cron_job");
    let begun_at = Instant::now();
    let instances = [start(program, &server, &[]), start(program, &server, &[])];
    let (mut ran, mut skipped) = (0, 0);
    wait_until("three ticks", GENEROUS, || {
        for line in instances.iter().filter_map(|i| i.try_next_line(Duration::from_millis(50))) {
            assert!(!line.starts_with("failed"), "{line}");
            ran += u64::from(line.starts_with("ran"));
            skipped += u64::from(line.starts_with("skipped"));
        }
        ran >= 3
    });
    let ticks = begun_at.elapsed().as_secs() / 2 + 2;
    assert!(ran <= ticks, "{ran} runs in {ticks} ticks");
    assert!(skipped > 0, "somebody must have come second");
}

#[test]
fn a_migration_runs_once_and_everybody_waits_for_it() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_migration");
    let mut instances: Vec<Process> = (0..3).map(|_| start(program, &server, &[])).collect();
    let mut here = 0;
    for instance in &mut instances {
        let line = instance.next_line_with("migrated", GENEROUS);
        here += usize::from(line.ends_with("rows here"));
        assert!(instance.wait(GENEROUS).success());
    }
    assert_eq!(here, 1);
    let mut late = start(program, &server, &[]);
    assert_eq!(late.next_line(GENEROUS), "migrated elsewhere");
    assert!(late.wait(GENEROUS).success());
}

#[test]
fn the_active_instance_hands_over_to_its_standby() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_hot_standby");
    let mut first = start(program, &server, &[]);
    first.next_line_with("active", GENEROUS);
    let second = start(program, &server, &[]);
    second.next_line_with("standby, leader: ", GENEROUS);
    // Only a member that the store knows to be ready can be handed over to.
    let onlooker = wait(Tenure::connect(&server.url())).unwrap();
    let members = onlooker.observe("example-standby").unwrap();
    wait_until("two instances that are ready", GENEROUS, || {
        wait(members.members()).unwrap().iter().filter(|member| member.record.ready).count() == 2
    });

    first.terminate();
    first.next_line_with("handed over to", GENEROUS);
    second.next_line_with("active", GENEROUS);
    assert!(first.wait(GENEROUS).success());
}

#[test]
fn a_leader_only_function_runs_on_one_of_two() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_leader_only");
    let first = start(program, &server, &[]);
    first.next_line_with("refreshing under token", GENEROUS);
    first.next_line_with("refreshed 3 rows", GENEROUS);
    let second = start(program, &server, &[]);
    second.next_line_with("not the leader", GENEROUS);
}

#[test]
fn a_writer_that_was_frozen_half_way_is_refused_by_the_ledger() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let ledger = folder.path().join("ledger");
    let program = env!("CARGO_BIN_EXE_fenced_writer");
    let arguments = [ledger.to_str().unwrap()];
    let mut first = start(program, &server, &arguments);
    let old = last_number(&first.next_line_with("written under token", GENEROUS));
    let second = start(program, &server, &arguments);
    second.next_line_with("candidate", GENEROUS);

    // After this line it is about to write, and has a third of a second to be frozen in.
    first.next_line_with("writing under token", GENEROUS);
    first.pause();
    let new = last_number(&second.next_line_with("written under token", GENEROUS));
    assert!(new > old, "tokens must grow");
    first.resume();
    first.next_line_with("refused: token", GENEROUS);

    let text = std::fs::read_to_string(&ledger).unwrap();
    let tokens: Vec<u64> =
        text.lines().map(|l| l.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(tokens.is_sorted(), "an older leader wrote after a newer one: {tokens:?}");
}
