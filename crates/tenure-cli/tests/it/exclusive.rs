//! One child at a time, whatever happens to wrappers, guards and the store.
//!
//! Deleting the key is no fault of this list: whoever may do that ends a term early, and the holder
//! notices at its next renewal (docs/guarantees.md).
//!
//! The programs of two of three instances are not obedient: one daemonises and ignores the stop
//! signal, one forks for ever; and one instance logs to a reader that stalls.
//!
//! `TRIAL_ROUNDS=100` makes it long, `TRIAL_MINUTES=20` longer; `cargo xtask trial run` sets them.

use std::io::{PipeReader, pipe};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{Process, Random, seed};

use crate::diary::Diary;
use crate::stage::{Kind, Stage, children_of, guard_of, send, works_in};

const IDS: [&str; 3] = ["ada", "bob", "cid"];
/// Longer than a lease: whoever is silent for this long has lost.
const LONGER_THAN_A_LEASE: Duration = Duration::from_millis(2_200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillWrapper,
    StopWrapper,
    TerminateWrapper,
    KillGuard,
    StopGuard,
    KillGuardThenWrapper,
    HandOver,
    StopStore,
}

const FAULTS: [Fault; 8] = [
    Fault::KillWrapper,
    Fault::StopWrapper,
    Fault::TerminateWrapper,
    Fault::KillGuard,
    Fault::StopGuard,
    Fault::KillGuardThenWrapper,
    Fault::HandOver,
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

/// What each instance runs. All of them write the diary.
fn script(index: usize) -> String {
    match index {
        0 => Diary::SCRIPT.to_owned(),
        1 => Diary::DAEMON.to_owned(),
        _ => Diary::FORKS_FOR_EVER.to_owned(),
    }
}

struct Trial {
    /// The readers of logs that nobody reads.
    _stalled: Vec<PipeReader>,
    stage: Stage,
    wrappers: Vec<Process>,
    random: Random,
}

impl Trial {
    fn on(kind: Kind) -> Self {
        let (stage, random) = (Stage::on(kind), Random::seeded(seed()));
        let mut trial = Trial { _stalled: Vec::new(), stage, wrappers: Vec::new(), random };
        trial.wrappers = (0..IDS.len()).map(|index| trial.start(index)).collect();
        trial
    }

    fn start(&mut self, index: usize) -> Process {
        let words = ["run", "job", "--id", IDS[index], "--ttl", "1500ms", "--", "sh", "-c"];
        let mut command = self.stage.command(&words);
        command.arg(script(index)).current_dir(self.stage.folder.path());
        if index == 1 {
            let (reader, writer) = pipe().unwrap();
            self._stalled.push(reader);
            command.stderr(Stdio::from(writer));
        } else if index == 2 {
            command.stderr(std::fs::File::options().write(true).open("/dev/full").unwrap());
        }
        Process::spawn(command)
    }

    /// Nothing is left of any program once its wrapper is gone.
    fn check_orphans(&self) {
        let folder = self.stage.folder.path();
        let left = || -> Vec<u32> {
            let entries = std::fs::read_dir("/proc").unwrap().flatten();
            let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            pids.filter(|pid| works_in(*pid, folder)).collect()
        };
        testkit::wait_until("all programs to be gone", testkit::GENEROUS, || left().is_empty());
    }

    /// No zombie of a wrapper is older than a second.
    fn check_zombies(&self) {
        for wrapper in &self.wrappers {
            let is_zombie = |pid: &u32| {
                std::fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| stat.contains(") Z "))
            };
            let zombies: Vec<u32> =
                children_of(wrapper.pid()).into_iter().filter(is_zombie).collect();
            for zombie in zombies {
                testkit::wait_until("a zombie to be reaped", testkit::GENEROUS, || {
                    !children_of(wrapper.pid()).contains(&zombie) || !is_zombie(&zombie)
                });
            }
        }
    }

    /// Which wrapper leads, by the word of the store.
    fn leader(&self) -> Option<usize> {
        let who = self.stage.tenure(&["who", "job"]).out;
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
        let victim = self.victim();
        let hits_leader = self.leader() == Some(victim);
        let before = self.stage.diary().last_token().unwrap_or(0);
        match fault {
            Fault::KillWrapper => {
                self.wrappers[victim].kill();
                self.restart(victim);
            }
            Fault::TerminateWrapper => {
                self.wrappers[victim].terminate();
                self.wrappers[victim].wait(testkit::GENEROUS);
                self.restart(victim);
            }
            Fault::StopWrapper => {
                self.wrappers[victim].pause();
                std::thread::sleep(LONGER_THAN_A_LEASE);
                self.wrappers[victim].resume();
            }
            Fault::KillGuard => send(guard_of(&self.wrappers[victim]), Signal::KILL),
            Fault::StopGuard => {
                send(guard_of(&self.wrappers[victim]), Signal::STOP);
                std::thread::sleep(LONGER_THAN_A_LEASE);
            }
            // Not at the same moment: it takes a moment to have another guard.
            Fault::KillGuardThenWrapper => {
                send(guard_of(&self.wrappers[victim]), Signal::KILL);
                std::thread::sleep(LONGER_THAN_A_LEASE);
                self.wrappers[victim].kill();
                self.restart(victim);
            }
            Fault::HandOver => {
                let to = IDS[(victim + 1) % IDS.len()];
                self.stage.tenure(&["hand-over", "job", "--to", to]);
            }
            Fault::StopStore => {
                self.stage.store.pause();
                std::thread::sleep(LONGER_THAN_A_LEASE);
                self.stage.store.resume();
            }
        }
        // The leader may have changed between the look and the fault; then nothing need follow.
        let costs_term = [Fault::KillWrapper, Fault::StopWrapper, Fault::TerminateWrapper];
        if fault == Fault::StopStore || hits_leader && costs_term.contains(&fault) {
            self.stage.next_term(before);
        }
    }

    fn restart(&mut self, index: usize) {
        self.wrappers[index] = self.start(index);
    }

    fn run(&mut self, rounds: usize) -> Diary {
        self.stage.next_term(0);
        let ends_at = ends_at();
        let goes_on = |round| ends_at.map_or(round < rounds, |at| Instant::now() < at);
        for round in (0..).take_while(|round| goes_on(*round)) {
            let planned = FAULTS.get(round).copied();
            let fault = planned.unwrap_or_else(|| *self.random.choose(&FAULTS));
            eprintln!("round {round}: {fault:?}");
            self.strike(fault);
            let diary = self.stage.diary();
            assert_eq!(diary.check(), Ok(()), "after {fault:?} in round {round}");
            self.check_zombies();
        }
        self.wrappers.clear();
        self.check_orphans();
        self.stage.diary()
    }
}

fn prove(kind: Kind) {
    let rounds = rounds();
    let diary = Trial::on(kind).run(rounds);
    assert_eq!(diary.check(), Ok(()));
    // Not every fault costs a term, and some hit a standby.
    assert!(diary.terms() > rounds / 4, "only {} terms: the faults missed", diary.terms());
    eprintln!("{} terms, {} lines", diary.terms(), diary.lines.len());
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
    testkit::wait_until("the overlap to be caught", testkit::GENEROUS, || {
        Diary::read(&folder.path().join(Diary::FILE)).check().is_err()
    });
}
