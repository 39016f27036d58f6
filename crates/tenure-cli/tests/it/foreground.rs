//! `tenure run` on a terminal: the program has it, as if nobody were in between.

use std::process::Command;

use rustix::process::Signal;
use testkit::{GENEROUS, wait_for, wait_until};

use crate::cli::terminal::Terminal;
use crate::diary::Diary;
use crate::stage::{Kind, NAME, Stage, TENURE, send, wait_until_gone};

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

/// Nobody could continue a wrapper that stopped, so it does not, and lets the program go on.
#[test]
fn ctrl_z_without_a_shell_stops_nothing_for_good() {
    let stage = Stage::on(Kind::Own);
    let script = "echo ready; while read word; do echo heard-$word; done; exit 4";
    let mut terminal = on_terminal(&stage, script);
    terminal.sees("ready");
    for word in ["one", "two"] {
        terminal.press("\x1a");
        terminal.press(&format!("{word}\n"));
        terminal.sees(&format!("heard-{word}"));
    }
    terminal.press("\x04");
    assert_eq!(terminal.ends(), Some(4));
    let history = stage.json(&["history", NAME]);
    assert_eq!(history["terms"].as_array().unwrap().len(), 1, "{history}");
}

/// A shell with job control.
fn shell(stage: &Stage) -> Terminal {
    let template = stage.command(&[]);
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noprofile", "-i"]).current_dir(stage.folder.path());
    for (name, value) in template.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell.env("PROGRAM", TENURE).env("SCRIPT", Diary::SCRIPT).env("PS1", "> ");
    Terminal::start(shell)
}

/// The same, with a wrapper called ada in its foreground that leads.
fn in_a_shell(stage: &Stage) -> Terminal {
    let mut terminal = shell(stage);
    terminal.press("$PROGRAM run job --id ada --ttl 3s -- sh -c \"$SCRIPT\"\n");
    stage.wait_for_leader("ada");
    terminal
}

/// The wrapper called ada.
fn wrapper_of(child: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    fields.split(' ').nth(1).unwrap().parse().unwrap()
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
}

#[test]
fn ctrl_z_stops_both_and_the_child_does_not_outlive_its_lease() {
    let stage = Stage::on(Kind::Own);
    let mut terminal = in_a_shell(&stage);
    let token = stage.next_term(0);
    let children = stage.diary().writers(token);
    let mut bob = stage.wrap_writer("bob", &[]);
    stage.wait_for_members(2);

    terminal.press("\x1a");
    terminal.sees("Stopped");
    let later = stage.next_term(token);
    children.into_iter().for_each(wait_until_gone);
    stage.wait_for_leader("bob");

    // Back in the foreground it contends again, and has the terminal when it leads.
    terminal.press("fg\n");
    stage.wait_for_members(2);
    bob.terminate();
    bob.wait(GENEROUS);
    stage.next_term(later);
    terminal.press("\x03");
    wait_until("the term to be given back", GENEROUS, || !stage.key_exists());
    terminal.press("echo $((40 + 2))\n");
    terminal.sees("42");
    assert_eq!(stage.diary().check(), Ok(()));
}

/// A shell whose job is a wrapper that leads, started with `line` behind it.
fn job_in_a_shell(stage: &Stage, line: &str) -> Terminal {
    let mut terminal = shell(stage);
    terminal.press(&format!("$PROGRAM run job --id ada --ttl 60s -- {line}\n"));
    stage.wait_for_leader("ada");
    terminal
}

/// Waits until the shell's job, and the wrapper in it, has stopped.
fn wait_until_job_stopped(terminal: &Terminal) {
    let list = format!("/proc/{0}/task/{0}/children", terminal.pid());
    wait_until("the job to stop", GENEROUS, || {
        let children = std::fs::read_to_string(&list).unwrap();
        let mut children = children.split_whitespace().map(|pid| pid.parse().unwrap());
        children.next().is_some_and(is_stopped)
    });
}

fn is_in_the_shell(terminal: &mut Terminal) {
    terminal.press("echo $((40 + 2))\n");
    terminal.sees("42");
}

#[test]
fn a_program_that_wanted_the_terminal_in_the_background_has_it_in_the_foreground() {
    let stage = Stage::on(Kind::Own);
    let mut terminal = job_in_a_shell(&stage, "sh -c 'read word; echo heard-$word' &");
    wait_until_job_stopped(&terminal);
    is_in_the_shell(&mut terminal);
    terminal.press("fg\n");
    terminal.press("hello\n");
    terminal.sees("heard-hello");
    is_in_the_shell(&mut terminal);
}

#[test]
fn ctrl_z_stops_the_whole_pipeline() {
    let stage = Stage::on(Kind::Own);
    let mut terminal = job_in_a_shell(&stage, "cat | sed -u s/^/heard-/");
    terminal.press("one\n");
    terminal.sees("heard-one");
    terminal.press("\x1a");
    terminal.sees("Stopped");
    terminal.press("fg\n");
    terminal.press("two\n");
    terminal.sees("heard-two");
    terminal.press("\x04");
    is_in_the_shell(&mut terminal);
}

/// Once it wants the terminal there, it is stopped like every other program.
#[test]
fn a_program_that_goes_on_in_the_background_leaves_the_terminal_to_the_shell() {
    let stage = Stage::on(Kind::Own);
    let mut terminal = job_in_a_shell(&stage, "sh -c 'while read word; do echo heard-$word; done'");
    terminal.press("one\n");
    terminal.sees("heard-one");
    terminal.press("\x1a");
    terminal.sees("Stopped");
    terminal.press("bg\n");
    terminal.sees("bg");
    is_in_the_shell(&mut terminal);
    wait_until_job_stopped(&terminal);
    is_in_the_shell(&mut terminal);
    terminal.press("fg\n");
    terminal.press("two\n");
    terminal.sees("heard-two");
    terminal.press("\x04");
    is_in_the_shell(&mut terminal);
}

#[test]
fn a_wrapper_stopped_on_its_terminal_loses_its_child_in_time() {
    let stage = Stage::on(Kind::Own);
    let terminal = in_a_shell(&stage);
    let token = stage.next_term(0);
    let children = stage.diary().writers(token);
    let wrapper = wait_for("the wrapper", GENEROUS, || {
        let parents = children.iter().map(|child| wrapper_of(*child));
        parents.into_iter().find(|parent| !children.contains(parent))
    });
    let _bob = stage.wrap_writer("bob", &[]);
    stage.wait_for_members(2);

    send(wrapper, Signal::TSTP);
    wait_until("the wrapper to stop", GENEROUS, || is_stopped(wrapper));
    stage.next_term(token);
    children.into_iter().for_each(wait_until_gone);
    stage.wait_for_leader("bob");
    assert!(is_stopped(wrapper), "nobody has continued it");
    assert_eq!(stage.diary().check(), Ok(()));
    send(wrapper, Signal::KILL);
    wait_until_gone(wrapper);
    drop(terminal);
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
