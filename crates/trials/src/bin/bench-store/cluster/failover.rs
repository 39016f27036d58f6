//! A primary is killed again and again: how long until its slots are served by another.

use std::time::Duration;

use testkit::{ClusterGroup, GENEROUS, Host};
use trials::clock;
use trials::stats::Samples;

use crate::replication::Line;
use crate::report::Figures;
use crate::servers::{PerSide, SIDES, Side, unpinned};
use crate::{Result, Scale};

/// By how much we may exceed redis-server.
const RATIO_MAX: f64 = 1.05;
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Three primaries with a replica each.
struct Watched {
    group: ClusterGroup,
    took: Samples,
}

/// In turn: what the machine does besides strikes both.
pub(super) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    let mut groups = PerSide::measure(Watched::start)?;
    for round in 0..scale.failovers {
        for side in SIDES {
            groups.side_mut(side).fail_over(round)?;
        }
        eprintln!("failover {} of {}", round + 1, scale.failovers);
    }
    let PerSide { ours, theirs } = groups;
    let seconds = |watched: &Watched, percent| watched.took.percentile(percent).as_secs_f64();
    let (mine, other) = (seconds(&ours, 50.0), seconds(&theirs, 50.0));
    let what = format!(
        "cluster: kill -9 of a primary until its slots are served, node timeout 2 s, median of {} \
         each, ratio",
        scale.failovers
    );
    figures.must(&what, (mine / other, ""), format!("{mine:.2} s and {other:.2} s"), RATIO_MAX);
    let longest = |watched: &Watched| format!("{:.2} s", seconds(watched, 100.0));
    figures.note("cluster: the longest of them", longest(&ours), longest(&theirs));
    Ok(())
}

impl Watched {
    fn start(side: Side) -> Result<Self> {
        let hosts = vec![Host::loopback(); 2 * ClusterGroup::MASTERS];
        let programs = vec![unpinned(side)?; hosts.len()];
        let group = ClusterGroup::start_mixed_on(&hosts, &programs, |builder| builder);
        Ok(Self { group, took: Samples::default() })
    }

    /// Kills a primary, another one each time, and takes it back as a replica.
    fn fail_over(&mut self, round: usize) -> Result {
        self.group.wait_until_heard();
        let masters = self.group.masters();
        let old = masters[round % masters.len()];
        let replicas = self.group.replicas_of(old);
        let new = *replicas.first().ok_or("a primary has no replica")?;
        let key = key_of(&self.group, old)?;
        let mut line = Line::open(self.group.server(new))?;
        self.group.kill(old);
        let killed_at = clock::now();
        // Until then it names the one that was killed, or says that the cluster is down.
        while line.ask(&["SET", &key, "served"]).is_err() {
            if clock::now().since(killed_at) > GENEROUS {
                return Err("no failover".into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.took.add(clock::now().since(killed_at));
        self.group.restart(old);
        self.group.wait_until_whole();
        Ok(())
    }
}

/// A key that a primary serves.
fn key_of(group: &ClusterGroup, primary: usize) -> Result<String> {
    let mut line = Line::open(group.server(primary))?;
    let mut keys = (0..1000).map(|number| format!("key:{number}"));
    let found = keys.find(|key| line.ask(&["SET", key, "served"]).is_ok());
    found.ok_or_else(|| "a primary serves none of a thousand keys".into())
}
