//! One instance's side of one election.
//!
//! In: `handle_*` and the application's wishes, each with a reading of the local clock. Out: one
//! ordered stream of [`Output`]s. The order carries safety: a term is told lost before anything
//! that lets a successor in is asked of the store.

mod contend;
mod farewell;
mod lead;
mod rank;
mod succeed;
mod view;

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::{Answer, Hint, MemberRecord, Request};
use crate::random::Random;
use crate::{Event, EventKind, InstanceId, Moment, Reason, Role, Settings, StoreError, Token};

use contend::Contending;
use farewell::{Farewell, Leaving};
use lead::Term;
use succeed::Check;
use view::{Seen, Source};

/// The number of a request, until its reply has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(u64);

/// The number of a request for a hand-over; the caller chooses it. Nobody waits for number 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandOver(pub u64);

/// The outcome of a hand-over: the token of the term that ended and the successor for which the
/// resource is reserved, or why it failed.
pub type HandOverOutcome = Result<(Token, InstanceId), String>;

/// How many outcomes of hand-overs may wait to be polled; the oldest is forgotten first.
const HAND_OVERS_KEPT_MAX: usize = 256;

/// What the machine wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Ask the store. Exactly one reply or error must come back, after `timeout` at the latest.
    Ask {
        /// To be passed back with the reply.
        ask: AskId,
        /// The request.
        request: Request,
        /// How long to wait for the answer.
        timeout: Duration,
    },
    /// Tell the application.
    Tell(Event),
    /// Nothing more now: come back then, or when something happens.
    WaitUntil(Moment),
}

/// The state machine of one election.
#[derive(Debug)]
pub struct Election {
    settings: Settings,
    random: Random,
    stage: Stage,
    role: Role,
    role_reason: Reason,
    /// What the application wants.
    wishes: Wishes,
    /// The number of the current attempt, and whether its outcome is still open.
    attempt: u64,
    attempt_is_open: bool,
    /// The highest token seen in an answer. Hints never raise it: they may be forged.
    floor: Option<Token>,
    seen: Seen,
    /// Failures in a row, for the back-off.
    failures: u32,
    /// Hand-overs to a higher priority, and when the last one was: one that lasts is forgotten.
    failbacks: u32,
    failed_back_at: Moment,
    beats_at: Moment,
    /// The one request about the lease that is under way.
    lease_ask: Option<Pending<LeaseAsk>>,
    /// The one request beside it that is under way.
    side_ask: Option<Pending<SideAsk>>,
    asks: u64,
    events: u64,
    outputs: VecDeque<Output>,
    hand_overs: VecDeque<(HandOver, HandOverOutcome)>,
}

/// Where the instance stands. One lease request at a time is under way in each stage.
#[derive(Debug)]
enum Stage {
    Contending(Contending),
    Leading(Term),
    /// The term is closed; the store must still be told.
    // Boxed, as what a term needs at its end: most are neither ending nor parting.
    Parting(Box<Farewell>),
    /// Stopped wishing to lead, taking leave of the members.
    Leaving(Leaving),
    Over,
}

/// What the application wants, whatever the stage.
#[derive(Debug)]
struct Wishes {
    ready: bool,
    stands_back: bool,
    stops: bool,
    /// The work stopped beating and has not beaten since.
    stalled: bool,
    work_runs: bool,
    beaten_at: Moment,
}

#[derive(Debug)]
struct Pending<Kind> {
    id: AskId,
    kind: Kind,
    sent_at: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseAsk {
    Acquire,
    Renew,
    Farewell,
}

#[derive(Debug)]
enum SideAsk {
    Beat,
    Check(Vec<Check>),
    Refuse,
    Leave,
}

impl Election {
    /// An election that contends as soon as [`handle_listening`](Self::handle_listening) is called,
    /// or one request timeout later without it. `seed` drives the jitter.
    pub fn new(settings: Settings, seed: u64, now: Moment) -> Self {
        let wishes = Wishes {
            ready: settings.ready,
            stands_back: false,
            stops: false,
            stalled: false,
            work_runs: false,
            beaten_at: now,
        };
        let patience = settings.timing.try_timeout();
        let mut election = Election {
            random: Random::seeded(seed),
            stage: Stage::Contending(Contending::from(now + patience)),
            role: Role::Unknown,
            role_reason: Reason::Started,
            wishes,
            attempt: 0,
            attempt_is_open: false,
            floor: None,
            seen: Seen::after(settings.endless_holder.clone()),
            failures: 0,
            failbacks: 0,
            failed_back_at: now,
            // A candidate's first attempt carries its heartbeat; who stands back says so at once.
            beats_at: if settings.ready { now + settings.timing.ttl() } else { now },
            lease_ask: None,
            side_ask: None,
            asks: 0,
            events: 0,
            outputs: VecDeque::new(),
            hand_overs: VecDeque::new(),
            settings,
        };
        election.proceed(now);
        election
    }

    /// Numbers attempts from `attempt` + 1 on. An instance that takes part in the same resource
    /// again must not repeat a number that an earlier election of this process has used.
    pub fn number_attempts_after(&mut self, attempt: u64) {
        self.attempt = self.attempt.max(attempt);
    }

    // ------------------------------------------------------------------ what comes in

    /// The reply to a request, or why there is none.
    pub fn handle_reply(&mut self, now: Moment, ask: AskId, reply: Result<Answer, StoreError>) {
        self.catch_up(now);
        if let Some(pending) = self.lease_ask.take_if(|pending| pending.id == ask) {
            self.note_reply(now, pending.sent_at, Source::Lease, &reply);
            match pending.kind {
                LeaseAsk::Acquire => self.settle_acquire(now, pending.sent_at, reply),
                LeaseAsk::Renew => self.settle_renewal(now, pending.sent_at, reply),
                LeaseAsk::Farewell => self.settle_farewell(now, reply),
            }
        } else if let Some(pending) = self.side_ask.take_if(|pending| pending.id == ask) {
            self.note_reply(now, pending.sent_at, Source::Beside, &reply);
            self.settle_side(now, pending.kind, reply);
        }
        self.proceed(now);
    }

    /// A hint from the store's channel. It only makes the machine look at the store.
    pub fn handle_hint(&mut self, now: Moment, hint: Hint) {
        self.catch_up(now);
        match hint {
            Hint::Wished { token } => self.look_for_wish(now, token),
            Hint::Members => self.note_members_changed(now),
            other => self.rearm_by_hint(now, other),
        }
        self.proceed(now);
    }

    /// Hints arrive from now on: look at the store once, because earlier ones may have been missed.
    pub fn handle_listening(&mut self, now: Moment) {
        self.catch_up(now);
        if let Stage::Contending(contending) = &mut self.stage {
            contending.tries_at = contending.tries_at.min(now);
        }
        self.proceed(now);
    }

    /// The connection to the store broke: report it now instead of after the next attempt.
    pub fn handle_unreachable(&mut self, now: Moment, error: StoreError) {
        self.catch_up(now);
        if matches!(self.stage, Stage::Contending(_)) && self.role == Role::Standby {
            self.become_role(now, Role::Unknown, Reason::Store(error));
        }
        self.proceed(now);
    }

    /// The moment of the last [`Output::WaitUntil`] has come.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.catch_up(now);
        self.proceed(now);
    }

    /// Whether any work runs under the current term. After [`EventKind::StopWork`] the term is
    /// closed as soon as this is `false`; only then is the store told.
    pub fn handle_work(&mut self, now: Moment, running: bool) {
        self.catch_up(now);
        self.wishes.work_runs = running;
        self.proceed(now);
    }

    /// Work under this term was stopped because too little was left of its lease, by somebody who
    /// looked at the clock before this machine did. The term is released as if the machine had
    /// looked.
    pub fn lease_ran_out(&mut self, now: Moment, token: Token) {
        self.catch_up(now);
        if self.token() == Some(token) {
            self.yield_term(now, Reason::LeaseEnded, None);
        }
        self.proceed(now);
    }

    // ------------------------------------------------------------------ what the application wants

    /// The work made progress.
    pub fn beat(&mut self, now: Moment) {
        self.wishes.beaten_at = now;
        if std::mem::take(&mut self.wishes.stalled) {
            self.beats_at = now;
        }
        self.handle_timeout(now);
    }

    /// Sets whether this instance may lead. A leader that is no longer ready resigns.
    pub fn set_ready(&mut self, now: Moment, ready: bool) {
        self.catch_up(now);
        if self.wishes.ready != ready {
            self.wishes.ready = ready;
            self.beats_at = now;
        }
        if !ready {
            self.yield_term(now, Reason::NotReady, None);
        }
        self.proceed(now);
    }

    /// Takes no new term until [`contend_again`](Self::contend_again). A running term goes on.
    pub fn stand_back(&mut self, now: Moment) {
        self.catch_up(now);
        if !std::mem::replace(&mut self.wishes.stands_back, true) {
            // At once: nobody shall hand over to one that will not take it.
            self.beats_at = now;
        }
        self.proceed(now);
    }

    /// Ends [`stand_back`](Self::stand_back).
    pub fn contend_again(&mut self, now: Moment) {
        self.wishes.stands_back = false;
        self.handle_listening(now);
    }

    /// Steps down: work stops, the term closes, others may lead. This instance stays a candidate,
    /// behind them.
    pub fn resign(&mut self, now: Moment) {
        self.catch_up(now);
        self.yield_term(now, Reason::Resigned, None);
        self.proceed(now);
    }

    /// The work failed by itself: steps down and records the reason in the history.
    pub fn work_failed(&mut self, now: Moment, why: &str) {
        self.catch_up(now);
        self.yield_term(now, Reason::WorkFailed(why.to_owned()), None);
        self.proceed(now);
    }

    /// Steps down in favour of the member called `to`, or of the best one.
    pub fn hand_over(&mut self, now: Moment, to: Option<&str>) {
        self.hand_over_as(now, HandOver::default(), to);
    }

    /// Like [`hand_over`](Self::hand_over), for a request whose outcome
    /// [`poll_hand_over`](Self::poll_hand_over) returns under the caller's number.
    pub fn hand_over_as(&mut self, now: Moment, request: HandOver, to: Option<&str>) {
        self.catch_up(now);
        self.check_hand_over(now, Check::Own { request, to: to.map(str::to_owned) });
        self.proceed(now);
    }

    /// Renews now instead of when it is due.
    pub fn renew_now(&mut self, now: Moment) {
        self.catch_up(now);
        if let Stage::Leading(term) = &mut self.stage {
            term.renews_at = now;
        }
        self.proceed(now);
    }

    /// Leaves for good: work stops, the term closes, and the store is told, if it answers.
    pub fn stop(&mut self, now: Moment) {
        self.catch_up(now);
        if !std::mem::replace(&mut self.wishes.stops, true) && self.wishes.work_runs {
            // At once: work may take its grace to stop, and nobody shall hand over to us meanwhile.
            self.beats_at = now;
        }
        self.yield_term(now, Reason::Stopped, None);
        self.proceed(now);
    }

    // ------------------------------------------------------------------ what goes out

    /// The next output. [`Output::WaitUntil`] comes last and can be polled again.
    pub fn poll_output(&mut self) -> Output {
        self.outputs.pop_front().unwrap_or_else(|| {
            // Ten thousand elections at rest must not keep room for outputs.
            self.outputs = VecDeque::new();
            Output::WaitUntil(self.wakes_at())
        })
    }

    /// The outcome of the next finished hand-over. Each request has exactly one outcome, unless
    /// this instance stops first.
    pub fn poll_hand_over(&mut self) -> Option<(HandOver, HandOverOutcome)> {
        self.hand_overs.pop_front()
    }

    /// Until when this instance may act as the leader. A check needs nothing else.
    pub fn leads_until(&self) -> Option<Moment> {
        self.term().map(|term| term.ends_at)
    }

    /// The role of this instance, as last reported.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The reason for the role.
    pub fn role_reason(&self) -> &Reason {
        &self.role_reason
    }

    /// The token of the current term.
    pub fn token(&self) -> Option<Token> {
        self.term().map(|term| term.token)
    }

    /// The longest lease that any instance may rely on: every request carries it.
    pub fn fleet_max_ttl(&self) -> Duration {
        self.settings.timing.fleet_max_ttl()
    }

    /// The id of this instance.
    pub fn id(&self) -> &InstanceId {
        &self.settings.id
    }

    // ------------------------------------------------------------------ shared by the stages

    /// Deadlines that passed while nobody looked take effect before anything else does.
    fn catch_up(&mut self, now: Moment) {
        let Some(term) = self.term() else { return };
        let late = now.since(self.lead_wakes_at(term));
        self.enforce_deadlines(now, late);
    }

    /// Does what is due, until nothing is.
    fn proceed(&mut self, now: Moment) {
        match &self.stage {
            Stage::Contending(_) => self.contend(now),
            Stage::Leading(_) => self.lead(now),
            Stage::Parting(_) => self.part(now),
            Stage::Leaving(_) => self.leave(now),
            Stage::Over => {}
        }
        self.beat_when_due(now);
    }

    fn wakes_at(&self) -> Moment {
        let stage_wakes_at = match &self.stage {
            Stage::Contending(contending) => self.contend_wakes_at(contending),
            Stage::Leading(term) => self.lead_wakes_at(term),
            Stage::Parting(farewell) => self.part_wakes_at(farewell),
            Stage::Leaving(leaving) => leaving.gives_up_at,
            Stage::Over => return Moment::NEVER,
        };
        match (&self.side_ask, &self.stage) {
            (None, Stage::Contending(_) | Stage::Leading(_)) => stage_wakes_at.min(self.beats_at),
            _ => stage_wakes_at,
        }
    }

    fn term(&self) -> Option<&Term> {
        match &self.stage {
            Stage::Leading(term) => Some(term),
            _ => None,
        }
    }

    fn tell(&mut self, now: Moment, kind: EventKind) {
        self.events += 1;
        self.outputs.push_back(Output::Tell(Event { number: self.events, at: now, kind }));
    }

    fn settle_hand_over(&mut self, request: HandOver, outcome: HandOverOutcome) {
        if request == HandOver::default() {
            return;
        }
        if self.hand_overs.len() == HAND_OVERS_KEPT_MAX {
            self.hand_overs.pop_front();
        }
        self.hand_overs.push_back((request, outcome));
    }

    fn become_role(&mut self, now: Moment, to: Role, reason: Reason) {
        let from = std::mem::replace(&mut self.role, to);
        self.role_reason = reason.clone();
        if from != to {
            self.tell(now, EventKind::StateChanged { from, to, reason });
        }
    }

    fn ask(&mut self, request: Request, timeout: Duration) -> AskId {
        self.asks += 1;
        let ask = AskId(self.asks);
        self.outputs.push_back(Output::Ask { ask, request, timeout });
        ask
    }

    fn ask_about_lease(
        &mut self,
        now: Moment,
        kind: LeaseAsk,
        request: Request,
        timeout: Duration,
    ) {
        assert!(self.lease_ask.is_none(), "one request about the lease at a time");
        let id = self.ask(request, timeout);
        self.lease_ask = Some(Pending { id, kind, sent_at: now });
    }

    fn ask_beside(&mut self, now: Moment, kind: SideAsk, request: Request) {
        assert!(self.side_ask.is_none(), "one request beside the lease at a time");
        let id = self.ask(request, self.settings.timing.try_timeout());
        self.side_ask = Some(Pending { id, kind, sent_at: now });
    }

    fn settle_side(&mut self, now: Moment, kind: SideAsk, reply: Result<Answer, StoreError>) {
        match kind {
            SideAsk::Beat => self.settle_beat(now, reply),
            SideAsk::Check(checks) => self.settle_checks(now, checks, reply),
            SideAsk::Leave => self.finish(now),
            SideAsk::Refuse => {}
        }
    }

    /// Members that do not contend or renew for long must still be seen alive.
    fn beat_when_due(&mut self, now: Moment) {
        let taking_part = matches!(self.stage, Stage::Contending(_) | Stage::Leading(_));
        if !taking_part || now < self.beats_at || self.side_ask.is_some() {
            return;
        }
        self.beats_at = now + self.beat_every();
        let watches_rivals = self.term().is_some() && self.settings.failback.is_some();
        let members = watches_rivals || self.wants_members(now);
        let record = self.record();
        self.ask_beside(now, SideAsk::Beat, Request::Beat { record, members });
    }

    /// A leader is watched more closely than a standby, whose attempts carry its heartbeat anyway.
    fn beat_every(&self) -> Duration {
        let ttl = self.settings.timing.ttl();
        if self.term().is_some() { ttl } else { ttl * 2 }
    }

    fn record(&self) -> MemberRecord {
        MemberRecord {
            ready: self.wishes.ready && !self.wishes.stands_back,
            stalled: self.wishes.stalled,
            departing: self.wishes.stops,
            ..self.settings.record()
        }
    }
}
