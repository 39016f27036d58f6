//! A wrapper whose program is a wrapper.

use std::fs;

use rustix::process::Signal;
use testkit::{GENEROUS, wait_until};

use crate::instance::strike;
use crate::stage::{
    Kind, NAME, Stage, TENURE, children_of, is_guard, number_in, send, wait_until_gone,
};

/// What the inner program starts shows the id of the inner wrapper, and the inner guard cannot act:
/// it is stopped here, and the outer guard may as well kill it before it has found everything.
#[test]
fn what_an_inner_program_starts_dies_with_the_outer_wrapper() {
    let stage = Stage::on(Kind::Own);
    let folder = stage.folder.path();
    let program = "until test -s go; do sleep 0.02; done
        setsid -f sh -c \"echo \\$\\$ > daemon; exec sleep 600\"; sleep 600";
    let script = format!("echo $$ > inner; exec {TENURE} run inner --ttl 12s -- sh -c '{program}'");
    let mut wrapper = stage.wrap("ada", &["--ttl", "12s"], &script);
    let inner = number_in(folder, "inner");
    let meta = format!("{{tenure:{NAME}}}:meta");
    let renewed = || stage.store.cli(&["HGET", &meta, "expires_at"]);
    let before = renewed();
    // Until the next one, the outer guard is told of nothing.
    wait_until("a renewal", GENEROUS, || renewed() != before);
    std::thread::sleep(std::time::Duration::from_millis(200));
    fs::write(folder.join("go"), "1").unwrap();
    let daemon = number_in(folder, "daemon");
    send(inner, Signal::STOP);
    let guards: Vec<u32> = children_of(inner).into_iter().filter(|pid| is_guard(*pid)).collect();
    assert_eq!(guards.len(), 1, "the inner wrapper has a guard");
    send(guards[0], Signal::STOP);

    wrapper.kill();

    wait_until_gone(daemon);
    wait_until_gone(inner);
    strike(guards[0], Signal::KILL);
}
