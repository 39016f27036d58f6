//! Whatever another program writes into the keys of an election is input: beside a running leader
//! and everybody who looks on, every field of every key is given values of all kinds. Only what
//! changes the leader's key itself may end a term.

use std::time::Duration;

use tenure::Tenure;
use tenure_core::memory_store::FIELDS;
use testkit::{GENEROUS, Random, RedisServer};

const KEY: &str = "tenure:job";
const TTL: Duration = Duration::from_secs(4);
/// How many words are written between two renewals.
const WORDS_AT_ONCE: u64 = 6;
const ROUNDS: usize = 8;
const SIDE: [&str; 5] = ["meta", "beats", "members", "history", "ticks"];
/// Fields of other keys than the side record.
const OTHER_FIELDS: [&str; 3] = ["done", "outcome", "begun:1"];

fn value(random: &mut Random) -> Vec<u8> {
    let texts: [&[u8]; 20] = [
        b"",
        b"0",
        b"1",
        b"2",
        b"-5",
        b"1e300",
        b"nan",
        b"-inf",
        b"9007199254740991",
        b"9007199254740992",
        b"99999999999999999999999999",
        b" 7 ",
        b"resign",
        b"mallory_1",
        b"~quarantine",
        b"\xff\xfe\x00\x01",
        b"\r\n$5\r\nhello",
        b"\x1b[31m\xe2\x80\xae",
        b"9007199254740991 9007199254740991",
        b"begun 99999999999999999999 x",
    ];
    match random.in_range(0..24) {
        0 => vec![b'x'; 300_000],
        1 => b"7 ".repeat(100_000),
        2 => vec![0; 70_000],
        3 => b"1 2 x\n".repeat(5_000),
        index => texts[usize::try_from(index - 4).unwrap()].to_vec(),
    }
}

fn side_key(random: &mut Random) -> String {
    format!("{{{KEY}}}:{}", random.choose(&SIDE))
}

/// One word of a foreign program, never about the leader's key.
fn word(random: &mut Random) -> redis::Cmd {
    let (key, text) = (side_key(random), value(random));
    let meta = format!("{{{KEY}}}:meta");
    let field = match random.in_range(0..12) {
        0 => *random.choose(&OTHER_FIELDS),
        _ => *random.choose(&FIELDS),
    };
    let mut command = redis::Cmd::new();
    match random.in_range(0..20) {
        0 => command.arg("DEL").arg(key),
        1 => command.arg("SET").arg(key).arg(text),
        2 => command.arg("SADD").arg(key).arg(text),
        3 => command.arg("RPUSH").arg(key).arg(text),
        4 => command.arg("PEXPIRE").arg(key).arg(random.in_range(1..3_000)),
        5 => command.arg("ZADD").arg(format!("{{{KEY}}}:beats")).arg("-5").arg(text),
        6 => command.arg("ZADD").arg(format!("{{{KEY}}}:beats")).arg("inf").arg(text),
        7 => command.arg("ZADD").arg(format!("{{{KEY}}}:beats")).arg("-inf").arg("old"),
        8 => command.arg("HSET").arg(format!("{{{KEY}}}:members")).arg(&text).arg(text.clone()),
        9 => command.arg("XADD").arg(format!("{{{KEY}}}:history")).arg("*").arg("what").arg(text),
        10 => command.arg("HDEL").arg(meta).arg(field),
        _ => command.arg("HSET").arg(meta).arg(field).arg(text),
    };
    command
}

async fn look_at_all(tools: &Tenure, what: &str) {
    let observer = tools.observe("job").unwrap();
    let seen = observer.look().await.unwrap_or_else(|error| panic!("look: {error}\n{what}"));
    assert!(seen.leadership.leader().is_some(), "{seen:?}\n{what}");
    observer.leader().await.unwrap_or_else(|error| panic!("leader: {error}\n{what}"));
    observer.members().await.unwrap_or_else(|error| panic!("members: {error}\n{what}"));
    let changed = observer.changes().await.unwrap().next().await;
    changed.unwrap_or_else(|error| panic!("changes: {error}\n{what}"));
    // A history of another type is told as that.
    match observer.history(100).await {
        Ok(_) | Err(tenure::Error::Conflict { .. }) => {}
        Err(error) => panic!("history: {error}\n{what}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_word_beside_the_key_ends_a_term_or_blinds_a_tool() {
    let seed = testkit::seed();
    let mut random = Random::seeded(seed);
    let server = RedisServer::start();
    let connect = |name: &str| Tenure::builder().instance(name).store(&server.url()).connect();
    let (ada, bob, tools) = (connect("ada").await.unwrap(), connect("bob").await, connect("eve"));
    let (bob, tools) = (bob.unwrap(), tools.await.unwrap());
    let leader = ada.election("job").ttl(TTL).fresh_store(true).start().await.unwrap();
    let term = leader.wait_for_leadership_within(GENEROUS).await.unwrap();
    let standby = bob.election("job").ttl(TTL).fresh_store(true).start().await.unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut mallory = client.get_connection().unwrap();
    for round in 0..ROUNDS {
        let mut what = format!("seed {seed}, round {round}");
        for _ in 0..WORDS_AT_ONCE {
            let word = word(&mut random);
            let shown = String::from_utf8_lossy(&word.get_packed_command()).into_owned();
            what.push_str(&format!("\n  {:?}", shown.chars().take(200).collect::<String>()));
            // What does not fit the type of a key is refused by the server.
            let _: Result<redis::Value, _> = word.query(&mut mallory);
            look_at_all(&tools, &what).await;
        }
        let renewed = tokio::time::timeout(GENEROUS, term.wait_for_renewal()).await;
        renewed.unwrap_or_else(|_| panic!("no renewal\n{what}"));
        assert!(term.is_valid() && leader.is_leader(), "the term ended\n{what}");
        assert!(!standby.is_leader(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_without_an_end_and_an_expiry_of_centuries_can_be_mended() {
    let server = RedisServer::start();
    let tools = Tenure::builder().instance("eve").store(&server.url()).connect().await.unwrap();
    server.cli(&["HSET", "{tenure:job}:meta", "paused_until", "9007199254740991"]);
    assert!(tools.observe("job").unwrap().look().await.unwrap().paused_for.is_some());
    tools.observe("job").unwrap().resume().await.unwrap();
    assert_eq!(tools.observe("job").unwrap().look().await.unwrap().paused_for, None);

    server.cli(&["SET", KEY, "mallory", "EX", "9999999999"]);
    let seen = tools.observe("job").unwrap().leader().await.unwrap();
    assert_eq!(seen.leader().unwrap().id.as_str(), "mallory");
    tools.observe("job").unwrap().force_clear("not ours").await.unwrap();
    assert_eq!(server.cli(&["GET", KEY]), "~quarantine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_side_record_of_many_foreign_fields_is_not_looked_through() {
    let server = RedisServer::start();
    let fill = "for i = 1, 300000 do redis.call('HSET', KEYS[1], 'f' .. i, i) end";
    server.cli(&["EVAL", fill, "1", "{tenure:job}:meta"]);
    let ada = crate::actor::Actor::at(&server.url(), "job");
    for attempt in 1..=3 {
        let token = ada.lead(attempt).await;
        ada.renew(token).await.unwrap();
        ada.release(token).await.unwrap();
    }
    // What a script calls is in the server's statistics: nothing there reads all of a hash.
    let told = server.cli(&["INFO", "commandstats"]);
    assert!(!told.contains("cmdstat_hgetall") && !told.contains("cmdstat_hkeys"), "{told}");
}
