//! Whatever a program starts is gone with its term, and nothing else is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;
use testkit::{GENEROUS, Process, wait_until};

use crate::diary::Diary;
use crate::instance::everybody;
use crate::stage::{
    CommandOutput, Kind, NAME, Stage, TENURE, at_once, children_of, guard_of, in_namespace,
    is_alive, number_in, send, wait_until_gone, works_in,
};

/// A program whose only writer is in a session of its own and ignores the stop signal; the leader
/// ends as soon as it is told to, or not at all.
fn stray_writer(leader: &str) -> String {
    let stray =
        r#"trap "" TERM; while :; do echo "$TENURE_TOKEN grandchild $$ 0"; sleep 0.005; done"#;
    format!("setsid sh -c '{stray}' >> diary & {leader}")
}

/// The state of a process as the kernel shows it, and its parent.
fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn zombies_of(pid: u32) -> usize {
    children_of(pid).into_iter().filter(|child| state_of(*child) == Some('Z')).count()
}

#[test]
fn a_stray_that_ignores_the_stop_signal_never_meets_the_next_program() {
    at_once(["sleep 600", "trap '' TERM; while :; do sleep 1; done"], |leader| {
        let stage = Stage::on(Kind::Own);
        let script = stray_writer(leader);
        let _wrapper = stage.wrap("ada", &["--ttl", "1s"], &script);
        let mut token = stage.next_term(0);
        for _ in 0..6 {
            stage.tenure(&["resign", NAME]);
            token = stage.next_term(token);
            assert_eq!(stage.diary().check(), Ok(()), "with {leader:?}");
        }
    });
}

/// A list of children that was made while a process forked and ended shows neither of the two.
#[test]
fn a_chain_of_processes_that_fork_and_end_never_meets_the_next_program() {
    let stage = Stage::on(Kind::Own);
    let _wrapper = stage.wrap("ada", &["--ttl", "3s"], Diary::FAST_CHAIN);
    let mut token = stage.next_term(0);
    for _ in 0..12 {
        stage.tenure(&["resign", NAME]);
        token = stage.next_term(token);
        assert_eq!(stage.diary().check(), Ok(()));
    }
}

/// A process has no environment for a moment while it is being executed.
#[test]
fn a_chain_of_processes_that_fork_and_end_dies_with_its_wrapper() {
    let stage = Stage::on(Kind::Own);
    let folder = stage.folder.path();
    for _ in 0..6 {
        let before = stage.diary().last_token().unwrap_or(0);
        let mut wrapper = stage.wrap("ada", &[], Diary::FAST_CHAIN);
        stage.next_term(before);
        wrapper.kill();
        wait_until("the chain to be gone", GENEROUS, || {
            !everybody().any(|pid| works_in(pid, folder))
        });
    }
}

/// The mark is in no environment that the guard could read; the wrapper has told it of the process.
#[test]
fn a_stray_that_hides_its_mark_dies_with_its_wrapper() {
    let stage = Stage::on(Kind::Own);
    let script = "setsid env -i sh -c 'echo $$ > stray; exec sleep 600' & sleep 600";
    let mut wrapper = stage.wrap("ada", &[], script);
    let stray = number_in(stage.folder.path(), "stray");
    stage.let_renew();
    wrapper.kill();
    wait_until_gone(stray);
}

#[test]
fn a_daemon_dies_with_its_wrapper() {
    let stage = Stage::on(Kind::Own);
    let script = "setsid sh -c 'setsid sleep 600 & echo $! > daemon' & sleep 600";
    let mut wrapper = stage.wrap("ada", &[], script);
    let daemon = number_in(stage.folder.path(), "daemon");
    wrapper.kill();
    wait_until_gone(daemon);
}

#[test]
fn a_program_that_forks_for_ever_comes_to_an_end() {
    let stage = Stage::on(Kind::Own);
    let script = "trap '' TERM; echo $$ > pid
        while :; do setsid sh -c 'trap \"\" TERM; setsid sleep 600 & setsid sleep 600' & sleep 0.01; done";
    let mut wrapper = stage.wrap("ada", &[], script);
    number_in(stage.folder.path(), "pid");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let folder = stage.folder.path().to_owned();
    wrapper.terminate();
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(137));
    let left: Vec<u32> = everybody().filter(|pid| works_in(*pid, &folder)).collect();
    assert!(left.is_empty(), "{left:?} are left");
    assert!(!stage.key_exists(), "the term is given back");
}

/// As many orphans as a busy program leaves behind, all of which end at once.
const MANY_ORPHANS: &str = "i=0; while [ $i -lt 100 ]; do (setsid true &); i=$((i+1)); done
    echo done > done; exec sleep 600";

#[test]
fn orphans_that_end_are_reaped_while_the_program_runs() {
    let stage = Stage::on(Kind::Own);
    let wrapper = stage.wrap("ada", &[], MANY_ORPHANS);
    wait_until("the orphans to be started", GENEROUS, || stage.folder.path().join("done").exists());
    wait_until("the orphans to be reaped", GENEROUS, || zombies_of(wrapper.pid()) == 0);
    assert!(children_of(wrapper.pid()).len() >= 2, "guard and program are there");
}

fn child_of(pid: u32) -> Option<u32> {
    children_of(pid).first().copied()
}

#[test]
fn it_works_as_the_first_process_of_a_pid_namespace() {
    let stage = Stage::on(Kind::Own);
    let words = ["run", NAME, "--ttl", "1500ms", "--", "sh", "-c", MANY_ORPHANS];
    let flags = ["-pf", "--mount-proc", "--kill-child"];
    let Some(command) = in_namespace(&stage, &flags, &words) else { return };
    let mut outside = Process::spawn(command);
    wait_until("the orphans to be started", GENEROUS, || stage.folder.path().join("done").exists());
    let wrapper = child_of(outside.pid()).unwrap();
    wait_until("the orphans to be reaped", GENEROUS, || zombies_of(wrapper) == 0);
    send(wrapper, Signal::TERM);
    assert_eq!(outside.wait(GENEROUS).code(), Some(143));
    assert!(!stage.key_exists(), "the term is given back");
}

/// The first process of a namespace ignores what it does not listen to.
#[test]
fn a_short_command_ends_at_once_as_the_first_process() {
    let mut stage = Stage::on(Kind::Own);
    stage.store.pause();
    let port = stage.store.port().to_string();
    let pipe = stage.folder.path().join("settings");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let commands: [&[&str]; 5] = [
        &["who", NAME],
        &["history", NAME],
        &["doctor"],
        &["cli", "-p", &port, "ping"],
        &["serve", pipe.to_str().unwrap()],
    ];
    for (words, signal) in commands.into_iter().zip([Signal::TERM, Signal::INT].repeat(3)) {
        let flags = ["-pf", "--mount-proc", "--kill-child"];
        let Some(command) = in_namespace(&stage, &flags, words) else { return };
        let mut outside = Process::spawn(command);
        // Again and again: nobody can tell from outside when it is up.
        wait_until("it to end", GENEROUS, || {
            if let Some(child) = child_of(outside.pid()) {
                let pid = rustix::process::Pid::from_raw(child as i32).unwrap();
                let _ = rustix::process::kill_process(pid, signal);
            }
            !outside.is_running()
        });
        let code = outside.wait(GENEROUS).code();
        assert_eq!(code, Some(128 + signal.as_raw()), "{words:?}: not by itself");
    }
    stage.store.resume();
}

#[test]
fn children_are_found_though_proc_is_that_of_another_namespace() {
    let stage = Stage::on(Kind::Own);
    let script = "setsid sleep 600 & sleep 0.2; exit 3";
    let words = ["run", NAME, "--", "sh", "-c", script];
    let Some(command) = in_namespace(&stage, &["-pf", "--kill-child"], &words) else { return };
    let said = CommandOutput::of(command);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(!said.err.contains("cannot be ended"), "{said:?}");
    let folder = stage.folder.path();
    let left: Vec<u32> = everybody().filter(|pid| works_in(*pid, folder)).collect();
    assert!(left.is_empty(), "{left:?} are left");
}

#[test]
fn children_that_were_there_before_are_left_alone() {
    let stage = Stage::on(Kind::Own);
    let script = format!(
        "sleep 600 & echo $! > helper; exec {TENURE} run {NAME} --ttl 1500ms -- sh -c 'exit 3'"
    );
    let plain = stage.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(stage.folder.path());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut wrapper = Process::spawn(command);
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(3));
    let helper = number_in(stage.folder.path(), "helper");
    assert!(is_alive(helper), "it is not the program's");
    send(helper, Signal::KILL);
}

/// A helper that was there before ends while the program runs, and its child becomes the wrapper's.
#[test]
fn what_a_helper_from_before_started_is_left_alone() {
    let stage = Stage::on(Kind::Own);
    let folder = stage.folder.path();
    let await_file = |file: &str| format!("until test -s {file}; do sleep 0.02; done");
    let helper = format!("sleep 600 & echo $! > foreign; {}", await_file("go"));
    // One of its own shows that the program's orphans are still killed.
    let program =
        format!("(setsid sleep 600 & echo $! > own); echo $$ > pid; {}; exit 3", await_file("end"));
    let script = format!(
        "sh -c '{helper}' & {}; exec {TENURE} run {NAME} --ttl 1500ms -- sh -c '{program}'",
        await_file("foreign")
    );
    let plain = stage.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(folder);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut wrapper = Process::spawn(command);
    number_in(folder, "pid");
    let (foreign, own) = (number_in(folder, "foreign"), number_in(folder, "own"));
    fs::write(folder.join("go"), "1").unwrap();
    wait_until("the helper to end", GENEROUS, || children_of(wrapper.pid()).contains(&foreign));
    // Several renewals, at each of which processes are listed.
    std::thread::sleep(std::time::Duration::from_secs(2));
    fs::write(folder.join("end"), "1").unwrap();
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(3));
    assert!(is_alive(foreign), "it is not the program's");
    assert!(!is_alive(own), "it is the program's");
    send(foreign, Signal::KILL);
}

/// The user that owns nothing.
const NOBODY: &str = "65534";

/// A copy of `setpriv` that anybody may become root by, as `sudo` is.
fn way_to_root(stage: &Stage) -> Option<String> {
    let original =
        ["/usr/bin/setpriv", "/bin/setpriv"].into_iter().find(|path| fs::exists(path).unwrap());
    if !rustix::process::getuid().is_root() || original.is_none() {
        eprintln!("skipped: needs root and setpriv");
        return None;
    }
    let copy = stage.folder.path().join("become-root");
    fs::copy(original.unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, PermissionsExt::from_mode(0o4755)).unwrap();
    fs::set_permissions(stage.folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    Some(copy.display().to_string())
}

/// A wrapper of an ordinary user.
fn as_nobody(stage: &Stage, words: &[&str]) -> Command {
    let plain = stage.command(words);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    // The program may lie where only its owner may go.
    let own = stage.folder.path().join("tenure");
    if !own.exists() {
        fs::copy(TENURE, &own).unwrap();
    }
    command.arg(&own).args(plain.get_args()).current_dir(stage.folder.path());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(std::process::Stdio::null());
    command
}

#[test]
fn what_cannot_be_killed_is_named_and_the_term_is_held_to_its_end() {
    let stage = Stage::on(Kind::Own);
    let Some(become_root) = way_to_root(&stage) else { return };
    let script = "echo $$ > pid; trap '' TERM; while :; do sleep 0.1; done";
    let words = [
        "run",
        NAME,
        "--id",
        "ada",
        "--ttl",
        "3s",
        "--",
        &become_root,
        "--reuid",
        "0",
        "--regid",
        "0",
        "--clear-groups",
        "sh",
        "-c",
        script,
    ];
    let log = stage.folder.path().join("log");
    let mut command = as_nobody(&stage, &words);
    command.stderr(fs::File::create(&log).unwrap());
    let mut wrapper = Process::spawn(command);
    let child = number_in(stage.folder.path(), "pid");
    if fs::read_to_string(format!("/proc/{child}/status")).unwrap().contains("Uid:\t65534") {
        send(child, Signal::KILL);
        return eprintln!("skipped: this file system does not let programs change their user");
    }
    let _second = stage.wrap("bob", &[], "echo $$ > next; sleep 600");
    stage.wait_for_members(2);

    stage.tenure(&["resign", NAME]);

    wait_until("the refusal to be told", GENEROUS, || {
        let log = fs::read_to_string(&log).unwrap();
        log.contains(&child.to_string()) && log.contains("EPERM")
    });
    let code = wrapper.wait(GENEROUS).code();
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    assert!(is_alive(child), "nobody here could end it");
    number_in(stage.folder.path(), "next");
    let history = stage.json(&["history", NAME]);
    let gap = &history["terms"][0]["gap_ms"];
    assert!(gap.as_i64().is_some_and(|gap| gap >= 0), "the lease was over: {history}");
    send(child, Signal::KILL);
}

/// The program ended by itself. What it left behind cannot be killed, and nobody says that it was.
#[test]
fn a_tick_whose_leftovers_cannot_be_killed_is_said_to_be_open() {
    let stage = Stage::on(Kind::Own);
    let Some(become_root) = way_to_root(&stage) else { return };
    let script = format!(
        "setsid {become_root} --reuid 0 --regid 0 --clear-groups sh -c 'echo $$ > pid; exec sleep 60' &
         until [ -s pid ]; do sleep 0.02; done; exit 0"
    );
    let words = ["once", NAME, "--tick", "a", "--ttl", "2s", "--", "sh", "-c", &script];
    let log = stage.folder.path().join("log");
    let mut command = as_nobody(&stage, &words);
    command.stderr(fs::File::create(&log).unwrap());
    let mut once = Process::spawn(command);
    let guard = guard_of(&once);
    let left = number_in(stage.folder.path(), "pid");
    if fs::read_to_string(format!("/proc/{left}/status")).unwrap().contains("Uid:\t65534") {
        send(left, Signal::KILL);
        return eprintln!("skipped: this file system does not let programs change their user");
    }
    let code = once.wait(GENEROUS).code();
    wait_until_gone(guard);
    let log = fs::read_to_string(&log).unwrap();
    assert!(is_alive(left), "nobody here could end it");
    send(left, Signal::KILL);
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains(&format!("{left} (EPERM")), "{log}");
    assert!(log.contains("the tick is open, so the next call runs it again"), "{log}");
    let claims = log.replace("could not be killed", "");
    assert!(!claims.contains("killed"), "nobody was: {log}");
}

/// As `sudo` in a hook does: the loss is told when it has ended, and until then it is named.
#[test]
fn a_hook_that_cannot_be_killed_is_named() {
    let stage = Stage::on(Kind::Own);
    let Some(become_root) = way_to_root(&stage) else { return };
    let gain = format!(
        "exec {become_root} --reuid 0 --regid 0 --clear-groups sh -c 'echo $$ > pid; exec sleep 60'"
    );
    let log = stage.folder.path().join("log");
    let mut command = as_nobody(&stage, &["sidecar", NAME, "--ttl", "2s"]);
    command.env("TENURE_SIDECAR__LISTEN", "127.0.0.1:0");
    command.env("TENURE_DEFAULTS__HOOKS__ON_GAIN", gain);
    command.env("TENURE_DEFAULTS__HOOKS__ON_LOSS", "echo 1 > down");
    command.stderr(fs::File::create(&log).unwrap());
    let _sidecar = Process::spawn(command);
    let hook = number_in(stage.folder.path(), "pid");
    if fs::read_to_string(format!("/proc/{hook}/status")).unwrap().contains("Uid:\t65534") {
        send(hook, Signal::KILL);
        return eprintln!("skipped: this file system does not let programs change their user");
    }
    // Or it would lead again, and that would be told instead.
    stage.tenure(&["pause", NAME, "--for", "10m"]);
    stage.tenure(&["resign", NAME]);
    wait_until("the hook to be named", GENEROUS, || {
        let log = fs::read_to_string(&log).unwrap();
        log.contains(&format!("process {hook} cannot be killed"))
    });
    assert!(!stage.folder.path().join("down").exists(), "a loss comes after the gain");
    send(hook, Signal::KILL);
    assert_eq!(number_in(stage.folder.path(), "down"), 1);
}

/// As `sudo` in a check does: it is killed in vain, and nobody waits for it.
#[test]
fn a_health_check_that_cannot_be_killed_does_not_stop_the_wrapper() {
    let stage = Stage::on(Kind::Own);
    let Some(become_root) = way_to_root(&stage) else { return };
    let check = format!(
        "exec {become_root} --reuid 0 --regid 0 --clear-groups sh -c 'echo $$ >> checks; echo $$ > check; exec sleep 60'"
    );
    let words = ["run", NAME, "--id", "ada", "--ttl", "3s", "--health-every", "500ms"];
    let words = [&words[..], &["--health-cmd", &check, "--", "sleep", "600"]].concat();
    let mut wrapper = Process::spawn(as_nobody(&stage, &words));
    number_in(stage.folder.path(), "check");
    // Sick work steps down, which is what a wrapper that hangs does not do.
    wait_until("the term to be given up", GENEROUS, || {
        let history = stage.json(&["history", NAME]);
        history["terms"].as_array().is_some_and(|terms| {
            terms.iter().any(|term| term["reason"].as_str().is_some_and(|why| why != "running"))
        })
    });
    wrapper.terminate();
    wrapper.wait(GENEROUS);
    let checks = fs::read_to_string(stage.folder.path().join("checks")).unwrap();
    checks.lines().for_each(|pid| send(pid.parse().unwrap(), Signal::KILL));
}

/// `timeout` leaves the process group of the check, as other programs do.
#[test]
fn a_health_check_under_way_ends_with_the_program() {
    let stage = Stage::on(Kind::Own);
    let check = "timeout 600 sh -c 'echo $$ > check; exec sleep 600' && true";
    let flags = ["--health-every", "1s", "--health-cmd", check];
    let script = "until test -s check; do sleep 0.02; done; exit 3";
    let mut wrapper = stage.wrap("ada", &flags, script);
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(3));
    let check = number_in(stage.folder.path(), "check");
    let lives = is_alive(check);
    if lives {
        send(check, Signal::KILL);
    }
    assert!(!lives, "it is nobody's after the term");
}

#[test]
fn what_a_slow_health_check_started_ends_with_it() {
    let stage = Stage::on(Kind::Own);
    // Only the first is slow, so the work is well.
    let check = "test -s check || timeout 600 sh -c 'echo $$ > check; exec sleep 600' && true";
    let flags = ["--health-every", "1s", "--health-cmd", check];
    let wrapper = stage.wrap("ada", &flags, "echo $$ > pid; exec sleep 600");
    let check = number_in(stage.folder.path(), "check");
    wait_until_gone(check);
    assert!(is_alive(number_in(stage.folder.path(), "pid")), "the program goes on");
    drop(wrapper);
}

/// A check that takes longer than the test, and is the first of its term. The lease is long enough
/// for that on a busy machine.
fn wrap_with_check(stage: &Stage, check: &str) -> Process {
    let flags = ["--ttl", "8s", "--health-every", "3s", "--health-cmd", check];
    stage.wrap("ada", &flags, "exec sleep 600")
}

const HIDDEN_CHECK: &str = "env -i sh -c 'echo $$ > check; while :; do sleep 0.1; done'";

/// At once, without a renewal in between.
#[test]
fn a_health_check_that_hides_its_mark_dies_with_its_wrapper() {
    let hidden_below = "setsid env -i sh -c 'echo $$ > check; exec sleep 600' && true";
    at_once([HIDDEN_CHECK, hidden_below], |check| {
        let stage = Stage::on(Kind::Own);
        let mut wrapper = wrap_with_check(&stage, check);
        let check = number_in(stage.folder.path(), "check");
        wrapper.kill();
        wait_until_gone(check);
    });
}

#[test]
fn a_health_check_that_hides_its_mark_ends_with_the_lease_of_a_stopped_wrapper() {
    let stage = Stage::on(Kind::Own);
    let mut wrapper = wrap_with_check(&stage, HIDDEN_CHECK);
    let check = number_in(stage.folder.path(), "check");
    wrapper.pause();
    wait_until_gone(check);
    wrapper.resume();
}
