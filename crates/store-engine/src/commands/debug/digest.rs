//! DEBUG DIGEST: signatures of values that equal those of Redis 7.0.
//!
//! Where order means something, SHA-1 is fed what came before (`mix`); where it does not,
//! signatures of elements are laid over each other (`blend`).

use sha1_smol::Sha1;
use store_types::{Element, StreamId, number};

use super::super::prelude::*;
use crate::keyspace::{Data, Entry, ValueRef};

type Digest = [u8; 20];

/// Types as numbered in Redis.
const STRING: u32 = 0;
const LIST: u32 = 1;
const SET: u32 = 2;
const SORTED_SET: u32 = 3;
const HASH: u32 = 4;
const STREAM: u32 = 6;

fn sha1(bytes: &[u8]) -> Digest {
    Sha1::from(bytes).digest().bytes()
}

fn blend(digest: &mut Digest, bytes: &[u8]) {
    for (byte, added) in digest.iter_mut().zip(sha1(bytes)) {
        *byte ^= added;
    }
}

fn mix(digest: &mut Digest, bytes: &[u8]) {
    blend(digest, bytes);
    *digest = sha1(digest);
}

fn mix_element(digest: &mut Digest, element: Element<'_>) {
    element.with_bytes(|bytes| mix(digest, bytes));
}

pub(super) fn digest(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let mut all = [0; 20];
    let selected = cx.db.selected();
    for db in 0..cx.db.database_count() {
        cx.db.select(db);
        if cx.db.is_empty() {
            continue;
        }
        mix(&mut all, &(db as u32).to_be_bytes());
        let mut keys: Digest = [0; 20];
        cx.db.for_each(&mut |entry| {
            let mut one = [0; 20];
            mix(&mut one, entry.key());
            add_value(&mut one, entry);
            blend(&mut keys, &one);
        });
        all.iter_mut().zip(keys).for_each(|(byte, added)| *byte ^= added);
    }
    cx.db.select(selected);
    cx.reply.simple(&hex(&all));
    Ok(())
}

pub(super) fn digest_value(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.reply.array(request.len() - 2);
    for key in request.args_from(2) {
        let mut one = [0; 20];
        if let Some(entry) = cx.db.stored_entry(key) {
            add_value(&mut one, entry);
        }
        cx.reply.simple(&hex(&one));
    }
    Ok(())
}

fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn add_value(digest: &mut Digest, entry: &Entry) {
    match entry.value() {
        ValueRef::Integer(number) => {
            mix(digest, &STRING.to_be_bytes());
            mix(digest, store_resp::format_integer(number, &mut [0; 20]));
        }
        ValueRef::Bytes(bytes) => {
            mix(digest, &STRING.to_be_bytes());
            mix(digest, bytes);
        }
        ValueRef::Object(value) => add_object(digest, value.data()),
    }
    if entry.expires_at().is_some() {
        blend(digest, b"!!expire!!");
    }
}

fn add_object(digest: &mut Digest, data: &Data) {
    match data {
        Data::List(list) => {
            mix(digest, &LIST.to_be_bytes());
            list.iter().for_each(|element| mix_element(digest, element));
        }
        Data::Set(set) => {
            mix(digest, &SET.to_be_bytes());
            set.iter().for_each(|element| element.with_bytes(|bytes| blend(digest, bytes)));
        }
        Data::SortedSet(set) => {
            mix(digest, &SORTED_SET.to_be_bytes());
            for (member, score) in set.iter() {
                let mut one = [0; 20];
                mix_element(&mut one, member);
                let mut text = Vec::new();
                number::format_f64(&mut text, score);
                mix(&mut one, &text);
                blend(digest, &one);
            }
        }
        Data::Hash(hash) => {
            mix(digest, &HASH.to_be_bytes());
            for (field, value) in hash.iter() {
                let mut one = [0; 20];
                mix_element(&mut one, field);
                mix_element(&mut one, value);
                blend(digest, &one);
            }
        }
        Data::Stream(stream) => {
            mix(digest, &STREAM.to_be_bytes());
            for entry in stream.range(StreamId::MIN, StreamId::MAX) {
                let id = format!("{}.{}", entry.id.ms, entry.id.seq);
                mix(digest, id.as_bytes());
                for (field, value) in entry.fields {
                    mix_element(digest, field);
                    mix_element(digest, value);
                }
            }
        }
    }
}
