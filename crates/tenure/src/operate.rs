//! What an operator may do to an election, from any client of the same store.
//!
//! Nobody but the leader's own process ends a term: an operator asks, and the leader stops its
//! work first. [`Tenure::clear`] is the one exception and says so.

use std::time::Duration;

use tenure_core::protocol::{Member, Outcome, Request, ServerTime, WishKind};
use tenure_core::{SeenLeader, Token};

use crate::observe::{Leadership, Observation, Observer, Vacancy, unexpected};
use crate::{Error, Tenure};

/// How long a wish stands at least and at most: a few renewals of the leader.
const WISH_MIN: Duration = Duration::from_secs(5);
const WISH_MAX: Duration = Duration::from_secs(120);
/// How often to look for an answer that no message announced.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A member that was silent for this many of its own leases is taken for gone.
const SILENT_LEASES_MAX: u32 = 3;
/// The longest pause: an operator who forgets it must not stop elections for ever.
const PAUSE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What came of asking a leader for something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asked {
    /// It did so.
    Done {
        /// Who leads since, as far as seen.
        leader: Option<SeenLeader>,
    },
    /// It said no.
    Refused {
        /// In these words.
        why: String,
    },
    /// It did not answer while the wish stood. It may be stuck or out of reach.
    NotAnswered {
        /// Who was asked.
        leader: SeenLeader,
    },
    /// Nobody leads, so there was nobody to ask.
    NobodyLeads,
}

impl Asked {
    /// Whether what was asked for has happened.
    pub fn is_done(&self) -> bool {
        matches!(self, Asked::Done { .. })
    }
}

impl Tenure {
    /// Asks the leader of `name` to step down, and waits for what comes of it. Its work ends
    /// before anybody else leads.
    pub async fn ask_to_resign(&self, name: &str) -> Result<Asked, Error> {
        self.observe(name)?.ask_to_resign().await
    }

    /// Asks the leader of `name` to hand over to the member called `to`, by name or whole id, and
    /// waits for what comes of it.
    pub async fn ask_to_hand_over(&self, name: &str, to: &str) -> Result<Asked, Error> {
        self.observe(name)?.ask_to_hand_over(to).await
    }

    /// Grants no new term of `name` to anybody for as long as `lasts`, for maintenance. A running
    /// term goes on.
    pub async fn pause(&self, name: &str, lasts: Duration) -> Result<(), Error> {
        if lasts.is_zero() || lasts > PAUSE_MAX {
            let why = format!("{lasts:?} is no pause: choose one of at most {PAUSE_MAX:?}");
            return Err(Error::Setting { setting: "pause", why });
        }
        self.observe(name)?.expect_done(Request::Pause { lasts }, "pause").await
    }

    /// Ends a pause.
    pub async fn resume(&self, name: &str) -> Result<(), Error> {
        self.observe(name)?.expect_done(Request::Resume, "resume").await
    }

    /// Breaks the glass: ends whatever term of `name` there is, for the `reason` that history will
    /// show. Nobody leads until every lease that might be believed in is over.
    ///
    /// Refuses with [`Error::HolderAlive`] while the leader was heard of lately, unless `force`
    /// says that the operator knows better.
    pub async fn clear(&self, name: &str, reason: &str, force: Force) -> Result<(), Error> {
        let observer = self.observe(name)?;
        let seen = observer.look().await?;
        if let (Force::No, Some(leader)) = (force, seen.leadership.leader())
            && is_alive(leader, &seen)
        {
            let (name, holder) = (name.to_owned(), leader.id.to_string());
            return Err(Error::HolderAlive { name, holder });
        }
        let quarantine = longest_lease(&seen, self.client().longest_lease());
        let request = Request::Clear { reason: reason.to_owned(), quarantine };
        observer.expect_done(request, "clear").await
    }
}

/// Whether to override what speaks against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Refuse when something speaks against it.
    No,
    /// The operator knows better.
    Yes,
}

/// Whether the leader was heard of lately. Of a stranger nobody knows.
fn is_alive(leader: &SeenLeader, seen: &Observation) -> bool {
    match seen.members.iter().find(|member| member.id == leader.id) {
        Some(member) => heard_lately(member, seen.server_time),
        None => leader.foreign,
    }
}

fn heard_lately(member: &Member, server_time: ServerTime) -> bool {
    let silent_max = member.record.ttl.saturating_mul(SILENT_LEASES_MAX);
    server_time.since(member.beat_at) <= silent_max
}

/// The longest lease that anybody may still believe in, with its drift.
fn longest_lease(seen: &Observation, own: Duration) -> Duration {
    let members = seen.members.iter().map(|member| member.record.ttl);
    let left = match seen.leadership {
        Leadership::Led { remaining: Some(left), .. } => left,
        _ => Duration::ZERO,
    };
    let longest = members.fold(own.max(left), Duration::max);
    longest + longest / 100 + Duration::from_millis(2)
}

impl Observer {
    /// As [`Tenure::ask_to_resign`], about the resource that this observer looks at, whatever its
    /// key is.
    pub async fn ask_to_resign(&self) -> Result<Asked, Error> {
        self.ask_leader(WishKind::Resign).await
    }

    /// As [`Tenure::ask_to_hand_over`], about the resource that this observer looks at, whatever
    /// its key is.
    pub async fn ask_to_hand_over(&self, to: &str) -> Result<Asked, Error> {
        self.ask_leader(WishKind::HandOver { to: to.to_owned() }).await
    }

    async fn expect_done(&self, request: Request, asked: &str) -> Result<(), Error> {
        match self.ask(request).await?.outcome {
            Outcome::Done => Ok(()),
            other => Err(unexpected(&other, asked)),
        }
    }

    async fn ask_leader(&self, wish: WishKind) -> Result<Asked, Error> {
        // Listening first: the answer may come before the reply to the request.
        let backend = std::sync::Arc::clone(&self.client().backend);
        let mut subscription = self.client().subscribe(backend, self.resource()).await?;
        let seen = self.look().await?;
        let Some(leader) = seen.leadership.leader().cloned() else {
            return Ok(Asked::NobodyLeads);
        };
        if leader.foreign || !leader.token.is_some() {
            let why = format!("{} does not speak this protocol, so it cannot be asked", leader.id);
            return Ok(Asked::Refused { why });
        }
        let stands_for = wish_time(&seen, &leader);
        let request = Request::Ask { token: leader.token, wish: wish.clone(), stands_for };
        match self.ask(request).await?.outcome {
            Outcome::Done | Outcome::NoSuchTerm => {}
            other => return Err(unexpected(&other, "wish")),
        }
        let gives_up_at = self.client().clock.now() + stands_for;
        loop {
            if let Some(asked) = answer(&self.look().await?, &wish, leader.token) {
                return Ok(asked);
            }
            if self.client().clock.now() >= gives_up_at {
                return Ok(Asked::NotAnswered { leader });
            }
            tokio::select! {
                Some(_) = subscription.next() => {}
                slept = self.client().sleep(LOOK_EVERY) => slept?,
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

/// What the leader has made of a wish so far.
fn answer(seen: &Observation, wish: &WishKind, asked: Token) -> Option<Asked> {
    let leader = seen.leadership.leader().cloned();
    let still_leads = leader.as_ref().is_some_and(|leader| leader.token == asked);
    if still_leads {
        let refused = seen.wish.as_ref().filter(|wish| wish.token == asked)?.refused.clone()?;
        return Some(Asked::Refused { why: refused });
    }
    if matches!(seen.leadership, Leadership::Vacant(Vacancy::Reserved { .. })) {
        return None; // The successor has yet to take over, or not to.
    }
    match (wish, &leader) {
        (WishKind::HandOver { to }, Some(other)) if !other.id.answers_to(to) => {
            Some(Asked::Refused { why: format!("{} leads instead", other.id) })
        }
        (WishKind::HandOver { to }, None) => {
            Some(Asked::Refused { why: format!("the term ended, but {to} did not take over") })
        }
        _ => Some(Asked::Done { leader }),
    }
}
