//! What the engine is told: for INFO and ROLE, for WAIT in a transaction, and for the gates.

use store_engine::{BacklogFacts, Engine, LinkFacts, ReplicaFacts, ReplicationFacts};
use store_replica::{Address, Moment, Replica, ReplicaState, Role};

use super::ReplicationDriver;

/// Tells the engine how replication stands.
pub(crate) fn tell_facts(driver: &ReplicationDriver, engine: &mut Engine) {
    let now = driver.now();
    let machine = &driver.machine;
    let facts = engine.replication_facts_mut();
    facts.history = Some(*machine.history());
    facts.backlog =
        machine.backlog().map(|kept| BacklogFacts { first: kept.first(), len: kept.len() });
    facts.good_replicas = machine.good_replicas(now);
    let is_sent = driver.unread.iter().any(|payload| !payload.is_file());
    facts.is_syncing = driver.payload.is_some() || is_sent;
    facts.is_ending = driver.ending.is_some();
    facts.failover = machine.failover_phase();
    facts.syncs = machine.sync_counts();
    facts.described = machine.facts();
    tell_link(driver, now, facts);
    tell_replicas(driver, now, facts);
    engine.follow_replication();
    engine.set_feeding_stream(machine.is_primary() && machine.backlog().is_some());
}

/// Tells the engine what describes its data now, for files.
pub(crate) fn tell_description(driver: &ReplicationDriver, engine: &mut Engine) {
    engine.replication_facts_mut().described = driver.machine.facts();
}

/// The name of the primary is told once.
fn tell_link(driver: &ReplicationDriver, now: Moment, facts: &mut ReplicationFacts) {
    let machine = &driver.machine;
    let Some(phase) = machine.link_phase() else {
        facts.link = None;
        return;
    };
    let link = match &mut facts.link {
        Some(link) if machine.follows(&link.host, link.port) => link,
        told => {
            let Role::Replica(Address { host, port }) = machine.role() else { return };
            told.insert(LinkFacts {
                host,
                port,
                phase,
                is_stopped: false,
                silent_seconds: 0,
                down_seconds: None,
                read_offset: 0,
                received_bytes: 0,
                payload_bytes: None,
            })
        }
    };
    link.phase = phase;
    link.is_stopped = machine.is_link_stopped();
    link.silent_seconds = machine.link_silence(now).unwrap_or_default().as_secs();
    link.down_seconds = machine.link_down_for(now).map(|down| down.as_secs());
    link.read_offset = machine.read_offset();
    link.received_bytes = driver.link.received();
}

/// Names of replicas are told once: what changes in every turn are numbers.
fn tell_replicas(driver: &ReplicationDriver, now: Moment, facts: &mut ReplicationFacts) {
    let end = driver.machine.history().offset();
    let followers = || {
        let replicas = driver.machine.replicas().iter();
        replicas.filter(|replica| replica.state() != ReplicaState::Greeting)
    };
    let is_told =
        |(told, replica): (&ReplicaFacts, &Replica)| told.session.number == replica.session().0;
    let is_same = facts.replicas.len() == followers().count()
        && facts.replicas.iter().zip(followers()).all(is_told);
    if !is_same {
        facts.replicas.clear();
        for replica in followers() {
            let Some(session) = driver.session(replica.session()) else { continue };
            let address = replica.address();
            facts.replicas.push(ReplicaFacts {
                session,
                ip: address.host,
                port: address.port,
                state: replica.state(),
                reads_file: false,
                acked: 0,
                unsent: 0,
                lag_seconds: 0,
            });
        }
    }
    for (told, replica) in facts.replicas.iter_mut().zip(followers()) {
        told.state = replica.state();
        told.reads_file = driver.reads_file(replica.session());
        told.acked = replica.acked();
        told.unsent = replica.unsent(end);
        told.lag_seconds = replica.lag(now).as_secs();
    }
}
