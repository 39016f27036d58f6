//! The examples of the store's helpers, on a store of their own and on a real server.

use std::process::Command;

use testkit::{GENEROUS, Process, RedisServer};

/// Runs an example without a store, then on a real server; gives both outputs.
fn outputs(program: &str) -> [Vec<String>; 2] {
    let server = RedisServer::start();
    [None, Some(server.url())].map(|address| {
        let mut command = Command::new(program);
        command.args(address);
        let mut process = Process::spawn(command);
        let mut lines = Vec::new();
        while let Some(line) = process.try_next_line(GENEROUS) {
            lines.push(line);
        }
        assert!(process.wait(GENEROUS).success(), "{lines:#?}");
        lines
    })
}

fn count(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn who_is_in_the_room_hears_the_chat() {
    for lines in outputs(env!("CARGO_BIN_EXE_chat")) {
        assert_eq!(lines[0], "nobody is in the room: 0 heard \"hello?\"");
        assert_eq!(count(&lines, "hears \"the kettle is on\""), 2, "{lines:#?}");
        assert_eq!(count(&lines, "hears \"sugar, anybody?\""), 3, "{lines:#?}");
    }
}

#[test]
fn every_job_is_done_though_a_worker_is_killed() {
    for lines in outputs(env!("CARGO_BIN_EXE_job_queue")) {
        assert_eq!(count(&lines, "is killed"), 1, "{lines:#?}");
        assert_eq!(count(&lines, "job of a dead worker"), 1, "{lines:#?}");
        assert_eq!(lines.last().unwrap(), "all 6 jobs are done, though a worker crashed");
    }
}

#[test]
fn every_log_entry_is_counted_though_a_worker_is_killed() {
    for lines in outputs(env!("CARGO_BIN_EXE_log_workers")) {
        assert_eq!(count(&lines, "is killed"), 1, "{lines:#?}");
        assert_eq!(lines.last().unwrap(), "every entry was counted, though a worker crashed");
    }
}

#[test]
fn a_failing_command_of_a_pipeline_fails_alone() {
    for lines in outputs(env!("CARGO_BIN_EXE_pipelining")) {
        assert!(lines[1].starts_with("  command 1234 failed alone: "), "{lines:#?}");
        assert!(lines[2].starts_with("2000 commands in 4 round trips"), "{lines:#?}");
        assert!(lines[2].ends_with("1 failed"), "{lines:#?}");
    }
}
