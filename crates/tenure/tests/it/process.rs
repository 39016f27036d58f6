//! What only a process of its own can show: exit codes, aborts, forks and the log.

use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use tenure::testing::World;
use tenure::{MemoryBackend, OnLoss, Tenure, Tick};

/// Set in the child that plays the part.
const PART: &str = "TENURE_TEST_PART";

/// Runs the test called `name` of this binary again, in a process that plays its part.
fn play(name: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program);
    child.args(["--exact", &format!("process::{name}"), "--nocapture"]).env(PART, name);
    child.output().unwrap()
}

fn plays(name: &str) -> bool {
    std::env::var(PART).is_ok_and(|part| part == name)
}

async fn lead_and_lose(world: &World, on_loss: OnLoss, abort: bool) {
    let tenure = world.client("ada").await;
    let election = tenure.election("x").on_loss(on_loss).abort_on_overrun(abort);
    let election = election.start().await.unwrap();
    world.run_until(|| election.is_leader()).await;
    let _term = election.term().unwrap();
    world.cut_off("ada");
    world.advance(Duration::from_secs(15)).await;
    // Whoever is to end the process does so on another thread.
    std::thread::sleep(Duration::from_secs(5));
}

#[tokio::test]
async fn loss_ends_the_process_with_the_chosen_code() {
    if plays("loss_ends_the_process_with_the_chosen_code") {
        lead_and_lose(&World::new(), OnLoss::Exit(17), false).await;
        std::process::exit(0);
    }
    let played = play("loss_ends_the_process_with_the_chosen_code");
    assert_eq!(played.status.code(), Some(17), "{played:?}");
}

#[tokio::test]
async fn an_overrun_aborts_the_process_when_asked_to() {
    use std::os::unix::process::ExitStatusExt;
    const ABORTED: i32 = 6;
    if plays("an_overrun_aborts_the_process_when_asked_to") {
        lead_and_lose(&World::new(), OnLoss::Recontend, true).await;
        std::process::exit(0);
    }
    let status = play("an_overrun_aborts_the_process_when_asked_to").status;
    assert_eq!(status.signal(), Some(ABORTED), "{status}");
}

#[test]
fn a_forked_child_does_not_lead() {
    const NAME: &str = "a_forked_child_does_not_lead";
    if !plays(NAME) {
        assert_eq!(
            play(NAME).status.code(),
            Some(42),
            "the child of the part tells by its exit code"
        );
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tenure =
            Tenure::builder().backend(Arc::new(MemoryBackend::new())).connect().await.unwrap();
        let election = tenure.election("x").start().await.unwrap();
        let term = election.wait_for_leadership().await.unwrap();
        assert!(election.is_leader());
        let child = fork();
        if child == 0 {
            let leads = election.is_leader() || term.is_valid() || !term.remaining().is_zero();
            exit_at_once(if leads { 1 } else { 42 });
        }
        let code = wait_for(child);
        assert!(election.is_leader() && term.is_valid(), "the parent goes on");
        std::process::exit(code);
    });
}

#[tokio::test]
async fn each_transition_is_one_line_of_the_log_with_the_same_fields() {
    const NAME: &str = "each_transition_is_one_line_of_the_log_with_the_same_fields";
    if plays(NAME) {
        tracing::subscriber::set_global_default(LinesOnStdout).unwrap();
        lead_and_lose(&World::new(), OnLoss::Exit(0), false).await;
    }
    let output = String::from_utf8(play(NAME).stdout).unwrap();
    let lines: Vec<&str> = output.lines().filter(|line| line.contains(" tenure ")).collect();
    let about = |message: &str, more: &[&str]| {
        let mut found = lines.iter().filter(|line| line.contains(message));
        let line = found.next().unwrap_or_else(|| panic!("no {message:?} in {output}"));
        assert_eq!(found.next(), None, "told once");
        for field in ["resource=", "id=", "role=", "reason="].iter().chain(more) {
            assert!(line.contains(field), "{line:?} has no {field}");
        }
        (*line).to_owned()
    };
    assert!(about("leader: acquired", &["token="]).starts_with("INFO"));
    let lost = about("leader: lost", &["token=", "detail="]);
    assert!(lost.starts_with("ERROR") && lost.contains("lease-ended"), "{lost}");
    assert!(about("role=\"suspect\"", &["detail="]).starts_with("WARN"));
    assert!(about("end of its grace", &["token="]).contains("overrun"));
}

#[tokio::test]
async fn polling_by_single_tries_writes_nothing_to_the_log() {
    const NAME: &str = "polling_by_single_tries_writes_nothing_to_the_log";
    if plays(NAME) {
        tracing::subscriber::set_global_default(LinesOnStdout).unwrap();
        let world = World::new();
        let tenure = world.client("ada").await;
        for round in 0..3 {
            let work = |_term| async { Ok::<_, String>(()) };
            let ran = world.advance_while(tenure.once("x", Tick::number(round), work)).await;
            println!("{}", ran.unwrap());
        }
        let other = world.client("bob").await;
        let _held = world.advance_while(tenure.try_acquire("x")).await.unwrap().unwrap();
        assert!(world.advance_while(other.try_acquire("x")).await.unwrap().is_none());
        std::process::exit(0);
    }
    let output = String::from_utf8(play(NAME).stdout).unwrap();
    assert_eq!(output.matches("ran here").count(), 3, "{output}");
    assert!(!output.contains(" tenure "), "{output}");
}

/// The least that can be called a log.
struct LinesOnStdout;

impl tracing::Subscriber for LinesOnStdout {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        use std::fmt::Write;
        let metadata = event.metadata();
        let mut line = format!("{} {} ", metadata.level(), metadata.target());
        let mut add = |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            let _ = write!(line, "{}={value:?} ", field.name());
        };
        event.record(&mut add);
        println!("{line}");
    }
}

/// Plain C calls: a child of a program with threads may do little else.
#[allow(unsafe_code)]
fn fork() -> i32 {
    unsafe extern "C" {
        fn fork() -> i32;
    }
    // SAFETY: the child only loads atomics, reads a clock and leaves by `_exit`.
    unsafe { fork() }
}

#[allow(unsafe_code)]
fn exit_at_once(code: i32) -> ! {
    unsafe extern "C" {
        fn _exit(code: i32) -> !;
    }
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { _exit(code) }
}

#[allow(unsafe_code)]
fn wait_for(child: i32) -> i32 {
    unsafe extern "C" {
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    }
    let mut status = 0;
    // SAFETY: the pointer is that of a local that outlives the call.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    (status >> 8) & 0xff
}
