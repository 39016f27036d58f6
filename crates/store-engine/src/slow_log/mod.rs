//! Requests that took long.

pub(crate) mod commands;

use std::collections::VecDeque;

use store_resp::Request;

/// Arguments kept of a request.
const ARGS_MAX: usize = 32;
/// Bytes kept of an argument.
const ARG_LEN_MAX: usize = 128;

/// One request that took long.
#[derive(Clone, Debug)]
pub struct SlowRequest {
    /// Counts up from 0.
    pub id: u64,
    /// Unix seconds.
    pub at_s: u64,
    /// How long it took.
    pub micros: u64,
    /// Its arguments, shortened.
    pub args: Vec<Vec<u8>>,
    /// The client's address.
    pub client: String,
    /// The client's name.
    pub name: Vec<u8>,
}

/// The latest requests that took long, newest first.
#[derive(Debug, Default)]
pub struct SlowLog {
    entries: VecDeque<SlowRequest>,
    next_id: u64,
}

impl SlowLog {
    /// Adds an entry; no more than `len_max` stay.
    pub fn add(&mut self, mut entry: SlowRequest, len_max: usize) {
        entry.id = self.next_id;
        self.next_id += 1;
        self.entries.push_front(entry);
        self.entries.truncate(len_max);
    }

    /// Forgets all entries. Numbers go on.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Bytes of all entries.
    pub(crate) fn memory(&self) -> usize {
        let text = |text: &Vec<u8>| text.capacity() + size_of::<Vec<u8>>();
        let entry = |it: &SlowRequest| {
            it.args.iter().map(text).sum::<usize>() + it.client.capacity() + it.name.capacity()
        };
        let texts: usize = self.entries.iter().map(entry).sum();
        texts + self.entries.capacity() * size_of::<SlowRequest>()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Newest first.
    pub fn iter(&self) -> impl Iterator<Item = &SlowRequest> {
        self.entries.iter()
    }
}

/// The arguments as the log keeps them: not too many, not too long, no secrets.
pub(crate) fn shortened(request: Request<'_>, secrets: &[usize]) -> Vec<Vec<u8>> {
    let count = request.len();
    let kept = if count > ARGS_MAX { ARGS_MAX - 1 } else { count };
    let mut args: Vec<Vec<u8>> =
        (0..kept)
            .map(|at| {
                if secrets.contains(&at) {
                    b"(redacted)".to_vec()
                } else {
                    clipped(request.arg(at))
                }
            })
            .collect();
    if count > kept {
        args.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    args
}

fn clipped(arg: &[u8]) -> Vec<u8> {
    let Some(more) = arg.len().checked_sub(ARG_LEN_MAX).filter(|more| *more > 0) else {
        return arg.to_vec();
    };
    let mut text = arg[..ARG_LEN_MAX].to_vec();
    text.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
    text
}
