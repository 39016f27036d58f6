//! Bulkheads: who gets a place, who is refused, and what becomes of calls that hang or panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use store_client::bulkhead::{
    BulkheadError, CallError, Permits, ThreadCounts, Threads, ThreadsBuilder, WhenFull,
};

use crate::{BRIEFLY, SOON};

/// Long enough for a free thread to begin a call on a busy machine.
const A_MOMENT: Duration = Duration::from_secs(1);

#[test]
fn permits_are_granted_or_refused_and_come_back() {
    let permits = Permits::new("stock", 2).unwrap();
    let first = permits.acquire().unwrap();
    let second = permits.clone().acquire().unwrap();
    let refused = permits.call(|| panic!("this call must not be made")).unwrap_err();
    assert_eq!(refused, CallError::Refused { name: "stock".into(), running: 2, waiting: 0 });
    assert_eq!(refused.to_string(), "stock: refused, 2 calls are running and 0 are waiting");
    drop(first);
    assert_eq!(permits.call(|| 7), Ok(7));
    drop(second);
    let counts = permits.counts();
    assert_eq!((counts.running, counts.granted, counts.refused), (0, 3, 1));
}

#[tokio::test]
async fn a_permit_comes_back_from_a_panic_and_from_a_dropped_future() {
    let permits = Permits::new("stock", 1).unwrap();
    let panicking = permits.clone();
    std::thread::spawn(move || panicking.call(|| panic!("on purpose"))).join().unwrap_err();
    assert_eq!(permits.counts().running, 0);
    let hanging = permits.call_async(std::future::pending::<()>());
    tokio::time::timeout(BRIEFLY, hanging).await.unwrap_err();
    assert_eq!(permits.call_async(async { 7 }).await, Ok(7));
}

#[test]
fn never_more_permits_are_in_use_than_there_are() {
    let permits = Permits::new("stock", 3).unwrap();
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (permits, inside, most) = (permits.clone(), inside.clone(), most.clone());
            std::thread::spawn(move || {
                for _ in 0..2_000 {
                    let _ = permits.call(|| {
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    let counts = permits.counts();
    assert_eq!((counts.running, counts.granted + counts.refused), (0, 16_000));
}

#[test]
fn a_bulkhead_without_a_place_is_refused() {
    let refused = Permits::new("stock", 0).unwrap_err();
    assert!(matches!(refused, BulkheadError::NoPlace { .. }));
    let refused = Threads::builder("prices", 0).queue_max(5).build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the bulkhead \"prices\" has no place for any call: give it at least one"
    );
}

/// A dependency that answers when it is told to.
struct Stuck {
    threads: Threads,
    begun: Receiver<u32>,
    tell_begun: Sender<u32>,
    answers: Vec<Sender<()>>,
}

impl Stuck {
    fn new(builder: ThreadsBuilder) -> Self {
        let (tell_begun, begun) = channel();
        let threads = builder.timeout(SOON).build().unwrap();
        Self { threads, begun, tell_begun, answers: Vec::new() }
    }

    /// Calls it from a thread of its own; the call returns the number when it is answered.
    fn call(&mut self, number: u32, timeout: Duration) -> JoinHandle<Result<u32, CallError>> {
        let (answer, answered) = channel();
        self.answers.push(answer);
        let (threads, begun) = (self.threads.clone(), self.tell_begun.clone());
        std::thread::spawn(move || {
            threads.call_within(timeout, move || {
                begun.send(number).unwrap();
                let _ = answered.recv();
                number
            })
        })
    }

    fn wait_until_begun(&self, number: u32) {
        assert_eq!(self.begun.recv_timeout(SOON), Ok(number));
    }

    fn wait_for(&self, what: impl Fn(ThreadCounts) -> bool) {
        testkit::wait_until("the counts are so", SOON, || what(self.threads.counts()));
    }
}

#[test]
fn what_is_over_threads_and_queue_is_refused() {
    let mut stuck = Stuck::new(Threads::builder("prices", 1).queue_max(1));
    let first = stuck.call(1, SOON);
    stuck.wait_until_begun(1);
    let second = stuck.call(2, SOON);
    stuck.wait_for(|counts| counts.waiting == 1);
    let refused = stuck.threads.call(|| ()).unwrap_err();
    assert_eq!(refused, CallError::Refused { name: "prices".into(), running: 1, waiting: 1 });
    stuck.answers.clear();
    assert_eq!((first.join().unwrap(), second.join().unwrap()), (Ok(1), Ok(2)));
    stuck.wait_for(|counts| (counts.running, counts.ended, counts.refused) == (0, 2, 1));
}

#[test]
fn a_call_that_timed_out_keeps_its_thread_and_is_counted() {
    let mut stuck = Stuck::new(Threads::builder("prices", 1).queue_max(2));
    let hanging = stuck.call(1, A_MOMENT);
    stuck.wait_until_begun(1);
    let timed_out =
        |after, has_begun| Err(CallError::TimedOut { name: "prices".into(), after, has_begun });
    assert_eq!(hanging.join().unwrap(), timed_out(A_MOMENT, true));
    // Another one times out while it waits: it is never made, and leaves the queue.
    assert_eq!(stuck.call(2, BRIEFLY).join().unwrap(), timed_out(BRIEFLY, false));
    let counts = stuck.threads.counts();
    assert_eq!((counts.running, counts.overdue, counts.waiting, counts.timed_out), (1, 1, 0, 2));
    stuck.answers.clear();
    stuck.wait_for(|counts| (counts.running, counts.overdue, counts.ended) == (0, 0, 1));
    assert_eq!(stuck.threads.call(|| 3), Ok(3));
    assert!(stuck.begun.try_recv().is_err(), "a call was made that nobody waited for");
}

#[test]
fn the_oldest_gives_way_where_that_was_asked_for() {
    let builder = Threads::builder("prices", 1).queue_max(1).when_full(WhenFull::DropOldest);
    let mut stuck = Stuck::new(builder);
    let first = stuck.call(1, SOON);
    stuck.wait_until_begun(1);
    let second = stuck.call(2, SOON);
    stuck.wait_for(|counts| counts.waiting == 1);
    let third = stuck.call(3, SOON);
    assert_eq!(second.join().unwrap(), Err(CallError::Dropped { name: "prices".into() }));
    stuck.answers.clear();
    assert_eq!((first.join().unwrap(), third.join().unwrap()), (Ok(1), Ok(3)));
    assert_eq!(stuck.threads.counts().dropped, 1);
}

#[test]
fn without_a_queue_nobody_is_dropped() {
    let mut stuck = Stuck::new(Threads::builder("prices", 1).when_full(WhenFull::DropOldest));
    let first = stuck.call(1, SOON);
    stuck.wait_until_begun(1);
    assert!(matches!(stuck.threads.call(|| ()), Err(CallError::Refused { .. })));
    stuck.answers.clear();
    assert_eq!(first.join().unwrap(), Ok(1));
}

#[test]
fn a_panic_is_told_and_its_thread_comes_back() {
    let threads = Threads::builder("prices", 1).timeout(SOON).build().unwrap();
    let panicked = threads.call(|| panic!("no {}", "price")).unwrap_err();
    let message = "no price".to_owned();
    assert_eq!(panicked, CallError::Panicked { name: "prices".into(), message });
    // The thread is back in a moment: without a queue the next call needs it to be free already.
    testkit::wait_until("the thread is back", SOON, || threads.call(|| 7) == Ok(7));
    assert_eq!(threads.counts().panicked, 1);
}

/// Panics where it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "on purpose");
    }
}

#[test]
fn a_late_result_that_panics_when_dropped_ends_no_thread() {
    let threads = Threads::builder("prices", 1).queue_max(1).timeout(SOON).build().unwrap();
    let (answer, answered) = channel::<()>();
    let late = threads.call_within(A_MOMENT, move || {
        let _ = answered.recv();
        Grenade
    });
    assert!(matches!(late, Err(CallError::TimedOut { has_begun: true, .. })));
    drop(answer);
    assert_eq!(threads.call(|| 7), Ok(7));
}

#[test]
fn a_future_that_is_dropped_leaves_its_call_overdue() {
    let threads = Threads::builder("prices", 1).queue_max(1).timeout(SOON).build().unwrap();
    let (begun, was_begun) = channel();
    let (answer, answered) = channel::<()>();
    // The running call holds the last handle: it goes when the call ends.
    let handle = threads.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut running = Box::pin(threads.call_async(move || {
            begun.send(()).unwrap();
            let _ = answered.recv();
            drop(handle);
        }));
        // Its future is dropped while it runs.
        while was_begun.try_recv().is_err() {
            assert!(tokio::time::timeout(BRIEFLY, &mut running).await.is_err());
        }
    });
    assert_eq!(threads.counts().overdue, 1);
    drop(threads);
    drop(answer);
}

#[tokio::test]
async fn calls_from_async_code_wait_without_a_thread_of_theirs() {
    let threads = Threads::builder("prices", 2).queue_max(100).timeout(SOON).build().unwrap();
    let calls = (0..50).map(|number| {
        let threads = threads.clone();
        async move { threads.call_async(move || number).await }
    });
    let results = futures_util::future::join_all(calls).await;
    assert_eq!(results, (0..50).map(Ok).collect::<Vec<_>>());
    let hang = threads.call_async_within(BRIEFLY, || std::thread::sleep(BRIEFLY * 5)).await;
    assert!(matches!(hang, Err(CallError::TimedOut { .. })), "{hang:?}");
}
