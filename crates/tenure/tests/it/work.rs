//! Work that runs only while leading: begun per term, told to stop, cut off, and never doubled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tenure::testing::World;
use tenure::{Election, Error, EventKind, MemoryBackend, Reason, Role, Tenure, blocking};

const NAME: &str = "worker";

async fn start(world: &World, client: &str) -> Election {
    let election = world.client(client).await.election(NAME).start().await.unwrap();
    world.settle().await;
    election
}

/// Counts how often it is alive at the same time.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0, "work overlaps with itself");
        Alive(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn what_the_work_returns_ends_the_election_and_is_returned() {
    let world = World::new();
    let election = start(&world, "ada").await;
    let running = election.run_while_leader(|term| async move {
        assert!(term.is_valid());
        Ok::<_, std::io::Error>(term.token())
    });
    let token = world.advance_while(running).await.unwrap().unwrap();
    assert!(token.get() > 0);
    assert_eq!(election.status().role, Role::Stopped);
    let operator = world.client("op").await;
    let leader = world.advance_while(operator.observe(NAME).unwrap().leader()).await.unwrap();
    assert_eq!(leader.leader(), None, "the term was given back");
}

#[tokio::test]
async fn lost_leadership_cancels_the_work_before_anybody_else_can_lead_and_it_runs_again() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let bob = start(&world, "bob").await;
    let (runs, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, lives) = (Arc::clone(&runs), Arc::clone(&alive));
    let running = tokio::spawn({
        let ada = ada.clone();
        async move {
            ada.run_while_leader(move |term| {
                counted.fetch_add(1, Ordering::SeqCst);
                let alive = Alive::new(&lives);
                async move {
                    term.cancellation().cancelled().await;
                    drop(alive);
                }
            })
            .await
        }
    });
    world.settle().await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);

    world.cut_off("ada");
    world.run_until(|| alive.load(Ordering::SeqCst) == 0).await;
    let stopped_after = world.elapsed();
    assert!(!bob.is_leader() && !ada.is_leader());
    world.run_until(|| bob.is_leader()).await;
    assert!(world.elapsed() > stopped_after + Duration::from_secs(2), "with the grace to spare");

    world.heal("ada");
    world.make_leader(NAME, "ada").await;
    world.settle().await;
    assert_eq!(runs.load(Ordering::SeqCst), 2, "anew for the new term");
    world.advance_while(ada.stop()).await;
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn work_that_ignores_the_call_is_dropped_before_the_lease_ends_without_an_overrun() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let mut events = ada.events();
    let alive = Arc::new(AtomicUsize::new(0));
    let lives = Arc::clone(&alive);
    let running = tokio::spawn({
        let ada = ada.clone();
        async move {
            ada.run_while_leader(move |_term| {
                let alive = Alive::new(&lives);
                async move {
                    std::future::pending::<()>().await;
                    drop(alive);
                }
            })
            .await
        }
    });
    world.settle().await;
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    world.cut_off("ada");
    world.run_until(|| alive.load(Ordering::SeqCst) == 0).await;
    assert!(world.elapsed() < Duration::from_millis(9_898), "after {:?}", world.elapsed());
    assert!(world.elapsed() > Duration::from_millis(9_500), "the grace was granted in full");
    world.advance(Duration::from_secs(1)).await;
    while let Some(Ok(event)) = events.try_next() {
        assert!(!matches!(event.kind, EventKind::Overrun { .. }), "it could be dropped");
    }
    running.abort();
}

#[tokio::test]
async fn work_that_cannot_be_dropped_is_told_as_an_overrun() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let mut events = ada.events();
    let term = ada.term().unwrap();
    world.cut_off("ada");
    world.advance(Duration::from_secs(12)).await;
    let mut kinds = Vec::new();
    while let Some(Ok(event)) = events.try_next() {
        kinds.push(event.kind.clone());
    }
    let place = |wanted: fn(&EventKind) -> bool| kinds.iter().position(wanted).unwrap();
    let stop = place(|kind| matches!(kind, EventKind::StopWork { .. }));
    let overrun = place(|kind| matches!(kind, EventKind::Overrun { .. }));
    let lost = place(|kind| matches!(kind, EventKind::Lost { .. }));
    assert!(stop < overrun && overrun < lost, "{kinds:?}");
    assert!(!term.is_valid());
}

#[tokio::test]
async fn a_panic_gives_the_term_up_is_told_and_backs_off() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let mut events = ada.events();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let running = tokio::spawn({
        let ada = ada.clone();
        async move {
            ada.run_while_leader(move |term| {
                let run = counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    assert!(run >= 2, "the disk is full");
                    term.token()
                }
            })
            .await
        }
    });
    world.settle().await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(!ada.is_leader(), "given up at once");
    assert_eq!(ada.status().reason.code(), "stands-back", "it holds back");
    world.run_until(|| runs.load(Ordering::SeqCst) == 2).await;
    let second = world.elapsed();
    assert!(second >= Duration::from_millis(250));
    world.run_until(|| runs.load(Ordering::SeqCst) == 3).await;
    assert!(world.elapsed() - second >= Duration::from_millis(500), "longer each time");
    world.advance_while(running).await.unwrap().unwrap();
    let mut panics = 0;
    while let Some(event) = events.next().await {
        if let EventKind::Lost { reason: Reason::WorkFailed(words), .. } = &event.unwrap().kind {
            assert!(words.contains("the disk is full"), "{words}");
            panics += 1;
        }
    }
    assert_eq!(panics, 2);
}

#[tokio::test]
async fn ensure_renews_when_too_little_is_left_and_says_no_when_that_fails() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let term = ada.term().unwrap();
    let renewals = || ada.status().counts.renewals;
    assert!(term.ensure(Duration::from_secs(5)).await);
    assert_eq!(renewals(), 0, "enough was left");
    world.advance(Duration::from_secs(2)).await;
    assert!(world.advance_while(term.ensure(Duration::from_secs(9))).await);
    assert_eq!(renewals(), 1);
    assert!(!world.advance_while(term.ensure(Duration::from_secs(60))).await, "never that long");

    world.cut_off("ada");
    world.advance(Duration::from_secs(2)).await;
    assert!(!world.advance_while(term.ensure(Duration::from_secs(9))).await);
    assert!(term.is_valid(), "not renewed is not lost");
    assert!(world.advance_while(term.ensure(Duration::from_secs(1))).await);
    world.heal("ada");
    world.advance(Duration::from_millis(500)).await;
    assert!(world.advance_while(term.renew()).await);
}

#[tokio::test]
async fn no_guard_is_given_on_a_term_that_is_ending() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let term = ada.term().unwrap();
    let stopping = tokio::spawn({
        let ada = ada.clone();
        async move { ada.stop().await }
    });
    world.settle().await;
    assert!(term.is_stopping() && term.is_valid());
    assert!(ada.term().is_none() && !ada.is_leader());
    assert_eq!(term.stop_reason(), Some(Reason::Stopped));
    let lost = term.wait_until_over();
    world.advance_while(lost).await;
    assert!(!term.is_valid());
    drop(term);
    world.advance_while(stopping).await.unwrap();
}

#[test]
fn a_blocked_runtime_stops_neither_renewals_nor_the_flip_of_is_leader() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tenure =
            Tenure::builder().backend(Arc::new(MemoryBackend::new())).connect().await.unwrap();
        let ttl = Duration::from_millis(600);
        let election = tenure.election(NAME).ttl(ttl).start().await.unwrap();
        let term = election.wait_for_leadership().await.unwrap();
        // The only thread of this runtime does not get back to it for several leases.
        std::thread::sleep(ttl * 4);
        assert!(election.is_leader() && term.is_valid(), "renewed by the driver");
        assert!(election.status().counts.renewals >= 3);
        drop(term);
    });
}

#[test]
fn the_blocking_facade_runs_work_on_a_plain_thread() {
    let builder = Tenure::builder().backend(Arc::new(MemoryBackend::new()));
    let tenure = blocking::Tenure::new(builder).unwrap();
    let election = tenure.start(tenure.election(NAME)).unwrap();
    let begun = Arc::new(AtomicBool::new(false));
    let worker = std::thread::spawn({
        let (election, begun) = (election.clone(), Arc::clone(&begun));
        move || {
            election.run_while_leader(|term| {
                begun.store(true, Ordering::SeqCst);
                assert!(term.ensure(Duration::from_secs(1)) && term.renew());
                term.wait_until_stopping();
            })
        }
    });
    while !begun.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    assert!(election.is_leader() && tenure.is_leader(NAME));
    assert!(tenure.observe(NAME).unwrap().leader().unwrap().leader().is_some());
    election.stop();
    assert!(matches!(worker.join().unwrap(), Err(Error::Stopped { .. })));
    assert!(!election.is_leader());

    let term = tenure.try_acquire("other").unwrap().unwrap();
    assert!(tenure.try_acquire("other").unwrap().is_none());
    term.resign();
    tenure.shutdown();
}

#[tokio::test]
async fn whoever_is_cancelled_while_it_holds_back_contends_again() {
    let world = World::new();
    let ada = start(&world, "ada").await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let running = tokio::spawn({
        let ada = ada.clone();
        async move {
            ada.run_while_leader(move |_term| {
                counted.fetch_add(1, Ordering::SeqCst);
                async { panic!("out of paper") }
            })
            .await
            .map(|(): ()| ())
        }
    });
    world.settle().await;
    assert_eq!((runs.load(Ordering::SeqCst), ada.is_leader()), (1, false));
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    world.advance(Duration::from_secs(30)).await;
    assert!(ada.is_leader(), "{:?}", ada.status().reason);
}
