//! The instances, as processes of their own, and what they say.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tenure_core::Moment;
use testkit::{Host, Process};

use super::history::{Entry, History, NEMESIS, What};
use super::row::FleetKind;
use crate::clock;

/// How often there is a tick: some of them in each round.
const TICK_EVERY: Duration = Duration::from_millis(1500);

/// Where an instance runs and what it is told.
pub(super) struct Assignment {
    pub(super) host: Host,
    pub(super) store: String,
}

/// All instances of a row. Each place has one, and a new one after a kill.
pub(super) struct Fleet {
    /// The one of now and, in a fleet of two versions, an older one.
    programs: Vec<PathBuf>,
    resource: String,
    kind: FleetKind,
    ttl: Duration,
    places: Vec<Assignment>,
    running: Vec<Option<Running>>,
    started: usize,
    /// The terms that are believed in: by whom, under which token, until when.
    claims: BTreeMap<String, (u64, Moment)>,
    pub(super) history: History,
}

struct Running {
    name: String,
    /// Which of the programs it is.
    version: usize,
    process: Process,
    is_paused: bool,
}

impl Fleet {
    pub(super) fn new(
        programs: Vec<PathBuf>,
        resource: String,
        kind: FleetKind,
        ttl: Duration,
        places: Vec<Assignment>,
    ) -> Self {
        Fleet {
            programs,
            resource,
            kind,
            ttl,
            running: places.iter().map(|_| None).collect(),
            places,
            started: 0,
            claims: BTreeMap::new(),
            history: History::default(),
        }
    }

    /// Starts an instance at a place where none runs.
    pub(super) fn start(&mut self, place: usize) {
        if self.running[place].is_some() {
            return;
        }
        self.started += 1;
        let name = format!("i{place}-{}", self.started);
        let Assignment { host, store } = &self.places[place];
        let version = self.version_for(place);
        let millis = |time: Duration| time.as_millis().to_string();
        let mut command = Command::new(&self.programs[version]);
        command.args(["--store", store, "--id", &name, "--resource", &self.resource]);
        command.args(["--fresh-store", "no", "--ttl-ms", &millis(self.lease(place))]);
        match self.kind {
            FleetKind::Equal => {}
            FleetKind::MixedLeases => {
                command.args(["--fleet-max-ttl-ms", &millis(self.longest_lease())]);
            }
            FleetKind::Ticks => {
                command.args(["--tick-every-ms", &millis(TICK_EVERY)]);
            }
        }
        host.enter(&mut command);
        let process = Process::spawn(command);
        self.running[place] = Some(Running { name, version, process, is_paused: false });
    }

    /// Where there are two versions, a place changes its own with each start: that is an upgrade,
    /// or the way back. One of now is always there: what a fleet of the older ones alone does
    /// wrong is not looked for.
    fn version_for(&self, place: usize) -> usize {
        match self.running.iter().flatten().any(|running| running.version == 0) {
            true => (place + self.started) % self.programs.len(),
            false => 0,
        }
    }

    /// How long the lease of an instance at this place lasts.
    fn lease(&self, place: usize) -> Duration {
        let factors = [1.0, 0.5, 1.5, 1.0];
        match self.kind {
            FleetKind::MixedLeases => self.ttl.mul_f64(factors[place % factors.len()]),
            FleetKind::Equal | FleetKind::Ticks => self.ttl,
        }
    }

    /// Whether instances of an earlier version take part.
    pub(super) fn has_two_versions(&self) -> bool {
        self.programs.len() > 1
    }

    /// The longest lease of all.
    pub(super) fn longest_lease(&self) -> Duration {
        (0..self.places.len()).map(|place| self.lease(place)).max().unwrap_or(self.ttl)
    }

    pub(super) fn kill(&mut self, place: usize) {
        self.drain();
        let Some(mut running) = self.running[place].take() else { return };
        running.process.kill();
        let killed_at = clock::now();
        // What it said with its last breath.
        self.take_lines(&running);
        self.claims.remove(&running.name);
        self.history.add(killed_at, NEMESIS, What::Killed(running.name));
    }

    pub(super) fn pause(&mut self, place: usize) {
        if let Some(running) = &mut self.running[place] {
            running.process.pause();
            running.is_paused = true;
        }
    }

    /// Lets all run on that were paused, and starts those that were killed, newcomers excepted.
    pub(super) fn heal(&mut self, places: usize) {
        for running in self.running.iter_mut().flatten().filter(|running| running.is_paused) {
            running.process.resume();
            running.is_paused = false;
        }
        (0..places).for_each(|place| self.start(place));
    }

    pub(super) fn note(&mut self, what: What) {
        self.history.add(clock::now(), NEMESIS, what);
    }

    /// Takes in what was said since the last time.
    pub(super) fn drain(&mut self) {
        let running = std::mem::take(&mut self.running);
        running.iter().flatten().for_each(|running| self.take_lines(running));
        self.running = running;
    }

    fn take_lines(&mut self, running: &Running) {
        while let Some(line) = running.process.try_next_line(Duration::ZERO) {
            let Some((at, text)) = line.split_once(' ') else { continue };
            // Words that are no part of a history are for other tests.
            let (Ok(at), Ok(what)) = (at.parse(), text.parse::<What>()) else { continue };
            self.take(Entry { at: Moment::from_nanos(at), who: running.name.clone(), what });
        }
    }

    fn take(&mut self, entry: Entry) {
        match &entry.what {
            What::Granted { token, until } | What::Renewed { token, until } => {
                self.claims.insert(entry.who.clone(), (*token, *until));
            }
            What::Lost { .. } => {
                self.claims.remove(&entry.who);
            }
            _ => {}
        }
        self.history.entries.push(entry);
    }

    /// The place of whoever leads by the newest token, by its own word.
    pub(super) fn leader(&mut self) -> Option<usize> {
        self.drain();
        let now = clock::now();
        let valid = self.claims.iter().filter(|(_, (_, until))| now < *until);
        let name = valid.max_by_key(|(_, (token, _))| *token).map(|(name, _)| name.clone())?;
        let is_it = |one: &Option<Running>| one.as_ref().is_some_and(|one| one.name == name);
        self.running.iter().position(is_it)
    }

    /// When somebody first got or kept a term after `since`.
    pub(super) fn proven_after(&mut self, since: Moment) -> Option<Moment> {
        self.drain();
        let proofs = self.history.entries.iter().rev().take_while(|entry| {
            // Lines of different processes are not quite in order.
            entry.at + Duration::from_secs(1) > since
        });
        let is_proof = |entry: &&Entry| {
            matches!(entry.what, What::Granted { .. } | What::Renewed { .. }) && entry.at > since
        };
        proofs.filter(is_proof).map(|entry| entry.at).min()
    }
}
