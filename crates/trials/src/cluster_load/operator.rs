//! What operators do to a cluster that is in use, without losing anything.

use std::time::Duration;

use testkit::{ClusterGroup, GENEROUS, wait_until};

/// How long a node that was killed is waited for. The others are busy, and must not be missed.
const MISSED_AFTER: Duration = Duration::from_secs(8);
/// A replica moves by itself to a master that has had none for five seconds.
const MIGRATES_WITHIN: Duration = GENEROUS.saturating_mul(2);

/// Does one thing after the other.
pub struct Operator<'a> {
    group: &'a ClusterGroup,
    /// Hears what is done, for people.
    tell: &'a dyn Fn(&str),
}

impl<'a> Operator<'a> {
    /// Of a cluster.
    pub fn new(group: &'a ClusterGroup, tell: &'a dyn Fn(&str)) -> Self {
        Self { group, tell }
    }

    /// A replica takes over from each of these masters, both agreeing.
    ///
    /// # Panics
    /// When it takes far too long.
    pub fn fail_over(&self, masters: &[usize]) {
        for &master in masters {
            let new = self.group.fail_over(master);
            (self.tell)(&format!("node {new} takes the place of {master}"));
            self.group.wait_until_whole();
        }
    }

    /// So many slots at a time move around between all masters; in the end all have the same
    /// number. Each is some writes to the disks of two nodes.
    ///
    /// # Panics
    /// When `redis-cli --cluster` fails.
    pub fn move_slots(&self, count: usize) {
        let masters = self.group.masters();
        for (place, from) in masters.iter().enumerate() {
            let to = masters[(place + 1) % masters.len()];
            (self.tell)(&format!("{count} slots move from node {from} to {to}"));
            self.group.reshard(*from, to, count);
        }
        let (from, to) = (masters[0], masters[1]);
        self.group.reshard(from, to, count);
        (self.tell)("rebalance");
        self.group.rebalance();
        let counts = masters.iter().map(|master| self.group.slots_of(*master));
        assert!(counts.clone().max() <= counts.min().map(|least| least + count / 2), "balanced");
    }
}

/// A replica dies, and one that another master can spare takes its place by itself.
///
/// # Panics
/// When no replica comes.
pub fn orphan_a_master(group: &mut ClusterGroup, tell: &dyn Fn(&str)) {
    let masters = group.masters();
    let (giver, rich, orphan) = (masters[0], masters[1], masters[2]);
    let (spare, lost) = (group.replicas_of(giver)[0], group.replicas_of(orphan)[0]);
    tell(&format!("node {spare} leaves {giver} for {rich}"));
    group.follow(spare, rich);
    group.wait_until_whole();
    tell(&format!("node {lost}, the replica of {orphan}, is killed"));
    group.bear_silence_for(MISSED_AFTER);
    group.kill(lost);
    wait_until("a replica for the master without one", MIGRATES_WITHIN, || {
        !group.replicas_of(orphan).is_empty()
    });
    group.set_patient(true);
    group.restart(lost);
    group.wait_until_whole();
    // It comes back to its master, which has two now; the first has none.
    group.follow(lost, giver);
    group.wait_until_whole();
}

/// Restarts these nodes, one after the other. A master hands its part to its replica first.
///
/// # Panics
/// When one does not come back.
pub fn roll(group: &mut ClusterGroup, places: &[usize], tell: &dyn Fn(&str)) {
    for &place in places {
        if group.masters().contains(&place) {
            let new = group.fail_over(place);
            tell(&format!("node {new} takes the place of {place}"));
            group.wait_until_whole();
        }
        group.terminate(place);
        group.restart(place);
        tell(&format!("node {place} was restarted"));
        group.wait_until_whole();
    }
}
