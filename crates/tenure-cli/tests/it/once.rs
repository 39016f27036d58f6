//! `tenure once`: one run per tick.

use testkit::{GENEROUS, Process, wait_until};

use crate::stage::{Said, is_alive, number_in, on_every_store};

fn lines(folder: &std::path::Path, file: &str) -> usize {
    std::fs::read_to_string(folder.join(file)).unwrap_or_default().lines().count()
}

on_every_store! {
    fn twenty_instances_run_one_tick_once(stage: crate::stage::Stage) {
        let started: Vec<_> = (0..20)
            .map(|_| {
                let mut command = stage.command(&["once", "report", "--every", "1h", "--"]);
                command.args(["sh", "-c", "echo ran >> runs; sleep 0.3"]);
                command.current_dir(stage.folder.path());
                std::thread::spawn(move || Said::of(command))
            })
            .collect();
        for instance in started {
            let said = instance.join().unwrap();
            assert_eq!(said.code, 0, "whoever comes second skips it: {said:?}");
        }
        assert_eq!(lines(stage.folder.path(), "runs"), 1);
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
        let waiting = std::thread::spawn(move || Said::of(waiting));
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
