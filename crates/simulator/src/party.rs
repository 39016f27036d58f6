//! One process in a world: its host's clock, its connection, its work.

use tenure_core::protocol::{Answer, Request, TickId, Token};
use tenure_core::quorum::{HintCount, Round};
use tenure_core::swap::Observed;
use tenure_core::{Moment, Timing};

use crate::algorithm::{Algorithm, Belief};
use crate::clock::{Clock, Real};
use crate::cluster::Caller;
use crate::world::Event;

/// A process and the host it runs on. The place outlives the process: a new one may start there.
pub(crate) struct Party {
    pub(crate) name: char,
    /// Counts the processes in this place; what was meant for an earlier one is dropped.
    pub(crate) life: u32,
    pub(crate) algorithm: Box<dyn Algorithm>,
    pub(crate) caller: Caller,
    pub(crate) timing: Timing,
    pub(crate) clock: Clock,
    pub(crate) is_alive: bool,
    /// The process stands still until then.
    pub(crate) paused_until: Real,
    /// Its driver gets no time until then; work and clock go on.
    pub(crate) starved_until: Real,
    /// What happened to it while it stood still.
    pub(crate) held: Vec<Event>,
    /// One connection per node; just one where one store decides.
    pub(crate) links: Vec<Link>,
    /// What several nodes are asked together.
    pub(crate) rounds: Vec<OpenRound>,
    /// What is being read, decided and written, where the store can only compare and swap.
    pub(crate) swaps: Vec<OpenSwap>,
    /// How long versions stayed, where such a store has no clock.
    pub(crate) observed: Observed,
    /// Which hints enough nodes gave, where several decide.
    pub(crate) hints: Option<HintCount>,
    /// Requests that still wait for their one reply.
    pub(crate) asks: Vec<PendingAsk>,
    /// When the request was sent whose reply it heard last.
    pub(crate) heard_of: Real,
    /// Only the wake-up with this number counts.
    pub(crate) wake: u32,
    pub(crate) belief: Option<Belief>,
    /// Per term the latest end that any of its answers permits.
    pub(crate) permits: Vec<Belief>,
    pub(crate) work: Work,
    pub(crate) requires_beat: bool,
    pub(crate) beats_fail_until: Real,
    pub(crate) has_seen_token: bool,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingAsk {
    pub(crate) ask: u64,
    pub(crate) sent_at: Moment,
    /// The same moment in the world's time.
    pub(crate) sent: Real,
    /// The lease it asks for, in nanoseconds; zero when it asks for none.
    pub(crate) lease: u64,
    /// The term that it extends, if it does.
    pub(crate) token: Option<Token>,
}

/// A request to several nodes under way.
#[derive(Debug)]
pub(crate) struct OpenRound {
    pub(crate) ask: u64,
    pub(crate) round: Round,
    /// What each node answered last, for flaws that make something else of it.
    pub(crate) last: Vec<Option<Answer>>,
}

/// A request to a store that can only compare and swap, under way.
#[derive(Debug)]
pub(crate) struct OpenSwap {
    pub(crate) ask: u64,
    pub(crate) step: u32,
    pub(crate) request: Request,
    /// When what was read came.
    pub(crate) read_at: Moment,
}

/// What is done in the name of a term.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// Counts changes of mind: a planned start or end that is out of date does not happen.
    pub(crate) plan: u32,
    /// The term, whose algorithm may have no tokens.
    pub(crate) runs_under: Option<Option<Token>>,
    pub(crate) is_told_to_stop: bool,
    /// Until when the term of that work was believed in, and whether the store itself ended it.
    pub(crate) believed_until: Moment,
    pub(crate) was_lost: bool,
    /// The tick that it is for, where it is the work of a job.
    pub(crate) tick: Option<TickId>,
}

impl Work {
    pub(crate) fn is_on(&self, tick: &TickId) -> bool {
        self.runs_under.is_some() && self.tick.as_ref() == Some(tick)
    }
}

/// The connection of one process to one node of the store.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) is_up: bool,
    /// Counts connections: what travels on an earlier one may or may not arrive.
    pub(crate) epoch: u32,
    pub(crate) node: usize,
    pub(crate) request_arrives: Real,
    pub(crate) reply_arrives: Real,
    pub(crate) hint_arrives: Real,
    pub(crate) loses_requests_until: Real,
    pub(crate) loses_replies_until: Real,
    pub(crate) slow_until: Real,
    pub(crate) deaf_until: Real,
    /// The node that the next connection leads to, instead of the right one.
    pub(crate) strays_to: Option<usize>,
}

impl Link {
    pub(crate) fn to(node: usize) -> Self {
        Link {
            is_up: true,
            epoch: 0,
            node,
            request_arrives: 0,
            reply_arrives: 0,
            hint_arrives: 0,
            loses_requests_until: 0,
            loses_replies_until: 0,
            slow_until: 0,
            deaf_until: 0,
            strays_to: None,
        }
    }

    /// A connection to `node` that does not stand yet.
    pub(crate) fn down(node: usize, epoch: u32) -> Self {
        Link { epoch, is_up: false, ..Link::to(node) }
    }

    pub(crate) fn heal(&mut self) {
        *self = Link { epoch: self.epoch, is_up: self.is_up, ..Link::to(self.node) };
    }
}

impl Party {
    /// How many of its connections stand.
    pub(crate) fn links_up(&self) -> usize {
        self.links.iter().filter(|link| link.is_up).count()
    }

    pub(crate) fn local(&self, now: Real) -> Moment {
        Moment::from_nanos(self.clock.at(now))
    }

    /// Whether the process would say now that it leads.
    pub(crate) fn is_valid(&self, now: Real) -> bool {
        let local = self.local(now);
        self.is_alive && self.belief.is_some_and(|belief| local < belief.until)
    }

    /// Whether anything may be done in a term's name now: by its own word, or because work was
    /// let go on although the term was given up before its end.
    pub(crate) fn may_act(&self, now: Real) -> bool {
        let works_on = self.is_alive
            && self.work.runs_under.is_some()
            && !self.work.was_lost
            && self.local(now) < self.work.believed_until;
        self.is_valid(now) || works_on
    }

    /// Whether work goes on that looks for nothing but the word of its driver.
    pub(crate) fn works_unchecked(&self, now: Real) -> bool {
        let works = self.is_alive && self.work.runs_under.is_some();
        works && !self.work.is_told_to_stop && !self.is_paused(now)
    }

    /// Whether nothing reaches its core now.
    pub(crate) fn is_held(&self, now: Real) -> bool {
        self.is_paused(now) || now < self.starved_until
    }

    pub(crate) fn is_paused(&self, now: Real) -> bool {
        now < self.paused_until
    }
}
