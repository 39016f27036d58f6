//! `tenure run` on a terminal: the program has it, as if nobody were in between.

use crate::cli::terminal::Terminal;
use crate::stage::{Kind, NAME, Stage, wait_until_gone};

fn on_terminal(stage: &Stage, script: &str) -> Terminal {
    let mut command = stage.command(&["run", NAME, "--", "sh", "-c", script]);
    command.current_dir(stage.folder.path());
    Terminal::start(command)
}

#[test]
fn the_program_reads_from_the_terminal() {
    let stage = Stage::on(Kind::Own);
    let mut terminal = on_terminal(&stage, "echo ready; read word; echo heard-$word; exit 4");
    terminal.sees("ready");
    terminal.press("hello\n");
    terminal.sees("heard-hello");
    assert_eq!(terminal.ends(), Some(4));
}

#[test]
fn ctrl_c_is_the_programs_and_its_code_is_passed_on() {
    let stage = Stage::on(Kind::Own);
    let script = "trap 'echo interrupted; exit 6' INT; echo ready; while :; do sleep 0.05; done";
    let mut terminal = on_terminal(&stage, script);
    terminal.sees("ready");
    terminal.press("\x03");
    terminal.sees("interrupted");
    assert_eq!(terminal.ends(), Some(6));
    assert!(!stage.key_exists(), "the term is given back");
}

/// Wrapper and guard are there for every program that is wrapped, so they must not cost much.
#[test]
fn a_wrapper_adds_less_than_ten_megabytes() {
    const KILOBYTES_MAX: u64 = 10 * 1024;
    let stage = Stage::on(Kind::Own);
    let wrapper = stage.wrap("ada", &[], "echo $$ > pid; exec sleep 600");
    stage.wait_for_leader("ada");
    let guard = crate::stage::guard_of(&wrapper);
    let own: u64 = [wrapper.pid(), guard].into_iter().map(own_kilobytes).sum();
    assert!(own < KILOBYTES_MAX, "{own} kB");
    let child = crate::stage::number_in(stage.folder.path(), "pid");
    drop(wrapper);
    wait_until_gone(child);
}

/// What the process has to itself: code is shared with every other `tenure` on the host.
fn own_kilobytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
