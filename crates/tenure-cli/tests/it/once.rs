//! `tenure once`: one run per tick.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread::JoinHandle;

use rustix::process::Signal;
use testkit::proxy::{Cut, Direction, Door};
use testkit::{GENEROUS, Process, Proxy, WallClock, wait_for, wait_until};

use crate::stage::{
    CommandOutput, Kind, Stage, TENURE, at_once, guard_of, is_alive, number_in, on_every_store,
    send, wait_until_gone,
};

const DAY: i64 = 24 * 60 * 60;

fn lines(folder: &std::path::Path, file: &str) -> usize {
    std::fs::read_to_string(folder.join(file)).unwrap_or_default().lines().count()
}

/// Puts a command under a wall clock of its own, so many seconds off.
fn skew(stage: &Stage, clock: &WallClock, command: &mut Command, seconds: i64) {
    clock.govern(command);
    let offset = stage.folder.path().join(format!("off-by-{seconds}"));
    std::fs::write(&offset, seconds.to_ne_bytes()).unwrap();
    command.env("TESTKIT_WALL_CLOCK", offset);
}

/// Some contend for every tick, and all of them know its outcome before they go on to the next.
#[test]
fn five_hundred_ticks_are_five_hundred_runs() {
    const CONTENDERS: usize = 2;
    const TICKS: usize = 500;
    let stage = Stage::on(Kind::Own);
    let contend = |stage: &Stage| {
        for tick in 0..TICKS {
            let tick = tick.to_string();
            let words = ["once", "batch", "--tick", &tick, "--wait", "--"];
            let mut command = stage.command(&words);
            command.args(["sh", "-c", "echo $0 $TENURE_TOKEN >> runs", &tick]);
            command.current_dir(stage.folder.path());
            let said = CommandOutput::of(command);
            assert_eq!(said.code, 0, "tick {tick}: {said:?}");
        }
    };
    std::thread::scope(|scope| {
        (0..CONTENDERS).for_each(|_| {
            scope.spawn(|| contend(&stage));
        });
    });
    let runs = std::fs::read_to_string(stage.folder.path().join("runs")).unwrap();
    let runs = runs.lines().map(|line| line.split_once(' ').unwrap());
    let (ticks, tokens): (Vec<usize>, Vec<u64>) = runs
        .map(|(tick, token)| (tick.parse::<usize>().unwrap(), token.parse::<u64>().unwrap()))
        .unzip();
    assert_eq!(ticks, (0..TICKS).collect::<Vec<_>>(), "each once, in order");
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[test]
fn a_due_time_is_run_once_and_a_wrong_one_is_refused_with_its_field() {
    let stage = Stage::on(Kind::Own);
    // In no test's lifetime does a second such time come.
    let words = ["once", "yearly", "--cron", "0 3 1 1 *", "--tz", "Europe/Berlin", "--"];
    let run = || stage.tenure(&[&words[..], &["sh", "-c", "exit 7"]].concat());
    assert_eq!(run().code, 7);
    let again = run();
    assert_eq!(again.code, 0, "{again:?}");
    for (cron, zone, part) in [("0 25 * * *", "UTC", "field 2"), ("0 3 * * *", "Nowhere", "zone")] {
        let said = stage.tenure(&["once", "x", "--cron", cron, "--tz", zone, "--", "true"]);
        assert_eq!(said.code, 78, "{said:?}");
        assert!(format!("{said:?}").contains(part), "{said:?}");
    }
}

/// A file may say so for programs that beat; here nobody could.
#[test]
fn a_program_that_cannot_beat_is_not_asked_to() {
    let stage = Stage::on(Kind::Own);
    at_once(["once", "run"], |command| {
        let words = [command, command, "--ttl", "5s", "--set", "require_beat=200ms"];
        let said = stage.tenure(&[&words[..], &["--", "sh", "-c", "sleep 1.5; exit 7"]].concat());
        assert_eq!(said.code, 7, "{command}: {said:?}");
    });
}

#[test]
fn a_loss_ends_the_program_before_the_process_whatever_on_loss_says() {
    let stage = Stage::on(Kind::Own);
    let words = ["once", "batch", "--ttl", "5s", "--set", "on_loss=exit", "--", "sleep", "600"];
    let command = stage.command(&words);
    let running = std::thread::spawn(move || CommandOutput::of(command));
    wait_until("it to lead", GENEROUS, || stage.store.cli(&["DEL", "tenure:batch"]) == "1");
    let said = running.join().unwrap();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("the tick is open") && !said.err.contains("guard:"), "{said:?}");
}

/// Its term goes on, and still that is not the end of the work.
#[test]
fn a_program_that_is_killed_for_want_of_a_guard_has_not_run() {
    let stage = Stage::on(Kind::Own);
    let program = stage.folder.path().join("tenure");
    std::fs::copy(TENURE, &program).unwrap();
    let words = ["once", "batch", "--tick", "a", "--", "sh", "-c"];
    let mut command = stage.command_of(program.to_str().unwrap(), &words);
    command.arg("echo $$ > pid; exec sleep 600").current_dir(stage.folder.path());
    let mut runner = Process::spawn(command);
    let work = number_in(stage.folder.path(), "pid");
    // From here on no guard can be started.
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o644)).unwrap();
    send(guard_of(&runner), Signal::KILL);
    wait_until_gone(work);
    assert_eq!(runner.wait(GENEROUS).code(), Some(1));
    let again = stage.tenure(&["once", "batch", "--tick", "a", "--", "echo", "again"]);
    assert_eq!((again.code, again.out.as_str()), (0, "again"), "{again:?}");
}

/// It was asked to end while it could not hear.
#[test]
fn a_signal_that_comes_with_the_loss_is_what_ended_the_run() {
    let stage = Stage::on(Kind::Own);
    at_once(["1", "2", "3"], |name| {
        let words = ["once", name, "--tick", "a", "--ttl", "3s", "--", "sh", "-c"];
        let mut command = stage.command(&words);
        command.args(["echo $$ > pid$0; exec sleep 600", name]).current_dir(stage.folder.path());
        let mut runner = Process::spawn(command);
        let program = number_in(stage.folder.path(), &format!("pid{name}"));
        runner.pause();
        // Its guard kills it just before the lease ends.
        wait_until_gone(program);
        std::thread::sleep(std::time::Duration::from_millis(500));
        runner.terminate();
        runner.resume();
        assert_eq!(runner.wait(GENEROUS).code(), Some(143), "{name}");
        let again = stage.tenure(&["once", name, "--tick", "a", "--", "echo", "again"]);
        assert_eq!((again.code, again.out.as_str()), (0, "again"), "{again:?}");
    });
}

/// Whoever waits behind a proxy, and who runs the tick beside it until there is a file `go`.
fn waiting_behind(
    proxy: &Proxy,
    stage: &Stage,
    limit: &str,
) -> (Process, JoinHandle<CommandOutput>) {
    let mut winner = stage.command(&["once", "migrate", "--tick", "v1", "--"]);
    winner.args(["sh", "-c", "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done"]);
    winner.current_dir(stage.folder.path());
    let winner = Process::spawn(winner);
    number_in(stage.folder.path(), "pid");
    let words = ["once", "migrate", "--tick", "v1", "--wait", "--wait-timeout", limit];
    let mut waiting = stage.command(&[&words[..], &["--", "false"]].concat());
    waiting.env("TENURE_STORE", stage.store.url_at(proxy.port()));
    let waiting = std::thread::spawn(move || CommandOutput::of(waiting));
    wait_until("the tick to be looked at", GENEROUS, || {
        proxy.traffic(Direction::ToServer).contains("migrate")
    });
    (winner, waiting)
}

#[test]
fn whoever_waits_outlasts_a_store_that_is_away_for_a_while() {
    let stage = Stage::on(Kind::Redis);
    let proxy = Proxy::in_front_of(&stage.store);
    let (mut winner, waiting) = waiting_behind(&proxy, &stage, "10m");
    proxy.set_door(Door::Refuse);
    proxy.cut(Cut::Reset);
    std::thread::sleep(std::time::Duration::from_secs(2));
    proxy.set_door(Door::Open);
    let _ = stage.folder.write("go", "");
    assert_eq!(winner.wait(GENEROUS).code(), Some(0));
    let waited = waiting.join().unwrap();
    assert_eq!(waited.code, 0, "{waited:?}");
    assert!(waited.err.contains("skipped: it was run before"), "{waited:?}");
}

#[test]
fn a_wait_that_ends_while_the_store_is_away_blames_the_store() {
    let stage = Stage::on(Kind::Redis);
    let proxy = Proxy::in_front_of(&stage.store);
    let (_winner, waiting) = waiting_behind(&proxy, &stage, "5s");
    proxy.set_door(Door::Refuse);
    proxy.cut(Cut::Reset);
    let waited = waiting.join().unwrap();
    assert_eq!(waited.code, 69, "{waited:?}");
    assert!(waited.err.contains("no outcome after"), "{waited:?}");
    let _ = stage.folder.write("go", "");
}

/// What is said is what happens next.
#[test]
fn a_run_that_is_terminated_says_that_its_tick_is_left_to_people() {
    let stage = Stage::on(Kind::Own);
    let words = ["once", "migrate", "--tick", "v1", "--on-crash", "skip", "--"];
    let mut command = stage.command(&words);
    command.args(["sh", "-c", "echo $$ > pid; exec sleep 600"]);
    command.current_dir(stage.folder.path());
    let running = std::thread::spawn(move || CommandOutput::of(command));
    let program = number_in(stage.folder.path(), "pid");
    crate::stage::send(program, rustix::process::Signal::TERM);
    let said = running.join().unwrap();
    assert_eq!(said.code, 143, "{said:?}");
    assert!(!said.err.contains("is open"), "{said:?}");
    assert!(said.err.contains("without `--on-crash skip` it is run again"), "{said:?}");
    let again = stage.tenure(&[&words[..], &["echo", "again"]].concat());
    assert_eq!((again.code, again.out.as_str()), (0, ""), "{again:?}");
    assert!(again.err.contains("without `--on-crash skip` it is run again"), "{again:?}");
    let told = stage.tenure(&["once", "migrate", "--tick", "v1", "--", "echo", "again"]);
    assert_eq!(told.out, "again", "{told:?}");
}

/// A run whose program ends by itself once the store has fallen silent.
fn run_into_silence(stage: &mut Stage, flags: &[&str]) -> Process {
    let words = [&["once", "migrate", "--tick", "v1"], flags, &["--", "sh", "-c"]].concat();
    let mut command = stage.command(&words);
    command.arg("echo $$ > pid; until test -e go; do sleep 0.05; done");
    command.current_dir(stage.folder.path());
    command.stderr(std::fs::File::create(stage.folder.path().join("log")).unwrap());
    let runner = Process::spawn(command);
    let program = number_in(stage.folder.path(), "pid");
    stage.store.pause();
    let _ = stage.folder.write("go", "");
    wait_until_gone(program);
    runner
}

fn log_of(stage: &Stage) -> String {
    std::fs::read_to_string(stage.folder.path().join("log")).unwrap()
}

/// What is said is what happens next, and the program did end.
#[test]
fn a_run_that_cannot_be_recorded_says_what_becomes_of_its_tick() {
    let left_to_people = "without `--on-crash skip` it is run again";
    let cases = [
        (&[][..], "the tick may be run again", "again"),
        (&["--on-crash", "skip"][..], left_to_people, ""),
    ];
    at_once(cases, |(flags, says, again)| {
        let mut stage = Stage::on(Kind::Own);
        let mut runner = run_into_silence(&mut stage, &[flags, &["--ttl", "6s"]].concat());
        assert_eq!(runner.wait(GENEROUS).code(), Some(1));
        stage.store.resume();
        let log = log_of(&stage);
        assert!(log.contains("it ran, but the store could not record it") && log.contains(says));
        assert_eq!(log.contains("may run again"), flags.is_empty(), "{log}");
        let words =
            [&["once", "migrate", "--tick", "v1", "--wait"], flags, &["--", "echo", "again"]];
        let said = stage.tenure(&words.concat());
        assert_eq!(said.out, again, "{said:?}");
    });
}

/// The lease is longer than anybody waits here.
#[test]
fn a_run_that_is_terminated_while_it_is_recorded_ends_soon() {
    let cases = [
        (&[][..], "the tick may be run again"),
        (&["--on-crash", "skip"][..], "the tick counts as begun and is skipped"),
    ];
    at_once(cases, |(flags, says)| {
        let mut stage = Stage::on(Kind::Own);
        let mut runner = run_into_silence(&mut stage, &[flags, &["--ttl", "300s"]].concat());
        wait_until("nothing but the record to be left", GENEROUS, || {
            crate::stage::children_of(runner.pid()).is_empty()
        });
        runner.terminate();
        assert_eq!(runner.wait(GENEROUS).code(), Some(143));
        stage.store.resume();
        let log = log_of(&stage);
        let told = "terminated before its run could be recorded: ";
        assert!(log.contains(&format!("{told}{says}")), "{log}");
        assert!(!log.contains("overrun"), "{log}");
    });
}

/// A file in the stage's folder that may be executed.
fn executable(stage: &Stage, name: &str, bytes: &[u8]) -> String {
    let path = stage.folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn a_program_for_another_machine_is_refused_and_its_tick_stays_open() {
    let stage = Stage::on(Kind::Own);
    let mut program = std::fs::read("/bin/true").unwrap();
    // The kind of machine, of a kind that there is not.
    program[18..20].copy_from_slice(&[0x77, 0x77]);
    let foreign = executable(&stage, "foreign", &program);
    let said = stage.tenure(&["once", "batch", "--tick", "1", "--", &foreign]);
    assert_eq!(said.code, 126, "{said:?}");
    assert!(said.err.contains("not built for this machine"), "{said:?}");
    let other = stage.tenure(&["once", "batch", "--tick", "1", "--", "echo", "ran"]);
    assert_eq!((other.code, other.out.as_str()), (0, "ran"), "the tick is open: {other:?}");
    let run = stage.tenure(&["run", "batch", "--", &foreign]);
    assert_eq!(run.code, 126, "{run:?}");
}

/// As shells and `env` do it.
#[test]
fn a_script_that_names_no_interpreter_is_run_by_the_shell() {
    let stage = Stage::on(Kind::Own);
    let script = executable(&stage, "plain-script", b"echo \"$0|$1|$TENURE_NAME\"\nexit 5\n");
    let expected = format!("{script}|a b|batch");
    let folder = stage.folder.path().display().to_string();
    for (tick, word) in [("1", script.as_str()), ("2", "plain-script")] {
        let mut command = stage.command(&["once", "batch", "--tick", tick, "--", word, "a b"]);
        command.env("PATH", format!("/usr/bin:{folder}:/bin"));
        let said = CommandOutput::of(command);
        assert_eq!((said.code, said.out.as_str()), (5, expected.as_str()), "{said:?}");
    }
}

/// Whenever the signal comes: either the program ran, or its tick is as open as before.
#[test]
fn a_run_that_is_terminated_before_its_program_starts_leaves_the_tick_open() {
    /// Each has a resource of its own.
    const SIDE_BY_SIDE: u32 = 4;
    const ROUNDS: u32 = 100 / SIDE_BY_SIDE;
    /// On a busy machine the store may hear too late that nothing was started.
    const USED_UP_MAX: u32 = 1;
    let stage = Stage::on(Kind::Own);
    let used_up = std::thread::scope(|scope| {
        let (stage, names) = (&stage, (0..SIDE_BY_SIDE).map(|number| format!("migrate-{number}")));
        let running: Vec<_> =
            names.map(|name| scope.spawn(move || ticks_used_up(stage, &name, ROUNDS))).collect();
        running.into_iter().map(|running| running.join().unwrap()).sum::<u32>()
    });
    assert!(used_up <= USED_UP_MAX, "{used_up} ticks were used up");
}

/// Terminates so many runs, each at another moment; how many ticks nobody runs again.
fn ticks_used_up(stage: &Stage, name: &str, rounds: u32) -> u32 {
    let folder = stage.folder.path().join(name);
    std::fs::create_dir(&folder).unwrap();
    let command = |tick: &str| {
        // A stop signal that the program does not die of: once started, it takes its one step.
        let words = ["once", name, "--tick", tick, "--ttl", "30s", "--stop-signal", "WINCH"];
        let mut command = stage.command(&words);
        command.args(["--on-crash", "skip", "--", "mkdir", tick]);
        command.current_dir(&folder);
        command
    };
    let has_run = |tick: &str| folder.join(tick).exists();
    let begun_at = std::time::Instant::now();
    assert_eq!(CommandOutput::of(command("first")).code, 0);
    let length = begun_at.elapsed();
    let mut used_up = 0;
    for round in 0..rounds {
        let tick = round.to_string();
        let mut runner = Process::spawn(command(&tick));
        // Not in the first moments, in which the program has not even looked at its words.
        std::thread::sleep(length / 4 + length * 3 / 4 * round / rounds);
        let pid = rustix::process::Pid::from_raw(runner.pid() as i32).unwrap();
        // One that has ended is as good.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        runner.wait(GENEROUS);
        if !has_run(&tick) {
            // On a busy machine the store may answer too late.
            let again = wait_for("an answer", GENEROUS, || {
                let said = CommandOutput::of(command(&tick));
                (said.code != 69).then_some(said)
            });
            used_up += u32::from(again.err.contains("never finished"));
            assert!(has_run(&tick) || used_up > 0, "round {round}: {again:?}");
        }
    }
    used_up
}

on_every_store! {
    fn twenty_instances_whose_clocks_differ_run_one_tick_once(stage: crate::stage::Stage) {
        let clock = WallClock::build();
        // A year, so that the tick hardly ends during the test, and clocks that differ by years.
        let words = ["once", "report", "--every", "365d", "--"];
        let started: Vec<_> = (0..20)
            .map(|number| {
                let mut command = stage.command(&words);
                command.args(["sh", "-c", "echo ran >> runs; sleep 0.3"]);
                command.current_dir(stage.folder.path());
                if let Some(clock) = &clock {
                    skew(&stage, clock, &mut command, (number - 10) * 400 * DAY);
                }
                std::thread::spawn(move || CommandOutput::of(command))
            })
            .collect();
        for instance in started {
            let said = instance.join().unwrap();
            assert_eq!(said.code, 0, "whoever comes second skips it: {said:?}");
        }
        assert_eq!(lines(stage.folder.path(), "runs"), 1);
        let late = stage.tenure(&[&words[..], &["echo", "again"]].concat());
        assert_eq!((late.code, late.out.as_str()), (0, ""), "{late:?}");
    }

    fn a_finished_tick_is_skipped_and_another_is_not(stage: crate::stage::Stage) {
        let once = |tick| stage.tenure(&["once", "migrate", "--tick", tick, "--", "echo", "hello"]);
        let first = once("v1");
        assert_eq!((first.code, first.out.as_str()), (0, "hello"), "{first:?}");
        let second = once("v1");
        assert_eq!((second.code, second.out.as_str()), (0, ""), "{second:?}");
        assert!(second.err.contains("skipped"), "{second:?}");
        assert_eq!(once("v2").out, "hello");
    }

    fn a_failed_run_passes_its_code_on_and_counts_as_run(stage: crate::stage::Stage) {
        let failing = ["once", "migrate", "--tick", "v1", "--", "sh", "-c", "exit 4"];
        assert_eq!(stage.tenure(&failing).code, 4);
        let again = stage.tenure(&failing);
        assert_eq!(again.code, 0, "{again:?}");
        assert!(again.err.contains("exit code 4"), "{again:?}");
        let waiting = stage.tenure(&["once", "migrate", "--tick", "v1", "--wait", "--", "true"]);
        assert_eq!(waiting.code, 1, "whoever waits wants to know: {waiting:?}");
    }

    fn whoever_waits_returns_after_the_winner(stage: crate::stage::Stage) {
        let mut winner = stage.command(&["once", "migrate", "--tick", "v1", "--"]);
        let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; echo done > done";
        winner.args(["sh", "-c", script]).current_dir(stage.folder.path());
        let _winner = Process::spawn(winner);
        number_in(stage.folder.path(), "pid");
        let running = stage.tenure(&["once", "migrate", "--tick", "v1", "--", "true"]);
        assert!(running.code == 0 && running.err.contains("skipped"), "{running:?}");

        let waiting = stage.command(&["once", "migrate", "--tick", "v1", "--wait", "--", "false"]);
        let waiting = std::thread::spawn(move || CommandOutput::of(waiting));
        let _ = stage.folder.write("go", "");
        let waited = waiting.join().unwrap();
        assert!(stage.folder.path().join("done").exists(), "{waited:?}");
        assert_eq!(waited.code, 0, "{waited:?}");
    }

    fn a_crashed_run_is_run_again_unless_told_otherwise(stage: crate::stage::Stage) {
        let words = ["once", "migrate", "--tick", "v1", "--ttl", "1s", "--"];
        let mut command = stage.command(&words);
        command.args(["sh", "-c", "echo $$ > pid; sleep 600"]).current_dir(stage.folder.path());
        let mut crashing = Process::spawn(command);
        let child = number_in(stage.folder.path(), "pid");
        crashing.kill();
        wait_until("the child to be gone", GENEROUS, || !is_alive(child));

        let skip = ["once", "migrate", "--tick", "v1", "--on-crash", "skip", "--", "echo", "again"];
        wait_until("the crash to be told", GENEROUS, || {
            stage.tenure(&skip).err.contains("never finished")
        });
        let rerun = stage.tenure(&["once", "migrate", "--tick", "v1", "--", "echo", "again"]);
        assert_eq!(rerun.out, "again", "{rerun:?}");
    }

    fn a_program_that_never_started_consumes_no_tick(stage: crate::stage::Stage) {
        // It is there, and nobody may execute it: only the system's refusal shows that.
        let interpreter = stage.folder.write("interpreter", "").display().to_string();
        let broken = stage.folder.write("broken", &format!("#!{interpreter}\n"));
        std::fs::set_permissions(&broken, PermissionsExt::from_mode(0o755)).unwrap();
        let broken = broken.display().to_string();
        let once = |more: &[&str]| {
            stage.tenure(&[&["once", "migrate", "--tick", "v1", "--on-crash", "skip"], more].concat())
        };
        let failed = once(&["--", &broken]);
        assert_eq!(failed.code, 126, "{failed:?}");
        let healthy = once(&["--", "echo", "hello"]);
        assert_eq!((healthy.code, healthy.out.as_str()), (0, "hello"), "{healthy:?}");
        assert_eq!(once(&["--", "echo", "hello"]).out, "", "once is enough");
    }

    fn a_run_that_is_terminated_says_so_though_its_program_says_success(
        stage: crate::stage::Stage
    ) {
        let mut command = stage.command(&["once", "migrate", "--tick", "v1", "--"]);
        let script = "trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done";
        command.args(["sh", "-c", script]).current_dir(stage.folder.path());
        let mut runner = Process::spawn(command);
        number_in(stage.folder.path(), "pid");
        runner.terminate();
        assert_eq!(runner.wait(GENEROUS).code(), Some(143));
        let rerun = stage.tenure(&["once", "migrate", "--tick", "v1", "--", "echo", "again"]);
        assert_eq!(rerun.out, "again", "{rerun:?}");
    }

    // A service manager ends all processes of a unit, in any order.
    fn a_program_that_is_terminated_before_its_wrapper_leaves_the_tick_open(
        stage: crate::stage::Stage
    ) {
        let mut command = stage.command(&["once", "migrate", "--tick", "v1", "--"]);
        command.args(["sh", "-c", "echo $$ > pid; exec sleep 600"]);
        let mut runner = Process::spawn({
            command.current_dir(stage.folder.path());
            command
        });
        let program = number_in(stage.folder.path(), "pid");
        crate::stage::send(program, rustix::process::Signal::TERM);
        assert_eq!(runner.wait(GENEROUS).code(), Some(143));
        let rerun = stage.tenure(&["once", "migrate", "--tick", "v1", "--", "echo", "again"]);
        assert_eq!(rerun.out, "again", "{rerun:?}");
    }

    // The same where the program ends in order, and both are noticed together.
    fn a_program_that_ends_in_order_with_its_wrapper_leaves_the_tick_open(
        stage: crate::stage::Stage
    ) {
        at_once(["0", "3"], |code| {
            let folder = stage.folder.path();
            let mut command = stage.command(&["once", code, "--tick", "v1", "--", "sh", "-c"]);
            let script = "trap 'exit $0' TERM; echo $$ > pid$0; while :; do sleep 0.05; done";
            command.args([script, code]).current_dir(folder);
            let mut runner = Process::spawn(command);
            let program = number_in(folder, &format!("pid{code}"));
            runner.pause();
            send(program, Signal::TERM);
            wait_until_gone(program);
            runner.terminate();
            runner.resume();
            assert_eq!(runner.wait(GENEROUS).code(), Some(143), "{code}");
            let rerun = stage.tenure(&["once", code, "--tick", "v1", "--", "echo", "again"]);
            assert_eq!(rerun.out, "again", "{rerun:?}");
        });
    }

    fn a_run_that_is_terminated_stays_open(stage: crate::stage::Stage) {
        let mut command = stage.command(&["once", "migrate", "--tick", "v1", "--"]);
        command.args(["sh", "-c", "echo $$ > pid; sleep 600"]).current_dir(stage.folder.path());
        let mut runner = Process::spawn(command);
        number_in(stage.folder.path(), "pid");
        runner.terminate();
        assert_eq!(runner.wait(GENEROUS).code(), Some(143));
        let rerun = stage.tenure(&["once", "migrate", "--tick", "v1", "--", "echo", "again"]);
        assert_eq!(rerun.out, "again", "{rerun:?}");
    }
}

/// A key without an expiry is no lease: a lock that some script left behind must not let ticks pass
/// in silence.
#[test]
fn a_key_that_somebody_left_behind_is_told_and_ended_by_whoever_waits() {
    at_once([Kind::Redis, Kind::Own], |kind| {
        let stage = Stage::on(kind);
        stage.store.cli(&["SET", "tenure:left", "leftover"]);
        let once = |flags: &[&str]| {
            let words = [&["once", "left", "--tick", "1", "--ttl", "3s"], flags].concat();
            CommandOutput::of(stage.command(&[&words[..], &["--", "echo", "ran"]].concat()))
        };
        let told = once(&[]);
        assert_eq!(told.code, 75, "{told:?}");
        for word in ["tenure:left", "leftover", "without an expiry", "--wait"] {
            assert!(told.err.contains(word), "{told:?}");
        }
        let ran = once(&["--wait", "--wait-timeout", "60s"]);
        assert_eq!((ran.code, ran.out.trim()), (0, "ran"), "{ran:?}");
        assert_eq!(ran.err.matches("nobody may be running it").count(), 1, "told once: {ran:?}");
    });
}

/// A store that can be read and not written is in trouble all the time, and that is one line.
#[test]
fn who_waits_for_a_store_that_refuses_writes_says_so_once() {
    let stage = Stage::on(Kind::Redis);
    stage.store.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let words = ["once", "held", "--tick", "1", "--wait", "--wait-timeout", "4s", "--", "true"];
    let said = CommandOutput::of(stage.command(&words));
    assert_eq!(said.code, 69, "{said:?}");
    assert_eq!(said.err.matches("waiting for the store").count(), 1, "{said:?}");
    assert!(!said.err.contains("answers again"), "{said:?}");
    assert!(said.err.contains("min-replicas-to-write"), "the next step: {said:?}");
}

/// The mark that keeps everybody out is no holder.
#[test]
fn nobody_is_said_to_hold_a_resource_that_is_kept_free() {
    let stage = Stage::on(Kind::Own);
    let wait = ["once", "batch", "--tick", "a", "--ttl", "9s", "--wait", "--wait-timeout", "1s"];
    for _ in 0..2 {
        let mut command = stage.command(&[&wait[..], &["--", "true"]].concat());
        command.env("TENURE_DEFAULTS__FRESH_STORE", "false");
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 75, "{said:?}");
        assert!(said.err.contains("an earlier leader may still believe in its lease"), "{said:?}");
        assert!(!said.err.contains('~'), "{said:?}");
    }

    let words = ["run", "other", "--ttl", "9s", "--on-loss", "exit", "--", "sleep", "600"];
    let command = stage.command(&words);
    let leading = std::thread::spawn(move || CommandOutput::of(command));
    wait_until("it to lead", GENEROUS, || stage.tenure(&["who", "other"]).code == 0);
    let cleared = stage.tenure(&["clear", "other", "--force", "--yes", "--reason", "a test"]);
    assert_eq!(cleared.code, 0, "{cleared:?}");
    let said = leading.join().unwrap();
    assert!(said.err.contains("nobody may lead until earlier leases are over"), "{said:?}");
    assert!(!said.err.contains('~'), "{said:?}");
}
