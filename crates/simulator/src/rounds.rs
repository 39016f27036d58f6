//! Requests to several nodes: each is a round of the core, carried over wires of this world.

use std::time::Duration;

use tenure_core::StoreError;
use tenure_core::protocol::{Acquire, Answer, Ballot, Outcome, Request};
use tenure_core::quorum::{Quorum, Round, RoundOutput};

use crate::algorithm::{Op, Reply};
use crate::driver::NO_LINE;
use crate::flaw::{Flaw, LATE_LEASES};
use crate::network::TOLD;
use crate::party::OpenRound;
use crate::world::{World, span};

impl World<'_> {
    pub(crate) fn begin_round(
        &mut self,
        party: usize,
        ask: u64,
        (quorum, request, timeout): (Quorum, Request, Duration),
    ) {
        let timeout = match self.subject.flaw() {
            Some(Flaw::CountedLate) => span(self.climate.lease * LATE_LEASES),
            _ => timeout,
        };
        let local = self.parties[party].local(self.now);
        let round = Round::new(quorum, request, local, timeout);
        let keeps_answers = self.subject.flaw() == Some(Flaw::NoSettling);
        let last = if keeps_answers { vec![None; quorum.nodes()] } else { Vec::new() };
        self.parties[party].rounds.push(OpenRound { ask, round, last });
        self.carry_out_round(party, ask);
    }

    /// A node replied, or the time to wait is over.
    pub(crate) fn advance_round(
        &mut self,
        party: usize,
        line: usize,
        (ask, step): (u64, u32),
        reply: Result<Reply, StoreError>,
    ) {
        let local = self.parties[party].local(self.now);
        let twins = self.twins(party);
        let Some(open) = self.open_round(party, ask) else { return };
        if line == NO_LINE {
            open.round.handle_timeout();
            return self.carry_out_round(party, ask);
        }
        let reply = match reply {
            Ok(Reply::Answer(answer)) => Ok(answer),
            Ok(_) => Err(StoreError::unexpected("a plain reply to a call")),
            Err(error) => Err(error),
        };
        if let Some(last) = open.last.get_mut(line) {
            *last = reply.as_ref().ok().cloned();
        }
        open.round.handle_reply(local, line, step, reply.clone());
        if let Some((_, twin)) = twins.filter(|(first, _)| *first == line) {
            let reply = reply.map(|mut answer| {
                answer.view.incarnation += "-twin";
                answer
            });
            open.round.handle_reply(local, twin, step, reply);
        }
        self.carry_out_round(party, ask);
    }

    fn twins(&self, party: usize) -> Option<(usize, usize)> {
        self.subject.flaw()?.twins(party, self.climate.nodes)
    }

    fn open_round(&mut self, party: usize, ask: u64) -> Option<&mut OpenRound> {
        self.parties[party].rounds.iter_mut().find(|open| open.ask == ask)
    }

    fn carry_out_round(&mut self, party: usize, ask: u64) {
        while let Some(open) = self.open_round(party, ask) {
            match open.round.poll_output() {
                None => return,
                Some(RoundOutput::Ask { node, step, request }) => {
                    self.ask_node(party, node, (ask, step), request);
                }
                Some(RoundOutput::Tell { node, request }) => {
                    self.send(party, node, (ask, TOLD), Op::Call(request));
                }
                Some(RoundOutput::Done(verdict)) => {
                    self.parties[party].rounds.retain(|open| open.ask != ask);
                    return self.finish_ask(party, ask, verdict.map(Reply::Answer));
                }
            }
        }
    }

    fn ask_node(&mut self, party: usize, node: usize, (ask, step): (u64, u32), request: Request) {
        if self.twins(party).is_some_and(|(_, twin)| twin == node) {
            return;
        }
        match (self.subject.flaw(), request) {
            (Some(Flaw::NoSettling), Request::Acquire(acquire)) => {
                self.ask_unsettled(party, node, (ask, step), acquire);
            }
            (Some(Flaw::TrustsAge), Request::Acquire(acquire)) => {
                let trusting = Request::Acquire(Acquire { age_counts: true, ..acquire });
                self.send(party, node, (ask, step), Op::Call(trusting));
            }
            (_, request) => self.send(party, node, (ask, step), Op::Call(request)),
        }
    }

    /// Lets a node grant by itself at first, and takes that for settled afterwards.
    fn ask_unsettled(
        &mut self,
        party: usize,
        node: usize,
        (ask, step): (u64, u32),
        acquire: Acquire,
    ) {
        let Ballot::Settle(token) = acquire.ballot else {
            let alone = Acquire { ballot: Ballot::Alone, ..acquire };
            return self.send(party, node, (ask, step), Op::Call(Request::Acquire(alone)));
        };
        let local = self.parties[party].local(self.now);
        let Some(open) = self.open_round(party, ask) else { return };
        if let Some(answer) = open.last[node].clone() {
            let settled = Answer { outcome: Outcome::Granted { token }, ..answer };
            open.round.handle_reply(local, node, step, Ok(settled));
        }
    }
}
