//! What one look showed, and for how long that counts.

use std::time::Duration;

use tenure::{Leadership, Moment, Observation, Observer, SeenLeader, ServerTime, Vacancy};

use crate::clock;
use crate::exit::{self, Failure};
use crate::log_line::iso_moment;
use crate::output::plain;
use crate::store_options::StoreObserver;

/// How long a look is believed that showed no lease whose end could be waited for.
const BELIEVED_MAX: Duration = Duration::from_secs(10);
/// How often to look again where an answer took longer than the lease in it.
const LOOKS_MAX: usize = 3;

/// What was seen, and when.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    seen: Observation,
    /// When the look began, on the clock that counts through suspend.
    looked_at: Moment,
    looked_at_ms: u64,
}

/// That nobody can tell who leads, and what was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unknown {
    /// When the lease that was seen ended, in Unix milliseconds.
    pub(crate) since_ms: u64,
    pub(crate) last_leader: Option<SeenLeader>,
}

impl Sight {
    /// Looks once.
    pub(crate) async fn of(observer: &Observer) -> Result<Self, tenure::Error> {
        let (looked_at, looked_at_ms) = (clock::awake_or_asleep(), clock::unix_ms());
        let seen = observer.look().await?;
        Ok(Sight { seen, looked_at, looked_at_ms })
    }

    /// What was seen just now, whenever the look began.
    pub(crate) fn arrived(seen: Observation) -> Self {
        let (looked_at, looked_at_ms) = (clock::awake_or_asleep(), clock::unix_ms());
        Sight { seen, looked_at, looked_at_ms }
    }

    /// What was seen, with what is left of leases as of now.
    pub(crate) fn now(&self) -> Observation {
        let age = self.age();
        let mut seen = self.seen.clone();
        let left = match &mut seen.leadership {
            Leadership::Led { remaining, .. } => remaining.as_mut(),
            Leadership::Vacant(
                Vacancy::Quarantine { left, .. }
                | Vacancy::Paused { left }
                | Vacancy::Reserved { left, .. }
                | Vacancy::Unconfirmed { left, .. },
            ) => Some(left),
            Leadership::Vacant(_) => None,
        };
        for left in left.into_iter().chain(seen.paused_for.as_mut()) {
            *left = left.saturating_sub(age);
        }
        let age = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        seen.server_time = ServerTime(seen.server_time.0.saturating_add(age));
        seen
    }

    /// What was seen, as it was.
    pub(crate) fn then(&self) -> &Observation {
        &self.seen
    }

    pub(crate) fn age(&self) -> Duration {
        clock::awake_or_asleep().since(self.looked_at)
    }

    /// How long it still counts; zero once nobody can tell who leads.
    pub(crate) fn believed_for(&self) -> Duration {
        self.believed().saturating_sub(self.age())
    }

    /// Set once the lease that was seen is over.
    pub(crate) fn unknown(&self) -> Option<Unknown> {
        let believed = u64::try_from(self.believed().as_millis()).unwrap_or(u64::MAX);
        self.believed_for().is_zero().then(|| Unknown {
            since_ms: self.looked_at_ms.saturating_add(believed),
            last_leader: self.seen.leadership.leader().cloned(),
        })
    }

    fn believed(&self) -> Duration {
        match self.seen.leadership {
            Leadership::Led { remaining: Some(left), .. } => left,
            _ => BELIEVED_MAX,
        }
    }
}

impl Unknown {
    /// For people: since when, and who was seen last.
    pub(crate) fn text(&self) -> String {
        let last = match &self.last_leader {
            Some(leader) => match leader.token {
                Some(token) => format!("{}, token {token}", plain(leader.id.as_str())),
                None => plain(leader.id.as_str()),
            },
            None => "nobody".to_owned(),
        };
        format!("unknown since {}, last seen: {last}", iso_moment(self.since_ms))
    }
}

impl StoreObserver {
    /// Looks until an answer comes that is younger than the lease in it.
    pub(crate) fn sight(&self) -> Result<Sight, Failure> {
        let mut sight = self.wait(Sight::of(&self.observer))?;
        for _ in 1..LOOKS_MAX {
            if sight.unknown().is_none() {
                return Ok(sight);
            }
            sight = self.wait(Sight::of(&self.observer))?;
        }
        match sight.unknown() {
            None => Ok(sight),
            Some(unknown) => Err(Failure::new(
                exit::UNREACHABLE,
                format!(
                    "{}: the store's answers take longer ({:?}) than the lease that they report: \
                     check the network to it",
                    unknown.text(),
                    sight.age(),
                ),
            )),
        }
    }
}
