//! Processes come and go: places are built, processes start in them, end, and start again.

use std::time::Duration;

use tenure_core::quorum::HintCount;
use tenure_core::swap::Observed;
use tenure_core::timing::TTL_MIN;
use tenure_core::{Failback, InstanceId, Settings, Timing, TimingSettings};

use crate::algorithm::{Algorithm, Want};
use crate::clock::{Clock, MILLISECOND, SECOND};
use crate::control::Subject;
use crate::ours::Ours;
use crate::party::{Link, Party, Work};
use crate::rival::{Rival, RivalKind};
use crate::runner::Runner;
use crate::world::{Event, World, span};

/// The shortest lease that a process asks for, in thousandths of the longest.
const SHORTEST_LEASE: u64 = 350;

impl World<'_> {
    pub(crate) fn populate(&mut self) {
        let places = self.random.between(2, 5) as usize;
        for party in 0..places {
            let place = self.build_party(party);
            self.parties.push(place);
            let delay = self.random.below(self.climate.lease / 2);
            self.after(delay, Event::Starts { party });
        }
    }

    pub(crate) fn start_process(&mut self, party: usize) {
        if self.parties[party].is_alive {
            return;
        }
        self.renew_process(party);
        self.note_party(party, || "starts");
        let (now, place) = (self.now, &mut self.parties[party]);
        place.is_alive = true;
        let (life, local) = (place.life, place.local(now));
        let requires_beat = place.requires_beat;
        place.algorithm.start(local);
        let delay = self.random.between(MILLISECOND / 10, 5 * MILLISECOND);
        for line in 0..self.parties[party].links.len() {
            let epoch = self.parties[party].links[line].epoch;
            self.after(delay, Event::Connected { party, life, line, epoch });
        }
        if requires_beat {
            self.after(delay, Event::Want { party, life, want: Want::Beat });
        }
        self.settle(party);
    }

    pub(crate) fn end_process(&mut self, party: usize) {
        self.note_party(party, || "ends");
        let place = &mut self.parties[party];
        place.is_alive = false;
        for link in &mut place.links {
            link.is_up = false;
            link.epoch += 1;
        }
        place.asks.clear();
        place.rounds.clear();
        place.swaps.clear();
        place.observed = Observed::default();
        place.held.clear();
        let before = place.belief.take();
        let local = place.local(self.now);
        self.judge.belief(self.now, local, before, None);
        if self.is_healed() {
            self.after(MILLISECOND, Event::Starts { party });
        }
    }

    /// The longest lease that a process knows of, also where a flaw overstates it.
    fn fleet_of(&self, timing: &Timing) -> Duration {
        match self.subject.flaw() {
            Some(flaw) if flaw.overstates_leases() => timing.fleet_max_ttl() / 2,
            _ => timing.fleet_max_ttl(),
        }
    }

    /// The id of the process that runs, or would run next, in a place.
    pub(crate) fn id_in(&self, party: usize) -> InstanceId {
        self.parties[party].caller.id.clone()
    }

    /// An empty place: a host with its clock.
    pub(crate) fn build_party(&mut self, party: usize) -> Party {
        if party == 0 {
            self.attach_replicas();
        }
        let clock = Clock::new(self.random.between(SECOND, 100_000 * SECOND), self.drift());
        let name = (b'a' + party as u8) as char;
        let (timing, algorithm) = self.build_process(party, name, 0, &clock);
        let id = process_id(name, 0);
        Party {
            name,
            life: 0,
            algorithm,
            caller: self.caller(id, self.fleet_of(&timing)),
            timing,
            clock,
            is_alive: false,
            paused_until: 0,
            starved_until: 0,
            held: Vec::new(),
            links: (0..self.climate.nodes).map(|node| Link::down(node, 0)).collect(),
            rounds: Vec::new(),
            swaps: Vec::new(),
            observed: Observed::default(),
            hints: self.quorum.map(HintCount::new),
            asks: Vec::new(),
            heard_of: 0,
            wake: 0,
            belief: None,
            permits: Vec::new(),
            work: Work::default(),
            requires_beat: false,
            beats_fail_until: 0,
            has_seen_token: false,
        }
    }

    /// Another process in the same place: a new id, nothing remembered.
    pub(crate) fn renew_process(&mut self, party: usize) {
        let life = self.parties[party].life + 1;
        let (name, clock) = (self.parties[party].name, self.parties[party].clock.clone());
        let (timing, algorithm) = self.build_process(party, name, life, &clock);
        let caller = self.caller(process_id(name, life), self.fleet_of(&timing));
        let hints = self.quorum.map(HintCount::new);
        let place = &mut self.parties[party];
        place.life = life;
        place.algorithm = algorithm;
        place.timing = timing;
        place.caller = caller;
        for (node, link) in place.links.iter_mut().enumerate() {
            *link = Link::down(node, link.epoch + 1);
        }
        place.rounds.clear();
        place.swaps.clear();
        place.observed = Observed::default();
        place.hints = hints;
        place.paused_until = 0;
        place.starved_until = 0;
        place.asks.clear();
        place.heard_of = 0;
        place.held.clear();
        place.belief = None;
        place.permits.clear();
        place.work = Work::default();
        place.has_seen_token = false;
    }

    fn build_process(
        &mut self,
        party: usize,
        name: char,
        life: u32,
        clock: &Clock,
    ) -> (Timing, Box<dyn Algorithm>) {
        let now = tenure_core::Moment::from_nanos(clock.at(self.now));
        let settings = TimingSettings {
            ttl: self.lease_of_process(),
            fleet_max_ttl: Some(self.longest_lease_told()),
            fleet_min_ttl: self.shortest_lease_told(),
            ..TimingSettings::default()
        };
        let ttl = settings.ttl;
        let flaw = self.subject.flaw();
        let settings = flaw.map_or(settings.clone(), |flaw| flaw.timing(settings));
        let timing = Timing::new(&settings).expect("the budget of a world is a valid one");
        if let Subject::Rival(kind) = self.subject {
            let delay = span(self.random.below(10 * SECOND));
            // A restarted process has the same configured id where there is no nonce.
            let id = match kind {
                RivalKind::S3b => name.to_string(),
                _ => process_id(name, life).as_str().to_owned(),
            };
            return (timing, Box::new(Rival::new(kind, id, now, delay)));
        }
        let settings = self.election_settings(party, name, life, timing, ttl);
        let seed = self.random.word();
        match self.case.runs_jobs() {
            true => {
                let periods = self.job_periods();
                (timing, Box::new(Runner::new(settings, (ttl, flaw), periods, seed, now)))
            }
            false => (timing, Box::new(Ours::new(settings, ttl, flaw, seed, now))),
        }
    }

    /// In some worlds instances ask for different leases.
    fn lease_of_process(&mut self) -> Duration {
        let share = match self.climate.leases_differ {
            true => *self.random.pick(&[1_000, 1_000, 750, 500, SHORTEST_LEASE]),
            false => 1_000,
        };
        let lease = self.lease_now / 1_000 * share / MILLISECOND * MILLISECOND;
        span(lease).max(TTL_MIN)
    }

    /// The longest lease in the fleet as a process was told: the true one, or more to be safe.
    fn longest_lease_told(&mut self) -> Duration {
        let share = match self.climate.fleets_differ {
            true => *self.random.pick(&[1_000, 1_000, 1_500, 2_000]),
            false => 1_000,
        };
        let longest = self.lease_now / 1_000 * share;
        self.fleet_longest = self.fleet_longest.max(longest);
        span(longest)
    }

    /// The shortest lease in the fleet, where a process was told of it.
    fn shortest_lease_told(&mut self) -> Option<Duration> {
        let is_told = self.climate.fleets_differ && self.random.percent(30);
        let shortest = self.lease_now / 1_000 * SHORTEST_LEASE / MILLISECOND * MILLISECOND;
        is_told.then(|| span(shortest).max(TTL_MIN))
    }

    fn election_settings(
        &mut self,
        party: usize,
        name: char,
        life: u32,
        timing: Timing,
        ttl: Duration,
    ) -> Settings {
        let id = process_id(name, life);
        let mut settings = Settings::new(self.resource.clone(), id, timing);
        settings.priority = self.random.below(3) as i32;
        settings.lock_delay = span(self.climate.lock_delay / MILLISECOND * MILLISECOND);
        let failbacks = if self.watches_pauses() { 70 } else { 30 };
        if self.random.percent(failbacks) {
            settings.failback = Some(Failback { delay: ttl * 2, min_tenure: ttl });
        }
        if self.random.percent(20) {
            settings.require_beat = Some(ttl);
        }
        if let Some(place) = self.parties.get_mut(party) {
            place.requires_beat = settings.require_beat.is_some();
        }
        settings
    }
}

fn process_id(name: char, life: u32) -> InstanceId {
    InstanceId::new(&name.to_string(), u64::from(life)).expect("one letter is a good name")
}
