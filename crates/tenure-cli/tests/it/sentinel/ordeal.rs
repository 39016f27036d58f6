//! Groups of all kinds on a network that really loses packets: whatever happens to the primary or
//! to a sentinel, all end up with one address.

use std::thread::sleep;
use std::time::Duration;

use testkit::{GENEROUS, Host, Network, SentinelGroup, ServerProgram, wait_until};

use super::{hurry, own, real};

/// `failover-timeout`: after a failover sentinels rest for twice that.
const TIMEOUT_MS: &str = "1500";

struct Ordeal {
    network: Network,
    group: SentinelGroup,
}

impl Ordeal {
    /// `None`, with the reason, where this system does not permit namespaces.
    fn begin(servers: &[ServerProgram], sentinels: &[ServerProgram]) -> Option<Self> {
        let network = Network::create(3);
        let network = network.map_err(|why| println!("skipped: no network namespaces: {why}"));
        let network = network.ok()?;
        let hosts: Vec<Host> = (0..3).map(|index| network.host(index).clone()).collect();
        let group = SentinelGroup::start_each_on(&hosts, servers, sentinels);
        hurry(&group);
        let words = ["SENTINEL", "SET", SentinelGroup::MASTER, "failover-timeout", TIMEOUT_MS];
        for sentinel in &group.sentinels {
            assert_eq!(sentinel.cli(&words), "OK");
        }
        Some(Self { network, group })
    }

    /// Where the primary is, once everybody agrees: all sentinels name one address, the server
    /// there says that it is the primary, and the others follow it.
    fn settled(&self, what: &str) -> usize {
        let agrees = |primary: usize| {
            let servers = &self.group.servers;
            let follows = format!("slave\n{}\n{}\nconnected", servers[primary].host(), {
                servers[primary].port()
            });
            let role_of = |at: usize| servers[at].role().unwrap_or_default();
            self.group.sentinels_agree()
                && role_of(primary).starts_with("master")
                && (0..3).filter(|at| *at != primary).all(|at| role_of(at).starts_with(&follows))
        };
        testkit::wait_for(&format!("one address after {what}"), 3 * GENEROUS, || {
            self.group.master().filter(|primary| agrees(*primary))
        })
    }

    /// Waits for another primary than `old`, as those say who are not cut off with it.
    fn replaced(&self, old: usize) {
        let old_port = self.group.servers[old].port().to_string();
        let names_another = |at: usize| {
            let port = self.group.sentinels[at].field("port");
            !port.is_empty() && port != old_port
        };
        wait_until("another primary", 3 * GENEROUS, || {
            (0..3).filter(|at| *at != old).all(names_another)
        });
    }

    fn cut_off(&mut self, host: usize) {
        for other in (0..3).filter(|other| *other != host) {
            self.network.cut(host, other);
            self.network.cut(other, host);
        }
    }

    fn kill_and_take_back(&mut self) {
        let old = self.settled("the start");
        self.group.servers[old].kill();
        self.replaced(old);
        self.group.servers[old].restart();
        assert_ne!(self.settled("a kill"), old, "it came back as a replica");
    }

    fn stop(&mut self) {
        let old = self.settled("a kill");
        self.group.servers[old].pause();
        self.replaced(old);
        self.group.servers[old].resume();
        assert_ne!(self.settled("a stop"), old);
    }

    fn partition(&mut self) {
        let old = self.settled("a stop");
        self.cut_off(old);
        self.replaced(old);
        assert!(self.group.servers[old].cli(&["ROLE"]).starts_with("master"), "it cannot know");
        self.network.heal();
        assert_ne!(self.settled("a partition"), old);
    }

    fn flap(&mut self) {
        for round in 0..6 {
            let host = self.group.master().unwrap_or(round % 3);
            self.cut_off(host);
            sleep(Duration::from_millis(300 + 300 * round as u64));
            self.network.heal();
            sleep(Duration::from_millis(400));
        }
        self.settled("a network that came and went");
    }

    /// Quicker than anybody misses it.
    fn reboot(&mut self) {
        let primary = self.settled("a network that came and went");
        self.group.servers[primary].restart();
        self.settled("a reboot");
    }

    fn forget(&mut self) {
        for at in 0..3 {
            self.group.sentinels[at].restart_without_memory();
            hurry(&self.group);
            self.settled("a lost file");
        }
        wait_until("the old names to be forgotten", GENEROUS, || {
            self.group.sentinels.iter().all(|one| one.field("num-other-sentinels") == "2")
        });
    }
}

/// One after the other, on one group.
fn endure(servers: &[ServerProgram], sentinels: &[ServerProgram]) {
    let Some(mut ordeal) = Ordeal::begin(servers, sentinels) else { return };
    let faults: [fn(&mut Ordeal); 6] = [
        Ordeal::kill_and_take_back,
        Ordeal::stop,
        Ordeal::partition,
        Ordeal::flap,
        Ordeal::reboot,
        Ordeal::forget,
    ];
    for (index, fault) in faults.into_iter().enumerate() {
        let began_at = std::time::Instant::now();
        fault(&mut ordeal);
        println!("fault {index} in {:.1} s", began_at.elapsed().as_secs_f64());
    }
}

#[test]
fn three_of_ours_over_real_servers_end_up_with_one_address() {
    endure(&real(3), &own(3));
}

#[test]
fn three_real_ones_over_our_stores_end_up_with_one_address() {
    endure(&own(3), &real(3));
}

#[test]
fn two_of_ours_and_a_real_one_over_servers_of_both_kinds_end_up_with_one_address() {
    let servers = [own(1), real(1), own(1)].concat();
    endure(&servers, &[own(2), real(1)].concat());
}
