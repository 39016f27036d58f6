//! One sentinel: the unchanged core, its file, its clock, its connections.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use store_replica::Moment;
use store_sentinel::{Configuration, Draw, Event, Group, LinkId, RunId, Sentinel, Timing};

use super::climate::{GROUP, name_of};
use crate::clock::Clock;
use crate::network::{ConnectionId, Delivery};
use crate::queue::Real;
use crate::random::Random;

/// A connection that a sentinel opened.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(crate) link: LinkId,
    /// To which server; none when it is another sentinel.
    pub(crate) server: Option<usize>,
    pub(crate) is_open: bool,
    pub(crate) info_asked_at: Option<Real>,
    pub(crate) unparsed: Vec<u8>,
}

impl Dialed {
    pub(crate) fn new(link: LinkId, server: Option<usize>) -> Self {
        Self { link, server, is_open: false, info_asked_at: None, unparsed: Vec::new() }
    }
}

/// Something that happened, with the epoch of the failover in which it did.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) event: Event,
    pub(crate) epoch: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) is_up: bool,
    pub(crate) life: u32,
    pub(crate) sentinel: Sentinel,
    pub(crate) clock: Clock,
    /// How far its clock has jumped.
    pub(crate) jumped: u64,
    pub(crate) disk: String,
    /// What the judge hears of when it is on disk.
    pub(crate) told: VecDeque<Told>,
    pub(crate) dialed: BTreeMap<ConnectionId, Dialed>,
    pub(crate) links: BTreeMap<LinkId, ConnectionId>,
    pub(crate) paused_until: Real,
    /// What the network did while it stood still, beside bytes.
    pub(crate) missed: Vec<Delivery>,
    /// When its time last stood still or jumped, as it must have noticed.
    pub(crate) stood_still_at: Option<Real>,
    /// When its core last heard what time it is.
    pub(crate) ticked_at: Moment,
}

impl Node {
    pub(crate) fn new(index: usize, file: String, clock: Clock, random: &mut Random) -> Self {
        let sentinel = begin(index, &file, Moment::from_ms(clock.monotonic(0)), random);
        Self {
            is_up: true,
            life: 0,
            sentinel,
            clock,
            jumped: 0,
            disk: file,
            told: VecDeque::new(),
            dialed: BTreeMap::new(),
            links: BTreeMap::new(),
            paused_until: 0,
            missed: Vec::new(),
            stood_still_at: None,
            ticked_at: Moment::default(),
        }
    }

    /// A process that begins with what is on disk.
    pub(crate) fn restart(&mut self, index: usize, real: Real, random: &mut Random) {
        let now = self.now(real);
        self.sentinel = begin(index, &self.disk, now, random);
        self.ticked_at = now;
        self.is_up = true;
        self.life += 1;
        self.told.clear();
        self.dialed.clear();
        self.links.clear();
        self.missed.clear();
        self.paused_until = 0;
        self.stood_still_at = None;
    }

    pub(crate) fn now(&self, real: Real) -> Moment {
        Moment::from_ms(self.clock.monotonic(real) + self.jumped)
    }

    pub(crate) fn is_paused(&self, real: Real) -> bool {
        real < self.paused_until
    }

    /// The flaw: time that stood still is told in small steps.
    pub(crate) fn hide_gap(&mut self, now: Moment) {
        const STEP: Duration = Duration::from_secs(1);
        while self.ticked_at != Moment::default() && now.since(self.ticked_at) > STEP {
            self.ticked_at = self.ticked_at + STEP;
            self.sentinel.handle_time(self.ticked_at);
        }
    }

    pub(crate) fn group(&self) -> &Group {
        self.sentinel.group(GROUP).expect("all sentinels watch it")
    }
}

fn begin(index: usize, file: &str, now: Moment, random: &mut Random) -> Sentinel {
    let configuration = Configuration::parse(file).expect("a file reads back as it was written");
    let id = RunId::parse(name_of(index).as_bytes()).expect("a name is an id");
    let mut chance = Random::seeded(random.word());
    let draw = Draw::new(move |limit| chance.below(limit));
    // Half as often as usual: a world costs half as much, and nothing depends on it.
    let timing = Timing { tick: Duration::from_millis(200), ..Timing::default() };
    Sentinel::new(now, configuration, id, timing, draw)
}
