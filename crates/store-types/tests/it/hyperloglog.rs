//! HyperLogLog: the string a client gets is the same, bit for bit.

use store_types::hyperloglog::{self, Form, Registers};
use store_types::{Limits, Rng};

use crate::redis::{Redis, assert_same_payload};

fn add(redis: &mut Redis, key: &str, value: &mut Vec<u8>, element: &str, limits: &Limits) -> bool {
    let theirs = redis.say(&["PFADD", key, element]).integer() == 1;
    let ours = hyperloglog::add(value, element.as_bytes(), limits).unwrap();
    // A new key counts as a change, whatever the registers say.
    assert!(ours == theirs || value.len() < 25, "{element}");
    theirs
}

#[test]
fn registers_and_counts_agree_from_sparse_to_dense() {
    for (seed, sparse_max) in [3000_usize, 300, 0, 15_000].into_iter().enumerate() {
        let mut redis = Redis::with_settings(&["--hll-sparse-max-bytes", &sparse_max.to_string()]);
        let limits = Limits { hll_sparse_bytes_max: sparse_max, ..Limits::default() };
        let mut rng = Rng::seeded(seed as u64);
        let mut value = hyperloglog::new();
        redis.say(&["PFADD", "k"]);
        hyperloglog::mark_stale(&mut value);
        for step in 0..3_000 {
            let element = format!("e{}", rng.below(1 << (step / 200 + 4)));
            add(&mut redis, "k", &mut value, &element, &limits);
            if step % 50 == 0 {
                let story = format!("limit {sparse_max}, step {step}");
                let theirs = redis.say(&["GET", "k"]).text();
                assert_same_payload(&value, &theirs, &story);
                let count = hyperloglog::count(&value).unwrap();
                assert_eq!(redis.say(&["PFCOUNT", "k"]).integer(), count as i64, "{story}");
                hyperloglog::cache_count(&mut value, count);
            }
        }
    }
}

#[test]
fn a_merge_writes_the_same_string() {
    let mut redis = Redis::start();
    let limits = Limits::default();
    let mut rng = Rng::seeded(9);
    for sizes in [[5, 10, 20], [300, 10, 1], [1, 2_000, 3]] {
        redis.say(&["FLUSHALL"]);
        let mut values = Vec::new();
        for (index, size) in sizes.into_iter().enumerate() {
            let mut value = hyperloglog::new();
            for _ in 0..size {
                let element = format!("e{}", rng.below(100_000));
                add(&mut redis, &format!("k{index}"), &mut value, &element, &limits);
            }
            values.push(value);
        }
        let mut registers = Registers::new();
        values.iter().for_each(|value| registers.merge(value).unwrap());
        let dense = values.iter().any(|value| hyperloglog::form(value) == Some(Form::Dense));
        redis.say(&["PFMERGE", "k0", "k1", "k2"]);
        let wanted = if dense { Form::Dense } else { Form::Sparse };
        registers.write_to(&mut values[0], wanted, &limits).unwrap();
        let theirs = redis.say(&["GET", "k0"]).text();
        assert_same_payload(&values[0], &theirs, &format!("{sizes:?}"));
        let all = redis.say(&["PFCOUNT", "k0", "k1", "k2"]).integer();
        assert_eq!(all, registers.count() as i64);
        let decoded = redis.say(&["PFDEBUG", "DECODE", "k0"]);
        match hyperloglog::describe_runs(&values[0]) {
            Some(runs) => assert_eq!(decoded.text(), runs.into_bytes()),
            None => assert!(decoded.is_error()),
        }
    }
}
