//! Other systems' elections on the same key: a rolling migration, twenty keys at a time.
//!
//! Ours acts from a grant to its deadline or its end, theirs from the answer to kill or expiry, all
//! on one host clock. Both sides change hands all the time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{EventKind, Tenure, Token};
use tenure_core::Moment;
use testkit::RedisServer;
use trials::clock;
use trials::record::{Acting, Record};
use trials::rival::{Habit, Rival};

const KEYS: usize = 20;
const THEIR_TTL: Duration = Duration::from_millis(900);
const LASTS: Duration = Duration::from_secs(10);

struct Trial {
    habit: Habit,
    our_ttl: Duration,
    fleet_min_ttl: Option<Duration>,
    dawdles: Duration,
    stops_after: u32,
    rests: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_compare_and_expire_nothing_needs_to_be_set() {
    let record = run(Trial {
        habit: Habit::Honua,
        our_ttl: THEIR_TTL,
        fleet_min_ttl: None,
        dawdles: Duration::ZERO,
        stops_after: 4,
        rests: THEIR_TTL * 3 / 2,
    })
    .await;
    assert_shared(&record);
    assert_eq!(shown(&record), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_get_then_expire_fleet_min_ttl_is_enough() {
    let record = run(Trial {
        habit: Habit::TitanAas,
        our_ttl: THEIR_TTL * 3,
        fleet_min_ttl: Some(THEIR_TTL),
        // Longer than its lease: the EXPIRE hits a key that has become ours.
        dawdles: THEIR_TTL * 4 / 3,
        stops_after: 2,
        rests: THEIR_TTL * 3 / 2,
    })
    .await;
    assert_shared(&record);
    assert_eq!(shown(&record), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_get_then_del_the_stated_limit_is_seen() {
    let record = run(Trial {
        habit: Habit::Sovereign,
        our_ttl: THEIR_TTL,
        fleet_min_ttl: Some(THEIR_TTL),
        // Long enough for its lease to end between its GET and its DEL.
        dawdles: THEIR_TTL * 4 / 3,
        stops_after: 0,
        // It takes the key that it has just deleted.
        rests: Duration::ZERO,
    })
    .await;
    assert_shared(&record);
    let overlaps = shown(&record);
    println!("overlaps beside GET-then-DEL: {}", overlaps.len());
    assert!(!overlaps.is_empty(), "the checker must see what is not promised");
}

/// A trial in which one side never acted shows nothing.
fn assert_shared(record: &Record) {
    let ours = record.stretches().iter().filter(|acting| acting.token.is_some()).count();
    let theirs = record.len() - ours;
    println!("stretches of ours: {ours}, of theirs: {theirs}");
    assert!(ours >= KEYS && theirs >= KEYS, "{ours} of ours, {theirs} of theirs");
}

fn shown(record: &Record) -> Vec<String> {
    record.overlaps().iter().map(ToString::to_string).collect()
}

async fn run(trial: Trial) -> Record {
    let server = RedisServer::start();
    let record = Arc::new(Mutex::new(Record::default()));
    let mut rivals = Vec::new();
    let mut ours = Vec::new();
    for index in 0..KEYS {
        let key = format!("leader:{index}");
        rivals.push(rival(&trial, &server, &key, index).start(Arc::clone(&record)));
        let (ttl, shortest) = (trial.our_ttl, trial.fleet_min_ttl);
        ours.push(tokio::spawn(live(server.url(), key, ttl, shortest, Arc::clone(&record))));
    }
    for one in ours {
        one.await.unwrap();
    }
    tokio::task::spawn_blocking(move || drop(rivals)).await.unwrap();
    Arc::into_inner(record).unwrap().into_inner().unwrap()
}

fn rival(trial: &Trial, server: &RedisServer, key: &str, index: usize) -> Rival {
    Rival {
        url: server.url(),
        key: key.to_owned(),
        id: format!("rival-{index}"),
        habit: trial.habit,
        ttl: THEIR_TTL,
        every: THEIR_TTL / 3,
        dawdles: trial.dawdles,
        stops_after: trial.stops_after,
        rests: trial.rests,
    }
}

/// Takes part, resigns now and then, and records when it had the right to act.
async fn live(
    url: String,
    key: String,
    ttl: Duration,
    fleet_min_ttl: Option<Duration>,
    record: Arc<Mutex<Record>>,
) {
    let tenure = Tenure::builder().instance("ours").store(&url).connect().await.unwrap();
    let mut builder = tenure.election(&key).key(&key).ttl(ttl).fresh_store(true);
    if let Some(shortest) = fleet_min_ttl {
        builder = builder.fleet_min_ttl(shortest);
    }
    let mut events = builder.events();
    let election = builder.start().await.unwrap();
    let ends_at = clock::now() + LASTS;
    let mut open: Option<(Token, Moment, Moment)> = None;
    let note = |(token, from, deadline): (Token, Moment, Moment), at: Moment| {
        record.lock().unwrap().add(Acting {
            resource: key.clone(),
            who: "ours".to_owned(),
            token: Some(token.get()),
            from,
            until: at.min(deadline),
        });
    };
    while clock::now() < ends_at {
        let Ok(next) = tokio::time::timeout(ttl, events.next()).await else {
            // Nothing new for a lease: give others a chance.
            election.resign().await;
            continue;
        };
        let event = next.unwrap().unwrap();
        match event.kind {
            EventKind::Acquired { token, ends_at } => open = Some((token, event.at, ends_at)),
            EventKind::Renewed { ends_at, .. } => {
                if let Some(term) = &mut open {
                    term.2 = ends_at;
                    if election.status().counts.renewals % 5 == 0 {
                        election.resign().await;
                    }
                }
            }
            EventKind::Lost { .. } => {
                if let Some(term) = open.take() {
                    note(term, event.at);
                }
            }
            _ => {}
        }
    }
    if let Some(term) = open {
        note(term, clock::now());
    }
    election.stop().await;
}
