//! Streams: equal payloads after the same commands, groups included.

use store_types::dump::{Value, ValueRef, dump, restore};
use store_types::{Group, Limits, Rng, Stream, StreamId, Trim, TrimTo};

use crate::redis::{Redis, Reply, assert_same_payload};

fn limits() -> Limits {
    Limits { stream_node_entries_max: 10, stream_node_bytes_max: 300, ..Limits::default() }
}

struct Pair {
    redis: Redis,
    stream: Stream,
}

impl Pair {
    fn new() -> Self {
        let settings = [
            "--rdbcompression",
            "no",
            "--stream-node-max-entries",
            "10",
            "--stream-node-max-bytes",
            "300",
        ];
        Self { redis: Redis::with_settings(&settings), stream: Stream::new() }
    }

    fn add(&mut self, rng: &mut Rng) {
        let last = self.stream.last_id();
        let id = match rng.below(4) {
            0 => StreamId::new(last.ms, last.seq + 1),
            1 => StreamId::new(last.ms + 1_000_000, rng.below(3) as u64),
            _ => StreamId::new(last.ms + 1, rng.below(1_000) as u64),
        };
        let mut words = vec!["XADD".to_owned(), "s".to_owned(), id.to_string()];
        for field in 0..rng.below(3) + 1 {
            words.push(format!("f{}", if rng.below(5) == 0 { 9 } else { field }));
            words.push(format!("{}", rng.next_u64() >> rng.below(64)));
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let theirs = self.redis.say(&words);
        assert!(self.stream.add(id, &words[3..], &limits()));
        assert_eq!(theirs, Reply::Text(id.to_string().into_bytes()));
    }

    fn some_id(&self, rng: &mut Rng) -> StreamId {
        let ids: Vec<StreamId> =
            self.stream.range(StreamId::MIN, StreamId::MAX).map(|entry| entry.id).collect();
        if ids.is_empty() { StreamId::new(1, 1) } else { ids[rng.below(ids.len())] }
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(20) {
            0..14 => self.add(rng),
            14..17 => {
                let id = self.some_id(rng);
                let theirs = self.redis.say(&["XDEL", "s", &id.to_string()]);
                assert_eq!(theirs, Reply::Integer(i64::from(self.stream.remove(id))));
            }
            _ => {
                let (words, to) = if rng.below(2) == 0 {
                    let length = rng.below(self.stream.len() + 2);
                    (["MAXLEN".to_owned(), length.to_string()], TrimTo::MaxLen(length as u64))
                } else {
                    let id = self.some_id(rng);
                    (["MINID".to_owned(), id.to_string()], TrimTo::MinId(id))
                };
                let rough = rng.below(2) == 0;
                let sign = if rough { "~" } else { "=" };
                let removed_max = rng.below(3) as u64 * 15;
                let limit = removed_max.to_string();
                let mut all = vec!["XTRIM", "s", &words[0], sign, &words[1]];
                if rough {
                    all.extend(["LIMIT", &limit]);
                }
                let trim =
                    if rough { Trim::Roughly { to, removed_max } } else { Trim::Exactly(to) };
                let theirs = self.redis.say(&all);
                assert_eq!(theirs, Reply::Integer(self.stream.trim(trim) as i64), "{all:?}");
            }
        }
    }

    fn compare(&mut self, story: &str) {
        let theirs = self.redis.dump("s");
        assert_same_payload(&dump(ValueRef::Stream(&self.stream), None), &theirs, story);
        let Ok(Value::Stream(back)) = restore(&theirs, &limits()) else {
            panic!("{story}: a payload of Redis is refused");
        };
        assert_same_payload(&dump(ValueRef::Stream(&back), None), &theirs, story);
    }
}

#[test]
fn entries_lie_in_the_same_nodes() {
    for seed in 0..6 {
        let mut pair = Pair::new();
        let mut rng = Rng::seeded(seed);
        pair.add(&mut rng);
        for step in 0..300 {
            pair.step(&mut rng);
            if step % 5 == 0 {
                pair.compare(&format!("seed {seed}, step {step}"));
            }
        }
    }
}

/// The group's lines of XINFO: entries read and lag.
fn group_numbers(redis: &mut Redis) -> (Reply, Reply) {
    let Reply::List(groups) = redis.say(&["XINFO", "GROUPS", "s"]) else { panic!("no groups") };
    let Reply::List(fields) = &groups[0] else { panic!("no group") };
    (fields[9].clone(), fields[11].clone())
}

#[test]
fn groups_count_what_they_read_and_what_they_lack() {
    for seed in 0..6 {
        let mut pair = Pair::new();
        let mut rng = Rng::seeded(100 + seed);
        pair.add(&mut rng);
        pair.redis.say(&["XGROUP", "CREATE", "s", "g", "0"]);
        pair.stream.create_group(b"g", Group::new(StreamId::MIN, None));
        for step in 0..200 {
            let story = format!("seed {seed}, step {step}");
            if rng.below(3) == 0 {
                let last = pair.stream.group(b"g").unwrap().last_id();
                let id = last.next().and_then(|next| {
                    pair.stream.range(next, StreamId::MAX).next().map(|entry| entry.id)
                });
                let words = ["XREADGROUP", "GROUP", "g", "ada", "COUNT", "1", "STREAMS", "s", ">"];
                let theirs = pair.redis.say(&words);
                assert_eq!(id.is_none(), theirs == Reply::Nothing, "{story}");
                if let Some(id) = id {
                    pair.stream.advance_group(b"g", id);
                }
            } else {
                pair.step(&mut rng);
            }
            let group = pair.stream.group(b"g").unwrap();
            let number = |value: Option<i64>| value.map_or(Reply::Nothing, Reply::Integer);
            let read = group.entries_read().map(|count| count as i64);
            let ours = (number(read), number(pair.stream.lag(group)));
            assert_eq!(ours, group_numbers(&mut pair.redis), "{story}");
        }
    }
}

/// Times of delivery are the server's own, so its payload is what we start from.
#[test]
fn groups_with_pending_entries_survive_us_unchanged() {
    let mut pair = Pair::new();
    let mut rng = Rng::seeded(7);
    for _ in 0..60 {
        pair.add(&mut rng);
    }
    pair.redis.say(&["XGROUP", "CREATE", "s", "empty", "$"]);
    pair.redis.say(&["XGROUP", "CREATE", "s", "readers", "0", "ENTRIESREAD", "0"]);
    pair.redis.say(&["XGROUP", "CREATECONSUMER", "s", "readers", "idle"]);
    for consumer in ["ada", "bob", "ada"] {
        let words = ["XREADGROUP", "GROUP", "readers", consumer, "COUNT", "7", "STREAMS", "s", ">"];
        pair.redis.say(&words);
    }
    let first = pair.stream.first_id().to_string();
    pair.redis.say(&["XACK", "s", "readers", &first]);
    let next = pair.stream.first_id().next().unwrap();
    let second = pair.stream.range(next, StreamId::MAX).next().unwrap().id.to_string();
    pair.redis.say(&["XCLAIM", "s", "readers", "bob", "0", &second]);

    let theirs = pair.redis.dump("s");
    let Ok(Value::Stream(stream)) = restore(&theirs, &limits()) else { panic!("refused") };
    assert_same_payload(&dump(ValueRef::Stream(&stream), None), &theirs, "groups");
    let group = stream.group(b"readers").unwrap();
    assert_eq!(group.pending().len(), 20);
    assert_eq!(group.consumer(b"bob").unwrap().pending().len(), 8);
    assert_eq!(group.consumers().len(), 3);
}
