//! What the doctor finds, and what to do about it.

use serde_json::{Value, json};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Elections do not work, or not as they should.
    Problem,
    /// They work; they may fail on a bad day.
    Risk,
    /// Good to know.
    Note,
}

impl Severity {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Severity::Problem => "problem",
            Severity::Risk => "risk",
            Severity::Note => "note",
        }
    }
}

/// One list makes the words, their weight and what is looked for, so that `doctor --list` tells all
/// there is and no finding can be missing from it.
macro_rules! codes {
    ($($variant:ident $word:literal $severity:ident $sought:literal)*) => {
        /// What can be found.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $(#[doc = $sought] $variant,)*
        }

        impl Code {
            /// All of them, the store's before an election's.
            pub(crate) const ALL: &[Code] = &[$(Code::$variant),*];

            /// A stable word.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Code::$variant => $word,)* }
            }

            pub(crate) fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity,)* }
            }

            /// What is looked for.
            pub(crate) fn sought(self) -> &'static str {
                match self { $(Code::$variant => $sought,)* }
            }
        }
    };
}

codes! {
    Configuration "configuration" Risk "a setting that works but is probably a mistake"
    LocalStore "local-store" Risk "no store is named: only this account of this machine is \
                                   coordinated"
    Eviction "eviction" Problem "the store may evict leases and records"
    NoPersistence "no-persistence" Risk "the store writes nothing to disk"
    Replica "replica" Problem "the address is that of a replica"
    ClusterNode "cluster-node" Problem "the address names one node of a cluster as if it were a \
                                        single server"
    QuorumLost "quorum-lost" Problem "too few nodes of a quorum answer for anybody to lead"
    MissingSlots "missing-slots" Problem "slots of a cluster that no node serves"
    NodesDisagree "nodes-disagree" Risk "a node of a cluster that names other owners of slots than \
                                         the owners themselves"
    NoReplica "no-replica" Risk "a primary of a cluster that no replica could replace"
    NodeDown "node-down" Risk "a node of a quorum or of a cluster does not answer"
    NoMaster "no-master" Problem "the sentinels do not agree on a primary"
    SentinelDown "sentinel-down" Risk "a sentinel does not answer"
    SentinelStray "sentinel-stray" Risk "a sentinel names a different primary than most, or none"
    SentinelQuorum "sentinel-quorum" Problem "the sentinels could not replace a primary that is \
                                              lost"
    SentinelCopies "sentinel-copies" Problem "sentinels with the same id, as after a disk was \
                                              copied"
    FewSentinels "few-sentinels" Risk "fewer than three sentinels watch the primary"
    FewReplicas "few-replicas" Problem "fewer replicas in step than mode=strict waits for"
    ReplicaLagging "replica-lagging" Risk "a replica that has not got its data yet, or does not \
                                           confirm"
    LinkDown "link-down" Risk "a replica that has lost its primary"
    OneHost "one-host" Risk "primary and replicas, or all replicas, on one host"
    SingleNode "single-node" Note "the store has no replicas"
    SplitBrainRisk "split-brain-risk" Risk "replicas that grants do not wait for"
    NoAuth "no-auth" Risk "no password, and the store is on another host"
    NoTls "no-tls" Risk "no TLS, and the store is on another host"
    NoShards "no-shards" Note "servers of a cluster without sharded channels"
    Acl "acl" Problem "a right that elections need is missing"
    WritesRefused "writes-refused" Problem "the store takes no writes: memory, replicas or disk"
    ClockDrift "clock-drift" Problem "the store's clock runs faster or slower than ours"
    ClockOffset "clock-offset" Note "the store's wall clock differs from ours"
    ManyConnections "many-connections" Risk "nearly all connections that a PostgreSQL server \
                                              allows are in use"
    NoNotifications "no-notifications" Note "a pooler before PostgreSQL, which passes no \
                                             notifications"
    SlowStore "slow-store" Risk "the store is slow to answer"
    NoAnswer "no-answer" Problem "the store answers, but not about this election"
    NeverStarted "never-started" Problem "nobody has ever taken part under this name"
    ForeignKey "foreign-key" Problem "something else uses the key"
    KeyWithoutTtl "key-without-ttl" Problem "the key never expires"
    LeaderStalled "leader-stalled" Problem "the leader's work makes no progress"
    LeaderSilent "leader-silent" Problem "the leader holds the lease and is silent"
    NoCandidate "no-candidate" Problem "nobody takes part now"
    OneCandidate "one-candidate" Risk "only one instance takes part"
    Paused "paused" Problem "an operator paused the election"
    Quarantine "quarantine" Note "nobody leads until leases from before a loss of data or a \
                                  `clear` have ended"
    NoneReady "none-ready" Problem "there are candidates, but none is ready"
    DuplicateId "duplicate-id" Risk "two processes have the same name"
    DifferentTtls "different-ttls" Risk "members use different ttls"
    FrequentChanges "frequent-changes" Problem "the leader changes too often"
    StoreWarning "store-warning" Risk "the store warns about its record of the election"
}

/// One finding: what was seen, and the next step.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) code: Code,
    /// The election, or the store.
    pub(crate) about: String,
    pub(crate) what: String,
    pub(crate) next: String,
}

impl Finding {
    pub(crate) fn new(code: Code, what: impl Into<String>, next: &str) -> Self {
        Finding { code, about: String::new(), what: what.into(), next: next.to_owned() }
    }

    pub(crate) fn about(mut self, about: &str) -> Self {
        about.clone_into(&mut self.about);
        self
    }

    pub(crate) fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// `code`, `severity` (`problem`, `risk` or `note`), `about`, `what`, `do`.
    pub(crate) fn as_json(&self) -> Value {
        json!({
            "code": self.code.word(),
            "severity": self.severity().word(),
            "about": self.about,
            "what": self.what,
            "do": self.next,
        })
    }

    pub(crate) fn as_text(&self) -> String {
        let Finding { about, what, next, .. } = self;
        let (severity, code) = (self.severity().word(), self.code.word());
        format!("{severity:<8} {about}: {what} [{code}]\n         do: {next}\n")
    }
}
