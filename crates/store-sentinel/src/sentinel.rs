//! One sentinel: inputs in, outputs out.

use std::collections::BTreeMap;

use store_replica::{Address, Moment, SessionId};
use store_resp::Reply;

use crate::config::{Configuration, GroupConfiguration};
use crate::core::Core;
use crate::event::EventKind;
use crate::failover::FailoverRefused;
use crate::group::Group;
use crate::hello::Hello;
use crate::info::Report;
use crate::links::{Asked, GroupMember, LinkId, Pending, SlotId, SlotKind, SlotState, Target};
use crate::output::{DownAnswer, DownQuestion, Output, Question};
use crate::saving::FileOutcome;
use crate::scripts::{ScriptEnd, ScriptId};
use crate::settings::{Draw, GroupSettings, RunId, Timing};

/// One sentinel.
///
/// `handle_*` come in, each with a reading of the clock; [`poll_output`] gives what is to be done,
/// in order, and ends with [`Output::WaitUntil`].
///
/// What must stay true:
/// - *What the file keeps is written before anything that may tell of it leaves*: epochs, votes,
///   addresses. A sentinel that restarts with its file has said nothing that it forgot. Nothing
///   else waits for the file.
/// - *A vote is for one epoch, and counts for that epoch alone.*
/// - *Deadlines are local.* Only differences of one monotonic clock are used; when it jumps, or the
///   process stood still, nothing is decided for a while (TILT).
///
/// [`poll_output`]: Self::poll_output
#[derive(Debug)]
pub struct Sentinel {
    pub(crate) core: Core,
    pub(crate) groups: BTreeMap<String, Group>,
    kept_lines: Vec<String>,
    ticked_at: Moment,
    pub(crate) tilted_at: Moment,
    wakes_at: Moment,
}

impl Sentinel {
    /// A sentinel that begins with what its file says. `id` is its name when the file has none.
    pub fn new(
        now: Moment,
        configuration: Configuration,
        id: RunId,
        timing: Timing,
        draw: Draw,
    ) -> Self {
        let is_named = configuration.id.is_some();
        let mut core = Core::new(configuration.id.unwrap_or(id), timing, draw);
        core.port = configuration.port;
        core.globals = configuration.globals;
        // No failover of an epoch that a vote or a configuration of the file has gone beyond would
        // be believed by anybody.
        let of_group = |group: &GroupConfiguration| group.config_epoch.max(group.leader_epoch);
        let of_groups = configuration.groups.iter().map(of_group).max().unwrap_or(0);
        core.current_epoch = configuration.current_epoch.max(of_groups);
        if !is_named {
            // A name that others have heard must be the same after a restart.
            core.mark_changed();
        }
        let groups = configuration.groups.into_iter().map(|group| {
            let name = group.name.clone();
            (name, Group::new(now, &mut core, group))
        });
        let groups = groups.collect();
        let kept_lines = configuration.kept_lines;
        let mut sentinel =
            Self { core, groups, kept_lines, ticked_at: now, tilted_at: now, wakes_at: now };
        sentinel.settle();
        sentinel
    }

    /// Its id.
    pub fn id(&self) -> &RunId {
        &self.core.id
    }

    /// The greatest epoch that it knows.
    pub fn current_epoch(&self) -> u64 {
        self.core.current_epoch
    }

    /// Whether it decides nothing for now, because time stood still.
    pub fn is_tilted(&self) -> bool {
        self.core.is_tilted
    }

    /// A group by its name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// SENTINEL get-master-addr-by-name.
    pub fn primary_address(&self, name: &str) -> Option<&Address> {
        self.groups.get(name).map(Group::address)
    }

    /// SENTINEL SET. Whether there is such a group.
    pub fn set_settings(&mut self, name: &str, settings: GroupSettings) -> bool {
        let Some(group) = self.groups.get_mut(name) else { return false };
        group.settings = settings;
        group.apply_access(&mut self.core);
        self.core.mark_changed();
        self.settle();
        true
    }

    /// SENTINEL REMOVE. Whether there was such a group.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(group) = self.groups.remove(name) else { return false };
        group.release(&mut self.core);
        self.core.mark_changed();
        self.settle();
        true
    }

    /// SENTINEL FAILOVER.
    pub fn start_failover(&mut self, now: Moment, name: &str) -> Result<(), FailoverRefused> {
        self.watch_clock(now);
        let group = self.groups.get_mut(name).ok_or(FailoverRefused::UnknownName)?;
        let outcome = group.force_failover(now, &mut self.core);
        self.settle();
        outcome
    }

    /// What the file holds now.
    pub fn configuration(&self) -> Configuration {
        Configuration {
            id: Some(self.core.id.clone()),
            port: self.core.port,
            globals: self.core.globals.clone(),
            current_epoch: self.core.current_epoch,
            groups: self.groups.values().map(Group::configuration).collect(),
            kept_lines: self.kept_lines.clone(),
        }
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Moment) {
        self.watch_clock(now);
        if self.core.is_tilted && now.since(self.tilted_at) >= self.core.timing.tilt_for {
            self.core.is_tilted = false;
            self.core.tell(EventKind::TiltEnd, "#tilt mode exited".to_owned());
        }
        self.ticked_at = now;
        for group in self.groups.values_mut() {
            group.keep_in_touch(now, &mut self.core);
            if !self.core.is_tilted {
                group.decide(now, &mut self.core);
            }
        }
        self.core.drive_scripts(now);
        // Sentinels that started together drift apart, or all would stand for election at once.
        let tick = self.core.timing.tick;
        self.wakes_at = now + (tick - self.core.draw.span(tick / 2));
        self.settle();
    }

    /// Before anything else is believed: has time stood still? Answers that waited in a socket
    /// meanwhile say nothing about now.
    pub(crate) fn watch_clock(&mut self, now: Moment) {
        self.core.now = now;
        let is_late = now.since(self.ticked_at) > self.core.timing.tilt_trigger;
        if now < self.ticked_at || is_late {
            self.core.is_tilted = true;
            self.tilted_at = now;
            self.ticked_at = now;
            self.core.tell(EventKind::Tilt, "#tilt mode entered".to_owned());
        }
    }

    /// A connection is open. `local_host` is this sentinel's end of it, where others reach this
    /// sentinel unless it announces something else.
    pub fn handle_link_up(&mut self, now: Moment, link: LinkId, local_host: &str) {
        self.watch_clock(now);
        let Some(id) = self.core.links.find(link) else { return };
        let slot = self.core.links.get_mut(id);
        slot.state = SlotState::Open(link);
        slot.local_host = Some(local_host.to_owned());
        slot.heard_at = now;
        let (kind, login, address) = (slot.kind, slot.access.login.clone(), slot.address.clone());
        if self.core.is_own(&address) {
            // It leads from this sentinel to itself.
            let groups = self.groups.values_mut();
            groups.for_each(|group| group.displace_at(&mut self.core, &address, None));
        }
        let Some(target) = self.target_of(id) else { return };
        let name = format!("sentinel-{:.8}-{}", self.core.id, kind_name(kind));
        let introduction = login.map(Question::Auth).into_iter().chain([Question::SetName(name)]);
        for question in introduction {
            self.core.ask(id, target.clone(), Asked::Other, question);
        }
        match kind {
            SlotKind::Commands => self.core.ping(now, id, target),
            SlotKind::Hellos => {
                self.core.ask(id, target, Asked::Other, Question::Subscribe);
            }
        }
        self.settle();
    }

    /// A host that was given by name has this number.
    pub fn handle_name(&mut self, name: &str, number: &str) {
        /// Names come from hellos, too: those of servers that are long gone are looked up again.
        const NAMES_MAX: usize = 10_000;
        if name != number {
            if self.core.names.len() >= NAMES_MAX {
                self.core.names.clear();
            }
            self.core.names.insert(name.to_owned(), number.to_owned());
        }
    }

    /// A connection is lost, or could not be opened.
    pub fn handle_link_down(&mut self, now: Moment, link: LinkId) {
        self.watch_clock(now);
        if let Some(id) = self.core.links.find(link) {
            self.core.links.end(id);
        }
        self.settle();
    }

    /// The next reply or message on a connection.
    pub fn handle_reply(&mut self, now: Moment, link: LinkId, reply: &Reply) {
        self.watch_clock(now);
        if let Some(id) = self.core.links.find(link) {
            match self.core.links.get(id).kind {
                SlotKind::Commands => self.take_reply(now, id, reply),
                SlotKind::Hellos => self.take_message(now, id, reply),
            }
        }
        self.settle();
    }

    fn take_reply(&mut self, now: Moment, id: SlotId, reply: &Reply) {
        let slot = self.core.links.get_mut(id);
        let Some(pending) = slot.pending.front_mut() else {
            // Nobody asked: whatever this is, it is no server that can be understood.
            return self.core.close(id);
        };
        pending.replies_left -= 1;
        if pending.replies_left > 0 {
            return;
        }
        let Some(Pending { asked, target, .. }) = slot.pending.pop_front() else { return };
        match asked {
            Asked::Ping => self.take_pong(now, id, &target, reply),
            Asked::Info { at } => {
                self.core.links.get_mut(id).is_info_pending = false;
                let text = match reply {
                    Reply::Bulk(text) | Reply::Verbatim(_, text) => text,
                    _ => return,
                };
                let report = Report::parse(&String::from_utf8_lossy(text));
                if let Some(group) = self.groups.get_mut(&*target.group) {
                    group.take_report(now, &mut self.core, at, &target.member, report);
                    group.keep_info(&target.member, text);
                }
            }
            Asked::IsDown { address } => {
                let group = self.groups.get_mut(&*target.group);
                if let (Some(group), Some(answer), GroupMember::Peer(peer)) =
                    (group, DownAnswer::parse(reply), &target.member)
                {
                    group.take_answer(now, peer, &address, answer);
                }
            }
            Asked::Other => {}
        }
    }

    fn take_pong(&mut self, now: Moment, id: SlotId, target: &Target, reply: &Reply) {
        let (is_working, is_busy) = match reply {
            Reply::Simple(text) => (text == "PONG", false),
            Reply::Error(text) => {
                let is_working = text.starts_with("LOADING") || text.starts_with("MASTERDOWN");
                (is_working, text.starts_with("BUSY"))
            }
            _ => (false, false),
        };
        let slot = self.core.links.get_mut(id);
        slot.answered_at = now;
        if is_working {
            slot.available_at = now;
            slot.waiting_since = None;
        }
        let Some(group) = self.groups.get_mut(&*target.group) else { return };
        let instance = match &target.member {
            GroupMember::Primary => &mut group.primary,
            GroupMember::Replica(address) => match group.replicas.get_mut(address) {
                Some(replica) => replica,
                None => return,
            },
            GroupMember::Peer(_) => return,
        };
        if reply == &Reply::Simple("PONG".to_owned()) {
            instance.rebooted_at = None;
        }
        if is_busy && instance.down_since.is_some() && !instance.is_kill_sent {
            instance.is_kill_sent = true;
            self.core.ask(id, target.clone(), Asked::Other, Question::ScriptKill);
        }
    }

    fn take_message(&mut self, now: Moment, id: SlotId, reply: &Reply) {
        self.core.links.get_mut(id).heard_at = now;
        let (Reply::Array(items) | Reply::Push(items)) = reply else { return };
        if let [Reply::Bulk(kind), _, Reply::Bulk(text)] = &items[..]
            && kind == b"message"
        {
            self.take_hello(now, text);
        }
    }

    /// PUBLISH of a hello at this sentinel.
    pub fn handle_hello(&mut self, now: Moment, text: &[u8]) {
        self.watch_clock(now);
        self.take_hello(now, text);
        self.settle();
    }

    fn take_hello(&mut self, now: Moment, text: &[u8]) {
        let Some(hello) = Hello::parse(text) else { return };
        if hello.id == self.core.id {
            return self.core.watch_for_double(&hello.address);
        }
        let is_reachable =
            [&hello.address, &hello.primary].iter().all(|at| self.core.may_reach(at));
        if !self.groups.contains_key(&hello.group) || !is_reachable {
            return;
        }
        self.meet(now, &hello);
        // A configuration's epoch counts as well: the next failover must be beyond it.
        let epoch = hello.current_epoch.max(hello.config_epoch);
        let who = || format!("the sentinel {} at {}", hello.id, hello.address);
        if !self.core.believes(epoch, who) {
            return;
        }
        let group = self.groups.get_mut(&hello.group);
        if let Some(group) = &group {
            group.raise_epoch(&mut self.core, epoch);
        }
        // One that could not be remembered is not believed either.
        if let Some(group) = group.filter(|group| group.peers.contains_key(&hello.id)) {
            if let Some(peer) = group.peers.get_mut(&hello.id) {
                peer.heard_at = now;
            }
            group.take_configuration(now, &mut self.core, &hello);
        }
    }

    /// A sentinel is where it says, under the id that it says, everywhere.
    fn meet(&mut self, now: Moment, hello: &Hello) {
        let Hello { id, address, group: name, .. } = hello;
        for group in self.groups.values_mut() {
            if group.peers.contains_key(id) {
                group.move_peer(now, &mut self.core, id, address);
            } else if group.name() == name {
                group.find_peer(now, &mut self.core, id, address);
            }
        }
    }

    /// `SENTINEL is-master-down-by-addr` from another sentinel.
    pub fn handle_down_question(
        &mut self,
        now: Moment,
        session: SessionId,
        question: DownQuestion,
    ) {
        self.watch_clock(now);
        let mut groups = self.groups.values_mut();
        let answer =
            match groups.find(|it| self.core.is_same(&it.primary.address, &question.address)) {
                Some(group) => group.answer(now, &mut self.core, question),
                None => DownAnswer { is_down: false, vote: None },
            };
        match answer.vote {
            Some(_) => self.core.push_when_saved(Output::Answer { session, answer }),
            None => self.core.push(Output::Answer { session, answer }),
        }
        self.settle();
    }

    /// A script runs as this process.
    pub fn handle_script_start(&mut self, id: ScriptId, process: u32) {
        self.core.scripts.started(id, process);
    }

    /// A script ended.
    pub fn handle_script_end(&mut self, now: Moment, id: ScriptId, end: ScriptEnd) {
        self.watch_clock(now);
        let timing = self.core.timing.clone();
        if let Some(path) = self.core.scripts.ended(now, &timing, id, end) {
            let (signal, code) = match end {
                ScriptEnd::Exited(code) => (0, code),
                ScriptEnd::Killed(signal) => (signal, 0),
                ScriptEnd::NotStarted => (99, 0),
            };
            self.core.tell(EventKind::ScriptError, format!("{path} {signal} {code}"));
        }
        self.settle();
    }

    /// The bytes of a question, in the words of whom it goes to.
    pub fn encode(&self, link: LinkId, question: &Question) -> Vec<u8> {
        match self.core.links.find(link) {
            Some(id) => question.encode_renamed(&self.core.links.get(id).access.renamed),
            None => question.encode(),
        }
    }

    /// The next thing to do, if there is one beside waiting.
    pub fn next_output(&mut self) -> Option<Output> {
        self.core.next_output()
    }

    /// The next thing to do; after the last one, when to call [`handle_time`](Self::handle_time).
    pub fn poll_output(&mut self) -> Output {
        self.next_output().unwrap_or(Output::WaitUntil(self.wakes_at))
    }

    /// What became of the text of the last [`Output::Persist`]; while that is not told, there is no
    /// other one, unless writing fails.
    pub fn handle_file(&mut self, now: Moment, outcome: FileOutcome) {
        self.watch_clock(now);
        self.core.release_held(outcome);
        if !self.core.is_tilted {
            // A failover that began with the change asks for votes now.
            self.groups.values_mut().for_each(|group| group.ask_others(now, &mut self.core));
        }
        self.settle();
    }

    /// Whether its file lacks something that it knows.
    pub fn is_file_behind(&self) -> bool {
        self.core.saving.is_behind()
    }

    pub(crate) fn settle(&mut self) {
        if self.core.saving.wants_text() {
            self.core.saving.begin();
            let text = self.configuration().to_text();
            self.core.push(Output::Persist(text));
        }
    }

    /// Who uses a slot, for what is said when it opens.
    fn target_of(&self, id: SlotId) -> Option<Target> {
        let of_group = |group: &Group| {
            let is_own = |slots: [Option<SlotId>; 2]| slots.contains(&Some(id));
            if is_own([Some(group.primary.commands), group.primary.hellos]) {
                return Some(group.target(GroupMember::Primary));
            }
            let mut replicas = group.replicas.iter();
            let replica = replicas.find(|(_, r)| is_own([Some(r.commands), r.hellos]));
            if let Some((address, _)) = replica {
                return Some(group.target(GroupMember::Replica(address.clone())));
            }
            let peer = group.peers.iter().find(|(_, peer)| peer.instance.commands == id);
            peer.map(|(id, _)| group.target(GroupMember::Peer(id.clone())))
        };
        self.groups.values().find_map(of_group)
    }
}

fn kind_name(kind: SlotKind) -> &'static str {
    match kind {
        SlotKind::Commands => "cmd",
        SlotKind::Hellos => "pubsub",
    }
}
