//! Several sessions at once, made up by a seed: channels, blocking, WATCH, tracking and events
//! across connections. After each request everything that reached anybody is compared.

use std::collections::BTreeSet;

use store_resp::Reply;
use testkit::Random;

use crate::compare::Pair;
use crate::connection::Arrived;
use crate::generate::{RESULT, commands_wanted, expand, seeds_wanted};
use crate::script::{Line, sorted};

/// Those who listen, and those who wait and queue: a listener's messages would stand in the
/// middle of what EXEC answers, and Redis is not of one mind where. Nor is it about whose change
/// it is when a blocked session takes what another one brought.
const LISTENERS: &[&str] = &["a", "b"];
const WORKERS: &[&str] = &["c", "d", "e"];

const LISTENING: &[&str] = &[
    "SUBSCRIBE {x|y|z}",
    "UNSUBSCRIBE {x|y|z}",
    "PSUBSCRIBE {x*|?|__keyevent*}",
    "PUNSUBSCRIBE {x*|?|__keyevent*}",
    "SSUBSCRIBE {x|y}",
    "SUNSUBSCRIBE {x|y}",
    "CLIENT TRACKING ON [NOLOOP]",
    "CLIENT TRACKING ON BCAST",
    "CLIENT TRACKING ON {OPTIN|OPTOUT}",
    "CLIENT CACHING {YES|NO}",
    "CLIENT TRACKING OFF",
    "CLIENT TRACKINGINFO",
    "{RESET|QUIT|PING|PING|PING}",
];

const WORKING: &[&str] = &[
    "BLPOP {k} {k} 0",
    "BRPOP {k} 0",
    "BLMOVE {k} {k} {LEFT|RIGHT} {LEFT|RIGHT} 0",
    "BLMPOP 0 2 {k} {k} LEFT COUNT 2",
    "BZPOPMIN {k} 0",
    "XREAD BLOCK 0 STREAMS {k} $",
    "WATCH {k}",
    "UNWATCH",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "SELECT {0|0|0|1}",
    "{FLUSHALL|FLUSHDB|PING|PING|PING}",
    "{CLIENT KILL TYPE pubsub|PING|PING|PING}",
];

const COMMON: &[&str] = &[
    "PUBLISH {x|y|z} {v}",
    "PUBLISH {x|y|z} {v}",
    "SPUBLISH {x|y} {v}",
    "PUBSUB NUMSUB x y z",
    "PUBSUB SHARDNUMSUB x y",
    "PUBSUB NUMPAT",
    "RPUSH {k} {m} [{m}] [{m}]",
    "RPUSH {k} {m}",
    "ZADD {k} {n} {m}",
    "XADD {k} * {m} {v}",
    "SET {k} {v}",
    "GET {k}",
    "MGET {k} {k}",
    "DEL {k} [{k}]",
    "RENAME {k} {k}",
];

#[test]
fn a_crowd_of_sessions_hears_the_same_from_both_servers() {
    let mut compared = 0;
    for (seed, protocol) in seeds_wanted().flat_map(|seed| [(seed, 2), (seed, 3)]) {
        let mut random = Random::seeded(seed);
        let mut crowd = Crowd::start(protocol);
        for _ in 0..commands_wanted() {
            crowd.step(&mut random);
            if let Err(difference) = crowd.compare_all() {
                let recent = crowd.history[crowd.history.len().saturating_sub(25)..].join("\n    ");
                panic!("RESP{protocol}, seed {seed}, after\n    {recent}\n{difference}");
            }
        }
        compared += crowd.history.len();
    }
    println!("{RESULT} {:<32} {compared:>9} compared {:>4} differences", "a crowd", 0);
}

struct Crowd {
    pair: Pair,
    history: Vec<String>,
    /// Who has not been answered yet, and is asked for nothing more meanwhile.
    waiting: BTreeSet<&'static str>,
}

impl Crowd {
    fn start(protocol: u8) -> Self {
        let mut pair = Pair::start(protocol);
        pair.run(&Line::parse("CONFIG SET notify-keyspace-events EA")).unwrap();
        // When the last session that tracks is gone, we forget what all of them have read.
        pair.run(&Line::parse("@on t CLIENT TRACKING ON")).unwrap();
        Self { pair, history: Vec::new(), waiting: BTreeSet::new() }
    }

    fn step(&mut self, random: &mut Random) {
        let listens = random.in_range(0..2) == 0;
        let (names, own) = if listens { (LISTENERS, LISTENING) } else { (WORKERS, WORKING) };
        let name = *random.choose::<&'static str>(names);
        if self.waiting.contains(name) {
            return;
        }
        let templates = if random.in_range(0..2) == 0 { own } else { COMMON };
        let template: &str = random.choose::<&str>(templates);
        // Numbers of entries would be the moment, which differs.
        let id = format!(" {}-1 ", self.history.len() + 1);
        let text = expand(template, random).replace(" * ", &id);
        self.history.push(format!("{name}: {text}"));
        let words = Line::parse(&text).words;
        let (ours, theirs) = self.pair.connection(name);
        ours.send(&words);
        theirs.send(&words);
        if !listens {
            self.waiting.insert(name);
        }
    }

    /// Once a request on the main connection is answered, everything caused before has arrived.
    fn compare_all(&mut self) -> Result<(), String> {
        // A reply may wake sessions whose own output follows in the next turn.
        for _ in 0..2 {
            let ran = self.pair.run(&Line::parse("PING"));
            ran.map_err(|difference| format!("main: {difference}"))?;
        }
        for name in LISTENERS.iter().chain(WORKERS) {
            let (ours, theirs) = self.pair.connection(name);
            let (mut our_news, mut their_news) = (ours.arrived(), theirs.arrived());
            // Closing may follow a moment after what was written.
            if our_news.is_closed != their_news.is_closed {
                let late = if our_news.is_closed { theirs } else { ours };
                let is_closed = late.receive().is_none();
                (our_news.is_closed, their_news.is_closed) = (is_closed, is_closed);
            }
            let (ours, theirs) = (our_news, their_news);
            // What one who is closed still got depends on when it was written.
            let is_equal = ours.is_closed || texts(&ours) == texts(&theirs);
            if !is_equal {
                return Err(format!("{name}\n    ours   {ours:?}\n    theirs {theirs:?}"));
            }
            if ours.is_closed {
                self.pair.forget(name);
            }
            let is_push = |reply: &Reply| matches!(reply, Reply::Push(_));
            if ours.is_closed || !ours.replies.iter().all(is_push) {
                self.waiting.remove(name);
            }
        }
        Ok(())
    }
}

/// Order is compared only where it must be the same: patterns are looked through in any order,
/// and messages to oneself stand before or after the reply.
fn texts(arrived: &Arrived) -> Vec<String> {
    let mut texts: Vec<String> = arrived.replies.iter().map(sorted).collect();
    texts.sort();
    texts
}
