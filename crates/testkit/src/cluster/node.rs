//! One node of a cluster, and what it sees of the others.

use std::time::Duration;

use crate::{RedisServer, RedisServerBuilder};

/// How far the port of the nodes' own traffic is from the one of clients.
const BUS_PORT_OFFSET: u16 = 10_000;

#[derive(Debug)]
pub(super) struct Node {
    pub(super) server: RedisServer,
    /// By which the nodes know it.
    pub(super) id: String,
    /// On which the nodes talk to it: another one than ours where they speak TLS.
    pub(super) port: String,
    /// Not ended or stopped by the test.
    pub(super) answers: bool,
}

/// One line of `CLUSTER NODES`.
pub(super) struct Seen {
    pub(super) id: String,
    pub(super) flags: Vec<String>,
    pub(super) master: String,
    /// Asked and not answered yet.
    pub(super) owes_answer: bool,
    pub(super) is_linked: bool,
    pub(super) slots: Vec<(usize, usize)>,
}

impl Node {
    pub(super) fn start(builder: RedisServerBuilder) -> Self {
        let server = builder.start();
        let nodes = server.cli(&["CLUSTER", "NODES"]);
        let mut words = nodes.split_whitespace();
        // `id :port@bus-port,host myself,master …`
        let (id, place) = (words.next(), words.next());
        let bus = place.and_then(|place| place.split(['@', ',']).nth(1));
        let port = bus.and_then(|bus| bus.parse::<u16>().ok()?.checked_sub(BUS_PORT_OFFSET));
        let (Some(id), Some(port)) = (id.map(str::to_owned), port) else {
            panic!("CLUSTER NODES said {nodes:?}");
        };
        Node { server, id, port: port.to_string(), answers: true }
    }

    /// Whether it is in step with its master, if it has one, and knows an owner of every slot.
    pub(super) fn is_content(&self) -> bool {
        let replication = self.server.cli(&["INFO", "replication"]);
        let is_in_step =
            replication.contains("role:master") || replication.contains("master_link_status:up");
        let cluster = self.server.cli(&["CLUSTER", "INFO"]);
        // Without the demand for full coverage, a node is content before it knows all.
        let knows_all = cluster.contains("cluster_slots_assigned:16384");
        is_in_step && knows_all && cluster.contains("cluster_state:ok")
    }

    /// Why it does not serve as a master with a replica, or as a replica in step with its master.
    pub(super) fn out_of_step(&self) -> Option<String> {
        let info = self.server.cli(&["INFO", "replication"]);
        let is_in_step = match info.contains("role:master") {
            true => self.server.has_replicas_in_step(1),
            false => info.contains("master_link_status:up"),
        };
        if !is_in_step {
            return Some(format!("not in step\n{info}"));
        }
        let state = self.server.cli(&["CLUSTER", "INFO"]);
        match state.contains("cluster_state:ok") {
            true => None,
            false => Some(format!("{state}\n{}", self.server.cli(&["CLUSTER", "NODES"]))),
        }
    }

    #[track_caller]
    pub(super) fn tell(&self, words: &[&str]) {
        let said = self.server.cli(words);
        assert_eq!(said, "OK", "{}", words.join(" "));
    }

    pub(super) fn bear_silence_for(&self, timeout: Duration) {
        let timeout_ms = timeout.as_millis().to_string();
        self.tell(&["CONFIG", "SET", "cluster-node-timeout", &timeout_ms]);
    }

    /// The cluster as this node sees it.
    pub(super) fn sees(&self) -> Vec<Seen> {
        let nodes = self.server.cli(&["CLUSTER", "NODES"]);
        nodes.lines().filter(|line| !line.is_empty()).map(Seen::parse).collect()
    }
}

impl Seen {
    /// `id address flags master ping pong epoch link slot slot-slot [slot->-id]…`
    pub(super) fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _, flags, master, ping_sent_at, _, _, link, slots @ ..] = words.as_slice() else {
            panic!("CLUSTER NODES said {line:?}");
        };
        Seen {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            master: (*master).to_owned(),
            owes_answer: *ping_sent_at != "0",
            is_linked: *link == "connected",
            slots: slots.iter().filter_map(|text| slot_range(text)).collect(),
        }
    }

    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|one| one == flag)
    }
}

/// `None` for a slot in migration, which stands in brackets beside its owner.
fn slot_range(text: &str) -> Option<(usize, usize)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_cluster_nodes_is_understood() {
        let line = "07c3 127.0.0.1:30004@31004,host slave,fail e7d1 0 1426238317239 4 disconnected";
        let seen = Seen::parse(line);
        assert_eq!((seen.id.as_str(), seen.master.as_str()), ("07c3", "e7d1"));
        assert!(seen.has("slave") && seen.has("fail") && !seen.is_linked && !seen.owes_answer);

        let line = "e7d1 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-5460 7000 \
                    [77->-07c3]";
        assert_eq!(Seen::parse(line).slots, [(0, 5460), (7000, 7000)]);
    }
}
