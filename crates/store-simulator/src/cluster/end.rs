//! When everything is healed, everybody must agree.

use super::judge::Rule;
use super::world::World;
use crate::network::Host as HostIndex;

impl World {
    fn living(&self) -> Vec<HostIndex> {
        self.members().filter(|host| self.hosts[*host].is_up).collect()
    }

    /// K1, K5, K6, K9 some time after the heal.
    pub(crate) fn judge_settled(&mut self) {
        self.judge_epochs();
        self.judge_agreement();
        self.judge_replicas();
        self.judge_flags();
        if self.climate.has_last_death {
            self.kill_a_master();
        }
    }

    /// No two masters have one epoch.
    fn judge_epochs(&mut self) {
        let now = self.queue.now();
        let living = self.living();
        let masters = living.iter().filter(|host| self.hosts[**host].core.me().is_voter());
        let mut epochs: Vec<u64> =
            masters.map(|host| self.hosts[*host].core.me().config_epoch).collect();
        epochs.sort_unstable();
        if let Some(pair) = epochs.windows(2).find(|pair| pair[0] == pair[1]) {
            let epoch = pair[0];
            self.judge.broken(Rule::K1, now, || format!("two masters keep epoch {epoch}"));
        }
    }

    /// All say the same about everybody, and serve.
    fn judge_agreement(&mut self) {
        let now = self.queue.now();
        let living = self.living();
        for host in &living {
            // With a short time-out, a pong that was lost on the way is missed for a moment.
            let is_moment =
                now < self.judge.state_changed_at[*host] + 4 * self.climate.node_timeout;
            if !self.hosts[*host].core.is_ok() && !is_moment {
                self.judge.broken(Rule::K5, now, || format!("{host} does not serve"));
            }
            for other in &living {
                if let Some(what) = self.disagreement(*host, *other) {
                    self.judge.broken(Rule::K5, now, || format!("{host} about {other}: {what}"));
                }
            }
        }
    }

    /// What `host` has wrong about `other`.
    fn disagreement(&self, host: HostIndex, other: HostIndex) -> Option<String> {
        let (view, truth) = (&self.hosts[host].core, &self.hosts[other].core);
        let Some(index) = view.nodes().find(self.hosts[other].id) else {
            return Some("unknown".to_owned());
        };
        let (seen, real) = (&view.nodes()[index], truth.me());
        let master = seen.master.map(|master| view.nodes()[master].id);
        if seen.is_master() != real.is_master() || master != self.hosts[other].follows() {
            return Some(format!("another role, follows {master:?}"));
        }
        if seen.slots != real.slots {
            return Some(format!("{} slots instead of {}", seen.slots.len(), real.slots.len()));
        }
        let is_same = seen.config_epoch == real.config_epoch;
        (real.is_voter() && !is_same)
            .then(|| format!("epoch {} instead of {}", seen.config_epoch, real.config_epoch))
    }

    /// Replicas follow masters, and no master has none while another has too many.
    fn judge_replicas(&mut self) {
        let now = self.queue.now();
        let living = self.living();
        for host in &living {
            let Some(master) = self.hosts[*host].follows().and_then(|id| self.by_id.get(&id))
            else {
                continue;
            };
            if self.hosts[*master].core.me().is_replica() {
                self.judge.broken(Rule::K6, now, || format!("{host} follows the replica {master}"));
            }
        }
        let count = |master: &HostIndex| {
            let id = Some(self.hosts[*master].id);
            living.iter().filter(|host| self.hosts[**host].follows() == id).count()
        };
        let has_spare = living.iter().any(|master| count(master) >= 2);
        let is_wanted = |master: &&HostIndex| {
            let id = self.hosts[**master].id;
            self.hosts[**master].core.me().is_voter()
                && living.iter().all(|host| {
                    let nodes = self.hosts[*host].core.nodes();
                    let flags = nodes.find(id).map(|index| nodes[index].flags);
                    host == *master
                        || flags.is_some_and(|f| f.has(store_cluster::Flags::MIGRATE_TO))
                })
        };
        let orphan = living.iter().filter(is_wanted).find(|master| count(master) == 0).copied();
        if let Some(orphan) = orphan.filter(|_| has_spare) {
            self.judge
                .broken(Rule::K6, now, || format!("{orphan} has no replica, others have two"));
        }
    }

    /// Nobody who works is taken for failed.
    fn judge_flags(&mut self) {
        let now = self.queue.now();
        let living = self.living();
        for host in &living {
            for other in living.iter().filter(|other| *other != host) {
                let nodes = self.hosts[*host].core.nodes();
                let is_wrong =
                    nodes.find(self.hosts[*other].id).is_some_and(|index| nodes[index].is_failed());
                if is_wrong {
                    self.judge.broken(Rule::K9, now, || format!("{host} takes {other} for failed"));
                }
            }
        }
    }

    /// A master whose replica is in step dies for good.
    fn kill_a_master(&mut self) {
        let now = self.queue.now();
        let is_followed = |master: &HostIndex| {
            let id = Some(self.hosts[*master].id);
            self.members().any(|host| {
                let this = &self.hosts[host];
                let is_young =
                    this.data.in_step_at.is_some_and(|at| this.now(now).monotonic_ms - at < 1_000);
                this.is_up && this.follows() == id && is_young
            })
        };
        let masters: Vec<HostIndex> = self
            .living()
            .into_iter()
            .filter(|host| self.hosts[*host].core.me().is_voter())
            .collect();
        let followed: Vec<HostIndex> = masters.iter().copied().filter(is_followed).collect();
        // One of two masters is no majority: nobody could be elected.
        if masters.len() < 3 || followed.is_empty() {
            return;
        }
        let master = *self.random.pick(&followed);
        self.note(|| format!("{master} dies for good"));
        self.crash(master);
        self.hosts[master].is_gone = true;
        self.dead_at_last = Some(master);
    }

    /// K10: its slots are served again.
    pub(crate) fn judge_end(&mut self) {
        let now = self.queue.now();
        let Some(dead) = self.dead_at_last else { return };
        let id = self.hosts[dead].id;
        for host in self.living() {
            let nodes = self.hosts[host].core.nodes();
            let count = nodes.find(id).map_or(0, |index| nodes[index].slot_count);
            if count > 0 {
                self.judge.broken(Rule::K10, now, || {
                    format!("{host}: {count} slots of {dead}, which is dead, have no heir")
                });
            }
        }
    }
}
