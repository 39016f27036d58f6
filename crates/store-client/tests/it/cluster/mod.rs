//! The client of clusters, on real servers.

mod commands;
mod encrypted;
mod left;
mod moving;
mod taking_over;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use store_client::cluster::Slot;
use store_client::redis::Cmd;
use store_client::{ClusterClient, ClusterError};
use testkit::ClusterGroup;

/// A count in what a node tells about itself.
fn count(group: &ClusterGroup, place: usize, section: &str, name: &str) -> u64 {
    let told = group.server(place).cli(&["INFO", section]);
    let line = told.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    line.split(',').next().unwrap_or_default().trim().parse().unwrap()
}

/// The same of all nodes together.
fn count_all(group: &ClusterGroup, section: &str, name: &str) -> u64 {
    (0..group.len()).map(|place| count(group, place, section, name)).sum()
}

/// How often maps were fetched.
fn fetches(group: &ClusterGroup) -> u64 {
    count_all(group, "commandstats", "cmdstat_cluster|slots:calls=")
}

/// How often nodes answered with this error.
fn told(group: &ClusterGroup, code: &str) -> u64 {
    count_all(group, "errorstats", &format!("errorstat_{code}:count="))
}

/// Keys of these slots, the first key of a slot before the second of any.
fn keys_in(slots: std::ops::Range<u64>, count: usize) -> Vec<String> {
    let is_in = |key: &String| slots.contains(&u64::from(Slot::of(key).number()));
    (0..).map(|number| format!("key:{number}")).filter(is_in).take(count).collect()
}

/// What one writer knows about its own keys.
#[derive(Debug, Default)]
struct Tally {
    /// Each key with what was acknowledged and what may have happened besides.
    keys: Vec<(String, u64, u64)>,
}

impl Tally {
    fn acknowledged(&self) -> u64 {
        self.keys.iter().map(|(_, acknowledged, _)| acknowledged).sum()
    }

    fn unknown(&self) -> u64 {
        self.keys.iter().map(|(_, _, unknown)| unknown).sum()
    }
}

/// Counts keys up, one after the other, until told to stop: every other one by appending to it.
/// Every answer must be what the model says.
async fn count_up(client: ClusterClient, keys: Vec<String>, is_over: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally { keys: keys.into_iter().map(|key| (key, 0, 0)).collect() };
    let mut round = 0;
    while !is_over.load(Ordering::Acquire) {
        let place = round % tally.keys.len();
        let (key, acknowledged, unknown) = &mut tally.keys[place];
        let command = match place % 2 {
            0 => Cmd::incr(&*key, 1),
            _ => Cmd::append(&*key, "x"),
        };
        match client.query::<u64>(&command).await {
            Ok(value) => {
                *acknowledged += 1;
                let expected = *acknowledged..=*acknowledged + *unknown;
                // A replica that took over may lack what was acknowledged before.
                assert!(value <= *expected.end(), "{key} is {value}, not in {expected:?}");
            }
            Err(error) if error.is_outcome_unknown() => *unknown += 1,
            Err(ClusterError::Unavailable(_)) => {
                tokio::time::sleep(Duration::from_millis(50)).await
            }
            Err(error) => panic!("{key}: {error}"),
        }
        round += 1;
    }
    tally
}

/// How often a key was counted up.
async fn value_of(client: &ClusterClient, key: &str) -> u64 {
    let value: String = client.query(&Cmd::get(key)).await.unwrap();
    match value.contains('x') {
        true => value.len() as u64,
        false => value.parse().unwrap(),
    }
}
