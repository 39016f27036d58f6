//! What an instance brings to an election.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::MemberRecord;
use crate::{InstanceId, Moment, Resource, Timing};

/// Everything one election needs to know, checked before it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is led.
    pub resource: Resource,
    /// Who takes part.
    pub id: InstanceId,
    /// The time budget.
    pub timing: Timing,
    /// How often to contend.
    pub contest: Contest,
    /// Instances with a higher priority are preferred: they try first, and others hand over to them
    /// under [`Failback`].
    pub priority: i32,
    /// Whether it may lead from the start.
    pub ready: bool,
    /// The application's version: a hand-over never chooses an older one.
    pub version: String,
    /// Free text shown beside the member.
    pub metadata: BTreeMap<String, String>,
    /// Whether a leader hands over to a higher priority, and how patiently.
    pub failback: Option<Failback>,
    /// Work must beat at least this often, else the leader steps down.
    pub require_beat: Option<Duration>,
    /// How long the resource stays free after a crash, for resources that cannot check tokens.
    pub lock_delay: Duration,
    /// The user vouches that nobody led this resource before: no quarantine of an empty store.
    pub fresh_store: bool,
    /// A holder without expiry that an earlier try of this instance found, and when it was first
    /// found like that. One that stays for longer than any lease is given an expiry.
    pub endless_holder: Option<(InstanceId, Moment)>,
}

impl Settings {
    /// The plain case: contend for ever, priority 0, ready, nothing optional.
    pub fn new(resource: Resource, id: InstanceId, timing: Timing) -> Self {
        Settings {
            resource,
            id,
            timing,
            contest: Contest::Lasting,
            priority: 0,
            ready: true,
            version: String::new(),
            metadata: BTreeMap::new(),
            failback: None,
            require_beat: None,
            lock_delay: Duration::ZERO,
            fresh_store: false,
            endless_holder: None,
        }
    }

    /// How long a named successor has to claim the resource.
    pub fn claim_ttl(&self) -> Duration {
        (self.timing.ttl() / 4).min(Duration::from_secs(1))
    }

    pub(crate) fn record(&self) -> MemberRecord {
        MemberRecord {
            priority: self.priority,
            ready: self.ready,
            departing: false,
            stalled: false,
            version: self.version.clone(),
            ttl: self.timing.ttl(),
            metadata: self.metadata.clone(),
        }
    }
}

/// How often an instance contends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contest {
    /// Again and again, until stopped.
    Lasting,
    /// Once: a definite no, or the end of the term, stops the election.
    OneShot,
}

/// How patiently a leader hands over to a higher priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failback {
    /// The other must have been ready for this long; doubled after each time it did not last.
    pub delay: Duration,
    /// This instance's term must have lasted this long.
    pub min_tenure: Duration,
}

impl Failback {
    /// The longest the delay grows to.
    pub const DELAY_MAX: Duration = Duration::from_secs(3600);
}

impl Default for Failback {
    fn default() -> Self {
        Failback { delay: Duration::from_secs(300), min_tenure: Duration::from_secs(60) }
    }
}
