//! `tenure demo --cluster`: three primaries with a replica each, and the elections over them while
//! primaries are killed and slots move. A writer beside them shows what a client notices.

mod writer;

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use store_client::cluster::Slot;
use store_resp::Reply;
use tenure::Tenure;

use self::writer::Writer;
use super::servers::{Part, ask, ask_once, free_port, listed, make_folder, text, wait};
use super::{INTERVAL, PATIENCE, RESOURCE, Stage, no};
use crate::clock;
use crate::exit::{self, Failure};
use crate::output::{duration, result};

const PRIMARIES: usize = 3;
const SLOTS: u16 = 16_384;
/// The nodes' own traffic goes to the port of clients and this.
const BUS_PORT_OFFSET: u16 = 10_000;
/// How long a node may be silent: short, so that there is something to see.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);
/// How many slots move, the election's own in their middle.
const SLOTS_MOVED: u16 = 200;
/// How many keys are moved at once.
const KEYS_AT_ONCE: usize = 100;
/// How often a port is looked for whose bus port is free as well.
const PORT_TRIES_MAX: usize = 100;

/// The six nodes.
pub(super) struct Nodes {
    folder: PathBuf,
    /// Primaries first; who is what changes later.
    parts: Vec<Part>,
    writer: Writer,
}

impl Nodes {
    /// Starts all of them, makes them a cluster, and waits until it is whole.
    pub(super) async fn start() -> Result<Self, Failure> {
        let folder = make_folder()?;
        let mut parts = Vec::new();
        for _ in 0..2 * PRIMARIES {
            let port = port_with_bus()?;
            parts.push(start_node(&folder, port)?);
        }
        for part in &parts {
            wait("a node did not start", async || ask(part.port, "PING").await.map(drop)).await?;
        }
        create(&parts).await?;
        result(&format!("a cluster of six nodes at ports {}", listed(&parts)));
        result("the first three are primaries, each of the others is the replica of one of them");
        let writer = Writer::start(&address(&parts)).await?;
        Ok(Self { folder, parts, writer })
    }

    /// As an election takes it.
    pub(super) fn address(&self) -> String {
        address(&self.parts)
    }

    /// The primary that has a slot, once some node answers.
    async fn find_owner(&self, slot: u16) -> Result<u16, Failure> {
        wait("no node of the cluster answered", async || self.owner_of(slot).await).await
    }

    /// The same, as most would see it: the first node that answers tells.
    async fn owner_of(&self, slot: u16) -> Option<u16> {
        for part in &self.parts {
            if let Some(Reply::Array(ranges)) = ask(part.port, "CLUSTER SLOTS").await {
                return ranges.iter().find_map(|range| owner_in(range, slot));
            }
        }
        None
    }

    /// Waits until all nodes that answer know another owner of the slot than `old`.
    async fn next_owner(&self, slot: u16, old: u16) -> Result<u16, Failure> {
        wait("no replica took over", async || {
            let new = self.owner_of(slot).await.filter(|port| *port != old)?;
            let state = text(ask(new, "CLUSTER INFO").await?);
            state.contains("cluster_state:ok").then_some(new)
        })
        .await
    }

    async fn kill(&mut self, port: u16) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.port == port) {
            // It may have ended by itself.
            let _ = part.process.kill().await;
        }
    }

    async fn start_again(&mut self, port: u16) -> Result<(), Failure> {
        let node = start_node(&self.folder, port)?;
        self.parts.retain(|part| part.port != port);
        self.parts.push(node);
        await_whole(&self.parts).await
    }

    /// Moves a slot with all its keys, as `redis-cli --cluster reshard` does. Returns how many keys
    /// it had.
    async fn move_slot(&self, slot: u16, from: &Named, to: &Named) -> Result<usize, Failure> {
        must(to.port, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id)).await?;
        must(from.port, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id)).await?;
        let mut moved = 0;
        loop {
            let question = format!("CLUSTER GETKEYSINSLOT {slot} {KEYS_AT_ONCE}");
            let keys = super::servers::fields(must(from.port, &question).await?);
            if keys.is_empty() {
                break;
            }
            moved += keys.len();
            let (port, keys) = (to.port, keys.join(" "));
            must(from.port, &format!("MIGRATE 127.0.0.1 {port} \"\" 0 5000 KEYS {keys}")).await?;
        }
        for port in [to.port, from.port] {
            must(port, &format!("CLUSTER SETSLOT {slot} NODE {}", to.id)).await?;
        }
        Ok(moved)
    }

    /// Nobody and nothing stays behind.
    pub(super) async fn clear(mut self) {
        for part in &mut self.parts {
            let _ = part.process.kill().await;
        }
        // What cannot be removed is in the folder for such things.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A node with the name by which the others know it.
struct Named {
    port: u16,
    id: String,
}

impl Named {
    async fn at(port: u16) -> Result<Self, Failure> {
        Ok(Self { port, id: text(must(port, "CLUSTER MYID").await?) })
    }
}

impl Stage {
    /// The plot: the election's primary is killed, comes back as a replica, and slots move.
    pub(super) async fn play_cluster(
        &mut self,
        nodes: &mut Nodes,
        operator: &Tenure,
    ) -> Result<(), Failure> {
        self.next_leader(operator, "the start", self.began_at).await?;
        loop {
            self.linger(INTERVAL).await;
            self.kill_primary(nodes, operator).await?;
            self.linger(INTERVAL).await;
            self.reshard(nodes).await?;
        }
    }

    async fn kill_primary(&mut self, nodes: &mut Nodes, operator: &Tenure) -> Result<(), Failure> {
        let slot = election_slot();
        let old = nodes.find_owner(slot).await?;
        nodes.writer.take();
        self.say(&format!("port {old}, the primary of slot {slot} ({RESOURCE:?}), is killed"));
        let killed_at = clock::now();
        nodes.kill(old).await;
        let new = self.hear_until(nodes.next_owner(slot, old)).await?;
        let took = duration(clock::now().saturating_duration_since(killed_at));
        self.say(&format!("its replica at port {new} took over, {took} after the kill"));
        self.new_term(operator, killed_at).await?;
        self.say(&nodes.writer.take().to_string());
        self.linger(INTERVAL / 2).await;
        self.say(&format!("port {old} is started again: it follows port {new}"));
        self.hear_until(nodes.start_again(old)).await
    }

    async fn reshard(&mut self, nodes: &Nodes) -> Result<(), Failure> {
        let owner = nodes.find_owner(election_slot()).await?;
        let mut other = None;
        for shard in 0..PRIMARIES {
            // The middle of a share never moves.
            let middle = (shard * 2 + 1) * usize::from(SLOTS) / (2 * PRIMARIES);
            let port = nodes.find_owner(u16::try_from(middle).unwrap_or(0)).await?;
            other = other.or(Some(port).filter(|port| *port != owner));
        }
        let (from, to) = (Named::at(owner).await?, Named::at(other.ok_or_else(nobody)?).await?);
        nodes.writer.take();
        let slots = moving_slots();
        self.say(&format!(
            "slots {}-{}, with the election's own, move from port {} to port {}",
            slots.start,
            slots.end - 1,
            from.port,
            to.port
        ));
        let began_at = clock::now();
        let moving = async {
            let mut keys = 0;
            for slot in slots.clone() {
                keys += nodes.move_slot(slot, &from, &to).await?;
            }
            Ok::<_, Failure>(keys)
        };
        let keys = self.hear_until(moving).await?;
        let took = duration(clock::now().saturating_duration_since(began_at));
        self.say(&format!("{SLOTS_MOVED} slots with {keys} keys have moved in {took}"));
        self.linger(super::TTL).await;
        let leader = self.leader_name();
        self.say(&format!("{leader} is still the leader: the election moved with its slot"));
        self.say(&nodes.writer.take().to_string());
        Ok(())
    }
}

/// The slot of the election.
fn election_slot() -> u16 {
    Slot::of(format!("tenure:{RESOURCE}")).number()
}

/// The slots that move: all of one share, and the election's among them.
fn moving_slots() -> std::ops::Range<u16> {
    let share = SLOTS / PRIMARIES as u16;
    let first_of_share = election_slot() / share * share;
    let last = (first_of_share + share).min(SLOTS) - SLOTS_MOVED;
    let start = election_slot().saturating_sub(SLOTS_MOVED / 2).clamp(first_of_share, last);
    start..start + SLOTS_MOVED
}

fn nobody() -> Failure {
    Failure::new(exit::NO, "no node of the cluster answers")
}

fn address(parts: &[Part]) -> String {
    let hosts = parts.iter().map(|part| format!("127.0.0.1:{}", part.port));
    format!("redis+cluster://{}", hosts.collect::<Vec<_>>().join(","))
}

fn start_node(folder: &std::path::Path, port: u16) -> Result<Part, Failure> {
    let words = format!(
        "--bind 127.0.0.1 --loglevel warning --repl-diskless-sync-delay 0 --port {port} \
         --cluster-enabled yes --cluster-config-file nodes-{port}.conf --cluster-node-timeout {}",
        NODE_TIMEOUT.as_millis()
    );
    let words = words.split(' ').map(str::to_owned);
    let unsaved = ["--save".to_owned(), String::new()];
    Part::start(folder, port, &words.chain(unsaved).collect::<Vec<_>>())
}

/// A port that nobody listens on right now, nor on the one for its bus.
fn port_with_bus() -> Result<u16, Failure> {
    for _ in 0..PORT_TRIES_MAX {
        let port = free_port()?;
        let bus = port.checked_add(BUS_PORT_OFFSET);
        if bus.is_some_and(|bus| TcpListener::bind(("127.0.0.1", bus)).is_ok()) {
            return Ok(port);
        }
    }
    Err(Failure::new(exit::NO, "no two free ports for a node were found"))
}

/// What `redis-cli --cluster create` does.
async fn create(parts: &[Part]) -> Result<(), Failure> {
    let share = usize::from(SLOTS) / PRIMARIES;
    for (number, part) in parts.iter().enumerate() {
        if number < PRIMARIES {
            let (first, next) = (number * share, (number + 1) * share);
            let last = if number + 1 == PRIMARIES { usize::from(SLOTS) - 1 } else { next - 1 };
            must(part.port, &format!("CLUSTER ADDSLOTSRANGE {first} {last}")).await?;
        }
        must(part.port, &format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1)).await?;
    }
    for part in &parts[1..] {
        must(parts[0].port, &format!("CLUSTER MEET 127.0.0.1 {}", part.port)).await?;
    }
    let known = format!("cluster_known_nodes:{}", parts.len());
    await_each(parts, "the nodes did not find each other", "CLUSTER INFO", &[&known]).await?;
    for (primary, replica) in parts.iter().zip(&parts[PRIMARIES..]) {
        let id = Named::at(primary.port).await?.id;
        wait("a replica does not know its primary", async || {
            matches!(ask(replica.port, &format!("CLUSTER REPLICATE {id}")).await?, Reply::Simple(_))
                .then_some(())
        })
        .await?;
    }
    await_whole(parts).await
}

async fn await_whole(parts: &[Part]) -> Result<(), Failure> {
    let state = ["cluster_state:ok", "cluster_slots_ok:16384"];
    await_each(parts, "the cluster is not whole", "CLUSTER INFO", &state).await?;
    for part in parts {
        wait("a replica is not in step", async || {
            let info = text(ask(part.port, "INFO replication").await?);
            let is_follower = info.contains("master_link_status:up");
            (is_follower || info.contains("state=online")).then_some(())
        })
        .await?;
    }
    Ok(())
}

async fn await_each(
    parts: &[Part],
    problem: &str,
    question: &str,
    words: &[&str],
) -> Result<(), Failure> {
    for part in parts {
        wait(problem, async || {
            let said = text(ask(part.port, question).await?);
            words.iter().all(|word| said.contains(word)).then_some(())
        })
        .await?;
    }
    Ok(())
}

/// Asks, and takes no error for an answer.
async fn must(port: u16, line: &str) -> Result<Reply, Failure> {
    match ask_once(port, line).await {
        Some(Reply::Error(said)) => {
            Err(no(&format!("port {port} refuses {line:?}: {}", crate::output::plain(&said))))
        }
        Some(reply) => Ok(reply),
        None => {
            let problem = format!("port {port} did not answer {line:?} in {PATIENCE:?}");
            Err(Failure::new(exit::TIMED_OUT, problem))
        }
    }
}

/// The port of the primary in a range of CLUSTER SLOTS, if the slot is in it.
fn owner_in(range: &Reply, slot: u16) -> Option<u16> {
    let Reply::Array(fields) = range else { return None };
    let [Reply::Integer(first), Reply::Integer(last), Reply::Array(primary), ..] = &fields[..]
    else {
        return None;
    };
    match primary.get(1) {
        Some(Reply::Integer(port)) if (*first..=*last).contains(&i64::from(slot)) => {
            u16::try_from(*port).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_that_move_are_of_one_share_and_the_election_is_among_them() {
        let slots = moving_slots();
        assert!(slots.contains(&election_slot()), "{slots:?}");
        assert_eq!(slots.len(), usize::from(SLOTS_MOVED));
        let share = SLOTS / PRIMARIES as u16;
        assert_eq!(slots.start / share, (slots.end - 1) / share);
        // The middles of the shares, by which owners are found, stay.
        for shard in 0..PRIMARIES as u32 {
            let middle = (shard * 2 + 1) * u32::from(SLOTS) / (2 * PRIMARIES as u32);
            assert!(!slots.contains(&(middle as u16)), "{middle} of {slots:?}");
        }
    }
}
