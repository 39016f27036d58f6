//! Connections that carry values: late, in order, held back by cuts.

use std::sync::Arc;

use store_cluster::{LinkId, Message};

use crate::network::Host;
use crate::queue::Real;
use crate::random::Random;

/// How the network behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The longest usual delay.
    pub(crate) delay_max: Real,
    /// Of a hundred messages so many are lost and sent again by the system.
    pub(crate) loss_percent: u64,
    /// Of a hundred votes so many arrive twice.
    pub(crate) repeat_percent: u64,
}

/// How long the system waits until it sends a lost packet again.
pub(crate) const RESEND_MS: Real = 250;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Dialer,
    Listener,
}

impl End {
    pub(crate) fn other(self) -> End {
        match self {
            End::Dialer => End::Listener,
            End::Listener => End::Dialer,
        }
    }
}

/// A connection between two hosts.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) hosts: [Host; 2],
    /// Which life of each host it belongs to.
    pub(crate) lives: [u32; 2],
    pub(crate) is_open: [bool; 2],
    /// How the dialer calls it.
    pub(crate) name: LinkId,
    arrives_at: [Real; 2],
}

/// What the network does.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    Knock,
    Opened,
    Message(End, Arc<Message>),
    Closed(End),
}

#[derive(Clone, Copy, Debug)]
struct Cut {
    since: Real,
    until: Real,
}

/// All connections of a world, and what is cut.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) weather: Weather,
    pub(crate) all: Vec<Link>,
    /// By who sends and who hears; as long as it was ever needed.
    cuts: Vec<Vec<Option<Cut>>>,
}

impl Links {
    pub(crate) fn new(weather: Weather) -> Self {
        Self { weather, all: Vec::new(), cuts: Vec::new() }
    }

    /// A new connection, to be knocked for.
    pub(crate) fn dial(&mut self, hosts: [Host; 2], life: u32, name: LinkId) -> usize {
        self.all.push(Link {
            hosts,
            lives: [life, 0],
            is_open: [true, false],
            name,
            arrives_at: [0; 2],
        });
        self.all.len() - 1
    }

    /// Nothing gets from one host to the other until `until`.
    pub(crate) fn cut(&mut self, from: Host, to: Host, now: Real, until: Real) {
        if self.cuts.len() <= from {
            self.cuts.resize(from + 1, Vec::new());
        }
        let cuts = &mut self.cuts[from];
        if cuts.len() <= to {
            cuts.resize(to + 1, None);
        }
        let cut = cuts[to].get_or_insert(Cut { since: now, until });
        if cut.until < now {
            cut.since = now;
        }
        cut.until = until.max(cut.until);
    }

    /// Since when nothing gets through, if that is so.
    pub(crate) fn cut_since(&self, from: Host, to: Host, now: Real) -> Option<Real> {
        let cut = self.find_cut(from, to).filter(|cut| cut.until > now)?;
        Some(cut.since)
    }

    fn find_cut(&self, from: Host, to: Host) -> Option<Cut> {
        *self.cuts.get(from)?.get(to)?
    }

    pub(crate) fn is_cut(&self, from: Host, to: Host, now: Real) -> bool {
        self.cut_since(from, to, now).is_some()
    }

    pub(crate) fn end_cuts(&mut self) {
        self.cuts.clear();
    }

    /// When something that leaves now reaches `to`: never before what left earlier.
    pub(crate) fn arrival(&mut self, link: usize, to: End, now: Real, random: &mut Random) -> Real {
        let mut delay = match random.percent(85) {
            true => random.between(0, 2),
            false => random.between(0, self.weather.delay_max),
        };
        if random.percent(self.weather.loss_percent) {
            delay += RESEND_MS;
        }
        let hosts = self.all[link].hosts;
        let cut = self.find_cut(hosts[to.other() as usize], hosts[to as usize]);
        let starts_at = cut.map_or(now, |cut| now.max(cut.until));
        let link = &mut self.all[link];
        let last = &mut link.arrives_at[to as usize];
        *last = (starts_at + delay).max(*last);
        *last
    }
}
