//! Requests to a store that can only compare and swap: instances read, decide and write.

use tenure_core::memory_store::{ForeignValue, MemoryStore};
use tenure_core::protocol::{Call, Outcome, Request};
use tenure_core::swap::{Decision, Found, Versioned, decide, written_at};
use tenure_core::{Moment, ServerTime, StoreError, Token};

use crate::algorithm::{Op, Reply, Swap};
use crate::case::Replicas;
use crate::cluster::EPOCH;
use crate::flaw::Flaw;
use crate::party::OpenSwap;
use crate::world::World;

/// Where the two texts are, among the keys of the store in memory: so they share its fate.
const LEASE: &str = "swap:lease";
const MEMBERS: &str = "swap:members";

impl World<'_> {
    pub(crate) fn begin_swap(&mut self, party: usize, ask: u64, request: Request) {
        self.parties[party].swaps.push(OpenSwap { ask, step: 0, request, read_at: Moment::ORIGIN });
        self.send(party, 0, (ask, 0), Op::Read);
    }

    /// What was read is there, or whether it could be written.
    pub(crate) fn advance_swap(
        &mut self,
        party: usize,
        (ask, step): (u64, u32),
        reply: Result<Reply, StoreError>,
    ) {
        let local = self.parties[party].local(self.now);
        let swaps = &mut self.parties[party].swaps;
        let Some(open) = swaps.iter_mut().find(|open| open.ask == ask) else { return };
        if open.step != step {
            return;
        }
        open.step += 1;
        let (step, request) = (open.step, open.request.clone());
        match reply {
            Ok(Reply::Found(found)) => {
                open.read_at = local;
                let found = self.as_understood(party, *found);
                match self.decide_swap(party, request, &found) {
                    Err(error) => self.finish_ask(party, ask, Err(error)),
                    Ok(Decision { write: None, answer, .. }) => {
                        self.finish_ask(party, ask, Ok(Reply::Answer(answer)));
                    }
                    Ok(decision) => {
                        let compares = self.subject.flaw() != Some(Flaw::SwapUncompared);
                        let incarnation = found.incarnation;
                        let swap = Swap { decision, incarnation, clock: found.clock, compares };
                        self.send(party, 0, (ask, step), Op::Swap(Box::new(swap)));
                    }
                }
            }
            // Somebody else was faster.
            Ok(Reply::Done(_)) => self.send(party, 0, (ask, step), Op::Read),
            Ok(Reply::Written { answer, swap }) => {
                let read_at = open.read_at;
                self.note_written(party, &swap, read_at);
                self.finish_ask(party, ask, Ok(Reply::Answer(answer)));
            }
            other => self.finish_ask(party, ask, other),
        }
    }

    /// The own write is observed from when it was decided.
    fn note_written(&mut self, party: usize, swap: &Swap, read_at: Moment) {
        let is_observed = self.case.replicas == Replicas::Observed;
        let lease = swap.decision.write.as_ref().and_then(|write| write.lease.as_ref());
        if let Some(lease) = lease.filter(|_| is_observed && self.subject.flaw().is_none()) {
            let observed = &mut self.parties[party].observed;
            observed.wrote(&swap.incarnation, lease.version + 1, swap.clock, read_at);
        }
    }

    /// What was found, with the time that counts.
    fn as_understood(&mut self, party: usize, mut found: Found) -> Found {
        if self.case.replicas != Replicas::Observed {
            return found;
        }
        let local = self.parties[party].local(self.now);
        // Where nothing is written yet any time will do, such as that of an unset clock.
        let unset = ServerTime((EPOCH + local.as_nanos()) / 1_000);
        let written = written_at(&found.lease.text).unwrap_or(unset);
        let flaw = self.subject.flaw();
        let version = match flaw {
            Some(Flaw::SwapCountsOn) => 0,
            _ => found.lease.version,
        };
        let observed = &mut self.parties[party].observed;
        found.clock = match flaw {
            Some(Flaw::SwapComparesClocks) => {
                ServerTime(unset.0 + party as u64 * self.climate.lease / 2_000)
            }
            // What was written first counts on from then, through all versions.
            Some(Flaw::SwapCountsOn) => {
                let first = observed.now("", version, ServerTime::default(), local);
                ServerTime(written.0 + first.0)
            }
            _ => observed.now(&found.incarnation, version, written, local),
        };
        found.started_at = found.clock;
        found
    }

    fn decide_swap(
        &mut self,
        party: usize,
        request: Request,
        found: &Found,
    ) -> Result<Decision, StoreError> {
        let caller = &self.parties[party].caller;
        let call = Call {
            resource: caller.resource.clone(),
            id: caller.id.clone(),
            request,
            timeout: std::time::Duration::ZERO,
            fleet_max_ttl: caller.fleet_max_ttl,
        };
        match self.subject.flaw() {
            Some(Flaw::SwapSameLife) => {
                let started_at = ServerTime::default();
                let incarnation = "same".to_owned();
                decide(&call, &Found { started_at, incarnation, ..found.clone() })
            }
            Some(Flaw::SwapKeepsToken) => {
                let before = recorded_token(&found.lease.text);
                decide(&call, found).map(|decision| with_token(decision, before))
            }
            _ => decide(&call, found),
        }
    }
}

fn recorded_token(lease: &str) -> Option<Token> {
    let token = lease.lines().find_map(|line| line.strip_prefix("-\ttoken\t"))?;
    token.parse().ok().and_then(Token::new)
}

/// The decision as it would be if its term had the number of the one before.
fn with_token(mut decision: Decision, before: Option<Token>) -> Decision {
    let (Outcome::Granted { token }, Some(before)) = (&mut decision.answer.outcome, before) else {
        return decision;
    };
    let (new, old) = (token.get().to_string(), before.get().to_string());
    *token = before;
    decision.answer.view.token = Some(before);
    if let Some(lease) = decision.write.as_mut().and_then(|write| write.lease.as_mut()) {
        for name in ["-\ttoken\t", "-\tgrant\t"] {
            lease.text = lease.text.replace(&format!("{name}{new}"), &format!("{name}{old}"));
        }
    }
    decision
}

/// All that the store has.
pub(crate) fn read(store: &MemoryStore, now: ServerTime) -> Found {
    Found {
        lease: versioned(store, now, LEASE),
        members: versioned(store, now, MEMBERS),
        history: Vec::new(),
        clock: now,
        incarnation: store.life().incarnation().replace(':', "-"),
        started_at: store.life().started_at,
    }
}

/// Writes what was decided if nothing has changed since it was read, and says whether it did.
pub(crate) fn write(store: &mut MemoryStore, now: ServerTime, swap: &Swap) -> bool {
    let found = read(store, now);
    let Some(write) = &swap.decision.write else { return true };
    let is_same = |new: &Option<Versioned>, old: &Versioned| {
        new.as_ref().is_none_or(|new| new.version == old.version)
    };
    let members_are_same = is_same(&write.members, &found.members);
    let may_write = found.incarnation == swap.incarnation
        && is_same(&write.lease, &found.lease)
        && (write.lease.is_some() || members_are_same);
    if swap.compares && !may_write {
        return false;
    }
    let members = write.members.as_ref().filter(|_| members_are_same);
    for (key, new, old) in
        [(LEASE, write.lease.as_ref(), &found.lease), (MEMBERS, members, &found.members)]
    {
        if let Some(new) = new {
            let text = format!("{} {}", old.version + 1, new.text);
            store.set_foreign(now, key, ForeignValue::Text(&text), None);
        }
    }
    true
}

fn versioned(store: &MemoryStore, now: ServerTime, key: &str) -> Versioned {
    let found = store.get(now, key).and_then(|text| text.split_once(' '));
    let parsed = found.and_then(|(version, text)| Some((version.parse().ok()?, text.to_owned())));
    parsed.map_or_else(Versioned::default, |(version, text)| Versioned { version, text })
}
