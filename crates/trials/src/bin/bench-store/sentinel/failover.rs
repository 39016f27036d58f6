//! A primary is killed again and again: how long until most sentinels name another.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use testkit::{GENEROUS, SentinelGroup, ServerProgram, wait_until};
use trials::clock;
use trials::stats::Samples;

use crate::report::Figures;
use crate::servers::{PerSide, SIDES, Side, unpinned};
use crate::{Result, Scale};

/// By how much we may exceed redis-sentinel.
const RATIO_MAX: f64 = 1.05;
/// `failover-timeout`. After a failover the next one begins no sooner than twice that later.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(3);
/// That, and as much as sentinels add by chance.
const REST: Duration = Duration::from_millis(2 * 3_000 + 1_500);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Three servers, three sentinels, and a connection to each of those.
struct Watched {
    group: SentinelGroup,
    lines: Vec<BufReader<TcpStream>>,
    took: Samples,
    /// When the last failover was over.
    rests_since: tenure_core::Moment,
}

/// In turn: while one group rests, the other is measured.
pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    let mut groups = PerSide::measure(Watched::start)?;
    for round in 0..scale.failovers {
        for side in SIDES {
            groups.side_mut(side).fail_over()?;
        }
        eprintln!("failover {} of {}", round + 1, scale.failovers);
    }
    let PerSide { ours, theirs } = groups;
    let median = |watched: &Watched| watched.took.percentile(50.0).as_secs_f64();
    let (mine, other) = (median(&ours), median(&theirs));
    let what = format!("failover, median of {} each, ratio", scale.failovers);
    figures.must(&what, (mine / other, ""), format!("{mine:.2} s and {other:.2} s"), RATIO_MAX);
    let longest = |watched: &Watched| {
        let longest = watched.took.percentile(100.0).as_secs_f64();
        format!("{longest:.2} s")
    };
    figures.note("failover, the longest", longest(&ours), longest(&theirs));
    Ok(())
}

impl Watched {
    fn start(side: Side) -> Result<Self> {
        let servers = vec![ServerProgram::redis(); 3];
        let group = SentinelGroup::start_mixed(&servers, &vec![unpinned(side)?; 3]);
        let timeout = FAILOVER_TIMEOUT.as_millis().to_string();
        let mut lines = Vec::new();
        for sentinel in &group.sentinels {
            let words = ["SENTINEL", "SET", SentinelGroup::MASTER, "failover-timeout", &timeout];
            sentinel.cli(&words);
            let stream = TcpStream::connect(("127.0.0.1", sentinel.port()))?;
            stream.set_nodelay(true)?;
            lines.push(BufReader::new(stream));
        }
        let rests_since = clock::now();
        Ok(Self { group, lines, took: Samples::default(), rests_since })
    }

    /// Kills the primary, and takes it back as a replica.
    fn fail_over(&mut self) -> Result {
        let rested = clock::now().since(self.rests_since);
        sleep(REST.saturating_sub(rested));
        self.group.wait_until_heard();
        let old = self.group.master().ok_or("no sentinel names a primary")?;
        let old_port = self.group.servers[old].port();
        self.group.servers[old].kill();
        let killed_at = clock::now();
        while self.others_named(old_port)? < 2 {
            if clock::now().since(killed_at) > GENEROUS {
                return Err("no failover".into());
            }
            sleep(LOOK_EVERY);
        }
        self.took.add(clock::now().since(killed_at));
        let new = self.group.wait_for_another_master(old);
        let port = self.group.servers[new].port().to_string();
        self.group.servers[old].restart_with(["--replicaof", "127.0.0.1", &port]);
        self.wait_until_well();
        self.rests_since = clock::now();
        Ok(())
    }

    /// All sentinels see two replicas that are in step.
    fn wait_until_well(&self) {
        let words = ["SENTINEL", "REPLICAS", SentinelGroup::MASTER];
        wait_until("both replicas to be in step again", GENEROUS, || {
            self.group.sentinels.iter().all(|sentinel| {
                let told = sentinel.cli(&words);
                let count = |line: &str| told.lines().filter(|told| *told == line).count();
                count("slave") == 4 && count("ok") == 2
            })
        });
    }

    /// How many sentinels name another primary than the one at this port.
    fn others_named(&mut self, port: u16) -> Result<usize> {
        let mut others = 0;
        for line in &mut self.lines {
            let master = SentinelGroup::MASTER;
            write!(line.get_mut(), "SENTINEL GET-MASTER-ADDR-BY-NAME {master}\r\n")?;
            // Two words, each with its length before it.
            let mut told = String::new();
            for _ in 0..5 {
                told.clear();
                line.read_line(&mut told)?;
            }
            others += usize::from(told.trim_end() != port.to_string());
        }
        Ok(others)
    }
}
