//! Slots move while requests are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use store_client::cluster::Slot;
use store_client::redis::{self, Cmd};
use store_client::{ClusterClient, ClusterError};
use testkit::{ClusterGroup, GENEROUS, wait_until};

use super::{count, count_up, fetches, keys_in, told, value_of};

#[tokio::test(flavor = "current_thread")]
async fn one_map_is_fetched_for_a_storm_of_a_thousand_redirections() {
    let group = ClusterGroup::start().steady();
    let client = ClusterClient::connect(&group.url()).await.unwrap();
    assert_eq!(fetches(&group), 1, "one at the start");
    // A slot each, all of the first master.
    let mut keys = keys_in(0..5000, 20_000);
    keys.sort_by_key(|key| Slot::of(key));
    keys.dedup_by_key(|key| Slot::of(key));
    keys.truncate(1000);
    assert_eq!(keys.len(), 1000);
    client.query::<()>(&Cmd::set(&keys[0], 1)).await.unwrap();

    group.fail_over(0);
    let (fetched, moved) = (fetches(&group), told(&group, "MOVED"));
    let counting = client.query_all(keys.iter().map(|key| Cmd::incr(key, 1)));
    // Unconstrained, all of them leave before the first answer is read.
    let outcomes = tokio::task::unconstrained(counting).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(told(&group, "MOVED"), moved + 1000);
    // The map that they asked for may still be on its way.
    let new_owner = group.server(ClusterGroup::MASTERS).authority();
    let has_all = || {
        let owner = |slot| client.owner_of(keys_in(slot..slot + 1, 1).remove(0));
        owner(5400).is_some_and(|owner| owner.to_string() == new_owner)
    };
    for _ in 0..1000 {
        if has_all() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(has_all(), "slots that nobody asked about are known, too");
    assert_eq!(fetches(&group), fetched + 1);
    assert_eq!(value_of(&client, &keys[0]).await, 2);
    assert_eq!(value_of(&client, &keys[999]).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_on_its_way_is_asked_for_where_its_keys_are_and_the_map_stays() {
    let group = ClusterGroup::start().steady();
    let client = ClusterClient::connect(&group.url()).await.unwrap();
    for (key, value) in [("{x}a", 1), ("{x}b", 2)] {
        client.query::<()>(&Cmd::set(key, value)).await.unwrap();
    }
    let slot = group.slot_of("{x}a");
    let from = group.owner_of(slot).unwrap();
    let to = (from + 1) % ClusterGroup::MASTERS;
    group.begin_migration(slot, to);
    group.migrate_key(slot, to, "{x}a");

    let (fetched, asked) = (fetches(&group), told(&group, "ASK"));
    for _ in 0..3 {
        assert_eq!(value_of(&client, "{x}a").await, 1);
        assert_eq!(value_of(&client, "{x}b").await, 2);
    }
    client.query::<()>(&Cmd::set("{x}new", 3)).await.unwrap();
    let mut both = redis::pipe();
    both.atomic().incr("{x}a", 1).incr("{x}new", 1);
    let sums: (u64, u64) = both.query_async(&mut client.clone()).await.unwrap();
    assert_eq!(sums, (2, 4));
    // Three for the key that has left, one for the new one, and one each in the transaction.
    assert_eq!(told(&group, "ASK"), asked + 6, "each time anew");
    assert_eq!(fetches(&group), fetched, "ASK is no reason to fetch a map");
    let owner = client.owner_of("{x}a").unwrap().to_string();
    assert_eq!(owner, group.server(from).authority());

    // One key is here and one there: it rests until they are together.
    let mut several = redis::cmd("MGET");
    several.arg("{x}a").arg("{x}b");
    let resting = client.clone();
    let sums = tokio::spawn(async move { resting.query::<(u64, u64)>(&several).await });
    wait_until("a request to be told to try again", GENEROUS, || told(&group, "TRYAGAIN") > 1);
    group.migrate_key(slot, to, "{x}b");
    group.finish_migration(slot, to);
    assert_eq!(sums.await.unwrap().unwrap(), (2, 2));

    group.uncover(slot);
    let hurried = client.with_patience(Duration::from_millis(300));
    let error = hurried.query::<u64>(&Cmd::get("{x}a")).await.unwrap_err();
    assert!(matches!(error, ClusterError::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("slot"), "{error}");
}

/// The slots that are moved, each with many keys that are counted up meanwhile.
const MOVED: u64 = 120;
const CLIENTS: usize = 50;
const KEYS_EACH: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reshard_under_load_loses_nothing_and_does_nothing_twice() {
    let group = ClusterGroup::start().steady();
    let keys = keys_in(0..MOVED, CLIENTS * KEYS_EACH);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut counting = Vec::new();
    for own in keys.chunks(KEYS_EACH) {
        let client = ClusterClient::connect(&group.url()).await.unwrap();
        counting.push(tokio::spawn(count_up(client, own.to_vec(), Arc::clone(&is_over))));
    }
    let busy = || count(&group, 0, "commandstats", "cmdstat_incrby:calls=") > 1000;
    wait_until("all clients to be at work", GENEROUS, busy);

    let slots = MOVED as usize;
    tokio::task::block_in_place(|| {
        group.reshard(0, 1, slots);
        group.reshard(1, 2, slots);
    });
    assert_eq!(group.slots_of(0), 16_384 / 3 - slots);
    let after = count(&group, 2, "commandstats", "cmdstat_incrby:calls=");
    let arrived = || count(&group, 2, "commandstats", "cmdstat_incrby:calls=") > after + 500;
    wait_until("requests to arrive at the new owner", GENEROUS, arrived);
    is_over.store(true, Ordering::Release);

    let client = ClusterClient::connect(&group.url()).await.unwrap();
    let mut acknowledged = 0;
    for tally in counting {
        let tally = tally.await.unwrap();
        assert_eq!(tally.unknown(), 0, "no connection broke");
        acknowledged += tally.acknowledged();
        for (key, acknowledged, _) in &tally.keys {
            assert_eq!(value_of(&client, key).await, *acknowledged, "{key}");
        }
    }
    eprintln!(
        "{acknowledged} acknowledged; MOVED {}, ASK {}, TRYAGAIN {}, maps {}",
        told(&group, "MOVED"),
        told(&group, "ASK"),
        told(&group, "TRYAGAIN"),
        fetches(&group)
    );
    assert!(told(&group, "MOVED") > 0 && told(&group, "ASK") > 0);
}
