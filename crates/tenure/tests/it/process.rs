//! What only a process of its own can show: exit codes, aborts, forks and the log.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::backend::redis::RedisBackend;
use tenure::backend::{Backend, Connection};
use tenure::testing::World;
use tenure::{Error, EventKind, MemoryBackend, OnLoss, Reason, Role, Tenure, Tick, blocking};
use testkit::{GENEROUS, Process, RedisServer};

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

/// As with a limit on processes: the end of this one must not need another thread.
#[tokio::test]
async fn loss_ends_a_process_that_can_start_no_thread() {
    const NAME: &str = "loss_ends_a_process_that_can_start_no_thread";
    if plays(NAME) {
        let world = World::new();
        let tenure = world.client("ada").await;
        let election = tenure.election("x").on_loss(OnLoss::Exit(17)).start().await.unwrap();
        world.run_until(|| election.is_leader()).await;
        leave_no_room_for_threads();
        world.cut_off("ada");
        world.advance(Duration::from_secs(15)).await;
        std::thread::sleep(Duration::from_secs(5));
        std::process::exit(0);
    }
    let played = play(NAME);
    assert_eq!(played.status.code(), Some(17), "{played:?}");
}

/// A name is looked up beside everything else, for which there was no thread.
#[tokio::test]
async fn a_client_that_could_start_no_thread_for_a_while_leads_afterwards() {
    const NAME: &str = "a_client_that_could_start_no_thread_for_a_while_leads_afterwards";
    if plays(NAME) {
        let server = RedisServer::start();
        let address = format!("redis://localhost:{}", server.port());
        let builder = Tenure::builder().fresh_store(true).connector(move || {
            Box::pin(async move {
                // The client's own threads are there by now.
                leave_no_room_for_threads();
                let backend = RedisBackend::open(&address)?;
                Ok(Arc::new(backend) as Arc<dyn Backend>)
            })
        });
        let tenure = builder.connect().await.unwrap();
        let election = tenure.election("x").start().await.unwrap();
        testkit::wait_until("it is told why there is no connection", GENEROUS, || {
            matches!(election.status().connection, Connection::Down(why)
                if why.message().contains("no thread to look up"))
        });
        leave_room_for_threads();
        let led = election.wait_for_leadership_within(GENEROUS).await;
        drop(server);
        std::process::exit(if led.is_ok() { 42 } else { 1 });
    }
    let played = play(NAME);
    assert_eq!(played.status.code(), Some(42), "{played:?}");
}

/// Whoever is called for each event has a thread of a pool.
#[tokio::test]
async fn a_listener_without_a_thread_for_a_while_is_called_afterwards() {
    const NAME: &str = "a_listener_without_a_thread_for_a_while_is_called_afterwards";
    if plays(NAME) {
        let world = World::new();
        let tenure = world.client("ada").await;
        let election = tenure.election("x").start().await.unwrap();
        let (called, calls) = std::sync::mpsc::channel();
        election.on_event(move |event| drop(called.send(event.kind.clone()))).unwrap().forever();
        leave_no_room_for_threads();
        world.run_until(|| election.is_leader()).await;
        // Not for long enough to prove that nobody is called, but for the pool to try.
        std::thread::sleep(Duration::from_millis(200));
        leave_room_for_threads();
        election.set_ready(false);
        world.run_until(|| !election.is_leader()).await;
        let was_told = loop {
            match calls.recv_timeout(GENEROUS) {
                Ok(EventKind::Lost { .. }) => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        std::process::exit(if was_told { 42 } else { 1 });
    }
    let played = play(NAME);
    assert_eq!(played.status.code(), Some(42), "{played:?}");
}

/// Nobody holds a guard, so nothing but the end of the process keeps it from contending again.
#[tokio::test]
async fn a_process_that_its_loss_ends_takes_no_other_term() {
    const NAME: &str = "a_process_that_its_loss_ends_takes_no_other_term";
    const STORE: &str = "TENURE_TEST_STORE";
    if plays(NAME) {
        let tenure = Tenure::builder().store(&std::env::var(STORE).unwrap());
        let tenure = tenure.ttl(Duration::from_secs(3)).fresh_store(true).connect().await.unwrap();
        let election = tenure.election("x").on_loss(OnLoss::Exit(17)).start().await.unwrap();
        drop(election.wait_for_leadership().await.unwrap());
        println!("leads");
        std::future::pending::<()>().await;
    }
    let server = RedisServer::start();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("process::{NAME}"), "--nocapture"]);
    command.env(PART, NAME).env(STORE, server.url());
    let mut child = Process::spawn(command);
    child.next_line_with("leads", GENEROUS);
    server.cli(&["DEL", "tenure:x"]);
    assert_eq!(child.wait(GENEROUS).code(), Some(17));
    assert_eq!(server.cli(&["EXISTS", "tenure:x"]), "0", "nobody would be told by it");
    let observer = Tenure::connect(&server.url()).await.unwrap().observe("x").unwrap();
    let history = observer.history(20).await.unwrap();
    assert_eq!(history.len(), 1, "{history:?}");
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

/// What a child does before the parent's code knows that it is one must end, and touch nothing.
#[test]
fn a_forked_child_waits_for_nothing_of_its_parent() {
    const NAME: &str = "a_forked_child_waits_for_nothing_of_its_parent";
    if !plays(NAME) {
        let played = play(NAME);
        assert_eq!(played.status.code(), Some(42), "{played:?}");
        return;
    }
    let store = Arc::new(MemoryBackend::new());
    let tenure = blocking::wait(Tenure::builder().backend(store).connect()).unwrap();
    let mut held = blocking::wait(tenure.lock("l").acquire()).unwrap();
    let election = blocking::wait(tenure.election("x").start()).unwrap();
    let [first, second] = [(), ()].map(|()| blocking::wait(election.wait_for_leadership()));
    let (mut watch, mut events) = (election.watch(), election.events());
    let mut changes = blocking::wait(tenure.observe("x").unwrap().changes()).unwrap();
    blocking::wait(changes.next()).unwrap();
    assert_eq!(watch.status().role, Role::Leader);
    let child = fork();
    if child == 0 {
        die_in(GENEROUS);
        let is_ok = blocking::wait(async {
            let seen = watch.status();
            let leads = seen.role != Role::Stopped || seen.token.is_some() || tenure.is_leader("x");
            let hears = watch.wait_for_change().await.is_some() || events.next().await.is_some();
            drop(events);
            // What is made here of what was inherited is no better.
            let mut own = election.watch();
            let leads = leads || own.status().role != Role::Stopped;
            let hears = hears
                || own.wait_for_change().await.is_some()
                || election.events().next().await.is_some();
            if leads || hears || changes.next().await != Err(Error::Forked) {
                return false;
            }
            first.as_ref().unwrap().wait_for_renewal().await;
            first.as_ref().unwrap().cancellation().cancelled().await;
            election.set_ready(false);
            held.wait_until_lost().await;
            let released = held.release().await;
            first.unwrap().resign().await;
            election.resign().await;
            let handed = election.hand_over("bob").await;
            let led = election.wait_for_leadership().await.map(|_| ());
            election.stop().await;
            tenure.shutdown().await;
            [released, handed.map(|_| ()), led].iter().all(|end| *end == Err(Error::Forked))
        });
        exit_at_once(if is_ok { 42 } else { 1 });
    }
    let code = wait_for(child);
    assert!(held.is_held() && second.unwrap().is_valid(), "the parent goes on");
    std::process::exit(code);
}

/// The store says that the term is over; the deadline of its lease is far.
#[test]
fn a_log_that_nobody_reads_keeps_no_work_going() {
    const NAME: &str = "a_log_that_nobody_reads_keeps_no_work_going";
    if !plays(NAME) {
        let played = play(NAME);
        assert_eq!(played.status.code(), Some(42), "{played:?}");
        return;
    }
    let is_told = lose_while_the_log_is_stuck(OnLoss::Recontend);
    std::process::exit(if is_told { 42 } else { 1 });
}

#[test]
fn a_log_that_nobody_reads_keeps_no_process_from_ending() {
    const NAME: &str = "a_log_that_nobody_reads_keeps_no_process_from_ending";
    if plays(NAME) {
        lose_while_the_log_is_stuck(OnLoss::Exit(17));
        std::thread::sleep(GENEROUS);
        std::process::exit(1);
    }
    let played = play(NAME);
    assert_eq!(played.status.code(), Some(17), "{played:?}");
}

/// Whether work was told that its term is over.
fn lose_while_the_log_is_stuck(on_loss: OnLoss) -> bool {
    tracing::subscriber::set_global_default(StuckAtLoss).unwrap();
    let store = MemoryBackend::new();
    let client = || {
        let builder = Tenure::builder().backend(Arc::new(store.clone())).fresh_store(true);
        blocking::wait(builder.ttl(Duration::from_secs(15)).connect()).unwrap()
    };
    let (tenure, operator) = (client(), client());
    let election = blocking::wait(tenure.election("x").on_loss(on_loss).start()).unwrap();
    let term = blocking::wait(election.wait_for_leadership()).unwrap();
    IS_STUCK.store(true, Ordering::SeqCst);
    blocking::wait(operator.observe("x").unwrap().force_clear("a test")).unwrap();
    let (told, is_told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        blocking::wait(term.wait_until_over());
        let _ = told.send(term.stop_reason());
    });
    // By the clock alone it would end, too, but later.
    is_told.recv_timeout(GENEROUS).is_ok_and(|reason| reason != Some(Reason::LeaseEnded))
}

/// As one does that writes to a disk which is full, and says so on stderr, which is there as well.
#[test]
fn a_log_that_panics_ends_no_election() {
    const NAME: &str = "a_log_that_panics_ends_no_election";
    if !plays(NAME) {
        let played = play(NAME);
        assert_eq!(played.status.code(), Some(42), "{played:?}");
        return;
    }
    let store = Arc::new(MemoryBackend::new());
    let tenure = blocking::wait(Tenure::builder().backend(store).fresh_store(true).connect());
    let election = blocking::wait(tenure.unwrap().election("x").start()).unwrap();
    let first = blocking::wait(election.wait_for_leadership()).unwrap();
    tracing::subscriber::set_global_default(PanicsAtEachLine).unwrap();
    blocking::wait(first.resign());
    let led = blocking::wait(election.wait_for_leadership_within(GENEROUS));
    std::process::exit(if led.is_ok() { 42 } else { 1 });
}

struct PanicsAtEachLine;

impl tracing::Subscriber for PanicsAtEachLine {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "tenure"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("a log that panics, as the test wants it");
    }
}

static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// A log whose reader has stopped when a leader becomes a standby. Lines about the grant pass: they
/// may be written after whoever waits for it was woken.
struct StuckAtLoss;

#[derive(Default)]
struct IsOfStandby(bool);

impl tracing::field::Visit for IsOfStandby {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 |= field.name() == "role" && format!("{value:?}").contains("standby");
    }
}

impl tracing::Subscriber for StuckAtLoss {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "tenure"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut is_of_standby = IsOfStandby::default();
        event.record(&mut is_of_standby);
        while is_of_standby.0 && IS_STUCK.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
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

/// Lets this process have hardly more memory than it has, so that no stack finds room.
fn leave_no_room_for_threads() {
    const ROOM: u64 = 3 << 19;
    const PAGE: u64 = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split_whitespace().next().unwrap().parse().unwrap();
    limit_memory(pages * PAGE + ROOM);
    assert!(std::thread::Builder::new().spawn(|| {}).is_err(), "no thread can be started");
}

fn leave_room_for_threads() {
    limit_memory(u64::MAX);
}

#[allow(unsafe_code)]
fn limit_memory(bytes: u64) {
    const ADDRESS_SPACE: i32 = 9;
    unsafe extern "C" {
        fn setrlimit(resource: i32, limit: *const [u64; 2]) -> i32;
    }
    // SAFETY: the pointer is that of a local that outlives the call, in the layout of the system.
    assert_eq!(unsafe { setrlimit(ADDRESS_SPACE, &[bytes, u64::MAX]) }, 0);
}

#[allow(unsafe_code)]
fn die_in(limit: Duration) {
    unsafe extern "C" {
        fn alarm(seconds: u32) -> u32;
    }
    // SAFETY: a plain call of the C library.
    unsafe { alarm(limit.as_secs() as u32) };
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
