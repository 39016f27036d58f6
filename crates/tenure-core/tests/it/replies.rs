//! The store's part in a script: `answer 1 granted #100 by me`.

use std::time::Duration;

use tenure_core::protocol::{Answer, LostWhy, Member, MemberRecord, Outcome, View, Wish, WishKind};
use tenure_core::{InstanceId, ServerTime, StoreError};

use crate::script::{duration, parse_token};

/// The store's clock in every scripted answer, unless `clock=` moves it.
const NOON: ServerTime = ServerTime(1_000_000_000_000);

pub(crate) fn parse(words: &[&str]) -> Result<Answer, StoreError> {
    parse_at(NOON, words)
}

/// The same from a store whose clock shows `server_time`.
pub(crate) fn parse_at(server_time: ServerTime, words: &[&str]) -> Result<Answer, StoreError> {
    let (&kind, rest) = words.split_first().expect("what the store answers");
    let mut view = View { server_time, ..View::default() };
    let (outcome, rest) = match kind {
        "timeout" => return Err(StoreError::timed_out(Duration::from_secs(1))),
        "unreachable" => return Err(StoreError::unreachable("connection refused")),
        "denied" => return Err(StoreError::denied("NOPERM")),
        "granted" => {
            let token = parse_token(rest[0]);
            view.holder = Some(InstanceId::seen("me"));
            view.token = Some(token);
            (Outcome::Granted { token }, &rest[1..])
        }
        "proposes" => (Outcome::Granted { token: parse_token(rest[0]) }, &rest[1..]),
        "held" => {
            view.holder = Some(InstanceId::seen(rest[0]));
            (Outcome::Held, &rest[1..])
        }
        "quarantine" => {
            view.holder = Some(InstanceId::seen("~quarantine"));
            let reason = "the store restarted".to_owned();
            (Outcome::Quarantine { left: duration(rest[0]), reason }, &rest[1..])
        }
        "reserved" => (Outcome::Reserved { left: duration(rest[0]) }, &rest[1..]),
        "paused" => (Outcome::Paused { left: duration(rest[0]) }, &rest[1..]),
        "conflict" => (Outcome::Conflict { what: "a hash stands at the key".into() }, rest),
        "renewed" => {
            view.holder = Some(InstanceId::seen("me"));
            view.token = Some(parse_token("#100"));
            (Outcome::Renewed, rest)
        }
        "lost" => (Outcome::Lost(LostWhy::KeyVanished), rest),
        "taken" => (Outcome::Lost(LostWhy::HeldBy(InstanceId::seen(rest[0]))), &rest[1..]),
        "newer" => (Outcome::Lost(LostWhy::OtherTerm(Some(parse_token(rest[0])))), &rest[1..]),
        "released" => (Outcome::Released, rest),
        "abandoned" => (Outcome::Abandoned { was_granted: false }, rest),
        "transferred" => (Outcome::Transferred { token: parse_token(rest[0]) }, &rest[1..]),
        "done" => (Outcome::Done, rest),
        other => panic!("unknown answer {other:?}"),
    };
    for word in rest {
        detail(&mut view, word);
    }
    Ok(Answer { outcome, view, warnings: Vec::new() })
}

fn detail(view: &mut View, word: &str) {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    match name {
        "pttl" => view.pttl = Some(duration(value)),
        "token" => view.token = Some(parse_token(value)),
        "foreign" => view.foreign = true,
        "shows" => view.server_time = ServerTime(parse_token(value).get()),
        "clock" => view.server_time = ServerTime(NOON.0 + duration(value).as_micros() as u64),
        "wish" => view.wish = Some(wish(value)),
        "paused_for" => view.paused_for = Some(duration(value)),
        "members" => view.members = Some(value.split(',').map(member).collect()),
        other => panic!("unknown detail {other:?}"),
    }
}

/// `resign/#100` or `other/#100`: a successor's name or the word resign, and the term.
fn wish(value: &str) -> Wish {
    let (kind, token) = value.split_once('/').expect("a wish and its term");
    Wish {
        kind: match kind {
            "resign" => WishKind::Resign,
            to => WishKind::HandOver { to: to.to_owned() },
        },
        by: InstanceId::seen("operator"),
        token: Some(parse_token(token)),
        until: ServerTime(NOON.0 + 10_000_000),
        refused: None,
    }
}

/// `name:priority` or `name:priority:unready`. Ready since long before noon.
fn member(value: &str) -> Member {
    let mut parts = value.split(':');
    let id = InstanceId::seen(parts.next().unwrap());
    let priority = parts.next().map_or(0, |part| part.parse().unwrap());
    let ready = parts.next() != Some("unready");
    Member {
        id,
        record: MemberRecord {
            priority,
            ready,
            ttl: Duration::from_secs(10),
            ..MemberRecord::default()
        },
        ready_since: Some(ServerTime(NOON.0 - 3_600_000_000)),
        beat_at: NOON,
    }
}
