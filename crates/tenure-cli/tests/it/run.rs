//! `tenure run`: one child at a time, and nothing left of it.

use rustix::process::Signal;
use testkit::{GENEROUS, Process, wait_until};

use crate::stage::{
    CommandOutput, Kind, NAME, PROMPTLY, Stage, at_once, guard_of, is_alive, number_in,
    on_every_store, send, wait_until_gone,
};

on_every_store! {
    fn a_program_knows_its_term_and_its_code_is_passed_on(stage: crate::stage::Stage) {
        let script = "echo $TENURE_NAME $TENURE_TTL_MS; echo $TENURE_ID $TENURE_TOKEN; exit 7";
        let mut wrapper = stage.wrap("ada", &[], script);
        assert_eq!(wrapper.next_line(GENEROUS), "job 1500");
        let line = wrapper.next_line(GENEROUS);
        let (id, token) = line.split_once(' ').unwrap();
        assert!(id.starts_with("ada_"), "{line}");
        assert!(token.parse::<u64>().unwrap() > 0, "{line}");
        assert_eq!(wrapper.wait(GENEROUS).code(), Some(7));
        assert!(!stage.key_exists(), "the term is given back");
    }

    fn a_program_that_dies_of_a_signal_gives_128_and_its_number(stage: crate::stage::Stage) {
        let mut wrapper = stage.wrap("ada", &[], "kill -9 $$");
        assert_eq!(wrapper.wait(GENEROUS).code(), Some(137));
    }

    fn sigterm_stops_the_child_and_all_it_started_then_releases(stage: crate::stage::Stage) {
        let mut wrapper = stage.wrap_writer("ada", &["--ttl", "5s"]);
        let token = stage.next_term(0);
        let pids = stage.diary().writers(token);
        wrapper.terminate();
        assert_eq!(wrapper.wait(GENEROUS).code(), Some(143));
        for pid in pids {
            assert!(!is_alive(pid), "{pid} outlived the wrapper");
        }
        assert!(!stage.key_exists(), "the term is given back");
    }

    fn a_child_that_ignores_the_stop_signal_is_killed(stage: crate::stage::Stage) {
        let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done";
        let mut wrapper = stage.wrap("ada", &[], script);
        let child = number_in(stage.folder.path(), "pid");
        wrapper.terminate();
        assert_eq!(wrapper.wait(GENEROUS).code(), Some(137));
        assert!(!is_alive(child));
    }

    fn a_term_that_the_store_ends_is_blamed_on_nobody(stage: crate::stage::Stage) {
        let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done";
        let words = ["run", NAME, "--ttl", "5s", "--on-loss", "exit", "--", "sh", "-c", script];
        let (mut command, log) = (stage.command(&words), stage.folder.path().join("log"));
        command.current_dir(stage.folder.path()).stderr(std::fs::File::create(&log).unwrap());
        let mut wrapper = Process::spawn(command);
        let child = number_in(stage.folder.path(), "pid");
        stage.store.cli(&["SET", "tenure:job", "mallory", "PX", "600000"]);
        wrapper.wait(GENEROUS);
        assert!(!is_alive(child));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.contains("killed the program at once"), "{log}");
        for blamed in ["did not stop", "did not act"] {
            assert!(!log.contains(blamed), "{log}");
        }
    }

    fn a_wrapper_that_was_stopped_does_not_claim_what_the_guard_did(stage: crate::stage::Stage) {
        let words = ["run", NAME, "--ttl", "1500ms", "--on-loss", "exit", "--", "sh", "-c"];
        let words = [&words[..], &["echo $$ > pid; exec sleep 600"]].concat();
        let log = stage.folder.path().join("log");
        // What the wrapper sees first when it goes on differs from time to time.
        for _ in 0..4 {
            let mut command = stage.command(&words);
            command.current_dir(stage.folder.path()).stderr(std::fs::File::create(&log).unwrap());
            let mut wrapper = Process::spawn(command);
            let child = number_in(stage.folder.path(), "pid");
            send(wrapper.pid(), Signal::STOP);
            wait_until("the guard to kill the program", GENEROUS, || !is_alive(child));
            send(wrapper.pid(), Signal::CONT);
            wrapper.wait(GENEROUS);
            let text = || std::fs::read_to_string(&log).unwrap();
            // A guard that is slow to answer is replaced before it can speak.
            let tells = |text: String| {
                text.contains("guard: killed process") || text.contains("guard has killed")
            };
            wait_until("somebody to say so", GENEROUS, || tells(text()));
            let text = text();
            assert!(!text.contains("at once"), "{text}");
            std::fs::remove_file(stage.folder.path().join("pid")).unwrap();
        }
    }

    fn a_background_process_that_is_left_over_is_killed(stage: crate::stage::Stage) {
        let script = "setsid sleep 600 & echo $! > left; sleep 0.2; exit 3";
        let mut wrapper = stage.wrap("ada", &[], script);
        let left = number_in(stage.folder.path(), "left");
        assert_eq!(wrapper.wait(GENEROUS).code(), Some(3));
        assert!(!is_alive(left), "even though it left the group");
    }

    fn a_killed_wrapper_takes_its_child_along(stage: crate::stage::Stage) {
        let mut first = stage.wrap_writer("ada", &[]);
        let token = stage.next_term(0);
        let pids = stage.diary().writers(token);
        let guard = guard_of(&first);
        let _second = stage.wrap_writer("bob", &[]);
        stage.wait_for_members(2);

        first.kill();

        pids.into_iter().for_each(wait_until_gone);
        wait_until_gone(guard);
        stage.next_term(token);
        assert_eq!(stage.diary().check(), Ok(()));
    }

    fn a_stopped_wrapper_loses_its_child_before_the_next_begins(stage: crate::stage::Stage) {
        let mut first = stage.wrap_writer("ada", &[]);
        let token = stage.next_term(0);
        let pids = stage.diary().writers(token);
        let _second = stage.wrap_writer("bob", &[]);
        stage.wait_for_members(2);

        first.pause();
        stage.next_term(token);
        pids.into_iter().for_each(wait_until_gone);

        first.resume();
        stage.wait_for_leader("bob");
        assert!(first.is_running(), "it contends again");
        assert_eq!(stage.diary().check(), Ok(()));
    }

    fn whoever_waits_leaves_at_once_when_told_to(stage: crate::stage::Stage) {
        let _leader = stage.wrap("ada", &[], "sleep 600");
        stage.wait_for_leader("ada");
        for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
            let mut waiting = stage.wrap("bob", &[], "sleep 600");
            stage.wait_for_members(2);
            send(waiting.pid(), signal);
            assert_eq!(waiting.wait(PROMPTLY).code(), Some(code), "{signal:?}");
            stage.wait_for_members(1);
        }
    }

    fn other_signals_are_passed_on(stage: crate::stage::Stage) {
        let script = "trap 'echo usr1; exit 5' USR1; echo ready; while :; do sleep 0.05; done";
        let mut wrapper = stage.wrap("ada", &[], script);
        assert_eq!(wrapper.next_line(GENEROUS), "ready");
        send(wrapper.pid(), Signal::USR1);
        assert_eq!(wrapper.next_line(GENEROUS), "usr1");
        assert_eq!(wrapper.wait(GENEROUS).code(), Some(5));
    }

    fn waiting_has_a_limit(stage: crate::stage::Stage) {
        let _leader = stage.wrap("ada", &[], "sleep 600");
        stage.wait_for_leader("ada");
        let said = stage.tenure(&["run", NAME, "--wait-timeout", "3s", "--", "true"]);
        assert_eq!(said.code, 75, "{said:?}");
        assert!(said.err.contains("ada_"), "{said:?}");
    }

    fn a_loss_may_end_the_wrapper_with_a_code_of_its_own(stage: crate::stage::Stage) {
        let mut wrapper = stage.wrap_writer("ada", &["--on-loss", "exit", "--loss-code", "9"]);
        let token = stage.next_term(0);
        let pids = stage.diary().writers(token);
        stage.store.cli(&["DEL", "tenure:job"]);
        assert_eq!(wrapper.wait(GENEROUS).code(), Some(9));
        for pid in pids {
            assert!(!is_alive(pid), "{pid} outlived its term");
        }
        let terms = stage.json(&["history", NAME])["terms"].as_array().unwrap().clone();
        assert_eq!(terms.len(), 1, "whoever leaves takes no other term: {terms:?}");
    }

    fn being_stopped_past_the_lease_is_a_loss(stage: crate::stage::Stage) {
        let mut wrapper = stage.wrap_writer("ada", &["--on-loss", "exit", "--loss-code", "9"]);
        let token = stage.next_term(0);
        let pids = stage.diary().writers(token);
        wrapper.pause();
        wait_until("the lease to end", GENEROUS, || !stage.key_exists());
        wrapper.resume();
        assert_eq!(wrapper.wait(GENEROUS).code(), Some(9));
        pids.into_iter().for_each(wait_until_gone);
    }

    // It was asked to end while it could not hear: nothing is run again.
    fn a_signal_that_comes_with_the_loss_ends_the_instance(stage: crate::stage::Stage) {
        for signal in [Signal::TERM, Signal::INT, Signal::TERM] {
            let before = stage.diary().last_token().unwrap_or(0);
            let mut wrapper = stage.wrap_writer("ada", &[]);
            let token = stage.next_term(before);
            wrapper.pause();
            wait_until("the lease to end", GENEROUS, || !stage.key_exists());
            send(wrapper.pid(), signal);
            wrapper.resume();
            let code = wrapper.wait(GENEROUS).code();
            // Of the signal, or of the program that the guard has killed.
            assert!([128 + signal.as_raw(), 137].map(Some).contains(&code), "{code:?}");
            assert_eq!(stage.diary().last_token(), Some(token), "there is no other term");
        }
    }

    fn after_a_loss_it_contends_again(stage: crate::stage::Stage) {
        let mut wrapper = stage.wrap_writer("ada", &[]);
        let token = stage.next_term(0);
        stage.store.cli(&["DEL", "tenure:job"]);
        stage.next_term(token);
        assert!(wrapper.is_running());
        assert_eq!(stage.diary().check(), Ok(()));
    }

    fn work_that_is_found_ill_steps_down(stage: crate::stage::Stage) {
        let _ = stage.folder.write("well", "");
        let flags = ["--health-cmd", "test -e well", "--health-every", "200ms"];
        let _sick = stage.wrap("ada", &flags, "sleep 600");
        stage.wait_for_leader("ada");
        let _other = stage.wrap("bob", &[], "sleep 600");
        stage.wait_for_members(2);

        std::fs::remove_file(stage.folder.path().join("well")).unwrap();

        stage.wait_for_leader("bob");
        let history = stage.json(&["history", NAME]);
        assert_eq!(history["terms"][1]["reason"], "work-stalled", "{history}");
    }
}

#[test]
fn a_standby_does_not_run_its_program() {
    let stage = crate::stage::Stage::on(crate::stage::Kind::Redis);
    let _leader = stage.wrap("ada", &[], "sleep 600");
    stage.wait_for_leader("ada");
    let _standby = stage.wrap("bob", &[], "touch ran; sleep 600");
    stage.wait_for_members(2);
    assert!(!stage.folder.path().join("ran").exists());
    wait_until("the leader to be listed", GENEROUS, || {
        let members = stage.json(&["members", NAME]);
        members["members"].as_array().unwrap().iter().any(|member| member["role"] == "leader")
    });
}

/// What a server says to a request for `path`, or nothing while it does not listen.
fn http(port: u16, path: &str) -> Option<String> {
    send_http(port, &format!("GET {path}"), "")
}

fn send_http(port: u16, method_and_path: &str, body: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    let len = body.len();
    let request = format!(
        "{method_and_path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn a_wrapper_can_be_asked_over_http() {
    let stage = crate::stage::Stage::on(crate::stage::Kind::Own);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let busy = stage.tenure(&["run", NAME, "--http", &address, "--", "true"]);
    assert_eq!(busy.code, 78, "{busy:?}");
    assert!(busy.err.contains(&address), "{busy:?}");

    drop(taken);
    let _wrapper = stage.wrap("ada", &["--http", &address], "sleep 600");
    wait_until("the leader to say so", GENEROUS, || {
        http(port, "/leader/job").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
}

/// Whoever was told "for so long" may rely on it, which takes longer than the store is waited for.
#[test]
fn a_wrapper_that_was_asked_over_http_releases_when_it_stops() {
    let stage = crate::stage::Stage::on(crate::stage::Kind::Own);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let address = format!("127.0.0.1:{port}");
    let mut wrapper = stage.wrap("ada", &["--ttl", "15s", "--http", &address], "exec sleep 600");
    wait_until("the leader to say so", GENEROUS, || {
        http(port, "/leader/job").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
    wrapper.terminate();
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(143));
    assert!(!stage.key_exists(), "the term is given back");
}

/// It holds back for a while of its own accord, and whoever said so may mean it for longer.
#[test]
fn an_instance_that_an_operator_said_is_not_ready_stays_so_after_an_illness() {
    let stage = crate::stage::Stage::on(crate::stage::Kind::Own);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let address = format!("127.0.0.1:{port}");
    let flags = ["--http", &address, "--health-cmd", "false", "--health-every", "1s"];
    let _wrapper = stage.wrap("ada", &flags, "echo >> begun; exec sleep 600");
    let begun = || std::fs::read(stage.folder.path().join("begun")).map_or(0, |text| text.len());
    let wait_for_reason = |code: &str| {
        let told = format!("\"code\":\"{code}\"");
        wait_until(&format!("the reason {code}"), GENEROUS, || {
            http(port, "/status").is_some_and(|answer| answer.contains(&told))
        });
    };
    wait_for_reason("work-stalled");
    let set = |ready: &str| send_http(port, "POST /ready/job", ready).unwrap();
    let answer = set("{\"ready\":false}");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // Once it has held back for long enough, that is all that keeps it from leading.
    wait_for_reason("not-ready");
    assert_eq!(begun(), 1);
    set("{\"ready\":true}");
    wait_until("it to lead again", GENEROUS, || begun() > 1);
}

#[test]
fn a_wrapper_whose_store_is_gone_does_not_say_that_it_released() {
    let mut stage = crate::stage::Stage::on(crate::stage::Kind::Redis);
    let log = stage.folder.path().join("log");
    let lease = ["run", NAME, "--ttl", "20s", "--renew-every", "1s"];
    let mut command = stage.command(&[&lease[..], &["--", "sleep", "600"]].concat());
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut wrapper = testkit::Process::spawn(command);
    let said = |text: &str| std::fs::read_to_string(&log).unwrap().contains(text);
    wait_until("it to lead", GENEROUS, || said("leader: acquired"));
    stage.store.kill();
    wait_until("a renewal to fail", GENEROUS, || said("renewal fails"));
    wrapper.terminate();
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(143));
    assert!(!said("leader: released"), "{:?}", std::fs::read_to_string(&log));
    assert!(said("nobody else can lead until the lease ends"));
}

/// As `nohup` starts it, and a shell its background jobs.
#[test]
fn a_signal_that_was_ignored_from_the_start_ends_nobody() {
    let stage = crate::stage::Stage::on(crate::stage::Kind::Own);
    let script = "while :; do echo >> lines; sleep 0.05; done";
    let plain =
        stage.command(&["run", crate::stage::NAME, "--ttl", "3s", "--", "sh", "-c", script]);
    let shell = ["-c", "trap '' HUP; exec \"$0\" \"$@\""];
    let mut command = crate::stage::started_by("sh", &shell, &plain);
    command.current_dir(stage.folder.path());
    let mut wrapper = testkit::Process::spawn(command);
    let lines = || std::fs::read(stage.folder.path().join("lines")).map_or(0, |text| text.len());
    testkit::wait_until("the program to run", testkit::GENEROUS, || lines() > 0);
    crate::stage::send(wrapper.pid(), rustix::process::Signal::HUP);
    let seen = lines();
    testkit::wait_until("the program to go on", testkit::GENEROUS, || lines() > seen + 20);
    assert!(wrapper.is_running());
}

/// Whoever interrupts an instance whose program is being stopped wants the instance to end: nobody
/// else is there to hear it.
#[test]
fn an_interrupt_while_the_program_is_being_stopped_ends_the_instance() {
    at_once([Signal::INT, Signal::HUP, Signal::QUIT], |signal| {
        let stage = Stage::on(Kind::Own);
        let script = "trap 'echo $$ > told' TERM; trap '' INT HUP QUIT
            echo $$ > pid; while :; do sleep 0.02; done";
        let mut wrapper = stage.wrap("ada", &["--ttl", "9s"], script);
        number_in(stage.folder.path(), "pid");
        let resign = stage.command(&["resign", NAME]);
        let resigning = std::thread::spawn(move || CommandOutput::of(resign));
        number_in(stage.folder.path(), "told");
        send(wrapper.pid(), signal);
        assert_eq!(wrapper.wait(GENEROUS).code(), Some(137), "the program was killed: {signal:?}");
        assert!(!stage.key_exists(), "the term is given back");
        resigning.join().unwrap();
    });
}

/// A program that ends by itself while its wrapper is stopped, until after the lease is over.
struct Unnoticed {
    code: Option<i32>,
    runs: usize,
    log: String,
}

impl Unnoticed {
    fn run(stage: &Stage, words: &[&str]) -> Self {
        let script = "echo $$ > pid; echo >> runs; until [ -e go ]; do sleep 0.02; done; exit 7";
        let words = [words, &["--ttl", "2s", "--", "sh", "-c", script]].concat();
        let (mut command, log) = (stage.command(&words), stage.folder.path().join("log"));
        command.current_dir(stage.folder.path()).stderr(std::fs::File::create(&log).unwrap());
        let mut wrapper = Process::spawn(command);
        let program = number_in(stage.folder.path(), "pid");
        send(wrapper.pid(), Signal::STOP);
        let _ = stage.folder.write("go", "");
        wait_until("the program to end", GENEROUS, || !is_alive(program));
        wait_until("the lease to end", GENEROUS, || !stage.key_exists());
        send(wrapper.pid(), Signal::CONT);
        let code = wrapper.wait(GENEROUS).code();
        let runs = std::fs::read(stage.folder.path().join("runs")).unwrap().len();
        Unnoticed { code, runs, log: std::fs::read_to_string(log).unwrap() }
    }
}

#[test]
fn a_program_that_ended_while_its_wrapper_was_stopped_has_ended_by_itself() {
    for flags in [&[][..], &["--on-loss", "exit", "--loss-code", "33"]] {
        let stage = Stage::on(Kind::Own);
        let ended = Unnoticed::run(&stage, &[&["run", NAME], flags].concat());
        assert_eq!((ended.code, ended.runs), (Some(7), 1), "{}", ended.log);
        assert!(!ended.log.contains("killed"), "nobody was: {}", ended.log);
    }
}

#[test]
fn a_tick_whose_program_ended_while_nobody_could_record_it_is_said_to_be_open() {
    let stage = Stage::on(Kind::Own);
    let ended = Unnoticed::run(&stage, &["once", NAME, "--tick", "a"]);
    assert_eq!((ended.code, ended.runs), (Some(7), 1), "{}", ended.log);
    assert!(!ended.log.contains("killed"), "nobody was: {}", ended.log);
    assert!(ended.log.contains("the tick is open, so the next call runs it again"));
}
