//! What all groups of a sentinel share: its name and epoch, its connections, its outputs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use store_replica::{Address, Moment};

use crate::epoch;
use crate::event::{Event, EventKind};
use crate::links::{Asked, Links, Pending, SlotId, SlotKind, SlotState, Target};
use crate::output::{Output, Question};
use crate::saving::{FileOutcome, Saving};
use crate::scripts::{ScriptAct, Scripts};
use crate::settings::{Access, Draw, Globals, RunId, Timing, usable};

/// SENTINEL SIMULATE-FAILURE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Simulated {
    pub(crate) crash_after_election: bool,
    pub(crate) crash_after_promotion: bool,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: RunId,
    pub(crate) port: u16,
    pub(crate) globals: Globals,
    pub(crate) timing: Timing,
    pub(crate) draw: Draw,
    pub(crate) current_epoch: u64,
    pub(crate) links: Links,
    pub(crate) is_tilted: bool,
    pub(crate) scripts: Scripts,
    /// The numbers of hosts that were given by name.
    pub(crate) names: BTreeMap<String, String>,
    /// When the last input came.
    pub(crate) now: Moment,
    /// What an operator wants to see fail.
    pub(crate) simulated: Simulated,
    /// When another sentinel was last seen with this one's id.
    double_seen_at: Option<Moment>,
    /// When the operator was last told of another id that comes from two addresses.
    told_of_double_at: Option<Moment>,
    /// Under which addresses this one told others of itself, the latest last.
    own_addresses: VecDeque<Address>,
    /// When the operator was last told of an epoch that was refused.
    told_of_epoch_at: Option<Moment>,
    pub(crate) saving: Saving,
    outputs: VecDeque<Output>,
}

impl Core {
    pub(crate) fn new(id: RunId, timing: Timing, draw: Draw) -> Self {
        Self {
            id,
            port: 26_379,
            globals: Globals::default(),
            timing,
            draw,
            current_epoch: 0,
            links: Links::default(),
            is_tilted: false,
            scripts: Scripts::default(),
            names: BTreeMap::new(),
            now: Moment::default(),
            simulated: Simulated::default(),
            double_seen_at: None,
            told_of_double_at: None,
            own_addresses: VecDeque::new(),
            told_of_epoch_at: None,
            saving: Saving::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Something changed that the file keeps. What tells of it leaves when the file has it.
    pub(crate) fn mark_changed(&mut self) {
        self.saving.mark_changed();
    }

    pub(crate) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// Pushes what must not leave before the file has what it tells of.
    pub(crate) fn push_when_saved(&mut self, output: Output) {
        self.outputs.extend(self.saving.hold(self.now, output));
    }

    /// The file was written, or cannot be: what waited for that need not any more.
    pub(crate) fn release_held(&mut self, outcome: FileOutcome) {
        for held in self.saving.finish(outcome) {
            let is_stale = self.is_tilted || self.now.since(held.since) > self.timing.ask_every;
            self.push(held.release(is_stale));
        }
    }

    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(crate) fn tell(&mut self, kind: EventKind, text: String) {
        self.push(Output::Tell(Event { kind, text }));
    }

    pub(crate) fn run_script(&mut self, words: Vec<String>) {
        self.scripts.add(self.now, words);
    }

    /// Starts and ends scripts that are due.
    pub(crate) fn drive_scripts(&mut self, now: Moment) {
        for act in self.scripts.handle_time(now, &self.timing) {
            match act {
                ScriptAct::Start(id, words) => self.push(Output::StartScript { id, words }),
                ScriptAct::Kill(id, words, ran) => {
                    let path = words.first().map_or("", String::as_str);
                    let text = format!("{path} {}", ran.as_millis());
                    self.tell(EventKind::ScriptTimeout, text);
                    self.push(Output::KillScript(id));
                }
            }
        }
    }

    /// Where other sentinels reach this one, as seen over a connection.
    pub(crate) fn own_address(&self, slot: SlotId) -> Option<Address> {
        Some(Address { host: self.own_host(slot)?.to_owned(), port: self.own_port() })
    }

    fn own_host(&self, slot: SlotId) -> Option<&str> {
        let local = || self.links.get(slot).local_host.as_deref();
        self.globals.announce_ip.as_deref().or_else(local)
    }

    fn own_port(&self) -> u16 {
        self.globals.announce_port.unwrap_or(self.port)
    }

    /// Whether this sentinel is there itself, as far as it can see.
    pub(crate) fn is_own(&self, address: &Address) -> bool {
        let address = self.resolved(address);
        let is_here = |slot: SlotId| {
            self.links.get(slot).is_open() && self.own_host(slot) == Some(&*address.host)
        };
        address.port == self.own_port() && self.links.all().any(is_here)
    }

    /// Whether an epoch that another sentinel says leaves room for later ones. One that does not is
    /// told to the operator; the other one repeats it with every hello.
    pub(crate) fn believes(&mut self, epoch: u64, who: impl FnOnce() -> String) -> bool {
        const TOLD_EVERY: Duration = Duration::from_secs(60);
        if epoch::is_believed(self.current_epoch, epoch) {
            return true;
        }
        let now = self.now;
        if self.told_of_epoch_at.is_none_or(|at| now.since(at) >= TOLD_EVERY) {
            self.told_of_epoch_at = Some(now);
            self.push(Output::Advise(format!(
                "{} says that the epoch is {epoch}. That leaves no room for later failovers, so it \
                 is ignored. Stop that sentinel, replace all epochs in its file by those of \
                 another sentinel's file, and start it again",
                who()
            )));
        }
        false
    }

    /// This sentinel tells others that it is at this address.
    pub(crate) fn note_own_address(&mut self, address: &Address) {
        /// Networks from which this sentinel is seen, and addresses that it had before.
        const KEPT_MAX: usize = 32;
        if !self.own_addresses.contains(address) {
            self.own_addresses.push_back(address.clone());
            if self.own_addresses.len() > KEPT_MAX {
                self.own_addresses.pop_front();
            }
        }
    }

    /// A hello with this sentinel's own id. Its own ones come back from the servers; one from
    /// elsewhere is of a copy.
    pub(crate) fn watch_for_double(&mut self, at: &Address) {
        let is_own = |slot: SlotId| self.own_address(slot).as_ref() == Some(at);
        if self.own_addresses.contains(at) || self.links.all().any(is_own) {
            return;
        }
        let is_news = !self.has_double();
        self.double_seen_at = Some(self.now);
        if is_news {
            let id = &self.id;
            self.push(Output::Advise(format!(
                "another sentinel at {at} has the id {id} of this one, most likely from a copy of \
                 its file. Neither of them votes or leads a failover until this ends: stop one of \
                 them, remove the line `sentinel myid` from its file and start it again"
            )));
        }
    }

    /// One id comes from two addresses in turn.
    pub(crate) fn advise_on_alternation(&mut self, id: &RunId, places: [&Address; 2]) {
        const TOLD_EVERY: Duration = Duration::from_secs(60);
        let now = self.now;
        if self.told_of_double_at.is_none_or(|at| now.since(at) >= TOLD_EVERY) {
            self.told_of_double_at = Some(now);
            let [one, other] = places;
            self.push(Output::Advise(format!(
                "sentinels at {one} and at {other} have the id {id}; they count as one. If they \
                 are two, stop one of them, remove the line `sentinel myid` from its file and start \
                 it again. If it is one with two addresses, set `sentinel announce-ip` there"
            )));
        }
    }

    /// Others at one address cannot be asked, as this one or one of them would answer for all.
    pub(crate) fn advise_on_displaced(&mut self, id: &RunId, address: &Address) {
        let who = if self.is_own(address) { "this one" } else { "another one" };
        self.push(Output::Advise(format!(
            "the sentinel {id} says that it is at {address}, where {who} is. It counts for the \
             majority, but is asked nothing. Set `sentinel announce-ip` and `sentinel \
             announce-port` where sentinels do not see their own addresses; if it is gone for \
             good, use SENTINEL RESET"
        )));
    }

    /// Whether another sentinel with this one's id was seen lately. Nobody can tell their votes
    /// apart: both would lead in one epoch, or elect two others in one epoch.
    pub(crate) fn has_double(&self) -> bool {
        /// Two that are cut off from each other must not vote as soon as they are. It is longer
        /// than most take to hold a primary for down and to elect somebody.
        const REMEMBERED_FOR: Duration = Duration::from_secs(180);
        self.double_seen_at.is_some_and(|at| self.now.since(at) < REMEMBERED_FOR)
    }

    /// As others are told of an address: by name only if that is wanted.
    pub(crate) fn announced(&self, address: &Address) -> Address {
        match self.globals.announce_hostnames {
            true => address.clone(),
            false => self.resolved(address),
        }
    }

    /// An address by number, as far as the number of its name is known.
    pub(crate) fn resolved(&self, address: &Address) -> Address {
        let host = self.names.get(&address.host).unwrap_or(&address.host).clone();
        Address { host, port: address.port }
    }

    /// Whether others may send this sentinel there: names are looked up only where the operator
    /// allows names.
    pub(crate) fn may_reach(&self, address: &Address) -> bool {
        self.globals.resolve_hostnames || address.host.parse::<std::net::IpAddr>().is_ok()
    }

    /// Whether two addresses are one, whether by name or by number.
    pub(crate) fn is_same(&self, one: &Address, other: &Address) -> bool {
        let may_differ = !self.names.is_empty();
        one == other || may_differ && self.resolved(one) == self.resolved(other)
    }

    /// A connection is opened anew when it is to be used in another way.
    pub(crate) fn set_access(&mut self, id: SlotId, access: Access) {
        let slot = self.links.get_mut(id);
        if slot.access != access {
            slot.access = access;
            self.close(id);
        }
    }

    /// The login at other sentinels changed.
    pub(crate) fn log_in_anew(&mut self) {
        let access = Access { login: usable(self.globals.login.as_ref()), ..Access::default() };
        for slot in self.links.of_peers() {
            self.set_access(slot, access.clone());
        }
    }

    /// Opens a slot that is closed, once in a ping period.
    pub(crate) fn reconnect(&mut self, now: Moment, id: SlotId) {
        let rest = self.timing.ping_every;
        let slot = self.links.get(id);
        let is_due = slot.dialed_at.is_none_or(|at| now.since(at) >= rest);
        if slot.state == SlotState::Closed && is_due {
            let address = slot.address.clone();
            let link = self.links.begin(now, id);
            self.push(Output::Dial { link, address });
        }
    }

    /// Asks, when the connection is open and nothing would be told that the file lacks. Whether it
    /// was asked; who is not asks again with the next tick.
    pub(crate) fn ask(
        &mut self,
        id: SlotId,
        target: Target,
        asked: Asked,
        question: Question,
    ) -> bool {
        let Some(question) = self.saving.admit(question) else { return false };
        let slot = self.links.get_mut(id);
        let SlotState::Open(link) = slot.state else { return false };
        if slot.kind == SlotKind::Commands {
            let replies_left = question.replies();
            slot.pending.push_back(Pending { asked, target, replies_left });
        }
        self.push(Output::Send { link, question });
        true
    }

    pub(crate) fn ping(&mut self, now: Moment, id: SlotId, target: Target) {
        if self.ask(id, target, Asked::Ping, Question::Ping) {
            let slot = self.links.get_mut(id);
            slot.pinged_at = Some(now);
            slot.waiting_since.get_or_insert(now);
        }
    }

    /// Closes a connection from here; it is opened again later.
    pub(crate) fn close(&mut self, id: SlotId) {
        if let Some(link) = self.links.end(id) {
            self.push(Output::Close(link));
        }
    }

    /// A user of the slot is gone.
    pub(crate) fn release(&mut self, id: SlotId) {
        if let Some(link) = self.links.release(id) {
            self.push(Output::Close(link));
        }
    }
}
