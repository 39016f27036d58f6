//! How `tenure sidecar` ends, and its hooks with it.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use testkit::{GENEROUS, Process, RedisServer, TempFolder, wait_until};

use crate::instance::everybody;
use crate::sidecar::{get, leading, sidecar, written};
use crate::stage::{
    Kind, NAME, Stage, children_of, in_namespace, is_alive, number_in, send, wait_until_gone,
    works_in,
};

/// The processes that a hook has started and that run.
fn left_in(folder: &Path) -> Vec<u32> {
    everybody().filter(|pid| works_in(*pid, folder) && is_alive(*pid)).collect()
}

/// Fails if a hook has left anything behind, and ends it.
fn assert_nothing_is_left_in(folder: &Path) {
    let left = left_in(folder);
    left.iter().for_each(|pid| send(*pid, Signal::KILL));
    assert_eq!(left.len(), 0, "processes of a hook live on");
}

/// Each `timeout` leaves the process group of the hook, and another one is always just beginning.
#[test]
fn a_hook_that_goes_on_starting_processes_is_ended_with_all_of_them() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let hooks = "defaults.hooks.on_gain = 'while :; do timeout 90 sleep 90 & sleep 0.005; done'\n\
                 defaults.hooks.on_loss = 'echo down >> log'\n";
    let (mut process, _) = leading(&server, &folder, hooks);
    wait_until("many processes", GENEROUS, || left_in(folder.path()).len() > 150);
    process.terminate();
    let status = process.wait(GENEROUS);
    assert_nothing_is_left_in(folder.path());
    assert!(status.success());
    assert_eq!(written(&folder, "log"), "down\n");
}

/// More of them than a process may have open files.
#[test]
fn a_hook_with_a_thousand_processes_is_ended_with_all_of_them() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let settings = "elections.report.on_loss = 'exit'\ndefaults.hooks.on_gain = '''\n\
                    n=0; while [ $n -lt 1100 ]; do setsid sleep 90 & n=$((n + 1)); done\n\
                    echo up >> log; wait'''\n";
    let (mut process, _) = leading(&server, &folder, settings);
    // Thirty milliseconds for each of them.
    wait_until("all processes", GENEROUS * 2, || written(&folder, "log") == "up\n");
    server.cli(&["DEL", "tenure:report"]);
    let code = process.wait(GENEROUS).code();
    assert_nothing_is_left_in(folder.path());
    assert_eq!(code, Some(1));
}

/// Nothing but the environment says whose it is.
#[test]
fn a_process_whose_parents_have_ended_is_ended_with_its_hook() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let hooks =
        "defaults.hooks.on_gain = '(setsid sleep 90 &); sleep 0.1; echo up >> log; sleep 90'\n";
    let (mut process, _) = leading(&server, &folder, hooks);
    wait_until("the hook to run", GENEROUS, || written(&folder, "log") == "up\n");
    process.terminate();
    let status = process.wait(GENEROUS);
    assert_nothing_is_left_in(folder.path());
    assert!(status.success());
}

/// There the numbers in `/proc` are not those of the sidecar.
#[test]
fn a_hook_is_ended_with_all_it_started_where_proc_is_that_of_another_namespace() {
    let stage = Stage::on(Kind::Own);
    let words = ["sidecar", NAME, "--ttl", "5s", "--listen", "127.0.0.1:0"];
    let Some(mut command) = in_namespace(&stage, &["-pf", "--kill-child"], &words) else { return };
    let folder = TempFolder::create();
    let inside = folder.path().display();
    let gain = format!("cd {inside}; (timeout 90 sleep 90 &); timeout 90 sleep 90 & wait");
    command.env("TENURE_DEFAULTS__HOOKS__ON_GAIN", gain);
    command.env("TENURE_DEFAULTS__HOOKS__ON_LOSS", format!("echo down >> {inside}/log"));
    let mut process = Process::spawn(command);
    wait_until("the hook to run", GENEROUS, || left_in(folder.path()).len() == 5);
    stage.tenure(&["pause", NAME, "--for", "10m"]);
    stage.tenure(&["resign", NAME]);
    wait_until("the loss to be told", GENEROUS, || written(&folder, "log") == "down\n");
    assert_nothing_is_left_in(folder.path());
    // `unshare` passes no signal on.
    let children = crate::stage::children_of(process.pid());
    children.into_iter().for_each(|child| send(child, Signal::TERM));
    process.wait(GENEROUS);
}

/// What is held ends by itself; nobody waits a third of a day for a store that is away.
#[test]
fn a_leader_ends_when_asked_to_though_the_store_does_not_answer() {
    let mut server = RedisServer::start();
    let folder = TempFolder::create();
    let settings = "elections.long.ttl = '24h'\nelections.long.fresh_store = true\n\
                    defaults.hooks.on_loss = 'echo $TENURE_NAME >> log'\n";
    let (mut process, address) = leading(&server, &folder, settings);
    wait_until("it leads both", GENEROUS, || get(&address, "/metrics").contains(LEADS_LONG));
    server.pause();
    process.terminate();
    assert!(process.wait(GENEROUS).success());
    assert!(written(&folder, "log").contains("long"), "{}", written(&folder, "log"));
    server.resume();
}

#[test]
fn a_release_that_the_store_did_not_confirm_is_told() {
    let mut server = RedisServer::start();
    let folder = TempFolder::create();
    let (mut process, _) = leading(&server, &folder, "");
    server.pause();
    process.terminate();
    assert!(process.wait(GENEROUS).success());
    let said = written(&folder, "stderr");
    assert!(said.contains("leases end by themselves"), "{said}");
    server.resume();
}

#[test]
fn a_hook_does_not_outlive_a_sidecar_that_is_killed() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let hook = "defaults.hooks.on_gain = 'echo $$ > shell; sleep 600 & echo $! > child; wait'\n";
    let (mut process, _) = leading(&server, &folder, hook);
    let left = ["shell", "child"].map(|file| number_in(folder.path(), file));
    // It is started right after the shell, which may be faster.
    wait_until("the watcher", GENEROUS, || {
        children_of(process.pid()).into_iter().any(|pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains("hook-watcher")
        })
    });
    process.kill();
    left.into_iter().for_each(wait_until_gone);
}

const LEADS_LONG: &str = "leader_election_master_status{name=\"long\"} 1";

#[test]
fn an_exit_on_loss_does_not_wait_for_a_store_that_does_not_answer() {
    let mut server = RedisServer::start();
    let folder = TempFolder::create();
    let settings = "elections.report.on_loss = 'exit'\n\
                    elections.long.ttl = '24h'\nelections.long.fresh_store = true\n";
    let (mut process, address) = leading(&server, &folder, settings);
    wait_until("it leads both", GENEROUS, || get(&address, "/metrics").contains(LEADS_LONG));
    server.pause();
    assert_eq!(process.wait(GENEROUS).code(), Some(1));
    server.resume();
}

#[test]
fn a_second_signal_ends_it_without_waiting_for_hooks() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let hooks = "defaults.hooks.on_gain = 'echo up >> log'\n\
                 defaults.hooks.on_loss = 'timeout 90 sleep 90 & echo down >> log; wait'\n";
    let (mut process, _) = leading(&server, &folder, hooks);
    wait_until("the gain was told", GENEROUS, || written(&folder, "log") == "up\n");
    process.terminate();
    wait_until("the loss is told", GENEROUS, || written(&folder, "log") == "up\ndown\n");
    // Two signals at the same time are one: some supervisors send it to the group as well.
    std::thread::sleep(std::time::Duration::from_secs(1));
    process.terminate();
    let code = process.wait(GENEROUS).code();
    assert_nothing_is_left_in(folder.path());
    assert_eq!(code, Some(1));
    let said = written(&folder, "stderr");
    assert!(said.contains("asked to end again"), "{said}");
}

/// Four of them, since only chance would let one contend again.
#[test]
fn who_exits_on_loss_takes_no_other_term_before_it_has_ended() {
    let server = RedisServer::start();
    let mut sidecars: Vec<(TempFolder, String, Process)> = ["a", "b", "c", "d"]
        .map(|name| {
            let folder = TempFolder::create();
            let process = exiting(&server, &folder, name);
            (folder, name.to_owned(), process)
        })
        .into();
    let token = |name: &str| server.cli(&["HGET", &format!("{{tenure:{name}}}:meta"), "token"]);
    for (folder, name, _) in &sidecars {
        wait_until("the gain was told", GENEROUS, || !written(folder, "log").is_empty());
        assert_eq!(written(folder, "log"), format!("gain {}\n", token(name)));
    }
    let tokens: Vec<String> = sidecars.iter().map(|(_, name, _)| token(name)).collect();
    server.cli(&["DEL", "tenure:a", "tenure:b", "tenure:c", "tenure:d"]);
    for ((folder, name, process), before) in sidecars.iter_mut().zip(tokens) {
        assert_eq!(process.wait(GENEROUS).code(), Some(1));
        assert_eq!(written(folder, "log"), format!("gain {before}\nloss {before}\n"));
        let said = written(folder, "stderr");
        assert_eq!(said.matches("leader: acquired").count(), 1, "{name} led again: {said}");
    }
}

fn exiting(server: &RedisServer, folder: &TempFolder, name: &str) -> Process {
    let url = server.url();
    let mut command: Command =
        sidecar(&[name, "--store", &url, "--listen", "127.0.0.1:0", "--ttl", "3s"]);
    let hook = "echo $TENURE_EVENT $TENURE_TOKEN >> log";
    command.env("TENURE_DEFAULTS__FRESH_STORE", "true").env("TENURE_DEFAULTS__ON_LOSS", "exit");
    command.env("TENURE_DEFAULTS__HOOKS__ON_GAIN", hook).current_dir(folder.path());
    command.env("TENURE_DEFAULTS__HOOKS__ON_LOSS", format!("{hook}; sleep 1"));
    command.stderr(std::fs::File::create(folder.path().join("stderr")).unwrap());
    Process::spawn(command)
}
