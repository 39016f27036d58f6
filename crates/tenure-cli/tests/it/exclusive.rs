//! One child at a time, whatever happens to wrappers, guards and the store.
//!
//! Deleting the key is no fault of this list: whoever may do that ends a term early, and the holder
//! notices at its next renewal (docs/guarantees.md).
//!
//! `TRIAL_ROUNDS=100` makes it long; `cargo xtask trial run` sets that.

use rustix::process::Signal;
use std::time::Duration;
use testkit::{Process, Random, seed};

use crate::diary::Diary;
use crate::stage::{Kind, Stage, guard_of, send};

const IDS: [&str; 3] = ["ada", "bob", "cid"];
/// Longer than a lease: whoever is silent for this long has lost.
const LONGER_THAN_A_LEASE: Duration = Duration::from_millis(2_200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillWrapper,
    StopWrapper,
    TerminateWrapper,
    KillGuard,
    StopStore,
}

const FAULTS: [Fault; 5] = [
    Fault::KillWrapper,
    Fault::StopWrapper,
    Fault::TerminateWrapper,
    Fault::KillGuard,
    Fault::StopStore,
];

/// The rounds of this run, one of each kind unless told otherwise.
fn rounds() -> usize {
    let chosen = std::env::var("TRIAL_ROUNDS").ok();
    chosen.map_or(FAULTS.len(), |text| text.parse().expect("TRIAL_ROUNDS is a number"))
}

struct Trial {
    stage: Stage,
    wrappers: Vec<Process>,
    random: Random,
}

impl Trial {
    fn on(kind: Kind) -> Self {
        let stage = Stage::on(kind);
        let wrappers = IDS.iter().map(|id| stage.wrap_writer(id, &[])).collect();
        Trial { stage, wrappers, random: Random::seeded(seed()) }
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
            Fault::StopStore => {
                self.stage.store.pause();
                std::thread::sleep(LONGER_THAN_A_LEASE);
                self.stage.store.resume();
            }
        }
        // The leader may have changed between the look and the fault; then nothing need follow.
        if fault == Fault::StopStore || hits_leader && fault != Fault::KillGuard {
            self.stage.next_term(before);
        }
    }

    fn restart(&mut self, index: usize) {
        self.wrappers[index] = self.stage.wrap_writer(IDS[index], &[]);
    }

    fn run(&mut self, rounds: usize) -> Diary {
        self.stage.next_term(0);
        for round in 0..rounds {
            let planned = FAULTS.get(round).copied();
            let fault = planned.unwrap_or_else(|| *self.random.choose(&FAULTS));
            eprintln!("round {round}: {fault:?}");
            self.strike(fault);
            let diary = self.stage.diary();
            assert_eq!(diary.check(), Ok(()), "after {fault:?} in round {round}");
        }
        self.wrappers.clear();
        self.stage.diary()
    }
}

fn prove(kind: Kind) {
    let rounds = rounds();
    let diary = Trial::on(kind).run(rounds);
    assert_eq!(diary.check(), Ok(()));
    assert!(diary.terms() > rounds / 2, "only {} terms: the faults missed", diary.terms());
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
