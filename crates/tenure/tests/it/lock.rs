//! Locks: the same story on every kind of store, and what is refused in words.

use std::sync::Arc;
use std::time::Duration;

use tenure::testing::World;
use tenure::{Error, HistoryKind, LockGuard, MemoryBackend, Reason, Tenure, blocking};
use testkit::{ClusterGroup, GENEROUS, RedisServer, SentinelGroup};

const NAME: &str = "invoices";
const TTL: Duration = Duration::from_secs(3);

async fn client(url: &str, name: &str) -> Tenure {
    Tenure::builder().instance(name).store(url).ttl(TTL).fresh_store(true).connect().await.unwrap()
}

async fn acquire(tenure: &Tenure) -> LockGuard {
    tenure.lock(NAME).acquire_within(GENEROUS).await.unwrap()
}

/// One holds, another is refused, waits in vain, and gets it as soon as it is released.
async fn is_held_by_one_and_passed_on(url: &str) {
    let (ada, bob) = (client(url, "ada").await, client(url, "bob").await);
    let mut held = acquire(&ada).await;
    assert!(held.is_held() && held.remaining() > Duration::ZERO);
    assert!(bob.lock(NAME).try_acquire().await.unwrap().is_none());
    let short = Duration::from_millis(50);
    let late = bob.lock(NAME).acquire_within(short).await.unwrap_err();
    assert!(matches!(late, Error::TimedOut { what: "the grant of the lock", .. }), "{late}");

    let lock = bob.lock(NAME);
    let waiting = tokio::spawn(async move { lock.acquire_within(GENEROUS).await });
    held.release().await.unwrap();
    assert!(!held.is_held() && held.remaining() == Duration::ZERO);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > held.token(), "{next:?} after {held:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_server() {
    is_held_by_one_and_passed_on(&RedisServer::start().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels() {
    is_held_by_one_and_passed_on(&SentinelGroup::start(1).url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster() {
    is_held_by_one_and_passed_on(&ClusterGroup::start().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_quorum() {
    let nodes = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    is_held_by_one_and_passed_on(&format!("redis+quorum://{}", hosts.join(","))).await;
}

#[tokio::test]
async fn a_lock_is_refused_to_who_holds_it_and_released_only_once() {
    let store = Arc::new(MemoryBackend::new());
    let tenure = Tenure::builder().backend(store).connect().await.unwrap();
    let mut held = acquire(&tenure).await;
    for again in [
        tenure.lock(NAME).try_acquire().await.map(|_| ()),
        tenure.lock(NAME).acquire_within(GENEROUS).await.map(|_| ()),
    ] {
        let error = again.unwrap_err();
        assert!(matches!(&error, Error::AlreadyHeld { name } if name == NAME), "{error}");
    }
    held.release().await.unwrap();
    let twice = held.release().await.unwrap_err();
    assert!(matches!(&twice, Error::NotHeld { name } if name == NAME), "{twice}");
    assert!(!held.ensure(Duration::ZERO).await);
    held.wait_until_lost().await;
    // The lock itself can be used again, and dropping the guard is enough.
    drop(acquire(&tenure).await);
    acquire(&tenure).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_key_is_deleted_is_told_and_takes_nothing_from_the_next() {
    let server = RedisServer::start();
    let (ada, bob) = (client(&server.url(), "ada").await, client(&server.url(), "bob").await);
    let mut held = acquire(&ada).await;
    let key = format!("tenure:{NAME}");
    // Somebody deletes the key by hand: the next renewal learns of it.
    server.cli(&["DEL", &key]);
    tokio::time::timeout(GENEROUS, held.wait_until_lost()).await.expect("it is told");
    assert!(!held.is_held());
    assert!(held.lost_because().is_some_and(|reason| reason != Reason::Resigned), "{held:?}");
    let next = bob.lock(NAME).acquire_within(GENEROUS).await.unwrap();
    assert!(next.token() > held.token());
    assert!(matches!(held.release().await, Err(Error::NotHeld { .. })));
    assert!(next.is_held(), "a late release takes nothing from the next holder");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_lost_is_not_taken_again_for_nobody() {
    let server = RedisServer::start();
    let observer = client(&server.url(), "eve").await.observe(NAME).unwrap();
    let held = |released| {
        let (url, server) = (server.url(), &server);
        async move {
            let ada = client(&url, "ada").await;
            let mut held = acquire(&ada).await;
            server.cli(&["DEL", &format!("tenure:{NAME}")]);
            tokio::time::timeout(GENEROUS, held.wait_until_lost()).await.expect("it is told");
            if released {
                assert!(matches!(held.release().await, Err(Error::NotHeld { .. })));
            }
            drop(held);
            ada.shutdown().await;
        }
    };
    held(false).await;
    held(true).await;
    let history = observer.history(20).await.unwrap();
    let granted = history.iter().filter(|entry| entry.what == HistoryKind::Granted).count();
    assert_eq!(granted, 2, "one for each that held it: {history:?}");
}

#[tokio::test]
async fn a_limit_counts_the_release_of_an_earlier_hold() {
    let mut server = RedisServer::start();
    let ada = client(&server.url(), "ada").await;
    let held = ada.lock(NAME).ttl(GENEROUS).acquire_within(GENEROUS).await;
    let held = held.unwrap();
    server.pause();
    drop(held);
    let limit = Duration::from_millis(100);
    let began_at = std::time::Instant::now();
    let late = ada.lock(NAME).ttl(GENEROUS).acquire_within(limit).await.unwrap_err();
    assert!(matches!(&late, Error::TimedOut { waited, .. } if *waited == limit), "{late}");
    assert!(began_at.elapsed() < GENEROUS / 6, "the release has given up only then");
}

/// The release never arrived, so the store has the lease until it ends; no guard is held.
#[tokio::test]
async fn a_hold_that_could_not_be_released_is_not_called_held_by_its_own_client() {
    let world = World::new();
    let ada = world.client("ada").await;
    let mut held = world.advance_while(ada.lock(NAME).acquire()).await.unwrap();
    world.cut_off("ada");
    world.advance_while(held.release()).await.unwrap();
    world.heal("ada");
    let again = world.advance_while(ada.lock(NAME).try_acquire()).await;
    assert!(matches!(again, Ok(None)), "{again:?}");
    let next = world.advance_while(ada.lock(NAME).acquire()).await.unwrap();
    assert!(next.token() > held.token(), "once the lease is over");
}

#[test]
fn a_program_without_a_runtime_can_lock() {
    let store = Arc::new(MemoryBackend::new());
    let [ada, bob] = ["ada", "bob"].map(|name| {
        let builder = Tenure::builder().instance(name).backend(store.clone());
        blocking::Tenure::new(builder).unwrap()
    });
    let mut held = ada.lock(NAME).acquire_within(GENEROUS).unwrap();
    assert!(bob.lock(NAME).try_acquire().unwrap().is_none());
    assert!(held.is_held() && held.ensure(Duration::ZERO) && held.lost_because().is_none());
    held.release().unwrap();
    held.wait_until_lost();
    let next = bob.lock(NAME).acquire().unwrap();
    assert!(next.token() > held.token() && next.remaining() > Duration::ZERO);
}
