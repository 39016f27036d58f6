//! Moves slots from one node to another, or takes them from all.

use super::{ClusterGroup, settle};

/// How long one MIGRATE may take, in milliseconds.
const MIGRATE_TIMEOUT_MS: &str = "5000";

impl ClusterGroup {
    /// Moves a slot with all its keys to another master and returns once every node knows it.
    ///
    /// # Panics
    /// When nobody owns the slot.
    pub fn migrate(&self, slot: u16, to: usize) {
        self.begin_migration(slot, to);
        for key in self.keys_in(slot) {
            self.migrate_key(slot, to, &key);
        }
        self.finish_migration(slot, to);
    }

    /// Moves `count` slots from one master to another with `redis-cli --cluster reshard`, as
    /// operators do, and returns once every node knows of it.
    ///
    /// # Panics
    /// When it fails.
    pub fn reshard(&self, from: usize, to: usize, count: usize) {
        let address = self.server(from).authority();
        let (from, to, count) = (&self.nodes[from].id, &self.nodes[to].id, count.to_string());
        let words = ["--cluster", "reshard", &address, "--cluster-from", from, "--cluster-to", to];
        let options = ["--cluster-slots", &count, "--cluster-yes"];
        self.witness().server.cli(&[&words[..], &options[..]].concat());
        self.wait_until_whole();
    }

    /// Gives every master the same number of slots with `redis-cli --cluster rebalance`, as
    /// operators do, and returns once every node knows of it.
    ///
    /// # Panics
    /// When it fails.
    pub fn rebalance(&self) {
        let node = self.witness();
        let address = node.server.authority();
        node.server.cli(&["--cluster", "rebalance", &address, "--cluster-threshold", "0.1"]);
        self.wait_until_whole();
    }

    /// How many slots a master has, as it says itself.
    #[must_use]
    pub fn slots_of(&self, master: usize) -> usize {
        let node = &self.nodes[master];
        let seen = node.sees();
        let own = seen.iter().find(|one| one.id == node.id);
        own.map_or(0, |own| own.slots.iter().map(|(first, last)| last - first + 1).sum())
    }

    /// Opens a slot for migration: its owner sends clients on with ASK for keys that it no longer
    /// has, and answers TRYAGAIN where it has some of a request's keys only.
    ///
    /// # Panics
    /// When nobody owns the slot.
    pub fn begin_migration(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        let number = slot.to_string();
        let set = |place: usize, state: &str, other: usize| {
            self.tell(place, &["CLUSTER", "SETSLOT", &number, state, &self.nodes[other].id]);
        };
        set(to, "IMPORTING", from);
        set(from, "MIGRATING", to);
    }

    /// The keys that the owner of the slot still has.
    ///
    /// # Panics
    /// When nobody owns the slot.
    #[must_use]
    pub fn keys_in(&self, slot: u16) -> Vec<String> {
        let owner = self.server(self.owner(slot));
        let keys = owner.cli(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]);
        keys.lines().filter(|key| !key.is_empty()).map(str::to_owned).collect()
    }

    /// Moves one key of a slot that is open for migration.
    ///
    /// # Panics
    /// When nobody owns the slot or the nodes do not reach each other.
    pub fn migrate_key(&self, slot: u16, to: usize, key: &str) {
        let from = self.owner(slot);
        let (host, port) = (self.server(to).host(), &self.nodes[to].port);
        let said = self.server(from).cli(&["MIGRATE", &host, port, key, "0", MIGRATE_TIMEOUT_MS]);
        // A key may have expired meanwhile.
        assert!(["OK", "NOKEY"].contains(&said.as_str()), "MIGRATE of {key}: {said}");
    }

    /// Gives a slot to its new owner for good and returns once every node knows it.
    ///
    /// # Panics
    /// When the old owner still has keys of the slot.
    pub fn finish_migration(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        let (number, id) = (slot.to_string(), &self.nodes[to].id);
        for place in [to, from] {
            self.tell(place, &["CLUSTER", "SETSLOT", &number, "NODE", id]);
        }
        assert_eq!(self.wait_for_another_owner(slot, from), to);
    }

    /// Leaves a slot without an owner and returns once every node knows it.
    ///
    /// # Panics
    /// When nobody owns it.
    pub fn uncover(&self, slot: u16) {
        let number = slot.to_string();
        let owner = self.owner(slot);
        settle("the slot to have no owner", || {
            // A node that hears of the old owner again takes it over, so the owner goes first.
            self.server(owner).cli(&["CLUSTER", "DELSLOTS", &number]);
            for node in self.answering() {
                if self.owner_seen_by(node, slot).is_some() {
                    node.server.cli(&["CLUSTER", "DELSLOTS", &number]);
                }
            }
            self.answering().all(|node| self.owner_seen_by(node, slot).is_none())
        });
    }
}
