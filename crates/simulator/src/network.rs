//! Wires between processes and nodes: requests, replies and hints that are late, lost, doubled or
//! out of order, and connections that break.

use tenure_core::StoreError;
use tenure_core::protocol::Hint;

use crate::algorithm::{Op, Reply};
use crate::clock::MILLISECOND;
use crate::cluster::{Caller, granted};
use crate::driver::ANY_EPOCH;
use crate::promise::Promise;
use crate::world::{Event, Letter, World};

/// How soon a healed world's connections stand again.
pub(crate) const RECONNECTS_WITHIN: u64 = 100 * MILLISECOND;

impl World<'_> {
    pub(crate) fn send(&mut self, party: usize, ask: u64, op: Op) {
        let (life, epoch) = (self.parties[party].life, self.parties[party].link.epoch);
        if !self.parties[party].link.is_up {
            if self.is_healed() || self.random.percent(80) {
                let reply = Err(StoreError::Unreachable("not connected".into()));
                let delay = self.random.below(MILLISECOND);
                self.after(delay, Event::Reply { party, life, epoch: ANY_EPOCH, ask, reply });
            }
            return;
        }
        let caller = self.parties[party].caller.id.clone();
        let (node, sent_at) = (self.parties[party].link.node, self.now);
        if !self.is_healed() && self.random.percent(self.climate.copy_percent) {
            let delay = self.random.share(self.climate.lease, 0, 2_500);
            let (op, caller) = (op.clone(), caller.clone());
            let letter =
                Letter { party, life, epoch, node, sent_at, ask, caller, op, is_copy: true };
            self.after(delay, Event::Arrive(Box::new(letter)));
        }
        if self.is_lost(self.parties[party].link.loses_requests_until) {
            return self.note_party(party, || format!("request {ask} is lost"));
        }
        let delay = self.delay(party);
        let arrives = self.in_order(party, delay, |link| &mut link.request_arrives);
        let letter = Letter { party, life, epoch, node, sent_at, ask, caller, op, is_copy: false };
        self.at(arrives, Event::Arrive(Box::new(letter)));
    }

    fn is_lost(&mut self, loses_until: u64) -> bool {
        self.now < loses_until
            || !self.is_healed() && self.random.percent(self.climate.loss_percent)
    }

    fn delay(&mut self, party: usize) -> u64 {
        let shortest = MILLISECOND / 10;
        if self.is_healed() {
            self.random.between(shortest, 2 * MILLISECOND)
        } else if self.now < self.parties[party].link.slow_until {
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
        party: usize,
        delay: u64,
        last: fn(&mut crate::party::Link) -> &mut u64,
    ) -> u64 {
        let reorders = self.climate.reorders;
        let last = last(&mut self.parties[party].link);
        let arrives = match reorders {
            true => self.now + delay,
            false => (self.now + delay).max(*last + 1),
        };
        *last = arrives;
        arrives
    }

    pub(crate) fn arrive(&mut self, letter: Letter) {
        let node = &self.cluster.nodes[letter.node];
        let died_with_its_connection = self.healed_at.is_some_and(|at| letter.sent_at < at);
        if !node.is_alive || died_with_its_connection {
            return;
        }
        if self.now < node.paused_until {
            let resumes_at = node.paused_until;
            return self.at(resumes_at, Event::Arrive(Box::new(letter)));
        }
        let place = &self.parties[letter.party];
        let is_cut = place.life != letter.life || place.link.epoch != letter.epoch;
        if is_cut && self.random.percent(50) {
            return;
        }
        let caller = self.caller(letter.caller.clone());
        let reply = self.execute(letter.node, &letter.op, &caller);
        if is_cut || letter.is_copy {
            return;
        }
        let party = letter.party;
        if self.is_lost(self.parties[party].link.loses_replies_until) {
            return self.note_party(party, || format!("reply {} is lost", letter.ask));
        }
        let delay = self.delay(party);
        let arrives = self.in_order(party, delay, |link| &mut link.reply_arrives);
        let Letter { life, epoch, ask, .. } = letter;
        self.at(arrives, Event::Reply { party, life, epoch, ask, reply: Ok(reply) });
    }

    /// Carries a request out and lets subscribers hear of it.
    pub(crate) fn execute(&mut self, node: usize, op: &Op, caller: &Caller) -> Reply {
        let executed = self.cluster.execute(node, self.now, op, caller);
        self.note("store", || format!("{} {op:?} -> {:?}", caller.id, executed.reply));
        if let Some(token) = granted(&executed.reply) {
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

    fn publish(&mut self, node: usize, hint: &Hint) {
        for party in 0..self.parties.len() {
            let place = &self.parties[party];
            let hears = place.is_alive
                && place.link.is_up
                && place.link.node == node
                && self.now >= place.link.deaf_until;
            if !hears || self.is_lost_hint() {
                continue;
            }
            let copies = if self.is_healed() || self.random.percent(95) { 1 } else { 2 };
            for _ in 0..copies {
                let delay = self.delay(party);
                let arrives = self.in_order(party, delay, |link| &mut link.hint_arrives);
                let life = self.parties[party].life;
                self.at(arrives, Event::Hint { party, life, hint: hint.clone() });
            }
        }
    }

    fn is_lost_hint(&mut self) -> bool {
        !self.is_healed() && self.random.percent(self.climate.hint_loss_percent)
    }

    /// The connection breaks: what is under way may or may not arrive, no reply does.
    pub(crate) fn break_link(&mut self, party: usize, down_for: u64) {
        self.note_party(party, || "loses its connection");
        let place = &mut self.parties[party];
        place.link.is_up = false;
        place.link.epoch += 1;
        let (life, epoch) = (place.life, place.link.epoch);
        if !place.is_alive {
            return;
        }
        let asks: Vec<u64> = place.asks.iter().map(|pending| pending.ask).collect();
        for ask in asks {
            if self.random.percent(70) {
                let reply = Err(StoreError::Unreachable("connection broke".into()));
                let delay = self.random.below(2 * MILLISECOND);
                self.after(delay, Event::Reply { party, life, epoch: ANY_EPOCH, ask, reply });
            }
        }
        self.after(down_for, Event::Connected { party, life, epoch });
        if !self.parties[party].is_paused(self.now) && self.random.percent(50) {
            let local = self.parties[party].local(self.now);
            self.parties[party].algorithm.unreachable(local);
            self.settle(party);
        }
    }

    pub(crate) fn connected(&mut self, party: usize, epoch: u32) {
        let primary = self.cluster.primary;
        let place = &mut self.parties[party];
        if place.link.epoch != epoch || place.link.is_up {
            return;
        }
        place.link.is_up = true;
        place.link.node = primary;
        let arrives = self.now;
        place.link.request_arrives = arrives;
        place.link.reply_arrives = arrives;
        place.link.hint_arrives = arrives;
        let local = place.local(self.now);
        self.note_party(party, || "is connected");
        self.parties[party].algorithm.listening(local);
        self.settle(party);
    }
}
