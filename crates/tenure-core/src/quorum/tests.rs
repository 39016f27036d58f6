//! Rounds over stores in memory whose replies a test delays, loses and reorders.

use std::time::Duration;

use crate::memory_store::MemoryStore;
use crate::protocol::{
    Acquire, Answer, Ballot, Call, CloseReason, Hint, HistoryKind, LostWhy, MemberRecord, Outcome,
    Request, TickId, Token, WishKind,
};
use crate::{
    Election, InstanceId, Moment, Output, Resource, ServerTime, Settings, StoreError,
    StoreErrorKind, Timing, TimingSettings,
};

use super::{HintCount, Quorum, QuorumError, Round, RoundOutput};

const TTL: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_millis(500);
const BEGIN: u64 = 1_700_000_000_000_000;

/// Some nodes, who of them is there, and what their clocks show.
struct Nodes {
    stores: Vec<MemoryStore>,
    is_up: Vec<bool>,
    ahead: Vec<u64>,
    now: u64,
}

impl Nodes {
    fn new(count: usize) -> Self {
        let store = |node| MemoryStore::redis_like(ServerTime(BEGIN - 1), node as u64 + 7);
        Nodes {
            stores: (0..count).map(store).collect(),
            is_up: vec![true; count],
            ahead: vec![0; count],
            now: BEGIN,
        }
    }

    fn wait(&mut self, millis: u64) {
        self.now += millis * 1_000;
    }

    fn at(&mut self, node: usize, who: &str, request: &Request) -> Result<Answer, StoreError> {
        if !self.is_up[node] {
            return Err(StoreError::unreachable(format!("node {node} is down")));
        }
        let call = Call {
            resource: Resource::named("job").unwrap(),
            id: InstanceId::seen(who),
            request: request.clone(),
            timeout: TIMEOUT,
            fleet_max_ttl: Duration::ZERO,
        };
        let time = ServerTime(self.now + self.ahead[node]);
        Ok(self.stores[node].execute(time, &call).0)
    }

    /// Runs a round to its end, every request delivered at once.
    fn ask(&mut self, who: &str, request: Request) -> Result<Answer, StoreError> {
        self.ask_through(who, request, |_, _| true)
    }

    /// The same, but only requests that pass `arrives` reach their node; the others time out.
    fn ask_through(
        &mut self,
        who: &str,
        request: Request,
        arrives: impl Fn(usize, &Request) -> bool,
    ) -> Result<Answer, StoreError> {
        let quorum = Quorum::of(self.stores.len()).unwrap();
        let mut round = Round::new(quorum, request, Moment::ORIGIN, TIMEOUT);
        loop {
            match round.poll_output() {
                Some(RoundOutput::Ask { node, step, request }) if arrives(node, &request) => {
                    let reply = self.at(node, who, &request);
                    round.handle_reply(Moment::ORIGIN, node, step, reply);
                }
                Some(RoundOutput::Ask { .. }) => {}
                Some(RoundOutput::Tell { node, request }) => drop(self.at(node, who, &request)),
                Some(RoundOutput::Done(verdict)) => return verdict,
                None => round.handle_timeout(),
            }
        }
    }

    fn outcome(&mut self, who: &str, request: Request) -> Outcome {
        self.ask(who, request).unwrap().outcome
    }

    fn lead(&mut self, who: &str, attempt: u64) -> Token {
        match self.outcome(who, acquire(attempt)) {
            Outcome::Granted { token } => token,
            other => panic!("{who} should lead, but: {other:?}"),
        }
    }

    fn renew(&mut self, who: &str, token: Token) -> Result<Answer, StoreError> {
        self.ask(who, renewal(token))
    }

    fn holder_at(&mut self, node: usize) -> (Option<String>, Option<Token>) {
        let view = self.at(node, "eve", &Request::Observe { members: false }).unwrap().view;
        (view.holder.map(|id| id.as_str().to_owned()), view.token)
    }
}

fn acquire(attempt: u64) -> Request {
    Request::Acquire(Acquire {
        attempt,
        ttl: TTL,
        fleet_max_ttl: TTL,
        floor: None,
        fresh_store: true,
        age_counts: true,
        lock_delay: Duration::ZERO,
        heal: None,
        record: MemberRecord { ready: true, ttl: TTL, ..MemberRecord::default() },
        members: true,
        ballot: Ballot::Alone,
    })
}

fn renewal(token: Token) -> Request {
    Request::Renew { token, ttl: TTL, fleet_max_ttl: TTL }
}

fn release(token: Token) -> Request {
    Request::Release { token, reason: CloseReason::Released }
}

fn settles(request: &Request) -> bool {
    matches!(request, Request::Acquire(Acquire { ballot: Ballot::Settle(_), .. }))
}

#[test]
fn a_quorum_is_an_odd_number_from_three() {
    assert_eq!(Quorum::of(2), Err(QuorumError::TooFew(2)));
    assert_eq!(Quorum::of(4), Err(QuorumError::Even(4)));
    assert_eq!(Quorum::of(17), Err(QuorumError::TooMany(17)));
    assert_eq!(Quorum::of(5).unwrap().majority(), 3);
}

#[test]
fn a_term_is_settled_under_one_number_on_every_node() {
    let mut nodes = Nodes::new(3);
    nodes.ahead = vec![0, 700, 90_000];
    let token = nodes.lead("ada", 1);
    for node in 0..3 {
        assert_eq!(nodes.holder_at(node), (Some("ada".into()), Some(token)));
    }
    let answer = nodes.ask("bob", acquire(1)).unwrap();
    assert_eq!(answer.outcome, Outcome::Held);
    assert_eq!(answer.view.holder, Some(InstanceId::seen("ada")));
    assert_eq!((answer.view.token, answer.view.pttl), (Some(token), Some(TTL)));
    assert_eq!(answer.view.members.unwrap().len(), 2, "both said that they are there");
}

#[test]
fn one_clock_far_ahead_does_not_spoil_the_numbers() {
    const HOUR: u64 = 3_600_000_000;
    // Beyond a year, the others would not even believe such a number.
    for (wrong, ahead) in [(0, HOUR), (2, HOUR), (0, 20_000 * HOUR), (1, 20_000 * HOUR)] {
        let mut nodes = Nodes::new(3);
        nodes.ahead[wrong] = ahead;
        let token = nodes.lead("ada", 1);
        assert!(token.get() < BEGIN + 1_000_000, "{wrong} is ahead: {token:?}");
        assert_eq!(nodes.holder_at(wrong).1, Some(token));
    }
}

#[test]
fn one_clock_far_behind_does_not_bring_old_numbers_back() {
    let mut nodes = Nodes::new(3);
    nodes.now += 1_000_000_000;
    let first = nodes.lead("ada", 1);
    nodes.outcome("ada", release(first));
    nodes.now -= 1_000_000_000;
    nodes.ahead = vec![0, 1_000_000_000, 1_000_000_000];
    assert!(nodes.lead("bob", 1) > first);
}

#[test]
fn a_number_that_one_rival_gave_up_is_kept_from_no_other() {
    let mut nodes = Nodes::new(3);
    let Request::Acquire(ask) = acquire(1) else { unreachable!() };
    let token = Token::new(BEGIN).unwrap();
    let settle = Request::Acquire(Acquire { ballot: Ballot::Settle(token), ..ask });
    let bob = nodes.at(2, "bob", &settle).unwrap().outcome;
    assert_eq!(bob, Outcome::Granted { token });
    assert_eq!(nodes.lead("ada", 1), token, "both were told the same number");
    nodes.at(2, "bob", &Request::Abandon { attempt: 1 }).unwrap();
    assert!(!nodes.renew("ada", token).unwrap().view.partial);
    assert_eq!(nodes.holder_at(2), (Some("ada".into()), Some(token)));
}

#[test]
fn tokens_grow_even_where_every_clock_goes_back() {
    let mut nodes = Nodes::new(3);
    let first = nodes.lead("ada", 1);
    nodes.outcome("ada", release(first));
    nodes.now -= 100_000_000;
    assert!(nodes.lead("bob", 1) > first);
}

#[test]
fn a_majority_is_enough_and_less_is_not() {
    let mut nodes = Nodes::new(3);
    nodes.is_up[1] = false;
    let token = nodes.lead("ada", 1);
    assert_eq!(nodes.renew("ada", token).unwrap().outcome, Outcome::Renewed);
    nodes.is_up[2] = false;
    let error = nodes.renew("ada", token).unwrap_err().to_string();
    assert!(error.contains("1 of 3 nodes answered, 2 must"), "{error}");
    assert!(error.contains("node 1 is down"), "{error}");
    let error = nodes.ask("bob", acquire(1)).unwrap_err().to_string();
    assert!(error.contains("1 of 3 nodes answered"), "{error}");
}

#[test]
fn an_attempt_that_settles_on_a_minority_is_undone_there() {
    let mut nodes = Nodes::new(3);
    let got = nodes.ask_through("ada", acquire(1), |node, request| node == 0 || !settles(request));
    assert!(matches!(got.unwrap().outcome, Outcome::Contested { .. }));
    for node in 0..3 {
        assert_eq!(nodes.holder_at(node), (None, None));
    }
    assert_eq!(nodes.outcome("ada", acquire(1)), Outcome::AttemptRefused);
    nodes.lead("ada", 2);
}

#[test]
fn a_node_that_would_grant_is_not_taken_for_a_majority_that_did() {
    let mut nodes = Nodes::new(3);
    for node in 0..2 {
        nodes.at(node, "ada", &acquire(1)).unwrap();
    }
    // At its very last millisecond a key is still there, with nothing left.
    nodes.wait(3_000);
    let got = nodes.outcome("bob", acquire(1));
    assert!(matches!(got, Outcome::Contested { .. } | Outcome::Held), "{got:?}");
}

#[test]
fn a_proposal_writes_no_lease() {
    let mut nodes = Nodes::new(3);
    let got = nodes.ask_through("ada", acquire(1), |_, request| !settles(request));
    assert!(matches!(got.unwrap().outcome, Outcome::Contested { .. }));
    nodes.lead("bob", 1);
}

#[test]
fn a_node_that_lost_the_key_is_adopted_again() {
    let mut nodes = Nodes::new(3);
    nodes.is_up[2] = false;
    let token = nodes.lead("ada", 1);
    nodes.is_up[2] = true;
    assert_eq!(nodes.renew("ada", token).unwrap().outcome, Outcome::Renewed);
    assert_eq!(nodes.holder_at(2), (None, None), "it does not know what it has missed");
    nodes.wait(1_000);
    assert_eq!(nodes.renew("ada", token).unwrap().outcome, Outcome::Renewed);
    nodes.wait(2_033);
    assert_eq!(nodes.renew("ada", token).unwrap().outcome, Outcome::Renewed);
    assert_eq!(nodes.holder_at(2), (Some("ada".into()), Some(token)), "the quarantine is over");
    nodes.is_up[0] = false;
    assert_eq!(nodes.renew("ada", token).unwrap().outcome, Outcome::Renewed);
}

#[test]
fn a_restarted_node_gives_nobody_its_vote_before_the_quarantine_ends() {
    let mut nodes = Nodes::new(3);
    nodes.is_up[2] = false;
    let token = nodes.lead("ada", 1);
    let now = ServerTime(nodes.now);
    nodes.is_up = vec![false, true, true];
    nodes.stores[1].restart_empty(now);
    let Request::Acquire(ask) = acquire(1) else { unreachable!() };
    let newcomer = Request::Acquire(Acquire { fresh_store: false, ..ask });
    let got = nodes.outcome("bob", newcomer);
    assert!(matches!(got, Outcome::Quarantine { left, .. } if left > TTL), "{got:?}");
    nodes.is_up[0] = true;
    let got = nodes.renew("ada", token).unwrap().outcome;
    assert!(matches!(got, Outcome::Lost(_)), "two of three keep everyone out: {got:?}");
    assert_eq!(nodes.holder_at(0), (None, None), "what is left of the term is given back");
}

#[test]
fn a_flushed_node_is_not_taken_for_new_by_its_age() {
    let mut nodes = Nodes::new(3);
    nodes.wait(60_000);
    nodes.is_up[2] = false;
    nodes.lead("ada", 1);
    nodes.stores[1].flush();
    nodes.is_up = vec![false, true, true];
    let Request::Acquire(ask) = acquire(1) else { unreachable!() };
    assert!(ask.age_counts, "as one store would be asked");
    let got = nodes.outcome("bob", Request::Acquire(Acquire { fresh_store: false, ..ask }));
    assert!(matches!(got, Outcome::Quarantine { .. }), "{got:?}");
}

#[test]
fn who_has_seen_a_token_takes_no_node_for_a_fresh_one() {
    let mut nodes = Nodes::new(3);
    let token = nodes.lead("ada", 1);
    let now = ServerTime(nodes.now);
    nodes.stores.iter_mut().for_each(|store| store.restart_empty(now));
    let Request::Acquire(ask) = acquire(1) else { unreachable!() };
    assert!(ask.fresh_store);
    let got = nodes.outcome("bob", Request::Acquire(Acquire { floor: Some(token), ..ask }));
    assert!(matches!(got, Outcome::Quarantine { .. }), "{got:?}");
}

#[test]
fn a_closed_term_is_adopted_nowhere() {
    let mut nodes = Nodes::new(3);
    let token = nodes.lead("ada", 1);
    nodes.outcome("ada", release(token));
    let got = nodes.renew("ada", token).unwrap().outcome;
    assert_eq!(got, Outcome::Lost(LostWhy::KeyVanished));
    let later = nodes.lead("bob", 1);
    nodes.outcome("bob", release(later));
    let got = nodes.renew("ada", token).unwrap().outcome;
    assert_eq!(got, Outcome::Lost(LostWhy::OtherTerm(Some(later))));
}

#[test]
fn a_hand_over_is_a_release_that_lets_the_successor_go_first() {
    let mut nodes = Nodes::new(3);
    let token = nodes.lead("ada", 1);
    let (to, claim_ttl) = (InstanceId::seen("bob"), Duration::from_millis(750));
    let hand_over = Request::Transfer { token, to, claim_ttl };
    assert_eq!(nodes.outcome("ada", hand_over.clone()), Outcome::Transferred { token });
    assert_eq!(nodes.outcome("ada", hand_over.clone()), Outcome::Transferred { token });
    let next = nodes.lead("bob", 1);
    assert!(next > token);
    assert_eq!(nodes.outcome("ada", hand_over), Outcome::Transferred { token }, "asked again");
    assert_eq!(nodes.renew("bob", next).unwrap().outcome, Outcome::Renewed);
}

#[test]
fn a_hand_over_to_nobody_who_came_is_told_as_one_for_as_long_as_nobody_else_led() {
    let mut nodes = Nodes::new(3);
    let token = nodes.lead("ada", 1);
    let (to, claim_ttl) = (InstanceId::seen("bob"), Duration::from_millis(750));
    let hand_over = Request::Transfer { token, to, claim_ttl };
    nodes.outcome("ada", hand_over.clone());
    nodes.lead("cleo", 1);
    let got = nodes.outcome("ada", hand_over);
    assert!(matches!(&got, Outcome::Lost(LostWhy::HeldBy(id)) if id.as_str() == "cleo"), "{got:?}");
}

#[test]
fn a_node_that_did_not_hear_of_the_end_of_a_pause_is_outvoted() {
    let mut nodes = Nodes::new(3);
    nodes.outcome("ada", Request::Pause { lasts: TTL });
    let got = nodes.ask_through("ada", Request::Resume, |node, _| node != 0).unwrap();
    assert_eq!(got.outcome, Outcome::Done);
    // The first two answers differ: the third is waited for.
    let view = nodes.ask("eve", Request::Observe { members: false }).unwrap().view;
    assert_eq!(view.paused_for, None);
    nodes.lead("bob", 1);
}

#[test]
fn a_wish_on_one_counted_node_reaches_the_leader() {
    let mut nodes = Nodes::new(3);
    nodes.ahead = vec![0, 5_000_000, 0];
    let token = nodes.lead("ada", 1);
    let wish = Request::Ask { token, wish: WishKind::Resign, stands_for: TTL };
    nodes.at(1, "eve", &wish).unwrap();
    let view = nodes.renew("ada", token).unwrap().view;
    let wish = view.wish.unwrap();
    assert_eq!(wish.until.since(view.server_time), TTL, "told by the clock of the view");
}

#[test]
fn one_server_under_two_names_counts_once() {
    let mut nodes = Nodes::new(3);
    nodes.stores[1] = MemoryStore::redis_like(ServerTime(BEGIN - 1), 7);
    nodes.is_up[2] = false;
    let error = nodes.ask("ada", acquire(1)).unwrap_err().to_string();
    assert!(error.contains("nodes 1 and 2 of the quorum are the same server"), "{error}");
}

#[test]
fn what_comes_after_the_deadline_does_not_count() {
    let quorum = Quorum::of(3).unwrap();
    let mut nodes = Nodes::new(3);
    let mut round = Round::new(quorum, acquire(1), Moment::ORIGIN, TIMEOUT);
    let late = Moment::ORIGIN + TIMEOUT;
    let mut verdict = None;
    while let Some(output) = round.poll_output() {
        match output {
            RoundOutput::Ask { node, step, request } => {
                let now = if settles(&request) { late } else { Moment::ORIGIN };
                let reply = nodes.at(node, "ada", &request);
                round.handle_reply(now, node, step, reply);
            }
            RoundOutput::Tell { node, request } => drop(nodes.at(node, "ada", &request)),
            RoundOutput::Done(got) => verdict = Some(got),
        }
    }
    let got = verdict.unwrap().unwrap().outcome;
    assert!(matches!(got, Outcome::Contested { .. }), "{got:?}");
    assert_eq!(nodes.holder_at(0), (None, None));
}

#[test]
fn a_tick_is_refused_with_what_to_do() {
    let mut nodes = Nodes::new(3);
    let tick = TickId::Number(1);
    let got = nodes.ask("ada", Request::TickLook { tick });
    let refused = got.as_ref().unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::WrongAddress);
    assert!(refused.message().contains("one store"), "{refused}");
}

#[test]
fn history_tells_each_term_once_and_no_failed_attempt() {
    let mut nodes = Nodes::new(3);
    let got = nodes.ask_through("bob", acquire(1), |node, request| node == 0 || !settles(request));
    assert!(matches!(got.unwrap().outcome, Outcome::Contested { .. }));
    let token = nodes.lead("ada", 1);
    nodes.outcome("ada", release(token));
    let Outcome::History(entries) = nodes.outcome("eve", Request::History { count: 9 }) else {
        panic!("no history");
    };
    let told: Vec<_> = entries.iter().map(|entry| (entry.id.as_str(), entry.token)).collect();
    assert_eq!(told, [("ada", Some(token)); 2], "{entries:?}");
}

#[test]
fn history_believes_a_farewell_rather_than_a_node_that_was_cut_off() {
    let mut nodes = Nodes::new(3);
    let token = nodes.lead("ada", 1);
    nodes.is_up[0] = false;
    nodes.wait(2_000);
    nodes.renew("ada", token).unwrap();
    nodes.wait(2_000);
    nodes.outcome("ada", release(token));
    nodes.is_up[0] = true;
    let next = nodes.lead("bob", 1);
    let Outcome::History(entries) = nodes.outcome("eve", Request::History { count: 9 }) else {
        panic!("no history");
    };
    let ends: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.what {
            HistoryKind::Closed { reason, .. } => Some((entry.token, *reason)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(Some(token), CloseReason::Released)], "{entries:?}");
    assert_eq!(entries[0].token, Some(next));
}

#[test]
fn a_hint_counts_once_a_majority_gave_it() {
    let mut count = HintCount::new(Quorum::of(3).unwrap());
    let released = Hint::Released { token: Token::new(9) };
    assert_eq!(count.hear(0, released.clone()), None);
    assert_eq!(count.hear(0, released.clone()), None, "the same node again");
    assert_eq!(count.hear(2, released.clone()), Some(released.clone()));
    assert_eq!(count.hear(1, released.clone()), None, "a part of the same");
    assert_eq!(count.hear(1, released.clone()), None, "something new");
    assert_eq!(count.hear(0, released.clone()), Some(released));
}

/// Found on real servers under load, where a successor came before the resource was free.
#[test]
fn a_late_word_of_one_hand_over_is_none_of_the_next() {
    let mut count = HintCount::new(Quorum::of(3).unwrap());
    let handed_over = |token| Hint::Transferred {
        token: Token::new(token).unwrap(),
        to: InstanceId::seen("bob"),
        claim_ttl: TTL,
    };
    assert_eq!(count.hear(0, handed_over(7)), None);
    assert_eq!(count.hear(1, handed_over(7)), Some(handed_over(7)));
    assert_eq!(count.hear(0, handed_over(9)), None);
    assert_eq!(count.hear(2, handed_over(7)), None, "of the first, and late");
    assert_eq!(count.hear(1, handed_over(9)), Some(handed_over(9)));
}

/// Found by the simulator (quorum-clocks, seed 9).
#[test]
fn a_term_that_some_nodes_do_not_hold_is_renewed_early() {
    let mut nodes = Nodes::new(3);
    let got = nodes.ask_through("ada", acquire(1), |node, request| node < 2 || !settles(request));
    let answer = got.unwrap();
    assert!(answer.view.partial);

    let timing = Timing::new(&TimingSettings { ttl: TTL, ..TimingSettings::default() }).unwrap();
    let id = InstanceId::seen("ada");
    let settings = Settings::new(Resource::named("job").unwrap(), id, timing);
    let mut election = Election::new(settings, 1, Moment::ORIGIN);
    election.handle_listening(Moment::ORIGIN);
    let Output::Ask { ask, .. } = election.poll_output() else { panic!("it tries") };
    election.handle_reply(Moment::ORIGIN, ask, Ok(answer));
    let wakes_at = loop {
        if let Output::WaitUntil(wakes_at) = election.poll_output() {
            break wakes_at;
        }
    };
    assert!(wakes_at <= Moment::ORIGIN + Duration::from_millis(20), "{wakes_at:?}");
    let Outcome::Granted { token } = nodes.outcome("ada", acquire(1)) else { panic!("again") };
    assert!(!nodes.renew("ada", token).unwrap().view.partial, "now all of them hold it");
}

/// Whatever is lost and in whatever order rivals and nodes act, no two hold a majority at once.
#[test]
fn no_two_hold_a_majority_whatever_is_lost() {
    use proptest::prelude::*;
    let step = (0..3u8, 0..2usize, any::<u8>(), any::<u8>());
    let steps = proptest::collection::vec(step, 1..40);
    proptest!(|(steps in steps, wide in any::<bool>())| {
        let count = if wide { 5 } else { 3 };
        let mut nodes = Nodes::new(count);
        let (mut terms, mut last) = ([None::<(Token, u64)>; 2], None);
        for (attempt, (what, who, first, second)) in steps.into_iter().enumerate() {
            let name = ["ada", "bob"][who];
            let passes = move |node: usize, request: &Request| {
                let mask = if settles(request) { second } else { first };
                mask & (1 << node) != 0
            };
            nodes.wait(u64::from(first % 16) * 100);
            let request = match (what, terms[who]) {
                (1, Some((token, _))) => renewal(token),
                (2, Some((token, _))) => release(token),
                _ => acquire(attempt as u64 + 1),
            };
            if let Request::Release { .. } = &request {
                terms[who] = None;
            }
            let ends_at = nodes.now + 2_900_000;
            let reply = nodes.ask_through(name, request.clone(), passes);
            match reply.map(|answer| answer.outcome) {
                Ok(Outcome::Granted { token }) => {
                    prop_assert!(Some(token) > last, "{token:?} after {last:?}");
                    last = Some(token);
                    terms[who] = Some((token, ends_at));
                }
                Ok(Outcome::Renewed) => terms[who] = terms[who].map(|(token, _)| (token, ends_at)),
                Ok(Outcome::Lost(_)) => terms[who] = None,
                _ => {}
            }
            let now = nodes.now;
            terms = terms.map(|term| term.filter(|(_, until)| *until > now));
            prop_assert!(terms.iter().flatten().count() < 2, "two lead at once: {terms:?}");
        }
    });
}
