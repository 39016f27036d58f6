//! A driver that gets no turn, because a backend blocks its thread: whoever works under a term
//! still stops in time, and what ended too late is never called done.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tenure::backend::{Backend, Calling, Connection, Subscription};
use tenure::{Error, MemoryBackend, OnceOutcome, Tenure, Term, Tick, blocking};
use tenure_core::Resource;
use tenure_core::protocol::{Call, Request};
use testkit::{GENEROUS, wait_until};
use tokio::sync::watch;

const NAME: &str = "job";
const TTL: Duration = Duration::from_secs(2);

/// Which requests do not return while a gate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    No,
    ToRenewals,
    ToOutcomes,
}

/// A store in memory whose client's thread can be held up.
#[derive(Debug)]
struct Stalling {
    store: MemoryBackend,
    gate: Mutex<Closed>,
    opened: Condvar,
    held_up: AtomicBool,
}

impl Stalling {
    fn on(store: &MemoryBackend) -> Arc<Self> {
        let gate = Mutex::new(Closed::No);
        let (opened, held_up) = (Condvar::new(), AtomicBool::new(false));
        Arc::new(Stalling { store: store.clone(), gate, opened, held_up })
    }

    fn close(&self, to: Closed) {
        *self.gate.lock().unwrap() = to;
    }

    fn open(&self) {
        self.close(Closed::No);
        self.opened.notify_all();
    }

    fn is_holding_up(&self) -> bool {
        self.held_up.load(Ordering::SeqCst)
    }
}

impl Backend for Stalling {
    fn call(&self, call: Call) -> Calling {
        let stalls = match call.request {
            Request::Renew { .. } => Closed::ToRenewals,
            Request::TickFinish { .. } => Closed::ToOutcomes,
            _ => return self.store.call(call),
        };
        let gate = self.gate.lock().unwrap();
        if *gate == stalls {
            self.held_up.store(true, Ordering::SeqCst);
            let waited =
                self.opened.wait_timeout_while(gate, GENEROUS * 2, |gate| *gate == stalls).unwrap();
            assert!(!waited.1.timed_out(), "nobody opened the gate");
            self.held_up.store(false, Ordering::SeqCst);
        }
        self.store.call(call)
    }

    fn subscribe(&self, resource: &Resource) -> Subscription {
        self.store.subscribe(resource)
    }

    fn connection(&self) -> watch::Receiver<Connection> {
        self.store.connection()
    }

    fn describe(&self) -> String {
        "a store that holds its client up".to_owned()
    }
}

/// A client that can be held up, its gate, and one that cannot.
async fn clients() -> (Tenure, Arc<Stalling>, Tenure) {
    let store = MemoryBackend::new();
    let gate = Stalling::on(&store);
    let held_up = Arc::clone(&gate) as Arc<dyn Backend>;
    let ada = Tenure::builder().instance("ada").backend(held_up).connect().await.unwrap();
    let bob = Tenure::builder().instance("bob").backend(Arc::new(store)).connect().await.unwrap();
    (ada, gate, bob)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_loop_that_looks_at_its_term_stops_by_the_clock_alone() {
    let (ada, gate, bob) = clients().await;
    let leader = ada.election(NAME).ttl(TTL).start().await.unwrap();
    let term = leader.wait_for_leadership().await.unwrap();
    let standby = bob.election(NAME).ttl(TTL).start().await.unwrap();
    let steps = Arc::new(AtomicUsize::new(0));
    let (counted, begun) = (Arc::clone(&steps), Arc::clone(&gate));
    let working = std::thread::spawn(move || {
        begun.close(Closed::ToRenewals);
        while !term.is_stopping() {
            counted.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        let was_valid = term.is_valid();
        (term, was_valid)
    });
    wait_until("the loop to end", GENEROUS, || working.is_finished());
    assert!(gate.is_holding_up(), "it ended while the driver was held up");
    let (term, _) = working.join().unwrap();
    assert!(steps.load(Ordering::SeqCst) > 0);
    wait_until("the next leader", GENEROUS, || standby.is_leader());
    assert!(gate.is_holding_up() && term.is_stopping() && !term.is_valid());
    assert!(leader.term().is_none() && !leader.is_leader());
    gate.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_waits_is_woken_while_the_driver_is_held_up() {
    let (ada, gate, _bob) = clients().await;
    let leader = ada.election(NAME).ttl(TTL).start().await.unwrap();
    let term = leader.wait_for_leadership().await.unwrap();
    let cancelled = term.cancellation();
    gate.close(Closed::ToRenewals);
    tokio::time::timeout(GENEROUS, term.wait_until_stopping()).await.expect("told to stop");
    assert!(cancelled.is_cancelled() && term.stop_reason().is_some());
    tokio::time::timeout(GENEROUS, term.wait_until_cut_off()).await.expect("cut off");
    tokio::time::timeout(GENEROUS, term.wait_until_over()).await.expect("over");
    assert!(gate.is_holding_up() && !term.is_valid());
    drop(term);
    gate.open();
    // What the clock did alone the driver agrees with: it leads anew under another term.
    tokio::time::timeout(GENEROUS, leader.wait_for_leadership()).await.expect("anew").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn work_that_ended_after_its_lease_is_not_returned() {
    let (ada, gate, bob) = clients().await;
    let leader = ada.election(NAME).ttl(TTL).start().await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let standby = bob.election(NAME).ttl(TTL).ready(false).start().await.unwrap();
    let running = tokio::spawn({
        let (leader, gate, standby) = (leader.clone(), Arc::clone(&gate), standby.clone());
        let runs = Arc::clone(&runs);
        async move {
            let work = |_term: Term| {
                let (gate, standby) = (Arc::clone(&gate), standby.clone());
                runs.fetch_add(1, Ordering::SeqCst);
                async move {
                    gate.close(Closed::ToRenewals);
                    standby.set_ready(true);
                    // Nothing can drop work that does not give its thread back.
                    wait_until("the next leader", GENEROUS, || standby.is_leader());
                }
            };
            leader.run_while_leader(work).await
        }
    });
    wait_until("the next leader", GENEROUS, || standby.is_leader());
    gate.open();
    wait_until("the stand-by again", GENEROUS, || leader.status().role == tenure::Role::Standby);
    assert!(!running.is_finished(), "two would have done it");
    leader.stop().await;
    assert!(matches!(running.await.unwrap(), Err(Error::Stopped { .. })));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_function_for_the_leader_that_ended_after_its_lease_is_an_error() {
    let (ada, gate, bob) = clients().await;
    let leader = ada.election(NAME).ttl(TTL).start().await.unwrap();
    drop(leader.wait_for_leadership().await.unwrap());
    let standby = bob.election(NAME).ttl(TTL).start().await.unwrap();
    let seen = standby.clone();
    gate.close(Closed::ToRenewals);
    let late = leader.run_if_leader(|_term| async move {
        wait_until("the next leader", GENEROUS, || seen.is_leader());
    });
    assert!(matches!(late.await, Err(Error::NotLeading { .. })));
    gate.open();
}

#[test]
fn a_thread_that_ended_after_its_lease_runs_anew() {
    let store = MemoryBackend::new();
    let gate = Stalling::on(&store);
    let held_up = Arc::clone(&gate) as Arc<dyn Backend>;
    let ada = blocking::Tenure::new(Tenure::builder().instance("ada").backend(held_up)).unwrap();
    let bob = Tenure::builder().instance("bob").backend(Arc::new(store));
    let bob = blocking::Tenure::new(bob).unwrap();
    let leader = ada.start(ada.election(NAME).ttl(TTL)).unwrap();
    drop(leader.wait_for_leadership().unwrap());
    let standby = bob.start(bob.election(NAME).ttl(TTL)).unwrap();
    let mut runs = 0;
    let returned = leader.run_while_leader(|_term| {
        runs += 1;
        if runs == 1 {
            gate.close(Closed::ToRenewals);
            wait_until("the next leader", GENEROUS, || standby.is_leader());
            standby.stop();
            gate.open();
        }
        runs
    });
    assert_eq!(returned.unwrap(), 2, "the first was too late");
}

/// Runs the tick on `bob` until it is his turn.
async fn run_elsewhere(bob: &Tenure) {
    let begun = std::time::Instant::now();
    loop {
        let job = bob.job(NAME).tick(Tick::number(1)).ttl(TTL);
        match job.run(|_| async { Ok::<_, String>(()) }).await.unwrap() {
            OnceOutcome::Ran(Ok(())) => return,
            other => assert!(begun.elapsed() < GENEROUS, "never its turn: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_instances_never_both_ran_a_tick() {
    for stalls in [Closed::ToRenewals, Closed::ToOutcomes] {
        let (ada, gate, bob) = clients().await;
        let ran_elsewhere = Arc::new(AtomicBool::new(false));
        let (closed, told) = (Arc::clone(&gate), Arc::clone(&ran_elsewhere));
        let elsewhere = tokio::spawn(async move {
            wait_until("the driver to be held up", GENEROUS, || closed.is_holding_up());
            run_elsewhere(&bob).await;
            assert!(closed.is_holding_up());
            told.store(true, Ordering::SeqCst);
            // Long after the first has decided what it says of its work.
            tokio::time::sleep(TTL).await;
            closed.open();
        });
        let gates = Arc::clone(&gate);
        let job = ada.job(NAME).tick(Tick::number(1)).ttl(TTL);
        let ran = job.run(|_term| async move {
            gates.close(stalls);
            if stalls == Closed::ToRenewals {
                // Work that nothing can drop ends when the other has run.
                let has_run = || ran_elsewhere.load(Ordering::SeqCst);
                wait_until("the other to have run", GENEROUS, has_run);
            }
            Ok::<_, String>(())
        });
        let ran = ran.await.unwrap();
        elsewhere.await.unwrap();
        match stalls {
            Closed::ToOutcomes => assert_eq!(ran, OnceOutcome::Unrecorded(Ok(()))),
            _ => assert!(matches!(ran, OnceOutcome::Interrupted(_)), "{ran:?}"),
        }
    }
}
