//! One child at a time, whatever happens to wrappers, guards and the store.
//!
//! Deleting the key is no fault of this list: whoever may do that ends a term early, and the holder
//! notices at its next renewal (docs/guarantees.md).
//!
//! Programs daemonise, ignore the stop signal, fork for ever or obey; logs are kept, full, closed
//! or not read; some wrappers are the first process of a pid namespace. Each start draws anew.
//!
//! One overlap is excused, and counted: where the guard that had to kill has measured itself that
//! the system did not run it in time (docs/command.md), and has said so in its log. Where nobody
//! can read that log, nothing is excused.
//!
//! `TRIAL_ROUNDS=100` makes it long, `TRIAL_MINUTES=20` longer; `TRIAL_OLDER=PATH` makes about half
//! of the starts those of an older `tenure`. `cargo xtask trial run` sets them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{GENEROUS, Process, Random, seed, wait_for, wait_until};

use crate::diary::{Diary, Follower, Judge, Overlap};
use crate::instance::{Instance, Plan, everybody, strike, token_of};
use crate::stage::{Kind, NAME, Stage, works_in};
use crate::zombies::{AGE_MAX, ZombieWatch};

const IDS: [&str; 4] = ["ada", "bob", "cid", "dan"];
/// Longer than a lease: whoever is silent for this long has lost.
const LONGER_THAN_A_LEASE: Duration = Duration::from_millis(2_200);
/// Longer than a wrapper lets a program run without a guard. Whoever stops or kills it sooner after
/// its guard leaves the program to nobody, which is not promised.
const GUARDED_AGAIN_AFTER: Duration = Duration::from_millis(4_400);
/// A fault strikes somewhere in this time, so at any moment between two renewals.
const MOMENT_MAX_MS: u64 = 700;
/// How long the word of a guard that was run too late is waited for.
const LATE_WORD_WITHIN: Duration = Duration::from_secs(5);
/// A fault on guards strikes somewhere in this time after a leader was told to go.
const BEGINNING_MAX_MS: u64 = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillWrapper,
    StopWrapper,
    TerminateWrapper,
    KillGuard,
    StopGuard,
    KillGuardThenWrapper,
    /// Of everybody, somewhere in the first moments of a term.
    KillGuardsAsTermBegins,
    StopGuardsAsTermBegins,
    HandOver,
    Resign,
    StopStore,
}

const FAULTS: [Fault; 11] = [
    Fault::KillWrapper,
    Fault::StopWrapper,
    Fault::TerminateWrapper,
    Fault::KillGuard,
    Fault::StopGuard,
    Fault::KillGuardThenWrapper,
    Fault::KillGuardsAsTermBegins,
    Fault::StopGuardsAsTermBegins,
    Fault::HandOver,
    Fault::Resign,
    Fault::StopStore,
];

/// The rounds of this run, one of each kind unless told otherwise.
fn rounds() -> usize {
    let chosen = std::env::var("TRIAL_ROUNDS").ok();
    chosen.map_or(FAULTS.len(), |text| text.parse().expect("TRIAL_ROUNDS is a number"))
}

/// Until when faults strike, whatever their number.
fn ends_at() -> Option<Instant> {
    let minutes: u64 = std::env::var("TRIAL_MINUTES").ok()?.parse().expect("TRIAL_MINUTES");
    Some(Instant::now() + Duration::from_secs(60 * minutes))
}

struct Trial {
    instances: Vec<Instance>,
    zombies: ZombieWatch,
    follower: Follower,
    older: Option<String>,
    random: Random,
    struck: BTreeMap<Fault, usize>,
    starts: [usize; 2],
    /// When the guard of each instance was last struck.
    guards_struck_at: [Option<Instant>; IDS.len()],
    /// The last two faults, newest first, and who they were for.
    last: [Option<(Fault, usize, Plan)>; 2],
    /// What instances of this version said when they would not take part beside older ones.
    refusals: Vec<String>,
    /// Overlaps of programs whose guards were run too late, with the words of these.
    excused: Vec<String>,
    // The last, so that nobody misses it before.
    stage: Stage,
}

impl Trial {
    fn on(kind: Kind) -> Self {
        let stage = Stage::on(kind);
        let mut trial = Trial {
            instances: Vec::new(),
            zombies: ZombieWatch::start(),
            follower: Follower::of(stage.folder.path().join(Diary::FILE)),
            older: std::env::var("TRIAL_OLDER").ok(),
            random: Random::seeded(seed()),
            struck: BTreeMap::new(),
            starts: [0; 2],
            guards_struck_at: [None; IDS.len()],
            last: [None; 2],
            refusals: Vec::new(),
            excused: Vec::new(),
            stage,
        };
        trial.instances = IDS.map(|id| trial.start(id)).into();
        trial.watch_zombies();
        trial
    }

    fn start(&mut self, id: &str) -> Instance {
        let plan = Plan::draw(&mut self.random, self.older.is_some());
        self.starts[usize::from(plan.is_older)] += 1;
        Instance::start(&self.stage, id, plan, self.older.as_deref())
    }

    fn restart(&mut self, index: usize) {
        self.instances[index] = self.start(IDS[index]);
        self.watch_zombies();
    }

    /// Older versions reap late, as is known.
    fn watch_zombies(&self) {
        let new = self.instances.iter().filter(|instance| !instance.plan.is_older);
        self.zombies.set_owners(new.map(Instance::pid).collect());
    }

    /// Nothing is left of a program whose term is over.
    fn check_orphans(&self, oldest_allowed: u64) {
        let folder = self.stage.folder.path();
        let is_left = |pid: &u32| {
            works_in(*pid, folder) && token_of(*pid).is_some_and(|token| token < oldest_allowed)
        };
        wait_until("programs of older terms to be gone", GENEROUS, || {
            !everybody().any(|pid| is_left(&pid))
        });
    }

    fn check_zombies(&self) {
        let (age, whose) = self.zombies.oldest();
        assert!(age <= AGE_MAX, "{whose} was a zombie for {age:?}");
    }

    /// Nobody ends without being told to; one of this version may refuse to take part beside older
    /// ones, in words.
    fn check_ends(&mut self) {
        for (index, id) in IDS.into_iter().enumerate() {
            let Some((status, said)) = self.instances[index].ended() else { continue };
            let plan = self.instances[index].plan;
            let refuses = self.older.is_some() && !plan.is_older && said.contains("version");
            assert!(refuses, "{id} {plan:?} ended with {status}: {said}");
            self.refusals.push(said);
            self.restart(index);
        }
    }

    /// Which instance leads, by the word of the store.
    fn leader(&self) -> Option<usize> {
        let who = self.stage.tenure(&["who", NAME]).out;
        IDS.iter().position(|id| who.starts_with(&format!("{id}_")))
    }

    /// The leader mostly, else anybody: a fault on a standby must do no harm either.
    fn victim(&mut self) -> usize {
        match self.leader() {
            Some(leader) if self.random.in_range(0..4) > 0 => leader,
            _ => usize::try_from(self.random.in_range(0..IDS.len() as u64)).unwrap(),
        }
    }

    fn strike(&mut self, fault: Fault) {
        self.pause_up_to(MOMENT_MAX_MS);
        // Before the leader is looked for: a term that begins later is a newer one, so that one
        // follows even if the leader changes between the look and the fault.
        let before = self.follow();
        let victim = self.victim();
        let hits_leader = self.leader() == Some(victim);
        // Guards of older versions are not looked after, as is known.
        let fault = match fault {
            Fault::KillGuard | Fault::StopGuard | Fault::KillGuardThenWrapper
                if self.instances[victim].plan.is_older =>
            {
                Fault::KillWrapper
            }
            fault => fault,
        };
        *self.struck.entry(fault).or_default() += 1;
        self.last = [Some((fault, victim, self.instances[victim].plan)), self.last[0]];
        self.strike_at(fault, victim);
        let costs_term = [Fault::KillWrapper, Fault::StopWrapper, Fault::TerminateWrapper];
        if fault == Fault::StopStore || hits_leader && costs_term.contains(&fault) {
            self.next_term(before);
        }
    }

    fn strike_at(&mut self, fault: Fault, victim: usize) {
        match fault {
            Fault::KillWrapper => {
                self.wait_until_guarded(victim);
                self.instances[victim].kill();
                self.restart(victim);
            }
            Fault::TerminateWrapper => {
                self.instances[victim].terminate();
                self.restart(victim);
            }
            Fault::StopWrapper => {
                self.wait_until_guarded(victim);
                self.instances[victim].pause();
                std::thread::sleep(LONGER_THAN_A_LEASE);
                self.instances[victim].resume();
            }
            Fault::KillGuard => self.strike_guards(&[victim], Signal::KILL),
            Fault::StopGuard => {
                self.strike_guards(&[victim], Signal::STOP);
                std::thread::sleep(LONGER_THAN_A_LEASE);
            }
            Fault::KillGuardThenWrapper => {
                self.strike_guards(&[victim], Signal::KILL);
                self.wait_until_guarded(victim);
                self.instances[victim].kill();
                self.restart(victim);
            }
            Fault::KillGuardsAsTermBegins => self.strike_beginning(Signal::KILL),
            Fault::StopGuardsAsTermBegins => self.strike_beginning(Signal::STOP),
            Fault::HandOver => {
                let to = IDS[(victim + 1) % IDS.len()];
                self.stage.tenure(&["hand-over", NAME, "--to", to]);
            }
            Fault::Resign => drop(self.stage.tenure(&["resign", NAME])),
            Fault::StopStore => {
                self.stage.store.pause();
                std::thread::sleep(LONGER_THAN_A_LEASE);
                self.stage.store.resume();
            }
        }
    }

    /// Tells the leader to go, and strikes all guards soon after.
    fn strike_beginning(&mut self, signal: Signal) {
        let mut command = self.stage.command(&["resign", NAME]);
        command.stderr(Stdio::null());
        let mut resigning = Process::spawn(command);
        self.pause_up_to(BEGINNING_MAX_MS);
        let new = (0..IDS.len()).filter(|index| !self.instances[*index].plan.is_older);
        self.strike_guards(&new.collect::<Vec<_>>(), signal);
        resigning.wait(GENEROUS);
        std::thread::sleep(LONGER_THAN_A_LEASE);
    }

    fn strike_guards(&mut self, victims: &[usize], signal: Signal) {
        for victim in victims {
            self.instances[*victim].guards().into_iter().for_each(|guard| strike(guard, signal));
            self.guards_struck_at[*victim] = Some(Instant::now());
        }
    }

    /// Another guard is there by now, or the program has ended.
    fn wait_until_guarded(&self, victim: usize) {
        let Some(struck_at) = self.guards_struck_at[victim] else { return };
        std::thread::sleep(GUARDED_AGAIN_AFTER.saturating_sub(struck_at.elapsed()));
    }

    /// The newest term in the diary, once it was judged.
    #[track_caller]
    fn follow(&mut self) -> u64 {
        let (folder, excused) = (self.stage.folder.path(), &mut self.excused);
        let excuse = |overlap: &Overlap| {
            let said = overlap.late_child.and_then(|group| said_late(folder, group));
            excused.extend(said.iter().map(|said| format!("{}: {said}", overlap.what)));
            said.is_some()
        };
        self.follower.follow(excuse).unwrap_or_else(|Overlap { what, .. }| {
            let plans: Vec<&Plan> = self.instances.iter().map(|it| &it.plan).collect();
            panic!("{what}; the last faults were {:?} of {plans:?}", self.last)
        })
    }

    fn pause_up_to(&mut self, milliseconds: u64) {
        std::thread::sleep(Duration::from_millis(self.random.in_range(0..milliseconds)));
    }

    #[track_caller]
    fn next_term(&mut self, after: u64) {
        wait_for("a child of a newer term", GENEROUS, || {
            let newest = self.follow();
            (newest > after).then_some(newest)
        });
    }

    fn run(mut self, rounds: usize) -> Judge {
        self.next_term(0);
        let ends_at = ends_at();
        let goes_on = |round| ends_at.map_or(round < rounds, |at| Instant::now() < at);
        for round in (0..).take_while(|round| goes_on(*round)) {
            let planned = FAULTS.get(round).copied();
            let fault = planned.unwrap_or_else(|| *self.random.choose(&FAULTS));
            eprintln!("round {round}: {fault:?}");
            self.strike(fault);
            self.check_ends();
            let newest = self.follow();
            self.check_orphans(newest);
            self.check_zombies();
        }
        self.zombies.set_owners(Vec::new());
        self.instances.clear();
        self.check_orphans(u64::MAX);
        self.follow();
        self.report();
        std::mem::take(&mut self.follower.judge)
    }

    fn report(&self) {
        let Judge { terms, lines, .. } = self.follower.judge;
        let excused = self.excused.len();
        let (age, _) = self.zombies.oldest();
        let [new, older] = self.starts;
        eprintln!("{} faults: {:?}", self.struck.values().sum::<usize>(), self.struck);
        eprintln!("{new} starts of this version, {older} of an older one");
        self.refusals.iter().for_each(|words| eprintln!("refused: {words}"));
        self.excused.iter().for_each(|words| eprintln!("excused: {words}"));
        eprintln!("{excused} lines of programs whose guard was run too late, by its own measure");
        eprintln!(
            "{terms} terms, {lines} lines, no other overlap, no orphan; oldest zombie {age:?}"
        );
    }
}

/// What the guard of this group has said, if it measured itself that it was run too late.
fn said_late(folder: &Path, group: u32) -> Option<String> {
    let words = format!("guard: process group {group} was killed after its lease: the system ran");
    let until = Instant::now() + LATE_WORD_WITHIN;
    loop {
        let logs = IDS.map(|id| std::fs::read_to_string(folder.join(format!("said-{id}"))));
        let said = logs.iter().flatten().flat_map(|log| log.lines());
        if let Some(said) = said.into_iter().find(|line| line.contains(&words)) {
            return Some(said.to_owned());
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn prove(kind: Kind) {
    let rounds = rounds();
    let judge = Trial::on(kind).run(rounds);
    // Not every fault costs a term, and some hit a standby.
    assert!(judge.terms > rounds / 4, "only {} terms: the faults missed", judge.terms);
}

#[test]
fn one_child_at_a_time_on_redis() {
    prove(Kind::Redis);
}

#[test]
fn one_child_at_a_time_on_our_own_store() {
    prove(Kind::Own);
}

/// The proof is believed only because it fails when there really are two.
#[test]
fn two_children_at_a_time_are_caught() {
    let folder = testkit::TempFolder::create();
    let _two: Vec<Process> = ["1", "2"]
        .map(|token| {
            let mut command = std::process::Command::new("sh");
            // Without the grandchild, which nobody would kill here.
            let script = Diary::SCRIPT.replace("write grandchild 0 &", "true &");
            command.args(["-c", &script]).env("TENURE_TOKEN", token);
            command.current_dir(folder.path());
            Process::spawn(command)
        })
        .into();
    let mut follower = Follower::of(folder.path().join(Diary::FILE));
    wait_until("the overlap to be caught", GENEROUS, || follower.follow(|_| false).is_err());
}

/// Nobody else's word counts, and not that of a guard that killed in time.
#[test]
fn only_the_word_of_the_guard_that_had_to_kill_excuses() {
    let folder = testkit::TempFolder::create();
    let said = |group| {
        format!(
            "warn: guard: process group {group} was killed after its lease: the system ran this \
             guard 250ms after the deadline"
        )
    };
    let in_time =
        "warn: guard: killed process group 12: its lease ends and the wrapper did not act";
    let log = format!("{}\n{in_time}\n", said(11));
    std::fs::write(folder.path().join("said-ada"), log).unwrap();
    assert_eq!(said_late(folder.path(), 11), Some(said(11)));
    assert_eq!(said_late(folder.path(), 1), None);
    assert_eq!(said_late(folder.path(), 12), None);
}
