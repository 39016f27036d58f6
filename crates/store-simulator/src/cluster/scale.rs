//! Large clusters: what gossip costs, and how long a failure takes to be known and healed.

use store_cluster::{Body, Event as Note, Message, NodeId, wire};

use super::climate::Climate;
use super::world::{Event, World};
use crate::network::Host as HostIndex;
use crate::queue::Real;

/// Connections are made and the first pings are over.
const WARM_AT: Real = 20_000;
/// Then nothing happens for so long.
const QUIET_MS: Real = 20_000;
/// How long a failure may take to be healed.
const HEAL_MAX: Real = 120_000;

/// What a large cluster did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Messages that left all nodes while nothing happened.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// For how many milliseconds.
    pub quiet_ms: Real,
    /// Suspicions of nodes that worked.
    pub false_suspicions: u64,
    /// From the death of a master until somebody takes it for failed.
    pub failed_first_ms: Real,
    /// Until everybody does.
    pub failed_last_ms: Real,
    /// Until everybody knows the new owner of its slots; `None`: not within two minutes.
    pub healed_ms: Option<Real>,
}

/// What is counted meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    scale: Scale,
    dead: Option<(NodeId, Real)>,
}

impl Counts {
    pub(crate) fn see_send(&mut self, now: Real, message: &Message) {
        if (WARM_AT..WARM_AT + QUIET_MS).contains(&now) {
            self.scale.messages += 1;
            self.scale.bytes += len_of(message) as u64;
        }
    }

    pub(crate) fn see_note(&mut self, now: Real, note: &Note) {
        match (note, self.dead) {
            (Note::Suspected(id), dead) if dead.is_none_or(|(dead, _)| dead != *id) => {
                self.scale.false_suspicions += 1;
            }
            (Note::Failed { id, .. }, Some((dead, died_at))) if *id == dead => {
                let after = now - died_at;
                self.scale.failed_last_ms = after;
                if self.scale.failed_first_ms == 0 {
                    self.scale.failed_first_ms = after;
                }
            }
            _ => {}
        }
    }
}

/// Bytes on the wire, without writing them.
fn len_of(message: &Message) -> usize {
    let body = match &message.body {
        Body::Ping(gossip) | Body::Pong(gossip) | Body::Meet(gossip) => {
            gossip.len() * wire::GOSSIP_LEN
        }
        Body::Fail(_) => 40,
        Body::Update(_) => 48 + store_cluster::SLOT_BYTES,
        _ => 0,
    };
    wire::HEADER_LEN + body
}

impl World {
    /// A cluster of `nodes`, half of them masters, with the usual time-out of 15 s, 1 % of packets
    /// sent twice and up to 50 ms of delay. Nobody judges; a master dies.
    pub fn measure(seed: u64, nodes: usize) -> Scale {
        let mut world = World::build(seed, None, Some(Climate::large(nodes)));
        for host in 0..world.hosts.len() {
            let delay = world.random.below(100);
            world.queue.at(delay, Event::Tick { host, life: 0 });
        }
        world.run_until(WARM_AT + QUIET_MS, |_| false);
        let died_at = world.queue.now();
        let dead: HostIndex = 1;
        let id = world.hosts[dead].id;
        world.crash(dead);
        world.hosts[dead].is_gone = true;
        world.counts.dead = Some((id, died_at));
        let slot = super::climate::SLOTS_OF_SMALL as u16;
        let is_healed = |world: &World| {
            let knows = |host: HostIndex| {
                let core = &world.hosts[host].core;
                core.owner(slot).is_some_and(|owner| core.nodes()[owner].id != id)
            };
            (0..world.hosts.len()).all(|host| host == dead || knows(host))
        };
        let is_over = world.run_until(died_at + HEAL_MAX, is_healed);
        let mut scale = world.counts.scale.clone();
        scale.quiet_ms = QUIET_MS;
        scale.healed_ms = is_over.then(|| world.queue.now() - died_at);
        scale
    }

    /// Whether `is_done` before `until`; asked ten times a second.
    fn run_until(&mut self, until: Real, is_done: impl Fn(&World) -> bool) -> bool {
        let mut asked_at = self.queue.now();
        while self.queue.now() < until {
            let Some(event) = self.queue.take_next() else { return false };
            self.happen(event);
            if self.queue.now() >= asked_at + 100 {
                asked_at = self.queue.now();
                if is_done(self) {
                    return true;
                }
            }
        }
        false
    }
}
