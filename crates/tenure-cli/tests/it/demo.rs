//! `tenure demo`: something to see within a second, and nothing left behind.

use std::process::Command;

use testkit::{GENEROUS, Process, wait_until};

fn demo(words: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("demo").args(["--listen", "127.0.0.1:0"]).args(words);
    Process::spawn(command)
}

/// The processes that `parent` started and that still run.
fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // After the name, which may hold anything: state and parent.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut words = rest.split_whitespace();
        words.next() != Some("Z") && words.next() == Some(&parent.to_string())
    })
    .collect()
}

fn is_gone(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn it_shows_an_election_a_hand_over_and_a_crash_and_ends_cleanly() {
    let mut demo = demo(&[]);
    let address = demo.next_line_with("http://127.0.0.1:", GENEROUS);
    let first = demo.next_line_with("leads", GENEROUS);
    assert!(first.contains("after the start"), "{first}");
    let page = address.trim().rsplit('/').nth(1).unwrap().to_owned();
    let page = std::net::TcpStream::connect(page);
    assert!(page.is_ok(), "the page is there: {address}");

    demo.next_line_with("to hand over to", GENEROUS);
    let handed = demo.next_line_with("leads", GENEROUS);
    assert!(handed.contains("nobody led for"), "the gap was measured: {handed}");
    demo.next_line_with("is killed", GENEROUS);
    let crashed = demo.next_line_with("leads", GENEROUS);
    assert!(crashed.contains("after the kill, "), "{crashed}");
    assert!(crashed.contains("after the lease was over"), "{crashed}");

    let started = children(demo.pid());
    assert!(started.len() >= 2, "{started:?}");
    demo.interrupt();
    assert!(demo.wait(GENEROUS).success());
    wait_until("nobody is left", GENEROUS, || started.iter().all(|id| is_gone(*id)));
}

#[test]
fn with_sentinels_everything_moves_when_the_primary_is_killed() {
    let mut demo = demo(&["--sentinel"]);
    demo.next_line_with("sentinels at ports", GENEROUS);
    demo.next_line_with("leads", GENEROUS);
    demo.next_line_with("is killed", GENEROUS);
    let moved = demo.next_line_with("the sentinels made port", GENEROUS);
    assert!(moved.contains("after the kill"), "{moved}");
    demo.next_line_with("leads", GENEROUS);
    let started = children(demo.pid());
    assert!(started.len() >= 8, "two stores, three sentinels, three instances: {started:?}");
    demo.interrupt();
    assert!(demo.wait(GENEROUS).success());
    wait_until("nobody is left", GENEROUS, || started.iter().all(|id| is_gone(*id)));
    let folder = std::env::temp_dir().join(format!("tenure-demo-{}", demo.pid()));
    assert!(!folder.exists());
}

#[test]
fn a_cluster_loses_a_primary_and_moves_slots_and_the_election_goes_on() {
    let mut demo = demo(&["--cluster"]);
    demo.next_line_with("a cluster of six nodes at ports", GENEROUS);
    demo.next_line_with("leads", GENEROUS);
    demo.next_line_with("is killed", GENEROUS);
    let moved = demo.next_line_with("took over", GENEROUS);
    assert!(moved.contains("after the kill"), "{moved}");
    let writes = demo.next_line_with("meanwhile", GENEROUS);
    assert!(writes.contains("have an unknown outcome"), "{writes}");
    demo.next_line_with("is started again", GENEROUS);
    demo.next_line_with("with the election's own, move from port", GENEROUS);
    // A hundred slots, one after the other, among nodes that all share two processors.
    demo.next_line_with("have moved in", GENEROUS * 3);
    demo.next_line_with("is still the leader", GENEROUS);
    let writes = demo.next_line_with("meanwhile", GENEROUS);
    assert!(writes.contains("; 0 have an unknown outcome"), "no connection broke: {writes}");
    let started = children(demo.pid());
    assert!(started.len() >= 9, "six nodes, three instances: {started:?}");
    demo.interrupt();
    assert!(demo.wait(GENEROUS).success());
    wait_until("nobody is left", GENEROUS, || started.iter().all(|id| is_gone(*id)));
    let folder = std::env::temp_dir().join(format!("tenure-demo-{}", demo.pid()));
    assert!(!folder.exists());
}

#[test]
fn it_ends_by_itself_when_told_so() {
    let mut demo = demo(&["--seconds", "2"]);
    demo.next_line_with("leads", GENEROUS);
    assert!(demo.wait(GENEROUS).success());
}

#[test]
fn its_instances_die_with_it_however_it_dies() {
    let mut demo = demo(&[]);
    demo.next_line_with("leads", GENEROUS);
    let started = children(demo.pid());
    assert_eq!(started.len(), 3);
    demo.kill();
    wait_until("nobody is left", GENEROUS, || started.iter().all(|id| is_gone(*id)));
}
