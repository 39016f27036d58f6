//! Lists: the nodes of ours are those of a quicklist after the same commands.

use store_types::dump::{Value, ValueRef, dump, restore};
use store_types::{End, Limits, List, Rng};

use crate::redis::{Redis, Reply, assert_same_payload};

struct Pair {
    redis: Redis,
    list: List,
    limits: Limits,
}

impl Pair {
    fn new(fill: i32) -> Self {
        let mut redis = Redis::start();
        redis.say(&["CONFIG", "SET", "list-max-listpack-size", &fill.to_string()]);
        let limits = Limits { list_node_size: fill, ..Limits::default() };
        Self { redis, list: List::new(), limits }
    }

    fn element(rng: &mut Rng) -> Vec<u8> {
        match rng.below(20) {
            0 => vec![b'x'; rng.below(3_000)],
            1 => vec![b'y'; 8_000 + rng.below(400)],
            2..8 => rng.below(8).to_string().into_bytes(),
            _ => format!("element:{}", rng.next_u64() >> rng.below(60)).into_bytes(),
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        let element = Self::element(rng);
        let index = rng.below(self.list.len().max(1));
        match rng.below(24) {
            0..8 => self.push(End::Back, &element),
            8..12 => self.push(End::Front, &element),
            12..19 => self.insert(index, &element, rng.below(2) == 0),
            19 => {
                let theirs =
                    self.redis.ask(&[b"LSET", b"l", index.to_string().as_bytes(), &element]);
                assert_eq!(self.list.set(index, &element), !theirs.is_error());
            }
            20 => {
                let (end, command) = [(End::Front, "LPOP"), (End::Back, "RPOP")][rng.below(2)];
                let ours = self.list.pop_with(end, |element| element.to_vec());
                let theirs = self.redis.say(&[command, "l"]);
                assert_eq!(ours.map_or(Reply::Nothing, Reply::Text), theirs);
            }
            21 => {
                let wanted = rng.below(8).to_string();
                let count = rng.below(7) as i64 - 3;
                let theirs = self.redis.say(&["LREM", "l", &count.to_string(), &wanted]).integer();
                let from = if count < 0 { End::Back } else { End::Front };
                let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
                assert_eq!(self.list.remove(wanted.as_bytes(), most, from) as i64, theirs);
            }
            _ if rng.below(6) == 0 => {
                let (start, end) =
                    (rng.below(4), self.list.len() - rng.below(4).min(self.list.len()));
                self.redis.say(&["LTRIM", "l", &start.to_string(), &(end as i64 - 1).to_string()]);
                self.list.remove_range(end.max(start)..self.list.len());
                self.list.remove_range(0..start);
            }
            _ => {}
        }
    }

    fn push(&mut self, end: End, element: &[u8]) {
        let command: &[u8] = if end == End::Front { b"LPUSH" } else { b"RPUSH" };
        self.redis.ask(&[command, b"l", element]);
        self.list.push(end, element, &self.limits);
    }

    /// LINSERT goes by a pivot's value: the first equal element is what counts.
    fn insert(&mut self, index: usize, element: &[u8], before: bool) {
        let Some(pivot) = self.list.get(index).map(|element| element.to_vec()) else { return };
        let side: &[u8] = if before { b"BEFORE" } else { b"AFTER" };
        self.redis.ask(&[b"LINSERT", b"l", side, &pivot, element]);
        let at = self.list.iter().position(|found| found == *pivot).unwrap();
        if before {
            self.list.insert_before(at, element, &self.limits);
        } else {
            self.list.insert_after(at, element, &self.limits);
        }
    }
}

#[test]
fn nodes_divide_and_join_as_a_quicklist_does() {
    for (seed, fill) in [-2, -1, 1, 3, 128, -3, 16, -5].into_iter().enumerate() {
        let mut pair = Pair::new(fill);
        let mut rng = Rng::seeded(seed as u64);
        for step in 0..600 {
            pair.step(&mut rng);
            if step % 10 == 0 && !pair.list.is_empty() {
                let story = format!("seed {seed}, fill {fill}, step {step}");
                let theirs = pair.redis.dump("l");
                assert_same_payload(&dump(ValueRef::List(&pair.list), None), &theirs, &story);
                let Ok(Value::List(back)) = restore(&theirs, &pair.limits) else {
                    panic!("{story}: a payload of Redis is refused");
                };
                assert_same_payload(&dump(ValueRef::List(&back), None), &theirs, &story);
            }
        }
    }
}
