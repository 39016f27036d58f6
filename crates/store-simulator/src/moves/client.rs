//! A client that has a key for itself: it writes 1, 2, 3 … and reads.

use super::node::{Answer, Question};
use super::world::{Event, Key, Value, World};
use crate::cluster::Rule;

/// How long it waits for an answer.
const PATIENCE: u64 = 2_000;
/// Between two questions, at most.
const REST_MAX: u64 = 60;

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) key: Key,
    /// Where it believes the key to be.
    at: usize,
    /// The greatest value that was confirmed, and the greatest that was sent.
    pub(super) confirmed: Value,
    pub(super) sent: Value,
    /// The number of its question; answers to others are too late.
    pub(super) number: u64,
    question: Option<Question>,
}

impl Client {
    pub(super) fn new(key: Key) -> Self {
        Self { key, at: 0, confirmed: 0, sent: 0, number: 0, question: None }
    }

    /// What it waits for, if it is this question.
    pub(super) fn question(&self, number: u64) -> Option<Question> {
        self.question.filter(|_| self.number == number)
    }
}

impl World {
    /// The client begins with something new.
    pub(super) fn begin_question(&mut self, client: usize) {
        let is_write = self.random.percent(60);
        let this = &mut self.clients[client];
        let question = match is_write {
            true => {
                this.sent += 1;
                Question::Write(this.sent)
            }
            false => Question::Read,
        };
        this.question = Some(question);
        self.ask(client);
    }

    /// Sends the question to where the key is believed to be.
    fn ask(&mut self, client: usize) {
        self.send(client, self.clients[client].at, false);
    }

    fn send(&mut self, client: usize, node: usize, is_asking: bool) {
        let this = &mut self.clients[client];
        this.number += 1;
        let number = this.number;
        let life = self.nodes[node].life;
        let delay = self.random.between(1, self.delay_max);
        let event = Event::Question { node, life, client, number, is_asking };
        self.queue.after(delay, event);
        self.queue.after(PATIENCE, Event::Impatient { client, number });
    }

    pub(super) fn take_question(
        &mut self,
        node: usize,
        life: u32,
        (client, number): (usize, u64),
        is_asking: bool,
    ) {
        let Some(question) = self.clients[client].question(number) else { return };
        if !self.nodes[node].is_up || self.nodes[node].life != life {
            // The connection is gone. Whether it was done is not known; here it was not.
            return self.queue.after(1, Event::Impatient { client, number });
        }
        let durable_at = self.durable_at();
        let key = self.clients[client].key;
        match self.nodes[node].serve(durable_at, key, question, is_asking) {
            Some(answer) => self.answer(node, client, number, answer),
            None => {
                self.outcome.postponed += 1;
                self.nodes[node].postponed.push((client, number));
            }
        }
    }

    fn answer(&mut self, node: usize, client: usize, number: u64, answer: Answer) {
        let leaves_at = self.nodes[node].speaks_at(self.queue.now());
        let arrives_at = leaves_at + self.random.between(1, self.delay_max);
        let life = self.nodes[node].life;
        let event = Event::Answer { node, life, leaves_at, client, number, answer };
        self.queue.at(arrives_at, event);
    }

    pub(super) fn take_answer(&mut self, node: usize, client: usize, number: u64, answer: Answer) {
        let Some(question) = self.clients[client].question(number) else { return };
        let this = &mut self.clients[client];
        match (question, answer) {
            (Question::Write(value), Answer::Written) => {
                this.confirmed = this.confirmed.max(value);
                self.outcome.writes += 1;
                self.end_question(client);
            }
            (Question::Read, Answer::Value(value)) => {
                let (confirmed, sent) = (this.confirmed, this.sent);
                let read = value.unwrap_or(0);
                if read < confirmed || read > sent {
                    let key = this.key;
                    self.broken(Rule::K8, || {
                        format!("key {key} reads {read}, {confirmed} was confirmed")
                    });
                }
                // What was read is there to stay.
                self.clients[client].confirmed = confirmed.max(read);
                self.end_question(client);
            }
            (_, Answer::Moved) => {
                this.at = 1 - node;
                self.ask(client);
            }
            (_, Answer::Ask) => self.send(client, 1 - node, true),
            _ => {
                this.number += 1;
                let number = this.number;
                self.queue.after(20, Event::AskAgain { client, number });
            }
        }
    }

    pub(super) fn ask_again(&mut self, client: usize, number: u64) {
        if self.clients[client].question(number).is_some() {
            self.ask(client);
        }
    }

    /// No answer came. A write may have been done; the next one is greater.
    pub(super) fn lose_patience(&mut self, client: usize, number: u64) {
        if self.clients[client].question(number).is_some() {
            self.clients[client].at = self.random.below(2) as usize;
            self.end_question(client);
        }
    }

    fn end_question(&mut self, client: usize) {
        self.clients[client].question = None;
        self.clients[client].number += 1;
        let rest = self.random.between(1, REST_MAX);
        self.queue.after(rest, Event::Rested(client));
    }

    /// Requests that waited for keys to leave go through the gate again.
    pub(super) fn resume_postponed(&mut self, node: usize) {
        let life = self.nodes[node].life;
        for waiting in std::mem::take(&mut self.nodes[node].postponed) {
            self.take_question(node, life, waiting, false);
        }
    }
}
