//! A node dies, and its replica takes over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store_client::ClusterClient;
use store_client::cluster::Slot;
use store_client::redis::Cmd;
use testkit::{ClusterGroup, GENEROUS, wait_until};

use super::{count, count_up, keys_in, value_of};

const CLIENTS: usize = 20;
const KEYS_EACH: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_leaves_outcomes_unknown_and_nothing_done_twice() {
    let mut group = ClusterGroup::start();
    let keys = keys_in(0..16_384, CLIENTS * KEYS_EACH);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut counting = Vec::new();
    for own in keys.chunks(KEYS_EACH) {
        let client = ClusterClient::connect(&group.url()).await.unwrap();
        counting.push(tokio::spawn(count_up(client, own.to_vec(), Arc::clone(&is_over))));
    }
    let incremented =
        |group: &ClusterGroup, place| count(group, place, "commandstats", "cmdstat_incrby:calls=");
    wait_until("all clients to be at work", GENEROUS, || incremented(&group, 0) > 500);

    let slots_before = Slot::numbered(0).unwrap().number();
    group.kill(0);
    let new = tokio::task::block_in_place(|| group.wait_for_another_owner(slots_before, 0));
    let before = incremented(&group, new);
    wait_until("the new master to be counted on", GENEROUS, || {
        incremented(&group, new) > before + 200
    });
    is_over.store(true, Ordering::Release);

    let client = ClusterClient::connect(&group.url_of(&[1, 2])).await.unwrap();
    let (mut acknowledged, mut unknown, mut lost) = (0, 0, 0);
    for tally in counting {
        let tally = tally.await.unwrap();
        acknowledged += tally.acknowledged();
        unknown += tally.unknown();
        for (key, acknowledged, unknown) in &tally.keys {
            let value = value_of(&client, key).await;
            assert!(value <= acknowledged + unknown, "{key}: {value} of {acknowledged}");
            if client.owner_of(key).unwrap().to_string() == group.server(new).authority() {
                // What the replica had not heard of when its master died.
                lost += acknowledged.saturating_sub(value);
            } else {
                assert_eq!((value, *unknown), (*acknowledged, 0), "{key}: its master lives");
            }
        }
    }
    eprintln!("{acknowledged} acknowledged, {unknown} unknown, {lost} lost with the master");
    assert!(unknown <= CLIENTS as u64, "each client had one request under way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_got_no_answer_is_reported_and_not_repeated() {
    let mut group = ClusterGroup::start();
    let client = ClusterClient::connect(&group.url()).await.unwrap();
    let key = keys_in(0..5000, 1).remove(0);
    client.query::<()>(&Cmd::set(&key, 10)).await.unwrap();
    assert!(group.server(0).has_replicas_in_step(1));

    group.pause(0);
    let sent = client.clone();
    let counted = key.clone();
    let outcome = tokio::spawn(async move { sent.query::<u64>(&Cmd::incr(counted, 1)).await });
    // It is on its way to a server that reads nothing.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    group.kill(0);
    let error = outcome.await.unwrap().unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");

    // The next one finds the replica that took over, however long that takes.
    assert_eq!(client.query::<u64>(&Cmd::incr(&key, 5)).await.unwrap(), 15);
}
