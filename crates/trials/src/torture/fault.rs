//! What is done to the store, the instances and the network between them.

use std::fmt;
use std::time::Duration;

use super::history::What;
use super::net::Way;
use super::row::{Mode, Topology};
use super::world::World;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// kill -9, mostly of the leader.
    KillInstance,
    /// SIGSTOP, mostly of the leader, for up to two leases.
    PauseInstance,
    /// An instance, mostly the leader, and the store do not reach each other.
    CutClient,
    /// Only requests, or only replies, are lost.
    CutClientOneWay,
    /// SIGSTOP of a server, too short for anybody to be promoted.
    PauseServer,
    /// SIGSTOP of a replica.
    PauseReplica,
    /// What the master sends to its replicas is lost.
    LagReplicas,
    /// The most important server is killed and starts again at once, empty.
    RestartEmpty,
    /// The master is killed and stays dead until another has taken over.
    KillMaster,
    /// The same, after its replicas have missed some time.
    KillLaggedMaster,
    /// Every server is killed and started again in turn, the master last.
    RollingRestart,
    /// A sentinel is stopped.
    LoseSentinel,
    /// The resource's keys move to another master, one by one.
    MigrateSlot,
    /// The sentinels are told to promote another.
    FailOverOnCommand,
    /// Nobody reaches the master, until another has taken over.
    CutMaster,
    /// What the master sends is lost, until another has taken over.
    CutMasterOneWay,
    /// SIGSTOP of the master, until another has taken over.
    PauseMasterForLong,
    /// Master and leader reach each other and nobody else.
    IsolateMasterWithLeader,
    /// One of several independent nodes is killed and stays dead for a while.
    KillNode,
    /// Nobody reaches one of several independent nodes.
    CutMinority,
    /// The leader and one of several independent nodes do not reach each other.
    CutNodeFromClient,
    /// All data of one of several independent nodes is deleted.
    FlushNode,
    /// The wall clock of one of several independent nodes jumps ahead.
    StepNodeClock,
    /// The wall clock of one of several independent nodes is set back.
    StepNodeClockBack,
    /// The server's wall clock is set back, and the leader is killed.
    StepClockBack,
    /// The server is killed and starts again with what it has kept.
    Crash,
    /// The server is told to end and starts again with what it has kept.
    RestartCleanly,
    /// A copy that was made at a clean end takes the place of what came after it.
    RestoreBackup,
    /// The owner of the resource's slot and its replica are lost, the leader is stopped, and an
    /// operator gives their slots to the others.
    FixAfterLoss,
    /// The servers' wall clocks jump ahead while the leader is cut off and a newcomer arrives.
    StepClock,
    /// All data is deleted while the leader is cut off and a newcomer arrives.
    Flush,
}

impl Fault {
    /// Its name in tables and histories.
    pub fn name(self) -> &'static str {
        match self {
            Fault::KillInstance => "kill-instance",
            Fault::PauseInstance => "pause-instance",
            Fault::CutClient => "cut-client",
            Fault::CutClientOneWay => "cut-client-one-way",
            Fault::PauseServer => "pause-server",
            Fault::PauseReplica => "pause-replica",
            Fault::LagReplicas => "lag-replicas",
            Fault::RestartEmpty => "restart-empty",
            Fault::KillMaster => "kill-master",
            Fault::KillLaggedMaster => "kill-lagged-master",
            Fault::RollingRestart => "rolling-restart",
            Fault::LoseSentinel => "lose-sentinel",
            Fault::MigrateSlot => "migrate-slot",
            Fault::FailOverOnCommand => "fail-over",
            Fault::CutMaster => "cut-master",
            Fault::CutMasterOneWay => "cut-master-one-way",
            Fault::PauseMasterForLong => "pause-master",
            Fault::IsolateMasterWithLeader => "isolate-master",
            Fault::KillNode => "kill-node",
            Fault::CutMinority => "cut-node",
            Fault::CutNodeFromClient => "cut-node-from-leader",
            Fault::FlushNode => "flush-node",
            Fault::StepNodeClock => "step-node-clock",
            Fault::StepNodeClockBack => "step-node-clock-back",
            Fault::StepClockBack => "step-clock-back",
            Fault::Crash => "crash",
            Fault::RestartCleanly => "restart-cleanly",
            Fault::RestoreBackup => "restore-backup",
            Fault::FixAfterLoss => "fix-after-loss",
            Fault::StepClock => "step-clock",
            Fault::Flush => "flush",
        }
    }

    /// Whether it can be made in this world: partitions need a network, clocks a C compiler.
    pub(super) fn is_possible(self, world: &World) -> bool {
        match self {
            Fault::CutClient
            | Fault::CutClientOneWay
            | Fault::CutMinority
            | Fault::CutNodeFromClient
            | Fault::Flush => world.net.parts_places(),
            Fault::StepClock => world.net.parts_places() && !world.clocks.is_empty(),
            Fault::StepNodeClock | Fault::StepNodeClockBack | Fault::StepClockBack => {
                !world.clocks.is_empty()
            }
            Fault::LagReplicas
            | Fault::KillLaggedMaster
            | Fault::CutMaster
            | Fault::CutMasterOneWay
            | Fault::IsolateMasterWithLeader => world.net.parts_nodes(),
            _ => true,
        }
    }

    /// Whether it strikes an instance and leaves the store alone: such a one goes with any other.
    pub(super) fn is_of_instances(self) -> bool {
        matches!(
            self,
            Fault::KillInstance | Fault::PauseInstance | Fault::CutClient | Fault::CutClientOneWay
        )
    }

    /// Lets it happen, and lets it last.
    pub(super) fn strike(self, world: &mut World) {
        world.fleet.note(What::Fault(self.name().to_owned()));
        match self {
            Fault::KillInstance => {
                let victim = world.victim();
                world.fleet.kill(victim);
                world.endure(0.2, 1.5);
            }
            Fault::PauseInstance => {
                let victim = world.victim();
                world.fleet.pause(victim);
                world.endure(0.3, 2.0);
            }
            Fault::CutClient => cut_client(world, Way::Both),
            Fault::CutClientOneWay => {
                let way = *world.random.choose(&[Way::Forth, Way::Back]);
                cut_client(world, way);
            }
            Fault::StepClock => step_clock(world),
            Fault::StepClockBack => step_clock_back(world),
            Fault::FixAfterLoss => fix_after_loss(world),
            Fault::Flush => flush(world),
            _ => self.strike_store(world),
        }
    }

    fn strike_store(self, world: &mut World) {
        let main = world.store.main_node();
        match self {
            Fault::PauseServer => {
                world.pause_node(main);
                match world.topology {
                    Topology::Single | Topology::Own => world.endure(0.2, 1.5),
                    Topology::Quorum | Topology::OwnQuorum => world.endure(0.3, 2.0),
                    // Well below the silence after which another is promoted.
                    Topology::Sentinel
                    | Topology::OwnSentinel
                    | Topology::AllOwnSentinel
                    | Topology::Cluster
                    | Topology::OwnCluster
                    | Topology::MixedCluster => world.sleep(Duration::from_millis(600)),
                }
            }
            Fault::PauseReplica => {
                let replicas = world.store.replicas();
                let replica = *world.random.choose(&replicas);
                world.pause_node(replica);
                world.endure(0.3, 1.5);
            }
            Fault::LagReplicas => lag_replicas(world, main),
            Fault::RestartCleanly => {
                world.store.end_cleanly(main);
                world.rejoin(main);
                world.endure(0.1, 1.0);
            }
            Fault::RestoreBackup => restore_backup(world, main),
            Fault::RestartEmpty | Fault::Crash => {
                world.kill_node(main);
                world.rejoin_dead();
                world.endure(0.1, 1.0);
            }
            Fault::KillMaster => {
                world.kill_node(main);
                world.await_promotion(main);
            }
            Fault::KillLaggedMaster => {
                lag_replicas(world, main);
                world.kill_node(main);
                world.net.heal();
                world.set_patient(false);
                world.await_promotion(main);
            }
            Fault::RollingRestart => rolling_restart(world, main),
            Fault::LoseSentinel => {
                world.pause_watcher();
                world.endure(0.5, 1.0);
            }
            Fault::MigrateSlot => {
                world.store.migrate();
                world.endure(0.1, 0.5);
            }
            Fault::KillNode
            | Fault::CutMinority
            | Fault::CutNodeFromClient
            | Fault::FlushNode
            | Fault::StepNodeClock
            | Fault::StepNodeClockBack => self.strike_one_of_several(world, main),
            _ => self.strike_with_two_masters(world, main),
        }
    }

    fn strike_one_of_several(self, world: &mut World, node: usize) {
        match self {
            Fault::KillNode => world.kill_node(node),
            Fault::CutMinority => {
                for place in 0..world.places() {
                    world.net.part_place(place, node, Way::Both);
                }
            }
            Fault::CutNodeFromClient => {
                let victim = world.victim();
                let way = *world.random.choose(&[Way::Both, Way::Forth, Way::Back]);
                world.net.part_place(victim, node, way);
            }
            Fault::FlushNode => {
                world.store.cli(node, &["FLUSHALL"]);
                world.welcome_newcomer();
            }
            Fault::StepNodeClock => {
                world.step_clock(node);
                world.welcome_newcomer();
            }
            Fault::StepNodeClockBack => {
                world.step_clock_back(node);
                world.welcome_newcomer();
            }
            _ => unreachable!("{self} is struck elsewhere"),
        }
        world.endure(0.3, 2.0);
    }

    fn strike_with_two_masters(self, world: &mut World, main: usize) {
        match self {
            Fault::FailOverOnCommand => world.store.fail_over(),
            Fault::CutMaster => cut_master(world, main, Way::Both),
            Fault::CutMasterOneWay => {
                let way = *world.random.choose(&[Way::Forth, Way::Back]);
                cut_master(world, main, way);
            }
            Fault::PauseMasterForLong => world.pause_node(main),
            Fault::IsolateMasterWithLeader => isolate(world, main),
            _ => unreachable!("{self} is struck elsewhere"),
        }
        world.await_promotion(main);
        if self == Fault::IsolateMasterWithLeader && world.mode == Mode::Available {
            // Whoever is on the old master's side never noticed: no gap to measure.
            world.promoted_at = None;
        }
        // Long enough for the others to elect among themselves.
        world.sleep(world.quarantine() + world.ttl);
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn cut_client(world: &mut World, way: Way) {
    let victim = world.victim();
    world.cut_place(victim, way);
    world.endure(0.3, 2.0);
}

/// A master that whoever watches cannot hear is not replaced meanwhile: that is another fault.
fn lag_replicas(world: &mut World, main: usize) {
    world.set_patient(true);
    for node in world.store.replicas() {
        world.net.part_nodes(main, node, Way::Forth);
    }
    world.endure(0.5, 1.5);
}

fn cut_master(world: &mut World, main: usize, way: Way) {
    for node in (0..world.topology.nodes()).filter(|node| *node != main) {
        world.net.part_nodes(main, node, way);
    }
    for place in 0..world.places() {
        // Seen from the master.
        let way = match way {
            Way::Both => Way::Both,
            Way::Forth => Way::Back,
            Way::Back => Way::Forth,
        };
        world.net.part_place(place, main, way);
    }
}

/// Draws a line: on one side the master and the leader, on the other everybody else.
fn isolate(world: &mut World, main: usize) {
    let leader = world.fresh_leader().unwrap_or(0);
    let others: Vec<_> = (0..world.topology.nodes()).filter(|node| *node != main).collect();
    for node in &others {
        world.net.part_nodes(main, *node, Way::Both);
        world.net.part_place(leader, *node, Way::Both);
    }
    for place in (0..world.places()).filter(|place| *place != leader) {
        world.net.part_place(place, main, Way::Both);
    }
}

fn rolling_restart(world: &mut World, main: usize) {
    for node in (0..world.topology.nodes()).filter(|node| *node != main) {
        world.kill_node(node);
        world.rejoin_dead();
        world.await_whole(Duration::ZERO);
        world.settle();
    }
    world.kill_node(main);
    world.await_promotion(main);
}

fn step_clock(world: &mut World) {
    world.cut_leader_off();
    (0..world.clocks.len()).for_each(|node| world.step_clock(node));
    world.welcome_newcomer();
}

/// Whoever waits for the leader's key waits no longer than for any lease.
fn step_clock_back(world: &mut World) {
    let leader = world.fresh_leader();
    (0..world.clocks.len()).for_each(|node| world.step_clock_back(node));
    leader.into_iter().for_each(|leader| world.fleet.kill(leader));
    world.endure(0.2, 1.5);
}

/// What was granted after the copy was made is not in it, and is believed in.
fn restore_backup(world: &mut World, main: usize) {
    world.store.end_cleanly(main);
    world.store.copy_data(main);
    world.rejoin(main);
    if let Some(leader) = world.fresh_leader() {
        world.cut_place(leader, Way::Both);
    }
    world.kill_node(main);
    world.store.put_copy_back(main);
    world.rejoin_dead();
    world.welcome_newcomer();
    world.endure(0.5, 1.5);
}

/// The one that gets the slot has been up for long, and knows nothing of its past.
fn fix_after_loss(world: &mut World) {
    let main = world.store.main_node();
    let replicas = world.store.replicas();
    if let Some(leader) = world.fresh_leader() {
        world.fleet.pause(leader);
    }
    world.kill_node(main);
    replicas.into_iter().for_each(|node| world.kill_node(node));
    world.store.fix();
    world.welcome_newcomer();
    world.endure(0.5, 1.5);
}

fn flush(world: &mut World) {
    world.cut_leader_off();
    let all = match world.topology.is_quorum() {
        true => (0..world.topology.nodes()).collect(),
        false => vec![world.store.main_node()],
    };
    all.iter().for_each(|node| drop(world.store.cli(*node, &["FLUSHALL"])));
    world.welcome_newcomer();
}
