//! How old the zombies of wrappers become.
//!
//! What counts is the time in which the owner could have reaped: from the first sight of a zombie,
//! the time that passed less what its owner spent waiting for a processor (`/proc/PID/schedstat`).
//! While the owner is stopped nothing counts, nor while a process that it starts waits for a
//! processor: until that executes something, the kernel holds its parent up. So a machine on which
//! much else runs does not make a zombie older, and a wrapper that forgets one does. The leader of
//! a program does not count while something else of the program lives: until then its number must
//! stay its own.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::stage::{children_of, is_guard};

/// How old one may become.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks at the children of wrappers all the time.
pub(crate) struct ZombieWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    owners: Mutex<Vec<u32>>,
    /// The oldest that was seen, and whose it was.
    oldest: Mutex<(Duration, String)>,
    is_over: AtomicBool,
}

impl ZombieWatch {
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let mut sights = Sights::default();
            while !watched.is_over.load(Ordering::Relaxed) {
                let owners = watched.owners.lock().unwrap().clone();
                let seen = sights.look(&owners, Instant::now());
                let mut oldest = watched.oldest.lock().unwrap();
                *oldest = oldest.clone().max(seen);
                drop(oldest);
                std::thread::sleep(LOOK_EVERY);
            }
        });
        ZombieWatch { shared, thread: Some(thread) }
    }

    /// Whose children are looked at from now on.
    pub(crate) fn set_owners(&self, owners: Vec<u32>) {
        *self.shared.owners.lock().unwrap() = owners;
    }

    /// The age of the oldest so far, and whose it was.
    pub(crate) fn oldest(&self) -> (Duration, String) {
        self.shared.oldest.lock().unwrap().clone()
    }
}

impl Drop for ZombieWatch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Zombies by owner, number and start, each with when it was first seen and how long its owner had
/// been held up by then.
#[derive(Default)]
struct Sights {
    zombies: BTreeMap<(u32, u32, u64), (Instant, Duration)>,
    /// How long owners were held up by what they started.
    held_up: BTreeMap<u32, Duration>,
    looked_at: Option<Instant>,
}

impl Sights {
    /// Looks once, and returns the oldest.
    fn look(&mut self, owners: &[u32], now: Instant) -> (Duration, String) {
        let mut seen = BTreeMap::new();
        let mut oldest = (Duration::ZERO, String::new());
        let since_last = self.looked_at.replace(now).map_or(Duration::ZERO, |at| now - at);
        for owner in owners {
            let Some((false, waited)) = is_stopped(*owner).zip(waited_for_processor(*owner)) else {
                continue;
            };
            let held_up = self.held_up.entry(*owner).or_default();
            if is_starting(*owner) {
                *held_up += since_last;
            }
            let waited = waited + *held_up;
            // The kernel counts a wait for a processor when it is over: this one is judged then.
            let is_runnable = Stat::of(*owner).is_some_and(|stat| stat.state == 'R');
            for zombie in zombies_of(*owner) {
                let key = (*owner, zombie.pid, zombie.started);
                let (since, waited_before) = *self.zombies.get(&key).unwrap_or(&(now, waited));
                seen.insert(key, (since, waited_before));
                let age = (now - since).saturating_sub(waited - waited_before);
                if !is_runnable {
                    oldest = oldest.max((age, zombie.describe(*owner)));
                }
            }
        }
        self.zombies = seen;
        oldest
    }
}

struct Stat {
    pid: u32,
    name: String,
    state: char,
    threads: u32,
    group: u32,
    session: u32,
    started: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        Some(Stat {
            pid,
            name: name.split_once('(')?.1.to_owned(),
            state: fields.first()?.chars().next()?,
            threads: fields.get(17)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    fn is_zombie(&self) -> bool {
        // The state is that of its first thread.
        self.state == 'Z' && self.threads <= 1
    }

    /// With what its owner did at the time.
    fn describe(&self, owner: u32) -> String {
        let kind = if self.is_leader() { "leader" } else { "child" };
        let (pid, name) = (self.pid, &self.name);
        format!("{kind} {pid} ({name}) of wrapper {owner}, which was in {:?}", waits_in(owner))
    }

    /// Of a program: it has a group of its own, but no session.
    fn is_leader(&self) -> bool {
        self.group == self.pid && self.session != self.pid
    }
}

fn zombies_of(owner: u32) -> Vec<Stat> {
    let children: Vec<Stat> = children_of(owner).into_iter().filter_map(Stat::of).collect();
    let is_ending = children.iter().any(|child| !child.is_zombie() && !is_guard(child.pid));
    children.into_iter().filter(|it| it.is_zombie() && !(is_ending && it.is_leader())).collect()
}

fn is_stopped(pid: u32) -> Option<bool> {
    Stat::of(pid).map(|stat| matches!(stat.state, 'T' | 't'))
}

/// Where in the kernel a process waits.
fn waits_in(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default()
}

/// Whether it waits for a process that it starts to execute something.
fn is_starting(pid: u32) -> bool {
    let is_held = Stat::of(pid).is_some_and(|stat| stat.state == 'D');
    is_held && ["clone", "fork"].iter().any(|word| waits_in(pid).contains(word))
}

fn waited_for_processor(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// The watch is believed only because it sees a zombie that nobody reaps.
#[test]
fn a_zombie_that_nobody_reaps_is_seen() {
    let mut command = std::process::Command::new("sh");
    // `exec` makes somebody the parent who knows nothing of a child.
    command.args(["-c", "true & exec sleep 600"]);
    let careless = testkit::Process::spawn(command);
    let watch = ZombieWatch::start();
    watch.set_owners(vec![careless.pid()]);
    testkit::wait_until("the zombie to be old", testkit::GENEROUS, || watch.oldest().0 > AGE_MAX);
}
