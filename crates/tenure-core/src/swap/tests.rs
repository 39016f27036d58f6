use std::time::Duration;

use super::*;
use crate::protocol::{
    Acquire, Ballot, CloseReason, MemberRecord, Outcome, TickId, TickOutcome, Token,
};
use crate::{InstanceId, Resource};

const TTL: Duration = Duration::from_secs(10);
const START: u64 = 1_700_000_000_000_000;

fn id(name: &str) -> InstanceId {
    InstanceId::new(name, 7).unwrap()
}

fn call(name: &str, request: Request) -> Call {
    let resource = Resource::named("report").unwrap();
    Call { resource, id: id(name), request, timeout: TTL, fleet_max_ttl: TTL }
}

fn acquire(attempt: u64) -> Request {
    let record = MemberRecord { ready: true, ttl: TTL, ..MemberRecord::default() };
    Request::Acquire(Acquire {
        attempt,
        ttl: TTL,
        fleet_max_ttl: TTL,
        floor: None,
        fresh_store: true,
        age_counts: true,
        lock_delay: Duration::ZERO,
        heal: None,
        record,
        members: true,
        ballot: Ballot::Alone,
    })
}

/// A store that compares versions and knows nothing else.
struct Store {
    found: Found,
}

impl Store {
    fn new() -> Self {
        let (clock, started_at) = (ServerTime(START), ServerTime(START - 100_000_000));
        let incarnation = "one".to_owned();
        Store { found: Found { clock, started_at, incarnation, ..Found::default() } }
    }

    fn pass(&mut self, time: Duration) {
        self.found.clock.0 += time.as_micros() as u64;
    }

    fn write(&mut self, write: &Write) -> bool {
        let found = &mut self.found;
        let is_stale = |new: &Option<Versioned>, old: &Versioned| {
            new.as_ref().is_some_and(|new| new.version != old.version)
        };
        if is_stale(&write.lease, &found.lease) {
            return false;
        }
        let pairs = [(&write.lease, &mut found.lease), (&write.members, &mut found.members)];
        for (new, old) in pairs {
            if let Some(new) = new.as_ref().filter(|new| new.version == old.version) {
                *old = Versioned { version: old.version + 1, text: new.text.clone() };
            }
        }
        found.history.extend(write.history.clone());
        true
    }

    fn execute(&mut self, name: &str, request: Request) -> Answer {
        let decision = decide(&call(name, request), &self.found).unwrap();
        if let Some(write) = &decision.write {
            assert!(self.write(write), "nobody else writes");
        }
        decision.answer
    }

    fn lead(&mut self, name: &str, attempt: u64) -> Token {
        match self.execute(name, acquire(attempt)).outcome {
            Outcome::Granted { token } => token,
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_term_is_granted_renewed_released_and_told_of() {
    let mut store = Store::new();
    let token = store.lead("ada", 1);
    assert_eq!(store.execute("bob", acquire(1)).outcome, Outcome::Held);
    store.pass(TTL / 2);
    let renew = Request::Renew { token, ttl: TTL, fleet_max_ttl: TTL };
    assert_eq!(store.execute("ada", renew).outcome, Outcome::Renewed);
    store.pass(TTL * 3 / 4);
    let seen = store.execute("bob", acquire(1));
    assert_eq!(seen.outcome, Outcome::Held, "the renewal counts");
    assert_eq!(seen.view.members.unwrap().len(), 2);
    let release = Request::Release { token, reason: CloseReason::Released };
    assert_eq!(store.execute("ada", release).outcome, Outcome::Released);
    assert!(store.lead("bob", 2) > token);
    match store.execute("cleo", Request::History { count: 10 }).outcome {
        Outcome::History(entries) => assert_eq!(entries.len(), 3, "{entries:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_two_that_read_the_same_version_one_writes() {
    let mut store = Store::new();
    let [ada, bob] =
        ["ada", "bob"].map(|name| decide(&call(name, acquire(1)), &store.found).unwrap());
    let is_granted =
        |decision: &Decision| matches!(decision.answer.outcome, Outcome::Granted { .. });
    assert!(is_granted(&ada) && is_granted(&bob), "both would");
    assert!(store.write(&ada.write.unwrap()));
    assert_eq!(written_at(&store.found.lease.text), Some(ServerTime(START)));
    assert!(!store.write(&bob.write.unwrap()));
    assert_eq!(store.execute("bob", acquire(1)).outcome, Outcome::Held);
}

#[test]
fn a_heartbeat_does_not_compete_with_the_lease() {
    let mut store = Store::new();
    store.lead("ada", 1);
    store.execute("bob", acquire(1));
    let version = store.found.lease.version;
    store.pass(TTL / 10);
    store.execute("bob", acquire(1));
    assert_eq!(store.found.lease.version, version);
}

#[test]
fn another_life_of_the_store_waits_for_leases_it_may_have_lost() {
    let mut store = Store::new();
    let token = store.lead("ada", 1);
    store.pass(TTL * 2);
    store.found.incarnation = "two".to_owned();
    store.found.started_at = store.found.clock;
    let answer = store.execute("bob", acquire(1));
    assert!(matches!(answer.outcome, Outcome::Quarantine { .. }), "{answer:?}");
    store.pass(TTL + TTL / 10);
    assert!(store.lead("bob", 2) > token);
}

#[test]
fn outcomes_of_ticks_that_have_ended_leave_the_text() {
    let mut store = Store::new();
    let token = store.lead("ada", 1);
    let mut longest = 0;
    for day in 0..100 {
        let tick = TickId::Named(format!("day-{day}"));
        let begin = Request::TickBegin { token, tick: tick.clone(), rerun_crashed: false };
        assert_eq!(store.execute("ada", begin).outcome, Outcome::TickRuns);
        let (outcome, keep) = (TickOutcome::Succeeded, TTL * 3);
        let finish = Request::TickFinish { token, tick: tick.clone(), outcome, keep };
        assert_eq!(store.execute("ada", finish).outcome, Outcome::Done);
        let again = Request::TickBegin { token, tick, rerun_crashed: false };
        assert!(matches!(store.execute("ada", again).outcome, Outcome::TickDone(_)));
        longest = longest.max(store.found.lease.text.len());
        store.pass(TTL / 2);
        let renew = Request::Renew { token, ttl: TTL, fleet_max_ttl: TTL };
        assert_eq!(store.execute("ada", renew).outcome, Outcome::Renewed);
    }
    assert!(longest < 2_000, "{longest} bytes");
}

#[test]
fn what_is_not_ours_is_an_error_and_stays() {
    let mut store = Store::new();
    for text in ["hello", "tenure 2\n", "tenure 1\nkey\t\tlist\tnever\n", "tenure 1\n-\ta\tb\n"] {
        store.found.lease.text = text.to_owned();
        let error = decide(&call("ada", acquire(1)), &store.found).unwrap_err();
        assert!(error.next_step().is_some(), "{error}");
    }
}

#[test]
fn any_text_comes_back_as_it_was() {
    let mut store = Store::new();
    let token = store.lead("ada", 1);
    let reason = "a\tb\nc\\d\r\u{e9}".to_owned();
    let refuse = Request::Refuse { token, reason: reason.clone() };
    let wish = crate::protocol::WishKind::Resign;
    let ask = Request::Ask { token, wish, stands_for: TTL };
    assert_eq!(store.execute("bob", ask).outcome, Outcome::Done);
    assert_eq!(store.execute("ada", refuse).outcome, Outcome::Done);
    let seen = store.execute("bob", Request::Observe { members: true });
    assert_eq!(seen.view.wish.unwrap().refused, Some(reason));
}

#[test]
fn observed_time_goes_on_only_while_a_version_stays() {
    let second = Duration::from_secs(1);
    let (mut observed, at) =
        (Observed::default(), |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000));
    let written = ServerTime(START);
    assert_eq!(observed.now("one", 1, written, at(100)), written, "seen for the first time");
    assert_eq!(observed.now("one", 1, written, at(103)).since(written), second * 3);
    let renewed = ServerTime(START + 3_000_000);
    assert_eq!(observed.now("one", 2, renewed, at(109)), renewed, "counted anew");
    assert_eq!(observed.now("two", 2, renewed, at(120)), renewed, "another life");
}

#[test]
fn a_renewal_is_written_although_nothing_else_changes() {
    let mut store = Store::new();
    let token = store.lead("ada", 1);
    let version = store.found.lease.version;
    let renew = Request::Renew { token, ttl: TTL, fleet_max_ttl: TTL };
    assert_eq!(store.execute("ada", renew).outcome, Outcome::Renewed);
    assert!(store.found.lease.version > version, "at the same moment, too");
}

#[test]
fn time_goes_on_while_one_process_alone_writes() {
    let mut observed = Observed::default();
    let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
    let written = observed.now("one", 1, ServerTime(START), at(100));
    observed.wrote("one", 2, written, at(100));
    let later = observed.now("one", 2, written, at(103));
    assert_eq!(later.since(written), Duration::from_secs(3));
}
