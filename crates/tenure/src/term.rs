//! The guard of a term: what work holds while it acts as the leader.

use std::future::Future;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::{Moment, Reason, Resource, Timing, Token};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::state::{ElectionState, Successor};
use crate::{Election, Error};

/// A guard of one leadership. Work holds it while it acts as the leader.
///
/// A term ends when its lease cannot be renewed in time, when the store says so, or when this
/// instance releases it. [`wait_until_stopping`](Term::wait_until_stopping) returns before that;
/// drop the guard soon afterwards. While guards exist, work counts as running, and no other
/// instance can become leader until they are dropped or the lease is over. A guard that is kept
/// after its term keeps its own instance from contending again.
///
/// Only a [`token`](Term::token) that the resource itself checks prevents late writes.
#[derive(Debug)]
pub struct Term {
    term: Arc<TermState>,
    election: Arc<ElectionState>,
    /// Set where the guard is all there is of its election: a single try.
    owner: Option<Election>,
}

impl Term {
    /// A guard on the open term of `election`, if work may begin under it.
    pub(crate) fn enter(election: &Arc<ElectionState>) -> Option<Self> {
        let term = election.enter_term()?;
        Some(Term { term, election: Arc::clone(election), owner: None })
    }

    /// A second guard on the same term.
    pub(crate) fn double(&self) -> Self {
        self.election.enter_beside();
        Term { term: Arc::clone(&self.term), election: Arc::clone(&self.election), owner: None }
    }

    pub(crate) fn owning(mut self, election: Election) -> Self {
        self.owner = Some(election);
        self
    }

    pub(crate) fn state(&self) -> &Arc<TermState> {
        &self.term
    }

    /// The resource of the term.
    pub fn resource(&self) -> &Resource {
        &self.election.resource
    }

    /// The number of the term. Send it with every write to the protected resource.
    pub fn token(&self) -> Token {
        self.term.token
    }

    /// How long the term may still be acted on unless it is renewed; zero once it is over.
    pub fn remaining(&self) -> Duration {
        match self.election.born_in.is_current() {
            true => self.election.clock.now().until(self.term.valid_until()),
            false => Duration::ZERO,
        }
    }

    /// Until when the term may be acted on unless it is renewed, on the clock that counts through
    /// suspend; [`Moment::ORIGIN`] once it is over. Use this to pass the deadline to another
    /// process.
    pub fn ends_at(&self) -> Moment {
        self.term.valid_until()
    }

    /// Waits until a renewal is answered, refused or abandoned. To miss no change, call this first,
    /// then read [`ends_at`](Self::ends_at), then await.
    pub fn wait_for_renewal(&self) -> impl Future<Output = ()> + '_ {
        // Begun here: what is settled before it is awaited counts.
        let settled = self.term.renewal_settled();
        async move {
            if self.is_of_this_process() {
                settled.await;
            }
        }
    }

    /// The time settings of its election: lease, renewal, grace.
    pub fn timing(&self) -> Timing {
        self.election.timing
    }

    /// Whether the term may be acted on now. No I/O. Also `true` while work is stopping.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Whether work has to stop: it was told to, or too little is left of a lease that was not
    /// renewed. No I/O. Correct even if no other thread of this process has run for a while.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.election.must_stop(&self.term)
    }

    /// Waits until work has to stop: the lease runs out, or the term is being released.
    pub async fn wait_until_stopping(&self) {
        self.reaches(Phase::Stopping).await;
    }

    /// Waits until work that is still running is cut off: a moment before its grace is over.
    pub async fn wait_until_cut_off(&self) {
        self.reaches(Phase::CutOff).await;
    }

    /// Waits until the term is over.
    pub async fn wait_until_over(&self) {
        self.reaches(Phase::Over).await;
    }

    /// Whether the term was granted to this process, not to the one that it was forked from.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.election.check_process().is_ok()
    }

    /// A forked child has no term, and nobody to tell it so.
    async fn reaches(&self, phase: Phase) {
        if self.is_of_this_process() {
            self.term.reaches(phase).await;
        }
    }

    /// Why work has to stop, once it has to.
    pub fn stop_reason(&self) -> Option<Reason> {
        self.term.stop_reason.get().map(|reason| Reason::clone(reason))
    }

    /// A token that is cancelled when work has to stop.
    pub fn cancellation(&self) -> CancellationToken {
        if !self.is_of_this_process() {
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            return cancelled;
        }
        self.term.cancellation()
    }

    /// Returns whether at least `least` is left of the term. Renews the lease once if it is not. If
    /// `false`, do not begin anything that takes this long.
    #[must_use]
    pub async fn ensure(&self, least: Duration) -> bool {
        self.renew_until(|| self.remaining() >= least).await
    }

    /// Renews the lease now instead of when it is due. Returns whether that succeeded.
    #[must_use]
    pub async fn renew(&self) -> bool {
        let before = self.term.valid_until();
        self.renew_until(|| self.term.valid_until() > before).await
    }

    /// Renews once, or twice where one renewal was under way already.
    async fn renew_until(&self, satisfied: impl Fn() -> bool) -> bool {
        for _ in 0..2 {
            if satisfied() || self.is_stopping() {
                break;
            }
            let settled = self.term.renewal_settled();
            self.election.wish(|wishes| wishes.renews = true);
            tokio::select! {
                () = settled => {}
                () = self.wait_until_stopping() => {}
            }
        }
        satisfied() && self.is_valid() && !self.is_stopping()
    }

    /// Releases the term and waits until the store has confirmed it, if it answers. Waits for other
    /// guards of the same term within the stop grace.
    pub async fn resign(self) {
        if !self.is_of_this_process() {
            return;
        }
        self.stop_owned();
        let (election, token, owner) = self.into_parts();
        match owner {
            Some(owner) => owner.stop().await,
            None => {
                election.wish(|wishes| wishes.resigns = true);
                wait_until_given_up(&election, token).await;
            }
        }
    }

    /// Hands over to the member called `to`, and returns its id once it leads. End your work before
    /// you call this.
    ///
    /// Fails with [`Error::Refused`] as [`Election::hand_over`] does. If `to` cannot take over,
    /// this instance still leads, and [`Election::term`] returns a new guard.
    pub async fn hand_over(self, to: &str) -> Result<tenure_core::InstanceId, Error> {
        let (election, _, owner) = self.into_parts();
        let handed = crate::election::hand_over(&election, Successor::Named(to.to_owned())).await;
        drop(owner);
        handed
    }

    /// Has the election stopped that is there for this guard alone: before the guard is gone, so
    /// that nothing contends in between.
    fn stop_owned(&self) {
        if let Some(owner) = &self.owner {
            owner.state().stop();
        }
    }

    /// Drops the guard and keeps what goes on after it.
    fn into_parts(mut self) -> (Arc<ElectionState>, Token, Option<Election>) {
        (Arc::clone(&self.election), self.token(), self.owner.take())
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        if self.is_of_this_process() {
            self.stop_owned();
        }
        self.election.leave_term();
    }
}

pub(crate) async fn wait_until_given_up(election: &ElectionState, token: Token) {
    election.status.wait_for(|status| status.token != Some(token) && !status.parting).await;
}

/// How long before the end of its grace work is cut off at the most.
const CUT_LEAD_MAX: Duration = Duration::from_millis(20);

/// How far a term has come. Only ever moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Open,
    /// Work was told to stop.
    Stopping,
    /// Work that is still there is cut off.
    CutOff,
    Over,
}

/// One term, shared by the driver and all guards.
#[derive(Debug)]
pub(crate) struct TermState {
    pub(crate) token: Token,
    /// Until when it may be acted on, in nanoseconds on the local clock.
    valid_until: AtomicU64,
    phase: AtomicU8,
    /// When work that was told to stop is cut off, likewise.
    cuts_off_at: AtomicU64,
    phase_changed: Notify,
    renewal_settled: Notify,
    stop_reason: OnceLock<Box<Reason>>,
    /// Made only for those who ask: most work never does.
    cancellation: OnceLock<CancellationToken>,
}

impl TermState {
    pub(crate) fn new(token: Token, ends_at: Moment) -> Self {
        TermState {
            token,
            valid_until: AtomicU64::new(ends_at.as_nanos()),
            phase: AtomicU8::new(Phase::Open as u8),
            cuts_off_at: AtomicU64::new(Moment::NEVER.as_nanos()),
            phase_changed: Notify::new(),
            renewal_settled: Notify::new(),
            stop_reason: OnceLock::new(),
            cancellation: OnceLock::new(),
        }
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    pub(crate) fn extend(&self, ends_at: Moment) {
        self.valid_until.store(ends_at.as_nanos(), Ordering::Release);
    }

    pub(crate) fn invalidate(&self) {
        self.valid_until.store(0, Ordering::Release);
    }

    pub(crate) fn cuts_off_at(&self) -> Moment {
        Moment::from_nanos(self.cuts_off_at.load(Ordering::Acquire))
    }

    /// Work is cut off a little before `by`: long enough for a runtime to drop it, so that
    /// "overrun" is said only of work that cannot be dropped.
    pub(crate) fn cut_off_at(&self, now: Moment, by: Moment) {
        let at = by - CUT_LEAD_MAX.min(now.until(by) / 4);
        self.cuts_off_at.fetch_min(at.as_nanos(), Ordering::AcqRel);
    }

    pub(crate) fn stop(&self, reason: Reason) {
        let _ = self.stop_reason.set(Box::new(reason));
        self.advance(Phase::Stopping);
    }

    pub(crate) fn cut_off(&self) {
        self.advance(Phase::CutOff);
    }

    pub(crate) fn end(&self, reason: Reason) {
        let _ = self.stop_reason.set(Box::new(reason));
        self.invalidate();
        self.advance(Phase::Over);
    }

    fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
        if let Some(cancellation) = self.cancellation.get() {
            cancellation.cancel();
        }
        self.phase_changed.notify_waiters();
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Open,
            1 => Phase::Stopping,
            2 => Phase::CutOff,
            _ => Phase::Over,
        }
    }

    pub(crate) async fn reaches(&self, phase: Phase) {
        let mut changed = std::pin::pin!(self.phase_changed.notified());
        loop {
            // Registered before the look: what happens in between is not missed.
            changed.as_mut().enable();
            if self.phase() >= phase {
                return;
            }
            changed.as_mut().await;
            changed.set(self.phase_changed.notified());
        }
    }

    fn cancellation(&self) -> CancellationToken {
        let token = self.cancellation.get_or_init(CancellationToken::new);
        if self.phase() >= Phase::Stopping {
            token.cancel();
        }
        // A child: cancelling it is the application's affair and stops nobody else.
        token.child_token()
    }

    /// A renewal was answered, refused or abandoned.
    pub(crate) fn settle_renewal(&self) {
        self.renewal_settled.notify_waiters();
    }

    /// Resolves when a renewal that ends from now on is settled.
    fn renewal_settled(&self) -> impl Future<Output = ()> + '_ {
        self.renewal_settled.notified()
    }
}
