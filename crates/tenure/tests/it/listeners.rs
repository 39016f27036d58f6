//! Listeners: called in order, each on its own, harmless to others whatever they do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tenure::testing::World;
use tenure::{Election, EventKind};

const NAME: &str = "heard";
/// Listeners run on real threads, so real time passes; this only ends hung tests.
const PATIENCE: Duration = Duration::from_secs(20);

async fn lead(world: &World) -> Election {
    let election = world.client("ada").await.election(NAME).start().await.unwrap();
    world.settle().await;
    election
}

#[tokio::test]
async fn a_listener_hears_every_event_in_order_until_it_is_unregistered() {
    let world = World::new();
    let election = lead(&world).await;
    let (sender, heard) = mpsc::channel();
    let handle = election.on_event(move |event| sender.send(event.number).unwrap()).unwrap();
    world.advance(Duration::from_secs(60)).await;
    let first = heard.recv_timeout(PATIENCE).unwrap();
    for expected in first + 1..first + 10 {
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), expected);
    }
    drop(handle);
    // Once the listener is gone, so is its end of the channel: whatever waited comes before that.
    world.advance(Duration::from_secs(60)).await;
    while heard.recv_timeout(PATIENCE).is_ok() {}
    assert!(matches!(heard.try_recv(), Err(mpsc::TryRecvError::Disconnected)));
    assert!(election.is_leader());
}

#[tokio::test]
async fn one_that_panics_or_blocks_holds_up_neither_the_others_nor_the_lease() {
    let world = World::new();
    let election = lead(&world).await;
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    let _panicking = election
        .on_event(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            panic!("a bad listener, on purpose");
        })
        .unwrap();
    let (unblock, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let _blocking = election
        .on_event(move |_| {
            let _ = blocked.lock().unwrap().recv();
        })
        .unwrap();
    let (sender, heard) = mpsc::channel();
    let _good = election
        .on_event(move |event| {
            let _ = sender.send(event.number);
        })
        .unwrap();

    world.advance(Duration::from_secs(60)).await;
    assert!(election.is_leader(), "the lease does not depend on listeners");
    for _ in 0..10 {
        heard.recv_timeout(PATIENCE).unwrap();
    }
    let patience = std::time::Instant::now();
    while panics.load(Ordering::SeqCst) < 10 && patience.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    assert!(panics.load(Ordering::SeqCst) >= 10, "it is called again for the next event");
    drop(unblock);
}

#[tokio::test]
async fn an_async_listener_finishes_one_event_before_the_next() {
    let world = World::new();
    let election = lead(&world).await;
    let (sender, heard) = mpsc::channel();
    let busy = Arc::new(AtomicUsize::new(0));
    let handle = election
        .on_event_async(move |event| {
            let (sender, busy) = (sender.clone(), Arc::clone(&busy));
            async move {
                assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                tokio::task::yield_now().await;
                busy.fetch_sub(1, Ordering::SeqCst);
                let _ = sender.send(event.number);
            }
        })
        .unwrap();
    world.advance(Duration::from_secs(30)).await;
    let first = heard.recv_timeout(PATIENCE).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), first + 1);
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), first + 2);
    handle.forever();
}

#[tokio::test]
async fn a_listener_can_tell_a_loss_from_a_resignation() {
    let world = World::new();
    let (all, ended) = mpsc::channel();
    let election = world
        .client("ada")
        .await
        .election(NAME)
        .on_event(move |event| {
            if let EventKind::Lost { token, reason } = &event.kind {
                let _ = all.send((*token, reason.clone()));
            }
        })
        .start()
        .await
        .unwrap();
    world.run_until(|| election.is_leader()).await;
    world.advance_while(election.resign()).await;
    let (resigned, reason) = ended.recv_timeout(PATIENCE).unwrap();
    assert!(!reason.is_involuntary(), "{reason}");
    world.run_until(|| election.is_leader()).await;
    world.advance(Duration::from_millis(20)).await;
    world.take_away(NAME);
    world.settle().await;
    let (lost, reason) = ended.recv_timeout(PATIENCE).unwrap();
    assert!(lost > resigned, "this is about the second term");
    assert!(reason.is_involuntary(), "{reason}");
    assert_eq!(reason.code(), "key-vanished");
    world.run_until(|| election.is_leader()).await;
}
