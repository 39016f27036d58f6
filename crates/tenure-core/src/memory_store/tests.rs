//! Claims about the store's side of the protocol.

use std::time::Duration;

use crate::protocol::{
    Acquire, Ballot, Call, CloseReason, Hint, HistoryKind, LostWhy, MemberRecord, Outcome, Request,
    TickId, TickOutcome, Token, WishKind,
};
use crate::{InstanceId, Resource, ServerTime};

use super::{ForeignValue, MemoryStore};

const TTL: Duration = Duration::from_secs(3);
const KEY: &str = "tenure:job";

/// A store, its clock, and words to talk to it.
struct Desk {
    store: MemoryStore,
    now: ServerTime,
    hints: Vec<Hint>,
}

impl Desk {
    fn new() -> Self {
        let now = ServerTime(1_700_000_000_000_000);
        Desk { store: MemoryStore::new(now), now, hints: Vec::new() }
    }

    /// A Redis that has been up for long enough to be trusted with a new resource.
    fn redis() -> Self {
        let now = ServerTime(1_700_000_000_000_000);
        let mut desk = Desk { store: MemoryStore::redis_like(now, 7), now, hints: Vec::new() };
        desk.wait(60_000);
        desk
    }

    fn wait(&mut self, millis: u64) {
        self.now.0 += millis * 1_000;
    }

    fn ask(&mut self, who: &str, request: Request) -> Outcome {
        self.answer(who, request).outcome
    }

    fn answer(&mut self, who: &str, request: Request) -> crate::protocol::Answer {
        let resource = Resource::named("job").unwrap();
        let call =
            Call { resource, id: id(who), request, timeout: TTL, fleet_max_ttl: Duration::ZERO };
        let (answer, hints) = self.store.execute(self.now, &call);
        self.hints = hints;
        answer
    }

    fn acquire(&mut self, who: &str, attempt: u64) -> Outcome {
        self.ask(who, acquire(attempt))
    }

    fn lead(&mut self, who: &str, attempt: u64) -> Token {
        match self.acquire(who, attempt) {
            Outcome::Granted { token } => token,
            other => panic!("{who} should lead, but: {other:?}"),
        }
    }

    fn renew(&mut self, who: &str, token: Token) -> Outcome {
        self.ask(who, Request::Renew { token, ttl: TTL, fleet_max_ttl: TTL })
    }

    fn release(&mut self, who: &str, token: Token) -> Outcome {
        self.ask(who, Request::Release { token, reason: CloseReason::Released })
    }

    fn transfer(&mut self, who: &str, token: Token, to: &str) -> Outcome {
        let claim_ttl = Duration::from_millis(750);
        self.ask(who, Request::Transfer { token, to: id(to), claim_ttl })
    }
}

fn id(name: &str) -> InstanceId {
    InstanceId::seen(name)
}

fn acquire(attempt: u64) -> Request {
    acquire_with(attempt, |_| {})
}

fn acquire_with(attempt: u64, change: impl FnOnce(&mut Acquire)) -> Request {
    let mut ask = Acquire {
        attempt,
        ttl: TTL,
        fleet_max_ttl: TTL,
        floor: None,
        fresh_store: false,
        age_counts: true,
        lock_delay: Duration::ZERO,
        heal: None,
        record: MemberRecord { ready: true, ttl: TTL, ..MemberRecord::default() },
        members: false,
        ballot: Ballot::Alone,
    };
    change(&mut ask);
    Request::Acquire(ask)
}

fn is_quarantine(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Quarantine { .. })
}

#[test]
fn one_leads_and_the_other_hears_for_how_long() {
    let mut desk = Desk::new();
    let token = desk.lead("ada", 1);
    assert_eq!(desk.hints[0], Hint::Granted { id: id("ada"), token, ttl: TTL });
    desk.wait(1_000);

    let answer = desk.answer("bob", acquire(1));
    assert_eq!(answer.outcome, Outcome::Held);
    assert_eq!(answer.view.holder, Some(id("ada")));
    assert_eq!(answer.view.pttl, Some(Duration::from_secs(2)));
    assert_eq!((answer.view.token, answer.view.foreign), (Some(token), false));
}

#[test]
fn a_lease_ends_after_its_last_millisecond_and_tokens_grow() {
    let mut desk = Desk::new();
    let first = desk.lead("ada", 1);
    desk.wait(3_000);
    assert_eq!(desk.acquire("bob", 1), Outcome::Held);
    desk.wait(1);
    assert!(desk.lead("bob", 2) > first);
}

#[test]
fn the_same_attempt_gets_the_same_term_and_an_abandoned_one_none() {
    let mut desk = Desk::new();
    let token = desk.lead("ada", 1);
    assert_eq!(desk.lead("ada", 1), token);
    assert_eq!(desk.acquire("ada", 2), Outcome::Held, "its own older term stands in the way");

    let abandoned = desk.ask("ada", Request::Abandon { attempt: 1 });
    assert_eq!(abandoned, Outcome::Abandoned { was_granted: true });
    assert_eq!(desk.acquire("ada", 1), Outcome::AttemptRefused);
    assert!(desk.lead("ada", 2) > token);

    let abandoned = desk.ask("bob", Request::Abandon { attempt: 5 });
    assert_eq!(abandoned, Outcome::Abandoned { was_granted: false });
    assert_eq!(desk.acquire("bob", 5), Outcome::AttemptRefused, "it overtook its own acquire");
}

#[test]
fn a_late_copy_of_an_attempt_never_reopens_its_term() {
    let mut desk = Desk::new();
    let token = desk.lead("ada", 1);
    desk.release("ada", token);
    assert_eq!(desk.acquire("ada", 1), Outcome::AttemptRefused, "after a release");

    desk.lead("ada", 2);
    desk.wait(3_001);
    assert_eq!(desk.acquire("ada", 2), Outcome::AttemptRefused, "after the lease ended");

    let token = desk.lead("ada", 3);
    assert!(matches!(desk.transfer("ada", token, "bob"), Outcome::Transferred { .. }));
    assert_eq!(desk.acquire("ada", 3), Outcome::AttemptRefused, "after a hand-over");
}

#[test]
fn renewing_and_releasing_touch_exactly_one_term() {
    let mut desk = Desk::new();
    let old = desk.lead("ada", 1);
    desk.release("ada", old);
    let new = desk.lead("ada", 2);
    desk.wait(1_000);

    assert_eq!(desk.renew("ada", old), Outcome::Lost(LostWhy::OtherTerm(Some(new))));
    assert_eq!(desk.release("ada", old), Outcome::Lost(LostWhy::OtherTerm(Some(new))));
    assert_eq!(desk.renew("bob", new), Outcome::Lost(LostWhy::HeldBy(id("ada"))));
    assert_eq!(desk.store.time_left(desk.now, KEY), Some(Duration::from_secs(2)), "untouched");

    assert_eq!(desk.renew("ada", new), Outcome::Renewed);
    assert_eq!(desk.store.time_left(desk.now, KEY), Some(TTL));
    desk.wait(3_001);
    assert_eq!(desk.renew("ada", new), Outcome::Lost(LostWhy::KeyVanished));
}

#[test]
fn a_hand_over_reserves_the_resource_and_can_be_repeated() {
    let mut desk = Desk::new();
    let first = desk.lead("ada", 1);
    let Outcome::Transferred { token } = desk.transfer("ada", first, "bob") else { panic!() };
    assert!(token > first);
    assert_eq!(desk.transfer("ada", first, "bob"), Outcome::Transferred { token });
    assert!(matches!(desk.acquire("eve", 1), Outcome::Reserved { .. }));
    assert_eq!(desk.lead("bob", 1), token);
    assert_eq!(desk.transfer("ada", first, "bob"), Outcome::Transferred { token });
    assert_eq!(desk.renew("bob", token), Outcome::Renewed);
}

#[test]
fn an_unclaimed_reservation_ends_in_an_ordinary_election() {
    let mut desk = Desk::new();
    let first = desk.lead("ada", 1);
    let Outcome::Transferred { token } = desk.transfer("ada", first, "bob") else { panic!() };
    desk.wait(751);
    assert!(desk.lead("eve", 1) > token);
    assert_eq!(desk.acquire("bob", 1), Outcome::Held);
}

#[test]
fn a_restart_with_data_lets_the_holder_renew_and_nobody_else_in() {
    let mut desk = Desk::redis();
    let token = desk.lead("ada", 1);
    desk.store.promote(8, desk.now);

    assert_eq!(desk.renew("ada", token), Outcome::Renewed);
    desk.release("ada", token);
    assert!(is_quarantine(&desk.acquire("bob", 1)));
    desk.wait(3_033);
    desk.lead("bob", 2);
}

#[test]
fn a_reservation_from_before_a_failover_is_not_claimed_during_the_quarantine() {
    let mut desk = Desk::redis();
    let token = desk.lead("ada", 1);
    desk.transfer("ada", token, "bob");
    desk.store.promote(8, desk.now);
    assert!(is_quarantine(&desk.acquire("bob", 1)), "bob may have claimed and lost it before");
}

#[test]
fn a_repeated_attempt_is_not_granted_during_the_quarantine() {
    let mut desk = Desk::redis();
    desk.lead("ada", 1);
    desk.store.promote(8, desk.now);
    assert!(is_quarantine(&desk.acquire("ada", 1)), "somebody may have led since");
    desk.wait(3_033);
    assert_eq!(desk.acquire("ada", 1), Outcome::AttemptRefused);
    desk.lead("ada", 2);
}

#[test]
fn a_second_failover_prolongs_the_quarantine_and_its_mark() {
    let mut desk = Desk::redis();
    let token = desk.lead("ada", 1);
    desk.release("ada", token);
    desk.store.promote(8, desk.now);
    assert!(is_quarantine(&desk.acquire("bob", 1)));
    desk.wait(3_000);
    desk.store.promote(9, desk.now);
    desk.ask("bob", Request::Resume);
    assert_eq!(desk.store.time_left(desk.now, KEY), Some(Duration::from_millis(3_032)));
}

#[test]
fn the_first_replica_changes_the_incarnation_without_a_quarantine() {
    let mut desk = Desk::redis();
    let token = desk.lead("ada", 1);
    let before = desk.answer("ada", Request::Observe { members: false }).view.incarnation;
    desk.store.attach_first_replica();
    desk.release("ada", token);
    desk.lead("bob", 1);
    let after = desk.answer("ada", Request::Observe { members: false }).view.incarnation;
    assert_ne!(before, after);
}

#[test]
fn an_empty_store_is_trusted_only_when_it_cannot_have_forgotten_anyone() {
    let empty = |floor: u64, fresh_store: bool| {
        acquire_with(1, |ask| {
            ask.floor = Token::new(floor);
            ask.fresh_store = fresh_store;
        })
    };
    let now = ServerTime(1_700_000_000_000_000);
    let young = || Desk { store: MemoryStore::redis_like(now, 7), now, hints: Vec::new() };
    assert!(is_quarantine(&young().ask("ada", empty(0, false))), "it started just now");
    assert!(matches!(young().ask("ada", empty(0, true)), Outcome::Granted { .. }));
    assert!(is_quarantine(&young().ask("ada", empty(5, true))), "the user is mistaken");

    assert!(matches!(Desk::redis().ask("ada", empty(0, false)), Outcome::Granted { .. }));
    assert!(is_quarantine(&Desk::redis().ask("ada", empty(5, false))));

    let mut emptied = Desk::new();
    emptied.lead("ada", 1);
    emptied.store.forget(emptied.now, &Resource::named("job").unwrap());
    assert!(is_quarantine(&emptied.ask("bob", empty(0, false))), "somebody deleted this one");

    let mut flushed = Desk::new();
    flushed.lead("ada", 1);
    flushed.store.flush();
    assert!(is_quarantine(&flushed.ask("bob", empty(0, false))), "ours knows what it lost");
}

#[test]
fn age_speaks_for_a_flushed_server_only_where_it_counts() {
    let newcomer = |age_counts| acquire_with(1, |ask| ask.age_counts = age_counts);
    let flushed = || {
        let mut desk = Desk::redis();
        desk.lead("ada", 1);
        desk.store.flush();
        desk
    };
    assert!(matches!(flushed().ask("bob", newcomer(true)), Outcome::Granted { .. }));
    assert!(is_quarantine(&flushed().ask("bob", newcomer(false))), "ada may believe in her lease");
}

#[test]
fn one_quarantine_is_enough_for_callers_that_saw_different_terms() {
    let with_floor = |attempt, floor| acquire_with(attempt, |ask| ask.floor = Token::new(floor));
    let mut desk = Desk::redis();
    assert!(is_quarantine(&desk.ask("ada", with_floor(1, 10))));
    desk.wait(1_000);
    assert!(is_quarantine(&desk.ask("bob", with_floor(1, 20))));
    desk.wait(2_034);
    assert!(matches!(desk.ask("bob", with_floor(2, 20)), Outcome::Granted { .. }));
}

#[test]
fn a_lease_that_came_back_and_a_lost_term_are_waited_for_at_once() {
    let saw = |attempt, floor| acquire_with(attempt, |ask| ask.floor = floor);
    let mut desk = Desk::redis();
    let old = desk.lead("ada", 1);
    let seen = Token::new(old.get() + 1_000_000_000).unwrap();
    assert_eq!(desk.ask("bob", saw(1, Some(seen))), Outcome::Held);
    desk.wait(1_000);
    assert_eq!(desk.renew("ada", old), Outcome::Renewed);
    desk.wait(3_001);
    // The quarantine that began when bob first asked, 4 s ago, is over as well as the lease.
    match desk.ask("bob", saw(2, Some(seen))) {
        Outcome::Granted { token } => assert!(token > seen),
        other => panic!("bob waits twice: {other:?}"),
    }
}

#[test]
fn a_quarantine_covers_no_term_that_was_seen_after_it() {
    let saw = |attempt, floor| acquire_with(attempt, |ask| ask.floor = floor);
    let mut desk = Desk::redis();
    let old = desk.lead("ada", 1);
    let later = |more| Token::new(old.get() + more).unwrap();
    assert_eq!(desk.ask("bob", saw(1, Some(later(1_000_000_000)))), Outcome::Held);
    desk.wait(1_000);
    assert_eq!(desk.renew("ada", old), Outcome::Renewed);
    desk.wait(3_001);
    assert!(is_quarantine(&desk.ask("eve", saw(1, Some(later(2_000_000_000))))));

    // Nor does one of another life.
    let mut desk = Desk::redis();
    let old = desk.lead("ada", 1);
    let seen = Token::new(old.get() + 1_000_000_000).unwrap();
    assert_eq!(desk.ask("bob", saw(1, Some(seen))), Outcome::Held);
    desk.wait(2_900);
    desk.store.promote(8, desk.now);
    assert_eq!(desk.renew("ada", old), Outcome::Renewed);
    desk.wait(3_033);
    assert!(is_quarantine(&desk.ask("bob", saw(2, Some(seen)))));
}

#[test]
fn a_lock_delay_counts_from_when_a_clock_that_stepped_back_is_seen() {
    let delayed = |attempt| acquire_with(attempt, |ask| ask.lock_delay = Duration::from_secs(1));
    let mut desk = Desk::redis();
    desk.wait(60_000);
    desk.lead("ada", 1);
    desk.store.promote(8, desk.now);
    desk.store.delete(desk.now, KEY);
    desk.now.0 -= 30_000_000;
    assert!(is_quarantine(&desk.ask("bob", delayed(1))));
    desk.wait(3_033);
    assert!(matches!(desk.ask("bob", delayed(2)), Outcome::Delayed { .. }));
    desk.wait(1_000);
    assert!(matches!(desk.ask("bob", delayed(3)), Outcome::Granted { .. }));
}

#[test]
fn a_floor_from_the_far_future_is_refused() {
    let mut desk = Desk::new();
    let request = acquire_with(1, |ask| ask.floor = Some(Token::MAX));
    assert!(matches!(desk.ask("ada", request), Outcome::Conflict { .. }));
    desk.lead("ada", 2);
}

#[test]
fn foreign_things_at_the_key_are_reported_and_left_alone() {
    let mut desk = Desk::new();
    desk.store.set_foreign(desk.now, KEY, ForeignValue::Hash, None);
    assert!(matches!(desk.acquire("ada", 1), Outcome::Conflict { .. }));
    assert!(matches!(
        desk.renew("ada", Token::new(1).unwrap()),
        Outcome::Lost(LostWhy::Overwritten(_))
    ));

    desk.store.set_foreign(desk.now, KEY, ForeignValue::Text("cron@host"), Some(TTL));
    let answer = desk.answer("ada", acquire(2));
    assert_eq!(answer.outcome, Outcome::Held);
    assert!(answer.view.foreign && answer.view.token.is_none());

    let mut desk = Desk::new();
    let meta = Resource::named("job").unwrap().side_key("meta");
    desk.store.set_foreign(desk.now, &meta, ForeignValue::List, None);
    assert!(matches!(desk.acquire("ada", 1), Outcome::Conflict { .. }));
}

#[test]
fn a_holder_without_expiry_is_given_one_only_when_named() {
    let mut desk = Desk::new();
    desk.store.set_foreign(desk.now, KEY, ForeignValue::Text("ghost"), None);
    let heal = |who: &str| acquire_with(1, |ask| ask.heal = Some(id(who)));
    assert_eq!(desk.ask("ada", heal("other")), Outcome::Held);
    assert_eq!(desk.store.time_left(desk.now, KEY), None);
    assert_eq!(desk.ask("ada", heal("ghost")), Outcome::Held);
    assert_eq!(desk.store.time_left(desk.now, KEY), Some(Duration::from_millis(3_032)));
}

#[test]
fn a_lock_delay_follows_a_crash_and_not_a_release() {
    let delayed = |attempt| acquire_with(attempt, |ask| ask.lock_delay = Duration::from_secs(5));
    let mut desk = Desk::new();
    let token = desk.lead("ada", 1);
    desk.release("ada", token);
    assert!(matches!(desk.ask("bob", delayed(1)), Outcome::Granted { .. }));
    desk.wait(3_500);
    let left = Duration::from_millis(4_500);
    assert_eq!(desk.ask("eve", delayed(1)), Outcome::Delayed { left });
    desk.wait(4_500);
    assert!(matches!(desk.ask("eve", delayed(2)), Outcome::Granted { .. }));
}

#[test]
fn a_pause_keeps_new_terms_back_and_lets_the_running_one_go_on() {
    let mut desk = Desk::new();
    let token = desk.lead("ada", 1);
    desk.ask("operator", Request::Pause { lasts: Duration::from_secs(60) });
    assert_eq!(desk.renew("ada", token), Outcome::Renewed);
    desk.release("ada", token);
    let left = Duration::from_secs(60);
    assert_eq!(desk.acquire("bob", 1), Outcome::Paused { left });
    desk.ask("operator", Request::Resume);
    desk.lead("bob", 2);
}

#[test]
fn clearing_ends_the_term_but_lets_nobody_in_before_its_lease_has_ended() {
    let mut desk = Desk::new();
    let token = desk.lead("ada", 1);
    let (reason, quarantine) = ("wedged".to_owned(), Duration::from_millis(3_032));
    desk.ask("operator", Request::Clear { reason, quarantine });
    assert!(matches!(desk.renew("ada", token), Outcome::Lost(_)));
    assert!(is_quarantine(&desk.acquire("bob", 1)));
    desk.wait(3_033);
    assert!(desk.lead("bob", 2) > token);
}

#[test]
fn a_wish_reaches_exactly_the_term_it_names() {
    let mut desk = Desk::new();
    let token = desk.lead("ada", 1);
    let wish = |token| {
        let stands_for = Duration::from_secs(10);
        Request::Ask { token, wish: WishKind::Resign, stands_for }
    };
    let other = Token::new(token.get() + 1).unwrap();
    assert_eq!(desk.ask("operator", wish(other)), Outcome::NoSuchTerm);
    assert_eq!(desk.ask("operator", wish(token)), Outcome::Done);
    assert_eq!(desk.hints, [Hint::Wished { token }]);
    let answer = desk.answer("ada", Request::Renew { token, ttl: TTL, fleet_max_ttl: TTL });
    assert_eq!(answer.view.wish.unwrap().by, id("operator"));

    desk.ask("ada", Request::Refuse { token, reason: "busy".into() });
    let seen = desk.answer("operator", Request::Observe { members: false }).view.wish;
    assert_eq!(seen.unwrap().refused.as_deref(), Some("busy"));

    desk.release("ada", token);
    desk.lead("bob", 1);
    assert_eq!(desk.answer("bob", Request::Observe { members: false }).view.wish, None);
}

#[test]
fn members_come_beat_and_leave() {
    let mut desk = Desk::new();
    let record = |ready| MemberRecord { ready, ttl: TTL, ..MemberRecord::default() };
    let beat = |ready| Request::Beat { record: record(ready), members: true };
    desk.ask("ada", beat(true));
    let ready_at = desk.now;
    desk.wait(1_000);
    let members = desk.answer("bob", beat(false)).view.members.unwrap();
    assert_eq!(members.len(), 2);
    desk.ask("ada", beat(true));
    assert_eq!(desk.hints, [], "nothing new about ada");
    let members = desk.answer("ada", Request::Observe { members: true }).view.members.unwrap();
    let ada = members.iter().find(|member| member.id == id("ada")).unwrap();
    assert_eq!((ada.ready_since, ada.beat_at), (Some(ready_at), desk.now));
    let bob = members.iter().find(|member| member.id == id("bob")).unwrap();
    assert_eq!(bob.ready_since, None);

    desk.ask("bob", Request::Leave);
    assert_eq!(
        desk.answer("ada", Request::Observe { members: true }).view.members.unwrap().len(),
        1
    );
}

#[test]
fn history_tells_how_each_term_ended() {
    let mut desk = Desk::new();
    let first = desk.lead("ada", 1);
    desk.release("ada", first);
    desk.lead("ada", 2);
    desk.wait(4_000);
    desk.lead("bob", 1);
    let Outcome::History(entries) = desk.ask("ada", Request::History { count: 10 }) else {
        panic!()
    };
    let told: Vec<&str> = entries
        .iter()
        .map(|entry| match &entry.what {
            HistoryKind::Granted => "granted",
            HistoryKind::Closed { reason, .. } => reason.as_str(),
            HistoryKind::Quarantined { .. } => "quarantined",
        })
        .collect();
    assert_eq!(told, ["granted", "expired", "granted", "released", "granted"]);
}

#[test]
fn a_tick_runs_once_across_the_fleet() {
    let mut desk = Desk::new();
    let token = desk.lead("ada", 1);
    for tick in [TickId::Number(7), TickId::Named("import".into())] {
        let begin =
            |token, rerun_crashed| Request::TickBegin { token, tick: tick.clone(), rerun_crashed };
        let finish = Request::TickFinish {
            token,
            tick: tick.clone(),
            outcome: TickOutcome::Failed("no disk".into()),
            keep: Duration::from_secs(60),
        };
        let look = Request::TickLook { tick: tick.clone() };
        assert_eq!(desk.ask("bob", look.clone()), Outcome::TickUnknown);
        assert_eq!(desk.ask("ada", begin(token, false)), Outcome::TickRuns);
        assert_eq!(desk.ask("ada", begin(token, false)), Outcome::TickRuns, "the answer was lost");
        assert_eq!(
            desk.ask("bob", look.clone()),
            Outcome::TickUnfinished { by: id("ada"), token: Some(token) }
        );
        assert!(matches!(desk.ask("bob", begin(token, true)), Outcome::Lost(_)));
        assert_eq!(desk.ask("ada", finish), Outcome::Done);
        let failed = Outcome::TickDone(TickOutcome::Failed("no disk".into()));
        assert_eq!(desk.ask("bob", look), failed);
        assert_eq!(desk.ask("ada", begin(token, true)), failed);
    }
    let earlier = Request::TickLook { tick: TickId::Number(3) };
    assert_eq!(desk.ask("bob", earlier), Outcome::TickDone(TickOutcome::Succeeded));
}

/// However many series there are: who waits for the outcome of a tick asks after its period.
#[test]
fn a_tick_that_has_just_ended_stays_known_among_many_series() {
    let mut desk = Desk::new();
    let ticks = Resource::named("job").unwrap().side_key("ticks");
    let day = 86_400_000_000_u64;
    for more in 0..130 {
        let period = day + more;
        let (field, value) = (format!("series:{period}"), format!("{} ok", desk.now.0 / period));
        desk.store.apply(desk.now, &super::ForeignCommand::SetField(ticks.clone(), field, value));
    }
    let token = desk.lead("ada", 1);
    let period = Duration::from_secs(1);
    let tick = TickId::Period { number: desk.now.0 / 1_000_000, period };
    let begin = Request::TickBegin { token, tick: tick.clone(), rerun_crashed: true };
    assert_eq!(desk.ask("ada", begin.clone()), Outcome::TickRuns);
    desk.wait(2_000);
    let (outcome, keep) = (TickOutcome::Succeeded, TTL);
    let finish = Request::TickFinish { token, tick: tick.clone(), outcome, keep };
    assert_eq!(desk.ask("ada", finish), Outcome::Done);
    let done = Outcome::TickDone(TickOutcome::Succeeded);
    assert_eq!(desk.ask("bob", Request::TickLook { tick: tick.clone() }), done);

    let other = TickId::Period { number: desk.now.0 / 3_000_000, period: 3 * period };
    let begin_other = Request::TickBegin { token, tick: other, rerun_crashed: true };
    assert_eq!(desk.ask("ada", begin_other), Outcome::TickRuns);
    assert_eq!(desk.ask("ada", begin), done, "nor does another series end it");
}

#[test]
fn a_crashed_tick_runs_again_only_when_asked_to() {
    let mut desk = Desk::new();
    let begin =
        |token, rerun_crashed| Request::TickBegin { token, tick: TickId::Number(1), rerun_crashed };
    let crashed = desk.lead("ada", 1);
    desk.ask("ada", begin(crashed, false));
    desk.wait(3_001);
    let token = desk.lead("bob", 1);
    let unfinished = Outcome::TickUnfinished { by: id("ada"), token: Some(crashed) };
    assert_eq!(desk.ask("bob", begin(token, false)), unfinished);
    assert_eq!(desk.ask("bob", begin(token, true)), Outcome::TickRuns);
}

#[test]
fn plain_commands_see_the_same_keys() {
    let mut desk = Desk::new();
    assert!(desk.store.set_if_absent(desk.now, KEY, "rival", Some(TTL)));
    assert!(!desk.store.set_if_absent(desk.now, KEY, "other", None));
    assert_eq!(desk.acquire("ada", 1), Outcome::Held);
    desk.wait(2_000);
    assert!(desk.store.expire(desk.now, KEY, TTL));
    desk.wait(2_000);
    assert_eq!(desk.store.get(desk.now, KEY), Some("rival"));
    assert!(desk.store.delete(desk.now, KEY));
    desk.lead("ada", 2);
}
