//! What a sentinel does around its core: it carries out, and decides nothing.

use store_replica::{Moment, SessionId};
use store_resp::{Reply, ReplyParser};
use store_sentinel::{
    DownQuestion, FailoverStep, FileOutcome, Level, LinkId, Output, Question, Report, Sentinel,
};

use super::climate::{sentinel_named, server_at};
use super::flaw::Flaw;
use super::judge::Heard;
use super::node::{Dialed, Told};
use super::world::{Event, World};
use crate::network::{ConnectionId, Side};
use crate::queue::Real;

/// How long the file of a sentinel takes that does not wait for it.
const LAZY_DISK: Real = 8_000;

impl World {
    pub(crate) fn wake(&mut self, node: usize, life: u32) {
        let real = self.queue.now();
        let at = &self.nodes[node];
        if !at.is_up || at.life != life {
            return;
        }
        if at.is_paused(real) {
            return;
        }
        self.input(node, |sentinel, now| sentinel.handle_time(now));
        let at = &mut self.nodes[node];
        if let Output::WaitUntil(wakes_at) = at.sentinel.poll_output() {
            let reading = wakes_at.since(Moment::default()).as_millis() as u64;
            let wakes_at = at.clock.real_at(reading.saturating_sub(at.jumped));
            self.queue.at(wakes_at.max(real + 1), Event::Wake(node, life));
        }
    }

    /// One input, what follows from it, and what is to be said about it.
    pub(crate) fn input(&mut self, node: usize, act: impl FnOnce(&mut Sentinel, Moment)) {
        let real = self.queue.now();
        let at = &mut self.nodes[node];
        let now = at.now(real);
        if self.flaw == Some(Flaw::ActInTilt) {
            at.hide_gap(now);
        }
        at.ticked_at = now;
        act(&mut at.sentinel, now);
        self.drain(node);
        self.tell(node);
        let group = self.nodes[node].group();
        self.judge.see_configuration(real, node, group.config_epoch(), group.address());
    }

    /// Does what the core wants, in order.
    fn drain(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].sentinel.next_output() {
            self.judge_decision(node, &output);
            self.carry_out(node, output);
        }
    }

    /// What happened counts once the file has it: before that, a crash makes it not to have been.
    fn tell(&mut self, node: usize) {
        while !self.nodes[node].sentinel.is_file_behind()
            && let Some(Told { event, epoch }) = self.nodes[node].told.pop_front()
        {
            if event.kind.level() > Level::Debug {
                self.note(|| format!("sentinel {node}: {} {}", event.kind.name(), event.text));
            }
            self.judge_event(node, event.kind, &event.text, epoch);
        }
    }

    pub(crate) fn written(&mut self, node: usize, life: u32, text: String) {
        let at = &mut self.nodes[node];
        if !at.is_up || at.life != life {
            return;
        }
        // A process that stands still does nothing more, whatever its disk does.
        if at.is_paused(self.queue.now()) {
            return self.queue.at(at.paused_until, Event::Written { node, life, text });
        }
        at.disk = text;
        if self.flaw == Some(Flaw::NoSaveBeforeVote) {
            return;
        }
        self.input(node, |sentinel, now| sentinel.handle_file(now, FileOutcome::Written));
        self.read_on(self.host_of(node));
    }

    fn carry_out(&mut self, node: usize, output: Output) {
        let real = self.queue.now();
        let host = self.host_of(node);
        let at = &mut self.nodes[node];
        match output {
            Output::Persist(text) => {
                let delay = match self.random.percent(90) {
                    true => self.random.between(0, 3),
                    false => self.random.between(0, self.climate.disk_max),
                };
                // One that does not wait for its disk may as well have a slow one.
                let is_lazy = self.flaw == Some(Flaw::NoSaveBeforeVote);
                let delay = if is_lazy { LAZY_DISK } else { delay };
                self.queue.after(delay, Event::Written { node, life: at.life, text });
                if is_lazy {
                    let now = at.now(real);
                    at.sentinel.handle_file(now, FileOutcome::Written);
                }
            }
            Output::Dial { link, address } => {
                let server = server_at(&address);
                let to = server.unwrap_or_else(|| {
                    self.climate.servers + usize::from(address.port.saturating_sub(8_000))
                });
                let id = self.network.dial((host, to), &mut self.queue, &mut self.random);
                let at = &mut self.nodes[node];
                at.links.insert(link, id);
                at.dialed.insert(id, Dialed::new(link, server));
            }
            Output::Send { link, question } => self.ask(node, link, question, real),
            Output::Close(link) => {
                if let Some(id) = at.links.remove(&link) {
                    at.dialed.remove(&id);
                    let (queue, random) = (&mut self.queue, &mut self.random);
                    self.network.close(id, Side::Dialer, queue, random);
                }
            }
            Output::Answer { session, answer } => {
                if let Some(vote) = &answer.vote
                    && let Some(leader) = sentinel_named(vote.leader.as_str())
                {
                    self.judge.see_vote(real, node, leader, vote.epoch);
                }
                let id = ConnectionId(session.0);
                if let Some(accepted) = self.accepted.get_mut(&id)
                    && let Some(address) = accepted.asked_about.take()
                    && answer.is_down
                {
                    self.judge.see_down(real, node, &address);
                }
                self.send(id, Side::Listener, &answer.encode());
            }
            Output::Tell(event) => {
                let epoch = at.group().failover_epoch();
                at.told.push_back(Told { event, epoch });
            }
            // No operator is there, and no script.
            Output::Reply { .. }
            | Output::StartScript { .. }
            | Output::KillScript(_)
            | Output::Crash
            | Output::Advise(_)
            | Output::WaitUntil(_) => {}
        }
    }

    pub(crate) fn send(&mut self, id: ConnectionId, from: Side, bytes: &[u8]) {
        self.network.send((id, from), bytes, &mut self.queue, &mut self.random);
    }

    fn ask(&mut self, node: usize, link: LinkId, question: Question, real: Real) {
        let at = &mut self.nodes[node];
        let Some(id) = at.links.get(&link).copied() else { return };
        if question == Question::Info
            && let Some(dialed) = at.dialed.get_mut(&id)
        {
            dialed.info_asked_at = Some(real);
        }
        let question = self.as_a_flawed_sentinel_says_it(node, question);
        self.send(id, Side::Dialer, &question.encode());
    }

    /// Replies and messages that arrived over a connection that a sentinel opened.
    pub(crate) fn read_dialed(&mut self, node: usize, id: ConnectionId) {
        let bytes = self.network.read(id, Side::Dialer);
        let Some(dialed) = self.nodes[node].dialed.get_mut(&id) else { return };
        dialed.unparsed.extend(bytes);
        loop {
            let Some(dialed) = self.nodes[node].dialed.get_mut(&id) else { return };
            let (link, server) = (dialed.link, dialed.server);
            let parsed = ReplyParser.parse(&dialed.unparsed).expect("servers answer in RESP");
            let Some((reply, len)) = parsed else { return };
            dialed.unparsed.drain(..len);
            let asked_at = dialed.info_asked_at;
            if let Some(server) = server {
                self.hear(node, server, &reply, asked_at);
            }
            let reply = self.message_as_it_is_told(node, reply);
            if let Some(reply) = self.as_a_flawed_sentinel_hears_it(node, reply) {
                self.input(node, |sentinel, now| sentinel.handle_reply(now, link, &reply));
            }
        }
    }

    /// The judge hears what a server tells a sentinel.
    fn hear(&mut self, node: usize, server: usize, reply: &Reply, asked_at: Option<Real>) {
        let real = self.queue.now();
        match (reply, asked_at) {
            (Reply::Simple(text), _) if text == "PONG" => {
                self.judge.pong_at.insert((node, server), real);
            }
            (Reply::Bulk(text), Some(asked_at)) => {
                let report = Report::parse(&String::from_utf8_lossy(text));
                let step = self.nodes[node].group().failover_step();
                let to = match step {
                    Some(FailoverStep::Reconfigure { to }) => Some(to),
                    _ => None,
                };
                if report.is_link_up && report.primary.as_ref() == to {
                    self.judge.see_followed(node, server);
                }
                self.judge.heard.insert((node, server), Heard { asked_at, report });
            }
            _ => {}
        }
    }

    /// Another sentinel asks, at a sentinel that is up.
    pub(crate) fn answer_peer(&mut self, node: usize, id: ConnectionId, words: &[&[u8]]) {
        let text: &[u8] = match words {
            [b"PING"] => b"+PONG\r\n",
            [b"PUBLISH", _, hello] => {
                let hello = self.as_it_is_told(node, hello);
                if let Some(hello) = self.as_a_flawed_sentinel_reads_it(node, &hello) {
                    self.input(node, |sentinel, now| sentinel.handle_hello(now, &hello));
                }
                b":1\r\n"
            }
            [b"SENTINEL", _, question @ ..] => {
                let question = DownQuestion::parse(question).expect("sentinels ask as they should");
                if let Some(accepted) = self.accepted.get_mut(&id) {
                    accepted.asked_about = Some(question.address.clone());
                }
                let session = SessionId(id.0);
                return self.input(node, |sentinel, now| {
                    sentinel.handle_down_question(now, session, question);
                });
            }
            _ => b"+OK\r\n",
        };
        self.send(id, Side::Listener, text);
    }
}
