//! What an operator may do to an election, from any client of the same store.
//!
//! Nobody but the leader's own process ends a term: an operator asks, and the leader stops its
//! work first. [`Observer::clear`] is the one exception and says so.

use std::time::Duration;

use tenure_core::SeenLeader;
use tenure_core::protocol::{Member, Outcome, Request, ServerTime, WishKind};
use tenure_core::timing::{TTL_DEFAULT, TTL_MAX, duration_text};

use crate::Error;
use crate::backend::Subscription;
use crate::observe::{Leadership, Observation, Observer, Vacancy, unexpected};

/// How long a wish stands at least and at most: a few renewals of the leader.
const WISH_MIN: Duration = Duration::from_secs(5);
const WISH_MAX: Duration = Duration::from_secs(120);
/// How often to look for an answer that no message announced.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long after the end of a term the next leader is waited for: longer than a reservation and
/// every head start, so that whoever stepped down would lead again before.
pub(crate) const NEXT_WAITED_FOR: Duration = Duration::from_secs(3);
/// How often to look for the next leader: it is a matter of round trips.
pub(crate) const NEXT_LOOKED_FOR_EVERY: Duration = Duration::from_millis(50);
/// A member that was silent for this many of its own leases is taken for gone.
const SILENT_LEASES_MAX: u32 = 3;
/// The longest pause: an operator who forgets it must not stop elections for ever.
const PAUSE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The outcome of asking a leader for something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the leader may have refused"]
pub enum AskOutcome {
    /// The leader did it.
    Done {
        /// Who leads now. `None` if there was no candidate, or if none became leader in time.
        leader: Option<SeenLeader>,
    },
    /// The leader refused.
    Refused {
        /// The reason that it gave.
        why: String,
    },
    /// The leader did not answer in time. It may be stuck or out of reach.
    NotAnswered {
        /// The leader that was asked.
        leader: SeenLeader,
    },
    /// Nobody leads, so there was nobody to ask.
    NobodyLeads,
}

impl AskOutcome {
    /// Whether what was asked for has happened.
    pub fn is_done(&self) -> bool {
        matches!(self, AskOutcome::Done { .. })
    }
}

/// Whether the leader is known to be alive.
fn is_alive(leader: &SeenLeader, seen: &Observation) -> bool {
    let member = seen.members.iter().find(|member| member.id == leader.id);
    member.is_some_and(|member| heard_lately(member, seen.server_time))
}

fn heard_lately(member: &Member, server_time: ServerTime) -> bool {
    let silent_max = member.record.ttl.saturating_mul(SILENT_LEASES_MAX);
    server_time.since(member.beat_at) <= silent_max
}

/// The longest lease that anybody may still believe in, with its drift.
fn longest_lease(seen: &Observation, own: Duration) -> Duration {
    let members = seen.members.iter().map(|member| member.record.ttl).filter(|ttl| *ttl <= TTL_MAX);
    let left = match seen.leadership {
        // What lasts longer than a lease can is none: nobody believes in it.
        Leadership::Led { remaining: Some(left), .. } if left <= TTL_MAX => left,
        _ => Duration::ZERO,
    };
    // Nobody knows for how long a stranger believes in what it wrote.
    let is_foreign = seen.leadership.leader().is_some_and(|leader| leader.foreign);
    let strangers = if is_foreign { TTL_DEFAULT } else { Duration::ZERO };
    let longest = members.fold(own.max(left).max(strangers), Duration::max);
    longest + longest / 100 + Duration::from_millis(2)
}

impl Observer {
    /// Asks the leader to step down, and waits for the outcome. If there is a candidate, also waits
    /// a few seconds for it to lead. The leader's work ends before anybody else leads.
    pub async fn ask_to_resign(&self) -> Result<AskOutcome, Error> {
        self.ask_leader(WishKind::Resign).await
    }

    /// Asks the leader to hand over to the member called `to`, by name or whole id, and waits for
    /// the outcome. [`AskOutcome::Done`] means that this member leads.
    pub async fn ask_to_hand_over(&self, to: &str) -> Result<AskOutcome, Error> {
        self.ask_leader(WishKind::HandOver { to: to.to_owned() }).await
    }

    /// Lets no instance begin a new term for as long as `lasts`, for maintenance. A running term
    /// goes on. To hold back this instance alone, see
    /// [`Election::stand_back`](crate::Election::stand_back).
    pub async fn pause(&self, lasts: Duration) -> Result<(), Error> {
        if lasts.is_zero() || lasts > PAUSE_MAX {
            let [lasts, most] = [lasts, PAUSE_MAX].map(duration_text);
            let why = format!("{lasts} is not a valid pause: choose one of at most {most}");
            return Err(Error::Setting { setting: "pause", why });
        }
        self.expect_done(Request::Pause { lasts }, "pause").await
    }

    /// Ends a pause.
    pub async fn resume(&self) -> Result<(), Error> {
        self.expect_done(Request::Resume, "resume").await
    }

    /// Ends the current term without its holder, for emergencies. History shows the `reason`.
    /// Nobody leads until no instance can hold an old lease.
    ///
    /// Fails with [`Error::HolderAlive`] while the leader is alive, and with [`Error::Refused`] if
    /// another program holds the key.
    pub async fn clear(&self, reason: &str) -> Result<(), Error> {
        let seen = self.look().await?;
        let Some(leader) = seen.leadership.leader() else {
            return self.clear_seen(&seen, reason).await;
        };
        let (name, holder) = (self.resource().name().to_owned(), leader.id.to_string());
        if is_alive(leader, &seen) {
            return Err(Error::HolderAlive { name, holder });
        }
        if leader.foreign {
            let quarantine = longest_lease(&seen, self.client().longest_lease());
            let why = format!(
                "{name:?} is held by {holder}, which another program wrote, so whether it still \
                 works is not known: if it is gone, force it (--force); nobody leads for {} then",
                duration_text(quarantine)
            );
            return Err(Error::Refused { why });
        }
        self.clear_seen(&seen, reason).await
    }

    /// Like [`clear`](Self::clear), even if the leader is alive.
    pub async fn force_clear(&self, reason: &str) -> Result<(), Error> {
        let seen = self.look().await?;
        self.clear_seen(&seen, reason).await
    }

    async fn clear_seen(&self, seen: &Observation, reason: &str) -> Result<(), Error> {
        let quarantine = longest_lease(seen, self.client().longest_lease());
        let request = Request::Clear { reason: reason.to_owned(), quarantine };
        self.expect_done(request, "clear").await
    }

    async fn expect_done(&self, request: Request, asked: &str) -> Result<(), Error> {
        match self.ask(request).await?.outcome {
            Outcome::Done => Ok(()),
            other => Err(unexpected(&other, asked)),
        }
    }

    async fn ask_leader(&self, wish: WishKind) -> Result<AskOutcome, Error> {
        // Listening first: the answer may come before the reply to the request.
        let backend = std::sync::Arc::clone(&self.client().backend);
        let subscription = self.client().subscribe(backend, self.resource()).await?;
        let seen = self.look().await?;
        let Some(leader) = seen.leadership.leader().cloned() else {
            return Ok(AskOutcome::NobodyLeads);
        };
        let Some(token) = leader.token.filter(|_| !leader.foreign) else {
            let why = format!("{} does not speak this protocol, so it cannot be asked", leader.id);
            return Ok(AskOutcome::Refused { why });
        };
        let stands_for = wish_time(&seen, &leader);
        let request = Request::Ask { token, wish: wish.clone(), stands_for };
        match self.ask(request).await?.outcome {
            Outcome::Done | Outcome::NoSuchTerm => {}
            other => return Err(unexpected(&other, "wish")),
        }
        self.follow_wish(subscription, &wish, leader, stands_for).await
    }

    async fn follow_wish(
        &self,
        mut subscription: Subscription,
        wish: &WishKind,
        leader: SeenLeader,
        stands_for: Duration,
    ) -> Result<AskOutcome, Error> {
        let clock = &self.client().clock;
        let gives_up_at = clock.now() + stands_for;
        let mut next_until = None;
        loop {
            let progress = progress(&self.look().await?, wish, &leader);
            let now = clock.now();
            let pause = match progress {
                Progress::Settled(asked) => return Ok(asked),
                Progress::Unanswered if now >= gives_up_at => {
                    return Ok(AskOutcome::NotAnswered { leader });
                }
                Progress::Unanswered => {
                    next_until = None;
                    LOOK_EVERY
                }
                Progress::Between if now >= *next_until.get_or_insert(now + NEXT_WAITED_FOR) => {
                    return Ok(nobody_follows(wish));
                }
                Progress::Between => NEXT_LOOKED_FOR_EVERY,
            };
            tokio::select! {
                Some(_) = subscription.next() => {}
                slept = self.client().sleep(pause) => slept?,
            }
        }
    }
}

/// A few leases of the leader: it finds the wish with its next renewal at the latest.
fn wish_time(seen: &Observation, leader: &SeenLeader) -> Duration {
    let member = seen.members.iter().find(|member| member.id == leader.id);
    let lease = member.map_or(WISH_MIN, |member| member.record.ttl);
    (lease * 2).clamp(WISH_MIN, WISH_MAX)
}

/// How far a wish has come.
#[derive(Debug, PartialEq)]
enum Progress {
    /// The term runs on, and its leader has said nothing.
    Unanswered,
    /// The term is over, and the next has yet to begin. One look shows nothing about who is on the
    /// way: a quorum reserves nothing, and its nodes hear of a new term one by one.
    Between,
    Settled(AskOutcome),
}

fn progress(seen: &Observation, wish: &WishKind, asked: &SeenLeader) -> Progress {
    match &seen.leadership {
        Leadership::Led { leader, .. } if leader.token == asked.token => {
            let answered = seen.wish.as_ref().filter(|wish| wish.token == asked.token);
            match answered.and_then(|wish| wish.refused.clone()) {
                Some(why) => Progress::Settled(AskOutcome::Refused { why }),
                None => Progress::Unanswered,
            }
        }
        Leadership::Led { leader, .. } => Progress::Settled(match wish {
            WishKind::HandOver { to } if !leader.id.answers_to(to) => {
                AskOutcome::Refused { why: leads_instead(to, leader) }
            }
            _ => AskOutcome::Done { leader: Some(leader.clone()) },
        }),
        Leadership::Vacant(vacancy) => {
            let is_barred =
                matches!(vacancy, Vacancy::Quarantine { .. }) || seen.paused_for.is_some();
            let is_awaited = match wish {
                WishKind::HandOver { .. } => true,
                WishKind::Resign => seen.members.iter().any(|m| is_candidate(m, seen, asked)),
            };
            match is_awaited && !is_barred {
                true => Progress::Between,
                false => Progress::Settled(nobody_follows(wish)),
            }
        }
    }
}

/// Why a hand-over failed although somebody leads: the successor may have stopped or be cut off.
pub(crate) fn leads_instead(to: &str, leader: &SeenLeader) -> String {
    format!("{to} did not take over, so {} leads instead: is it alive and connected?", leader.id)
}

/// Whether a member other than the one that stepped down may lead next.
fn is_candidate(member: &Member, seen: &Observation, former: &SeenLeader) -> bool {
    let record = &member.record;
    let may_lead = record.ready && !record.departing && !record.stalled;
    member.id != former.id && may_lead && heard_lately(member, seen.server_time)
}

/// The term has ended, but no other has begun.
fn nobody_follows(wish: &WishKind) -> AskOutcome {
    match wish {
        WishKind::Resign => AskOutcome::Done { leader: None },
        WishKind::HandOver { to } => {
            AskOutcome::Refused { why: format!("the term ended, but {to} did not take over") }
        }
    }
}
