//! Wires between processes and nodes: requests, replies and hints that are late, lost, doubled or
//! out of order, and connections that break.

use tenure_core::StoreError;
use tenure_core::protocol::{Hint, Outcome, Request};

use crate::algorithm::{Op, Reply};
use crate::case::Replicas;
use crate::clock::MILLISECOND;
use crate::cluster::{Caller, granted};
use crate::driver::ANY_EPOCH;
use crate::flaw::Flaw;
use crate::promise::Promise;
use crate::world::{Awaited, Event, SentRequest, World};

/// The step of a request whose reply nobody waits for.
pub(crate) const TOLD: u32 = u32::MAX;
/// How soon a healed world's connections stand again.
pub(crate) const RECONNECTS_WITHIN: u64 = 100 * MILLISECOND;

impl World<'_> {
    pub(crate) fn send(&mut self, party: usize, line: usize, (ask, step): (u64, u32), op: Op) {
        let (life, epoch) = (self.parties[party].life, self.parties[party].links[line].epoch);
        if !self.parties[party].links[line].is_up {
            if self.is_healed() || self.random.percent(80) {
                let reply = Box::new(Err(StoreError::unreachable("not connected")));
                let (delay, epoch) = (self.random.below(MILLISECOND), ANY_EPOCH);
                self.after(delay, Event::Reply { party, life, line, epoch, ask, step, reply });
            }
            return;
        }
        let caller = self.parties[party].caller.clone();
        let (node, sent_at) = (self.parties[party].links[line].node, self.now);
        let is_copy = step == TOLD;
        let sent =
            SentRequest { party, life, line, epoch, node, sent_at, ask, step, caller, op, is_copy };
        if !self.is_healed() && self.random.percent(self.climate.copy_percent) {
            let delay = self.random.share(self.climate.lease, 0, 2_500);
            let copy = SentRequest { is_copy: true, ..sent.clone() };
            self.after(delay, Event::Arrive(Box::new(copy)));
        }
        if self.is_lost(self.parties[party].links[line].loses_requests_until) {
            return self.note_party(party, || format!("request {ask} is lost"));
        }
        let delay = self.delay(party, line);
        let arrives = self.in_order((party, line), delay, |link| &mut link.request_arrives);
        self.at(arrives, Event::Arrive(Box::new(sent)));
    }

    fn is_lost(&mut self, loses_until: u64) -> bool {
        self.now < loses_until
            || !self.is_healed() && self.random.percent(self.climate.loss_percent)
    }

    fn delay(&mut self, party: usize, line: usize) -> u64 {
        let shortest = MILLISECOND / 10;
        if self.is_healed() {
            self.random.between(shortest, 2 * MILLISECOND)
        } else if self.now < self.parties[party].links[line].slow_until {
            self.random.share(self.climate.lease, 10, 1_600)
        } else if self.random.percent(85) {
            self.random.between(shortest, 3 * MILLISECOND)
        } else {
            self.random.between(shortest, self.climate.delay_max)
        }
    }

    /// One connection delivers in order, unless this world lets requests overtake each other.
    fn in_order(
        &mut self,
        (party, line): (usize, usize),
        delay: u64,
        last: fn(&mut crate::party::Link) -> &mut u64,
    ) -> u64 {
        let reorders = self.climate.reorders;
        let last = last(&mut self.parties[party].links[line]);
        let arrives = match reorders {
            true => self.now + delay,
            false => (self.now + delay).max(*last + 1),
        };
        *last = arrives;
        arrives
    }

    pub(crate) fn arrive(&mut self, sent: SentRequest) {
        let node = &self.cluster.nodes[sent.node];
        let died_with_its_connection = self.healed_at.is_some_and(|at| sent.sent_at < at);
        if !node.is_alive || died_with_its_connection {
            return;
        }
        if self.now < node.paused_until {
            let resumes_at = node.paused_until;
            return self.at(resumes_at, Event::Arrive(Box::new(sent)));
        }
        let place = &self.parties[sent.party];
        let is_cut = place.life != sent.life || place.links[sent.line].epoch != sent.epoch;
        if is_cut && self.random.percent(50) {
            return;
        }
        if self.now < self.cluster.nodes[sent.node].denies_until {
            let error = StoreError::denied("this login may not");
            if !is_cut && !sent.is_copy {
                self.answer(sent, Err(error));
            }
            return;
        }
        let caller = sent.caller.clone();
        if self.now < self.cluster.nodes[sent.node].read_only_until {
            let reply = self.cluster.read_only_reply(sent.node, self.now, &sent.op, &caller);
            self.note("store", || format!("{} (old data) {:?} -> {reply:?}", sent.node, sent.op));
            if !is_cut && !sent.is_copy {
                self.answer(sent, reply);
            }
            return;
        }
        let reply = self.execute(sent.node, &sent.op, &caller);
        if is_cut || sent.is_copy {
            return;
        }
        match self.awaited_replicas(&sent.op, &reply) {
            0 => self.answer(sent, Ok(reply)),
            count => self.await_replicas(sent, reply, count),
        }
    }

    /// How many replicas must have heard of what came to this reply before it counts.
    fn awaited_replicas(&self, op: &Op, reply: &Reply) -> usize {
        let (Op::Call(request), Reply::Answer(answer)) = (op, reply) else { return 0 };
        let counts = matches!(answer.outcome, Outcome::Granted { .. } | Outcome::Renewed);
        let tick_counts = is_about_tick(request)
            && matches!(answer.outcome, Outcome::TickRuns | Outcome::Done | Outcome::TickDone(_));
        match self.subject.flaw() {
            _ if !counts && !tick_counts => 0,
            Some(Flaw::TickUnconfirmed) if tick_counts => 0,
            Some(Flaw::WaitElsewhere) => 0,
            Some(Flaw::FewerReplicas) => self.climate.replicas - 1,
            _ => self.climate.replicas,
        }
    }

    fn await_replicas(&mut self, sent: SentRequest, reply: Reply, count: usize) {
        let write = self.cluster.writes;
        let confirmed_at = self.cluster.confirmed_at(sent.node, write, count);
        let gives_up_at = self.now + self.climate.lease / 8;
        let at = confirmed_at.filter(|at| *at <= gives_up_at).unwrap_or(gives_up_at);
        self.at(at, Event::Confirm(Box::new(Awaited { sent, reply, write, count })));
    }

    /// The node has heard from its replicas, or has waited long enough.
    pub(crate) fn confirm(&mut self, awaited: Awaited) {
        let node = &self.cluster.nodes[awaited.sent.node];
        if !node.is_alive {
            return;
        }
        if self.now < node.paused_until {
            let resumes_at = node.paused_until;
            return self.at(resumes_at, Event::Confirm(Box::new(awaited)));
        }
        let Awaited { sent, reply, write, count } = awaited;
        // Whoever took over meanwhile confirms nothing any more.
        let confirmed_at = self.cluster.confirmed_at(sent.node, write, count);
        if confirmed_at.is_none_or(|at| at > self.now) {
            let error = StoreError::not_now("too few replicas confirmed it");
            return self.answer(sent, Err(error));
        }
        self.tick_recorded(&sent.op, &reply);
        self.answer(sent, Ok(reply));
    }

    fn answer(&mut self, sent: SentRequest, reply: Result<Reply, StoreError>) {
        let (party, line) = (sent.party, sent.line);
        if self.is_lost(self.parties[party].links[line].loses_replies_until) {
            return self.note_party(party, || format!("reply {} is lost", sent.ask));
        }
        let delay = self.delay(party, line);
        let arrives = self.in_order((party, line), delay, |link| &mut link.reply_arrives);
        let SentRequest { life, epoch, ask, step, .. } = sent;
        let reply = Box::new(reply);
        self.at(arrives, Event::Reply { party, life, line, epoch, ask, step, reply });
    }

    /// Carries a request out and lets subscribers hear of it.
    pub(crate) fn execute(&mut self, node: usize, op: &Op, caller: &Caller) -> Reply {
        let lags = self.lags(node);
        let executed = self.cluster.execute(node, self.now, op, caller, &lags);
        self.note("store", || format!("{node} {} {op:?} -> {:?}", caller.id, executed.reply));
        // A grant that waits for replicas may never count; P2 is then judged as terms begin.
        // So it is where one node of several grants.
        let is_confirmed = self.awaited_replicas(op, &executed.reply) == 0;
        let counts_at_once = is_confirmed && self.quorum.is_none();
        self.tick_written(op, &executed.reply);
        if is_confirmed {
            self.tick_recorded(op, &executed.reply);
        }
        if let Some(token) = granted(&executed.reply).filter(|_| counts_at_once) {
            self.judge.grant(self.now, token, &caller.id);
        }
        if executed.touched_other_term {
            let what = format!("{op:?} by {} changed another term", caller.id);
            self.judge.broken(Promise::P5, self.now, what);
        }
        for hint in executed.hints {
            self.publish(node, &hint);
        }
        executed.reply
    }

    /// How long each replica of a node takes to hear of the next write.
    fn lags(&mut self, node: usize) -> Vec<u64> {
        if self.case.replicas != Replicas::Confirming {
            return Vec::new();
        }
        let lag_max = self.climate.lease / 6;
        let count = self.cluster.replicas_of(node);
        let lag = |world: &mut Self| match world.is_healed() || world.random.percent(80) {
            true => world.random.below(2 * MILLISECOND),
            false => world.random.below(lag_max),
        };
        (0..count).map(|_| lag(self)).collect()
    }

    fn publish(&mut self, node: usize, hint: &Hint) {
        // Where one store decides, its connection leads to whoever is the primary.
        let line = self.quorum.map_or(0, |_| node);
        for party in 0..self.parties.len() {
            let place = &self.parties[party];
            let link = &place.links[line];
            let hears =
                place.is_alive && link.is_up && link.node == node && self.now >= link.deaf_until;
            if !hears || self.is_lost_hint() {
                continue;
            }
            let copies = if self.is_healed() || self.random.percent(95) { 1 } else { 2 };
            for _ in 0..copies {
                let delay = self.delay(party, line);
                let arrives = self.in_order((party, line), delay, |link| &mut link.hint_arrives);
                let (life, hint) = (self.parties[party].life, hint.clone());
                self.at(arrives, Event::Hint { party, life, line, hint });
            }
        }
    }

    fn is_lost_hint(&mut self) -> bool {
        !self.is_healed() && self.random.percent(self.climate.hint_loss_percent)
    }

    /// All connections of a process break.
    pub(crate) fn break_links(&mut self, party: usize, down_for: u64) {
        for line in 0..self.parties[party].links.len() {
            self.break_link(party, line, down_for);
        }
    }

    /// A connection breaks: what is under way may or may not arrive, no reply does.
    pub(crate) fn break_link(&mut self, party: usize, line: usize, down_for: u64) {
        self.note_party(party, || "loses its connection");
        let place = &mut self.parties[party];
        place.links[line].is_up = false;
        place.links[line].epoch += 1;
        let (life, epoch) = (place.life, place.links[line].epoch);
        if !place.is_alive {
            return;
        }
        let asks: Vec<u64> = place.asks.iter().map(|pending| pending.ask).collect();
        for ask in asks {
            if self.random.percent(70) {
                let delay = self.random.below(2 * MILLISECOND);
                // Whichever step of a round is under way on this line.
                for step in 0..self.quorum.map_or(1, |_| 2) {
                    let reply = Box::new(Err(StoreError::unreachable("connection broke")));
                    let epoch = ANY_EPOCH;
                    self.after(delay, Event::Reply { party, life, line, epoch, ask, step, reply });
                }
            }
        }
        self.after(down_for, Event::Connected { party, life, line, epoch });
        let place = &self.parties[party];
        let has_majority = self.quorum.is_some_and(|quorum| place.links_up() >= quorum.majority());
        if !has_majority && !place.is_held(self.now) && self.random.percent(50) {
            let local = self.parties[party].local(self.now);
            self.parties[party].algorithm.unreachable(local);
            self.settle(party);
        }
    }

    pub(crate) fn connected(&mut self, party: usize, line: usize, epoch: u32) {
        // Several nodes have a connection each; one store's leads to its primary.
        let node = self.quorum.map_or(self.cluster.primary, |_| line);
        let place = &mut self.parties[party];
        let link = &mut place.links[line];
        if link.epoch != epoch || link.is_up {
            return;
        }
        link.is_up = true;
        link.node = link.strays_to.take().unwrap_or(node);
        let arrives = self.now;
        link.request_arrives = arrives;
        link.reply_arrives = arrives;
        link.hint_arrives = arrives;
        let local = place.local(self.now);
        let is_enough = self.quorum.is_none_or(|quorum| place.links_up() >= quorum.majority());
        self.note_party(party, || "is connected");
        if is_enough {
            self.parties[party].algorithm.listening(local);
            self.settle(party);
        }
    }
}

/// Whether something is promised about a tick by the answer.
fn is_about_tick(request: &Request) -> bool {
    matches!(
        request,
        Request::TickBegin { .. } | Request::TickFinish { .. } | Request::TickReopen { .. }
    )
}
