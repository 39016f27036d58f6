//! Inputs out of a seed: an input of the corpus, changed a few times.
//!
//! The same seed, number and corpus give the same input, so that nothing needs to be kept of an
//! input that ended the process.

use fastrand::Rng;

/// Inputs are at most this long: large enough for every branch, small enough to run many.
pub const INPUT_MAX: usize = 4096;
/// Changes to one input, at most.
const CHANGES_MAX: usize = 8;
/// Numbers at the edges of what fits.
const EDGES: &[i64] = &[
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    32_767,
    65_535,
    65_536,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    i64::MAX,
    i64::MIN,
];

/// Makes inputs.
#[derive(Debug)]
pub struct Mutator<'a> {
    corpus: &'a [Vec<u8>],
    words: &'a [&'a [u8]],
    seed: u64,
}

impl<'a> Mutator<'a> {
    /// Changes inputs of `corpus`, with `words` to insert.
    pub fn new(corpus: &'a [Vec<u8>], words: &'a [&'a [u8]], seed: u64) -> Self {
        Self { corpus, words, seed }
    }

    /// Input number `number`.
    pub fn input(&self, number: u64) -> Vec<u8> {
        let mut random = Rng::with_seed(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut input = random.choice(self.corpus).cloned().unwrap_or_default();
        for _ in 0..random.usize(1..=CHANGES_MAX) {
            self.change(&mut input, &mut random);
        }
        input.truncate(INPUT_MAX);
        input
    }

    fn change(&self, input: &mut Vec<u8>, random: &mut Rng) {
        let at = random.usize(0..=input.len());
        match random.u8(0..10) {
            0 if at < input.len() => input[at] ^= 1 << random.u8(0..8),
            1 if at < input.len() => input[at] = random.u8(..),
            2 => input.insert(at, random.u8(..)),
            3 => drop(input.drain(at..(at + random.usize(1..16)).min(input.len()))),
            4 => self.insert_word(input, at, random),
            5 => insert(input, at, edge(random)),
            6 => self.overwrite_number(input, at, random),
            7 => repeat_part(input, at, random),
            8 => self.splice(input, at, random),
            _ => self.insert_word(input, at, random),
        }
    }

    fn insert_word(&self, input: &mut Vec<u8>, at: usize, random: &mut Rng) {
        if let Some(word) = random.choice(self.words) {
            insert(input, at, word.to_vec());
        }
    }

    /// Writes a number in binary over what stands there, in either order of bytes.
    fn overwrite_number(&self, input: &mut [u8], at: usize, random: &mut Rng) {
        let number = *random.choice(EDGES).expect("there are edges");
        let width = 1 << random.u8(0..4);
        let bytes = if random.bool() { number.to_le_bytes() } else { number.to_be_bytes() };
        let bytes = if random.bool() { &bytes[..width] } else { &bytes[8 - width..] };
        for (place, byte) in input.iter_mut().skip(at).zip(bytes) {
            *place = *byte;
        }
    }

    /// Goes on with the rest of another input.
    fn splice(&self, input: &mut Vec<u8>, at: usize, random: &mut Rng) {
        if let Some(other) = random.choice(self.corpus) {
            let from = random.usize(0..=other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}

fn edge(random: &mut Rng) -> Vec<u8> {
    random.choice(EDGES).expect("there are edges").to_string().into_bytes()
}

fn repeat_part(input: &mut Vec<u8>, at: usize, random: &mut Rng) {
    let end = (at + random.usize(1..32)).min(input.len());
    let part = input[at..end].to_vec();
    for _ in 0..random.usize(1..64) {
        if input.len() + part.len() > INPUT_MAX {
            return;
        }
        insert(input, at, part.clone());
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: Vec<u8>) {
    input.splice(at..at, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_number_give_the_same_input() {
        let corpus = [b"GET key".to_vec(), b"SET key value".to_vec()];
        let words: [&[u8]; 2] = [b"\r\n", b"*1"];
        let (a, b) = (Mutator::new(&corpus, &words, 7), Mutator::new(&corpus, &words, 7));
        let other = Mutator::new(&corpus, &words, 8);
        assert!((0..1000).all(|number| a.input(number) == b.input(number)));
        assert!((0..1000).any(|number| a.input(number) != other.input(number)));
        assert!((0..1000).all(|number| a.input(number).len() <= INPUT_MAX));
        let distinct: std::collections::BTreeSet<_> = (0..1000).map(|n| a.input(n)).collect();
        assert!(distinct.len() > 900, "only {} inputs differ", distinct.len());
    }

    #[test]
    fn an_empty_corpus_gives_inputs_too() {
        let mutator = Mutator::new(&[], &[], 7);
        assert!((0..100).any(|number| !mutator.input(number).is_empty()));
    }
}
