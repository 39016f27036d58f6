//! A network of the test's own, in which packets are really lost.
//!
//! What comes in: how many hosts there are, and which of them cannot reach which. What goes out:
//! hosts in network namespaces of their own around one router, to start programs on. A rule at the
//! router drops packets by where they come from and where they go, so a cut may be one-way, needs
//! no firewall, and looks to both ends as a pulled cable does: nothing is refused, nothing reset.

use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::thread::LinkNameSpaceType;

/// With what the names of all our namespaces begin; the process id follows.
const PREFIX: &str = "tenure-net";
/// Where `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";
/// More hosts than a test needs: each has a number of its own in an address.
const HOSTS_MAX: usize = 100;

/// Where a program runs and by which address others reach it.
#[derive(Debug, Clone)]
pub struct Host {
    address: Ipv4Addr,
    namespace: Option<Arc<File>>,
}

impl Host {
    /// This machine's loopback: no network of its own.
    #[must_use]
    pub fn loopback() -> Self {
        Self { address: Ipv4Addr::LOCALHOST, namespace: None }
    }

    /// By which address other hosts of its network reach it.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The addresses to listen on: its own, and loopback, by which the test reaches what runs there
    /// even while it is cut off.
    pub(crate) fn listens_on(&self) -> Vec<Ipv4Addr> {
        match self.namespace {
            Some(_) => vec![self.address, Ipv4Addr::LOCALHOST],
            None => vec![Ipv4Addr::LOCALHOST],
        }
    }

    /// Makes `command` run on this host.
    #[expect(unsafe_code, reason = "the standard library offers no safe way into a namespace")]
    pub fn enter(&self, command: &mut Command) {
        let Some(namespace) = self.namespace.clone() else { return };
        let in_child = move || Ok(move_into(namespace.as_fd())?);
        // SAFETY: the closure runs between fork and exec and makes one system call.
        unsafe { command.pre_exec(in_child) };
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::loopback()
    }
}

fn move_into(namespace: BorrowedFd<'_>) -> rustix::io::Result<()> {
    rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
}

/// Hosts around a router. All of it is gone when the value is dropped; what a killed process left
/// behind is removed by the next one that makes a network.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    hosts: Vec<Host>,
    /// Which host's packets to which other are dropped.
    cuts: Vec<(usize, usize)>,
}

impl Network {
    /// Makes so many hosts, all of which reach each other. Fails with the reason where this system
    /// does not permit it.
    ///
    /// # Errors
    /// When namespaces may not be made, or `ip` (package iproute2) is missing.
    ///
    /// # Panics
    /// When more hosts are asked for than a network has addresses for.
    pub fn create(count: usize) -> Result<Self, String> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        assert!(count <= HOSTS_MAX, "a network has at most {HOSTS_MAX} hosts");
        sweep();
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{PREFIX}-{}-{number}", std::process::id());
        // From here on, dropping it cleans up, however little of it was made.
        let mut network = Network { prefix, hosts: Vec::new(), cuts: Vec::new() };
        network.make_router()?;
        for index in 0..count {
            let host = network.make_host(index)?;
            network.hosts.push(host);
        }
        Ok(network)
    }

    fn make_router(&self) -> Result<(), String> {
        let router = self.router();
        ip_batch(&[format!("netns add {router}")])?;
        let namespace = File::open(Path::new(NAMESPACES).join(&router));
        let namespace = namespace.map_err(|error| format!("{router}: {error}"))?;
        let mut forwarding = Command::new("sh");
        forwarding.args(["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
        let host = Host { address: Ipv4Addr::LOCALHOST, namespace: Some(Arc::new(namespace)) };
        host.enter(&mut forwarding);
        match forwarding.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(format!("cannot enter {router}: {error}")),
        }
    }

    fn make_host(&self, index: usize) -> Result<Host, String> {
        let (router, name) = (self.router(), self.name(index));
        let subnet = u8::try_from(index + 1).expect("fewer hosts than addresses");
        let (gateway, address) =
            (Ipv4Addr::new(10, 77, subnet, 1), Ipv4Addr::new(10, 77, subnet, 2));
        ip_batch(&[
            format!("netns add {name}"),
            format!("link add v{index} netns {router} type veth peer name eth0 netns {name}"),
        ])?;
        ip_batch_in(
            &router,
            &[format!("addr add {gateway}/30 dev v{index}"), format!("link set v{index} up")],
        )?;
        ip_batch_in(
            &name,
            &[
                format!("addr add {address}/30 dev eth0"),
                "link set eth0 up".to_owned(),
                "link set lo up".to_owned(),
                format!("route add default via {gateway}"),
            ],
        )?;
        let namespace = File::open(Path::new(NAMESPACES).join(&name));
        let namespace = namespace.map_err(|error| format!("{name}: {error}"))?;
        Ok(Host { address, namespace: Some(Arc::new(namespace)) })
    }

    /// The host with this number.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// How many hosts there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.hosts.len()
    }

    /// Drops from now on what `from` sends to `to`. The other way stays open.
    ///
    /// # Panics
    /// When the system refuses the rule.
    pub fn cut(&mut self, from: usize, to: usize) {
        if !self.cuts.contains(&(from, to)) {
            self.rules("add", &[(from, to)]);
            self.cuts.push((from, to));
        }
    }

    /// Lets everything pass again.
    ///
    /// # Panics
    /// When the system refuses to remove a rule.
    pub fn heal(&mut self) {
        let cuts = std::mem::take(&mut self.cuts);
        self.rules("del", &cuts);
    }

    fn rules(&self, verb: &str, cuts: &[(usize, usize)]) {
        let line = |(from, to): &(usize, usize)| {
            let (from, to) = (self.hosts[*from].address, self.hosts[*to].address);
            format!("rule {verb} from {from} to {to} blackhole")
        };
        let lines: Vec<_> = cuts.iter().map(line).collect();
        if let Err(error) = ip_batch_in(&self.router(), &lines) {
            panic!("the router of {} takes no rule: {error}", self.prefix);
        }
    }

    fn router(&self) -> String {
        format!("{}-router", self.prefix)
    }

    fn name(&self, index: usize) -> String {
        format!("{}-h{index}", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.hosts.clear();
        remove(&namespaces().filter(|name| name.starts_with(&self.prefix)).collect::<Vec<_>>());
    }
}

/// Removes what processes that are gone left behind.
fn sweep() {
    let is_left = |name: &String| owner(name).is_some_and(|pid| !is_running(pid));
    remove(&namespaces().filter(is_left).collect::<Vec<_>>());
}

/// The process that made a namespace, if it is one of ours.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-').next()?.parse().ok()
}

fn is_running(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

fn namespaces() -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn remove(names: &[String]) {
    let lines: Vec<_> = names.iter().map(|name| format!("netns del {name}")).collect();
    // What cannot be removed now is removed by the next run.
    let _ = ip_batch(&lines);
}

fn ip_batch(lines: &[String]) -> Result<(), String> {
    run_ip(&[], lines)
}

fn ip_batch_in(namespace: &str, lines: &[String]) -> Result<(), String> {
    run_ip(&["-n", namespace], lines)
}

fn run_ip(options: &[&str], lines: &[String]) -> Result<(), String> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut command = Command::new("ip");
    command.args(options).args(["-force", "-batch", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let missing = |error| format!("cannot run ip: {error}. Install iproute2");
    let mut child = command.spawn().map_err(missing)?;
    let mut input = child.stdin.take().expect("standard input is a pipe");
    // When it has ended early, its words say why.
    let _ = input.write_all(lines.join("\n").as_bytes());
    drop(input);
    let output = child.wait_with_output().map_err(missing)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_tells_whose_it_is() {
        assert_eq!(owner("tenure-net-4711-0-h3"), Some(4711));
        assert_eq!(owner("tenure-net-4711-0-router"), Some(4711));
        assert_eq!(owner("other-4711-0"), None);
    }
}
