//! What is run: PROTOCOL's table of modes and promises, as rows.

use std::fmt;

use super::fault::Fault::{self, *};

/// What the store is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One redis-server.
    Single,
    /// One of our own stores, which keeps its data.
    Own,
    /// A master, two replicas and three sentinels, two on each of three hosts.
    Sentinel,
    /// The same of our own stores, watched by real sentinels.
    OwnSentinel,
    /// The same, watched by our own sentinels.
    AllOwnSentinel,
    /// Three masters of a cluster with a replica each, on six hosts.
    Cluster,
    /// The same of our own stores.
    OwnCluster,
    /// The same of both kinds: in each shard one of ours and a redis-server.
    MixedCluster,
    /// Three redis-servers that know nothing of each other.
    Quorum,
    /// Three of our own stores that know nothing of each other.
    OwnQuorum,
}

impl Topology {
    /// All, with the names by which they are asked for.
    pub const ALL: &[(&str, Topology)] = &[
        ("single", Topology::Single),
        ("own", Topology::Own),
        ("sentinel", Topology::Sentinel),
        ("own-sentinel", Topology::OwnSentinel),
        ("all-own-sentinel", Topology::AllOwnSentinel),
        ("cluster", Topology::Cluster),
        ("own-cluster", Topology::OwnCluster),
        ("mixed-cluster", Topology::MixedCluster),
        ("quorum", Topology::Quorum),
        ("own-quorum", Topology::OwnQuorum),
    ];

    /// How many servers it has.
    pub(super) fn nodes(self) -> usize {
        match self {
            Topology::Single | Topology::Own => 1,
            Topology::Sentinel
            | Topology::OwnSentinel
            | Topology::AllOwnSentinel
            | Topology::Quorum
            | Topology::OwnQuorum => 3,
            Topology::Cluster | Topology::OwnCluster | Topology::MixedCluster => 6,
        }
    }

    /// Whether its servers, or some of them, are our own stores.
    pub(super) fn is_own(self) -> bool {
        !matches!(
            self,
            Topology::Single | Topology::Sentinel | Topology::Cluster | Topology::Quorum
        )
    }

    /// Whether its nodes decide together, each with a life and a clock of its own.
    pub(super) fn is_quorum(self) -> bool {
        matches!(self, Topology::Quorum | Topology::OwnQuorum)
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(_, topology)| topology == self);
        f.write_str(named.map_or("?", |(name, _)| name))
    }
}

/// How far a grant must have got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The master has it.
    Available,
    /// All replicas have it, too.
    Strict,
    /// Most of several nodes have it.
    Quorum,
}

impl Mode {
    /// All, with the names by which they are asked for.
    pub const ALL: &[(&str, Mode)] =
        &[("available", Mode::Available), ("strict", Mode::Strict), ("quorum", Mode::Quorum)];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(_, mode)| mode == self);
        f.write_str(named.map_or("?", |(name, _)| name))
    }
}

/// What the faults of a row may do to "no two terms valid at one time".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It is promised: not one overlap.
    Holds,
    /// It is not promised, and these faults break it: the run must show that.
    Breaks,
    /// It is not promised, but need not break.
    Open,
}

/// Faults that strike one store, in any order.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is called in the table.
    pub name: &'static str,
    /// What strikes.
    pub faults: Vec<Fault>,
    /// What that may do.
    pub expected: Expected,
    /// How the instances are told to be.
    pub fleet: FleetKind,
}

/// How the instances of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetKind {
    /// All have the same lease.
    Equal,
    /// Leases of different lengths, all of which are told the longest one.
    MixedLeases,
    /// Equal leases, and ticks beside the election.
    Ticks,
}

impl Row {
    /// How much time it gets beside others: what may not break has the most to show, and what
    /// breaks ends when it has.
    pub fn shares(&self) -> u32 {
        match self.expected {
            Expected::Holds if self.faults.len() > 1 => 6,
            Expected::Holds => 2,
            Expected::Open => 3,
            Expected::Breaks => 1,
        }
    }

    fn holds(faults: &[Fault]) -> Self {
        Self::new("promised", faults, Expected::Holds)
    }

    fn open(name: &'static str, faults: &[Fault]) -> Self {
        Self::new(name, faults, Expected::Open)
    }

    fn breaks(name: &'static str, fault: Fault) -> Self {
        Self::new(name, &[fault], Expected::Breaks)
    }

    fn new(name: &'static str, faults: &[Fault], expected: Expected) -> Self {
        Row { name, faults: faults.to_vec(), expected, fleet: FleetKind::Equal }
    }

    fn mixed_leases(faults: &[Fault]) -> Self {
        let fleet = FleetKind::MixedLeases;
        Row { name: "promised: mixed leases", fleet, ..Row::holds(faults) }
    }

    /// The last row of its store: the clock stays where it is.
    fn clock_back(faults: &[Fault]) -> Self {
        let faults = [&OF_INSTANCES[..], faults, &[StepClockBack]].concat();
        Row { name: "promised: clock back", ..Row::holds(&faults) }
    }

    /// Ticks are promised as long as nothing that was confirmed is lost.
    fn ticks(faults: &[Fault]) -> Self {
        Row { name: "promised: ticks", fleet: FleetKind::Ticks, ..Row::holds(faults) }
    }
}

/// Rows that are run on one store, one after the other.
#[derive(Clone, Debug)]
pub struct Group {
    /// What the store is made of.
    pub topology: Topology,
    /// In which mode it is used.
    pub mode: Mode,
    /// The rows. What an earlier one leaves behind must not hide what a later one has to show: a
    /// flush, for one, is only believed by newcomers of a store that never failed over.
    pub rows: Vec<Row>,
}

/// Strikes instances and their way to the store: promised in every mode.
const OF_INSTANCES: [Fault; 4] = [KillInstance, PauseInstance, CutClient, CutClientOneWay];

/// Strikes stores with replicas: the old master, if there is one, is dead.
const OF_REPLICATION: [Fault; 7] = [
    PauseServer,
    PauseReplica,
    LagReplicas,
    RestartEmpty,
    KillMaster,
    KillLaggedMaster,
    RollingRestart,
];

/// Leaves an old primary alive: promised in `strict` alone.
const OF_TWO_MASTERS: [Fault; 3] = [CutMaster, CutMasterOneWay, PauseMasterForLong];

/// Everything that is run, in its order.
pub fn groups() -> Vec<Group> {
    vec![
        single(),
        own(),
        sentinel(Topology::Sentinel, Mode::Available),
        sentinel(Topology::Sentinel, Mode::Strict),
        sentinel(Topology::OwnSentinel, Mode::Available),
        sentinel(Topology::OwnSentinel, Mode::Strict),
        sentinel(Topology::AllOwnSentinel, Mode::Available),
        sentinel(Topology::AllOwnSentinel, Mode::Strict),
        cluster(Topology::Cluster, Mode::Available),
        cluster(Topology::Cluster, Mode::Strict),
        cluster(Topology::OwnCluster, Mode::Available),
        cluster(Topology::OwnCluster, Mode::Strict),
        cluster(Topology::MixedCluster, Mode::Available),
        cluster(Topology::MixedCluster, Mode::Strict),
        quorum(Topology::Quorum),
        quorum(Topology::OwnQuorum),
    ]
}

/// A clock that steps back is not struck together with what loses the counter of tokens: where both
/// are lost, a newcomer may be given a number again, which is not promised.
fn single() -> Group {
    let promised = [&OF_INSTANCES[..], &[PauseServer, RestartEmpty]].concat();
    let rows = vec![
        Row::breaks("flush", Flush),
        Row::breaks("clock step", StepClock),
        Row::holds(&promised),
        Row::mixed_leases(&promised),
        Row::ticks(&[&OF_INSTANCES[..], &[PauseServer]].concat()),
        // A server whose clock was set back takes itself for young, so a flush would not break it.
        Row::clock_back(&[PauseServer]),
    ];
    Group { topology: Topology::Single, mode: Mode::Available, rows }
}

/// What was kept may be older than what was granted: that is where a store of our own differs.
fn own() -> Group {
    let promised = [Crash, RestartCleanly, RestoreBackup, PauseServer];
    let rows = vec![
        Row::holds(&[&OF_INSTANCES[..], &promised].concat()),
        Row::ticks(&[&OF_INSTANCES[..], &[PauseServer, RestartCleanly]].concat()),
        Row::clock_back(&[Crash, RestartCleanly, PauseServer]),
    ];
    Group { topology: Topology::Own, mode: Mode::Available, rows }
}

/// A fail-over on command leaves the old master in office for some seconds: sentinels are in no
/// hurry to demote it.
fn sentinel(topology: Topology, mode: Mode) -> Group {
    let dead_master = [&OF_INSTANCES[..], &OF_REPLICATION, &[LoseSentinel]].concat();
    let two_masters = [&OF_TWO_MASTERS[..], &[FailOverOnCommand]].concat();
    let rows = match mode {
        Mode::Available => vec![
            Row::breaks("flush", Flush),
            Row::breaks("clock step", StepClock),
            Row::holds(&dead_master),
            Row::mixed_leases(&[KillInstance, PauseInstance, KillMaster, RollingRestart]),
            Row::open("old primary alive", &two_masters),
            Row::breaks("isolated primary", IsolateMasterWithLeader),
        ],
        Mode::Strict | Mode::Quorum => vec![
            Row { name: "promised: flush", ..Row::holds(&[Flush]) },
            Row { name: "promised: isolated primary", ..Row::holds(&[IsolateMasterWithLeader]) },
            Row::breaks("clock step", StepClock),
            Row::ticks(&[&OF_INSTANCES[..], &[PauseServer, KillMaster, KillLaggedMaster]].concat()),
            Row::holds(&[dead_master, two_masters].concat()),
        ],
    };
    Group { topology, mode, rows }
}

/// A master of a cluster that loses sight of most others ends its service by itself, before it is
/// replaced if clocks and timers are kind; on command, it hands its office over.
fn cluster(topology: Topology, mode: Mode) -> Group {
    let orderly = [MigrateSlot, FailOverOnCommand];
    let dead_master = [&OF_INSTANCES[..], &OF_REPLICATION, &orderly].concat();
    let two_masters = [&OF_TWO_MASTERS[..], &[IsolateMasterWithLeader]].concat();
    let rows = match mode {
        Mode::Available => vec![
            // In a cluster the age of a node speaks for nobody, so even a newcomer waits.
            Row::open("flush", &[Flush]),
            Row::holds(&dead_master),
            Row::open("old primary alive", &two_masters),
            Row::breaks("clock step", StepClock),
            // The last: it leaves a cluster of two masters behind.
            Row { name: "promised: fixed after a loss", ..Row::holds(&[FixAfterLoss]) },
        ],
        Mode::Strict | Mode::Quorum => vec![
            Row { name: "promised: flush", ..Row::holds(&[Flush]) },
            Row::holds(&[dead_master, two_masters].concat()),
            Row::breaks("clock step", StepClock),
        ],
    };
    Group { topology, mode, rows }
}

/// Whatever happens to one node of three is promised to do no harm.
fn quorum(topology: Topology) -> Group {
    let of_one_node = [
        PauseServer,
        KillNode,
        RestartEmpty,
        CutMinority,
        CutNodeFromClient,
        FlushNode,
        StepNodeClock,
        StepNodeClockBack,
    ];
    let rows = vec![
        Row::holds(&[&OF_INSTANCES[..], &of_one_node, &[RollingRestart]].concat()),
        Row::open("flush of all", &[Flush]),
        Row::breaks("clock step of all", StepClock),
    ];
    Group { topology, mode: Mode::Quorum, rows }
}
