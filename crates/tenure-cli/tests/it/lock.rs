//! `tenure lock`: one hold, one run.

use testkit::{GENEROUS, Process, wait_until};

use crate::stage::{NAME, Stage, is_alive, number_in, on_every_store};

/// Holds the lock until it is told to stop.
fn hold(stage: &Stage, flags: &[&str]) -> (Process, u32) {
    let mut words = vec!["lock", NAME, "--id", "ada", "--ttl", "5s"];
    words.extend(flags);
    words.extend(["--", "sh", "-c", "echo $$ > pid; while :; do sleep 0.05; done"]);
    let mut command = stage.command(&words);
    command.current_dir(stage.folder.path());
    let holder = Process::spawn(command);
    let program = number_in(stage.folder.path(), "pid");
    (holder, program)
}

on_every_store! {
    fn the_program_runs_once_and_its_code_is_passed_on(stage: crate::stage::Stage) {
        for code in [0, 7] {
            let script = format!("test -n \"$TENURE_TOKEN\" && exit {code}");
            let output = stage.tenure(&["lock", NAME, "--", "sh", "-c", &script]);
            assert_eq!(output.code, code, "{output:?}");
            assert!(!stage.key_exists(), "the lock is released");
        }
    }

    fn whoever_does_not_wait_hears_who_holds_it(stage: crate::stage::Stage) {
        let (mut holder, _) = hold(&stage, &[]);
        let refused = stage.tenure(&["lock", NAME, "--no-wait", "--", "touch", "never"]);
        assert_eq!(refused.code, 75, "{refused:?}");
        assert!(refused.err.contains("ada_") && refused.err.contains("holds it"), "{refused:?}");
        holder.terminate();
        holder.wait(GENEROUS);
        let granted = stage.tenure(&["lock", NAME, "--no-wait", "--", "echo", "mine"]);
        assert_eq!((granted.code, granted.out.trim()), (0, "mine"), "{granted:?}");
    }

    fn whoever_waits_gets_it_when_it_is_released(stage: crate::stage::Stage) {
        let (mut holder, _) = hold(&stage, &[]);
        let late = ["lock", NAME, "--wait-timeout", "1s", "--", "true"];
        let late = stage.tenure(&late);
        assert_eq!(late.code, 75, "{late:?}");
        assert!(late.err.contains("no lock after 1s") && late.err.contains("holds it"), "{late:?}");
        let mut waiting = Process::spawn(stage.command(&["lock", NAME, "--", "echo", "mine"]));
        holder.terminate();
        assert_eq!(waiting.next_line(GENEROUS), "mine");
        assert_eq!(waiting.wait(GENEROUS).code(), Some(0));
        holder.wait(GENEROUS);
    }

    fn a_lock_that_is_lost_ends_the_program_and_is_not_taken_again(stage: crate::stage::Stage) {
        let (mut holder, program) = hold(&stage, &["--loss-code", "9"]);
        stage.store.cli(&["DEL", "tenure:job"]);
        assert_eq!(holder.wait(GENEROUS).code(), Some(9));
        assert!(!is_alive(program), "the program outlived the lock");
    }

    fn an_operator_who_asks_for_it_gets_it_and_nothing_runs_again(stage: crate::stage::Stage) {
        let (mut holder, program) = hold(&stage, &["--loss-code", "9"]);
        stage.tenure(&["resign", NAME]);
        assert_eq!(holder.wait(GENEROUS).code(), Some(9));
        assert!(!is_alive(program), "the program outlived the lock");
        wait_until("the lock to be free", GENEROUS, || !stage.key_exists());
    }
}

#[test]
fn whoever_does_not_wait_does_not_wait_for_a_store_either() {
    let stage = Stage::on(crate::stage::Kind::Redis);
    let nowhere = ["lock", NAME, "--no-wait", "--store", "redis://127.0.0.1:1", "--", "true"];
    let refused = stage.tenure(&nowhere);
    assert_eq!(refused.code, 69, "{refused:?}");
}
