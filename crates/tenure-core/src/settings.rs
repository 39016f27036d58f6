//! The settings of one instance in one election.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::MemberRecord;
use crate::{InstanceId, Moment, Resource, Timing};

/// Everything an election's state machine needs to know, checked before it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The resource of the election.
    pub resource: Resource,
    /// The id of this instance.
    pub id: InstanceId,
    /// The time settings.
    pub timing: Timing,
    /// How often to contend.
    pub contest: Contest,
    /// Instances with a higher priority are preferred: they try first, and others hand over to them
    /// if [`Failback`] is set.
    pub priority: i32,
    /// Whether the instance may lead from the start.
    pub ready: bool,
    /// The application's version: a hand-over never chooses a member with an older one.
    pub version: String,
    /// Free text shown beside the member.
    pub metadata: BTreeMap<String, String>,
    /// Whether and when a leader hands over to an instance with a higher priority.
    pub failback: Option<Failback>,
    /// The work must beat at least this often while leading, else the leader steps down.
    pub require_beat: Option<Duration>,
    /// How long nobody leads after a crash, for resources that cannot check tokens.
    pub lock_delay: Duration,
    /// The user declares that nobody has led this resource before: an empty store needs no
    /// quarantine.
    pub fresh_store: bool,
    /// A holder without expiry that an earlier attempt of this instance found, and when it was
    /// first found so. If it stays for longer than any lease, it is given an expiry.
    pub endless_holder: Option<(InstanceId, Moment)>,
}

impl Settings {
    /// Defaults: contend until stopped, priority 0, ready, nothing optional.
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

    /// How long only a named successor may claim the resource.
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
    /// Once: a definite refusal, or the end of the term, stops the election.
    OneShot,
}

/// When a leader hands over to an instance with a higher priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failback {
    /// How long the other instance must have been ready. Doubled each time its term did not last.
    pub delay: Duration,
    /// How long this instance's term must have lasted.
    pub min_tenure: Duration,
}

impl Failback {
    /// The longest the delay grows to.
    pub(crate) const DELAY_MAX: Duration = Duration::from_secs(3600);
}

impl Default for Failback {
    fn default() -> Self {
        Failback { delay: Duration::from_secs(300), min_tenure: Duration::from_secs(60) }
    }
}
