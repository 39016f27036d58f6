//! From a call to the scripts that carry it out, with their keys and arguments.

use std::ops::Range;
use std::time::Duration;

use tenure_core::protocol::{Acquire, Ballot, Call, Request, TickId, TickOutcome, WishKind};
use tenure_core::{InstanceId, Resource, Token, record_text};

use super::scripts::Script;
use super::text::unescaped;

/// The most history entries that one answer carries.
const HISTORY_LISTED_MAX: usize = 1000;
/// The longest name of a tick, in bytes: it becomes part of a key.
const TICK_NAME_LEN_MAX: usize = 512;
/// The longest pause that is written: a forgotten one ends at last.
const PAUSE_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How much longer than a lease a heartbeat for other programs is kept, as they keep theirs.
const HEARTBEAT_OUTLASTS: Duration = Duration::from_secs(5);

/// Where an attempt's arguments say whether the store is known to be fresh.
const FRESH_STORE: usize = 4;
/// No, and its age is no sign of it either.
const AGE_SAYS_NOTHING: &str = "-";
/// Where they say whether replicas must confirm it.
const AWAITS_REPLICAS: usize = 12;

/// One script run. The store's answer carries `number` back.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) script: Script,
    pub(super) number: u64,
    keys: Texts,
    caller: Option<InstanceId>,
    channel: Box<str>,
    fleet_max_ttl: Duration,
    arguments: Texts,
}

/// Several texts in two allocations: thousands of steps may wait at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Texts {
    bytes: Vec<u8>,
    /// Where each text ends.
    ends: Vec<usize>,
}

impl Texts {
    fn of<T: AsRef<[u8]>>(texts: &[T]) -> Self {
        let mut all = Texts {
            bytes: Vec::with_capacity(texts.iter().map(|text| text.as_ref().len()).sum()),
            ends: Vec::with_capacity(texts.len()),
        };
        for text in texts {
            all.bytes.extend_from_slice(text.as_ref());
            all.ends.push(all.bytes.len());
        }
        all
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn range(&self, index: usize) -> Range<usize> {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        begin..self.ends[index]
    }

    fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.range(index)]
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    fn replace(&mut self, index: usize, text: &[u8]) {
        let mut texts: Vec<&[u8]> = self.iter().collect();
        texts[index] = text;
        *self = Texts::of(&texts);
    }
}

impl Step {
    /// A step that belongs to no election.
    pub(super) fn anonymous(
        script: Script,
        number: u64,
        keys: Vec<String>,
        arguments: Vec<Vec<u8>>,
    ) -> Self {
        let (keys, arguments) = (Texts::of(&keys), Texts::of(&arguments));
        let (channel, fleet_max_ttl) = (Box::default(), Duration::ZERO);
        Step { script, number, keys, caller: None, channel, fleet_max_ttl, arguments }
    }

    /// The keys that it touches, in the order of the script.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter()
    }

    /// Makes it publish to the shard that has its keys, rather than to all nodes of a cluster.
    pub(super) fn publish_in_shard(&mut self) {
        if !self.channel.is_empty() {
            // No name contains a space: see the scripts' prelude.
            self.channel = format!("shard {}", self.channel).into();
        }
    }

    /// Whether its answer promises something that a failover must not take back: a term, a tick
    /// that does not run again, a fence, a pause, a term that an operator ended. Where a mode lets
    /// them, replicas have a say in that. Not so what only saves others from waiting (release,
    /// transfer, abandon: the lease ends by itself), nor wishes, whose outcome is looked for.
    pub(super) fn is_for_replicas(&self) -> bool {
        use Script::{Acquire, Adopt, Clear, Fence, Pause, Renew, TickBegin, TickFinish};
        matches!(
            self.script,
            Acquire | Renew | Adopt | TickBegin | TickFinish | Fence | Pause | Clear
        )
    }

    /// Makes it an attempt that is no term before replicas have it. No server's age counts then:
    /// see [`Mode::Strict`](super::mode::Mode::Strict).
    pub(super) fn await_replicas(&mut self) {
        if self.script != Script::Acquire {
            return;
        }
        self.arguments.replace(AWAITS_REPLICAS, &flag(true));
        self.distrust_age();
    }

    /// Makes the age of a server say nothing about a resource that it has no record of: it may
    /// have been flushed, or have received the keys of a slot a moment ago.
    pub(super) fn distrust_age(&mut self) {
        if self.script == Script::Acquire && self.arguments.get(FRESH_STORE) == flag(false) {
            self.arguments.replace(FRESH_STORE, AGE_SAYS_NOTHING.as_bytes());
        }
    }

    /// The command that runs it: by digest where the connection has run it before.
    pub(super) fn command(&self, by_digest: bool, seen_run: &str) -> redis::Cmd {
        let mut command = redis::cmd(if by_digest { "EVALSHA" } else { "EVAL" });
        command.arg(if by_digest { self.script.digest() } else { self.script.source() });
        command.arg(self.keys.len());
        for key in self.keys.iter() {
            command.arg(key);
        }
        let caller = self.caller.as_ref().map_or("", InstanceId::as_str);
        command.arg(self.number).arg(caller).arg(seen_run).arg(&*self.channel);
        command.arg(millis(&self.fleet_max_ttl));
        for argument in self.arguments.iter() {
            command.arg(argument);
        }
        command
    }
}

/// The steps of a call in order: the first one's answer counts, a second is a courtesy. `Err` says
/// what about the request cannot be carried out by this store.
pub(super) fn steps(call: &Call, next_number: impl Fn() -> u64) -> Result<Vec<Step>, String> {
    let step = |script, keys: Vec<String>, arguments: Vec<Vec<u8>>| Step {
        caller: Some(call.id.clone()),
        channel: channel(&call.resource).into(),
        fleet_max_ttl: call.fleet_max_ttl,
        ..Step::anonymous(script, next_number(), keys, arguments)
    };
    let (script, keys, arguments) = plan(call)?;
    let mut steps = vec![step(script, keys, arguments)];
    if script == Script::Release {
        steps.push(step(Script::Note, keys_with_members(&call.resource), Vec::new()));
    }
    if let (Some(kept), Some(key)) = (heartbeat_kept(&call.request), heartbeat_key(call)) {
        let keys = vec![call.resource.key().to_owned(), call.resource.side_key("meta"), key];
        steps.push(step(Script::Herald, keys, vec![millis(&kept)]));
    }
    Ok(steps)
}

/// The step that makes a grant, which replicas have confirmed, a term that others see.
pub(super) fn confirmation(call: &Call, token: Token, number: u64) -> Step {
    let resource = &call.resource;
    let keys =
        vec![resource.key().to_owned(), resource.side_key("meta"), resource.side_key("history")];
    Step {
        caller: Some(call.id.clone()),
        channel: channel(resource).into(),
        fleet_max_ttl: call.fleet_max_ttl,
        ..Step::anonymous(Script::Confirm, number, keys, vec![decimal(token.get())])
    }
}

fn heartbeat_key(call: &Call) -> Option<String> {
    call.resource.heartbeat_key(&call.id)
}

/// How long a heartbeat for other programs is kept after a request; `None` where none is due.
fn heartbeat_kept(request: &Request) -> Option<Duration> {
    match request {
        // The heartbeat is a leader's: there is none to announce yet.
        Request::Acquire(Acquire { ballot: Ballot::Propose, .. }) => None,
        Request::Acquire(Acquire { ttl, .. })
        | Request::Renew { ttl, .. }
        | Request::Adopt { ttl, .. } => Some(*ttl + HEARTBEAT_OUTLASTS),
        Request::Release { .. }
        | Request::Transfer { .. }
        | Request::PassOn { .. }
        | Request::Abandon { .. } => Some(Duration::ZERO),
        _ => None,
    }
}

/// The channel on which hints about a resource are published.
pub(super) fn channel(resource: &Resource) -> String {
    resource.side_key("events")
}

type Plan = (Script, Vec<String>, Vec<Vec<u8>>);

fn plan(call: &Call) -> Result<Plan, String> {
    let resource = &call.resource;
    let lease = || vec![resource.key().to_owned(), resource.side_key("meta")];
    let history = || with(lease(), resource.side_key("history"));
    let members = || keys_with_members(resource);
    Ok(match &call.request {
        Request::Acquire(acquire) => (Script::Acquire, members(), acquire_arguments(acquire)),
        Request::Renew { token, ttl, fleet_max_ttl } => {
            (Script::Renew, lease(), vec![number(token), millis(ttl), millis(fleet_max_ttl)])
        }
        Request::Adopt { token, ttl, fleet_max_ttl } => {
            (Script::Adopt, lease(), vec![number(token), millis(ttl), millis(fleet_max_ttl)])
        }
        Request::PassOn { token, to, claim_ttl } => {
            let arguments = vec![number(token), unescaped(to.as_str()), millis(claim_ttl)];
            (Script::PassOn, history(), arguments)
        }
        Request::Release { token, reason } => {
            (Script::Release, lease(), vec![number(token), text(reason.as_str())])
        }
        Request::Abandon { attempt } => (Script::Abandon, history(), vec![decimal(*attempt)]),
        Request::Transfer { token, to, claim_ttl } => {
            let arguments = vec![number(token), unescaped(to.as_str()), millis(claim_ttl)];
            (Script::Transfer, history(), arguments)
        }
        Request::Observe { members: lists } => (Script::Observe, members(), vec![flag(*lists)]),
        Request::Beat { record, members: lists } => {
            let arguments = vec![
                text(&record_text::encode(record)),
                flag(record.ready),
                millis(&record.ttl),
                flag(*lists),
            ];
            (Script::Beat, members(), arguments)
        }
        Request::Leave => (Script::Leave, members(), Vec::new()),
        Request::Ask { token, wish, stands_for } => {
            let (word, to) = match wish {
                WishKind::Resign => ("resign", ""),
                WishKind::HandOver { to } => ("hand-over", to.as_str()),
            };
            (Script::Ask, lease(), vec![number(token), text(word), text(to), millis(stands_for)])
        }
        Request::Refuse { token, reason } => {
            (Script::Refuse, lease(), vec![number(token), text(reason)])
        }
        Request::Pause { lasts } => {
            let lasts = (*lasts).clamp(Duration::from_millis(1), PAUSE_MAX);
            (Script::Pause, lease(), vec![millis(&lasts)])
        }
        Request::Resume => (Script::Pause, lease(), vec![decimal(0)]),
        Request::Clear { reason, quarantine } => {
            (Script::Clear, history(), vec![text(reason), millis(quarantine)])
        }
        Request::History { count } => (
            Script::History,
            history(),
            vec![decimal((*count).clamp(1, HISTORY_LISTED_MAX) as u64)],
        ),
        _ => return tick_plan(call, lease()),
    })
}

fn tick_plan(call: &Call, lease: Vec<String>) -> Result<Plan, String> {
    let key_of = |tick| tick_key(&call.resource, tick);
    Ok(match &call.request {
        Request::TickBegin { token, tick, rerun_crashed } => {
            let (key, tick) = key_of(tick)?;
            let arguments = vec![tick, number(token), flag(*rerun_crashed)];
            (Script::TickBegin, with(lease, key), arguments)
        }
        Request::TickFinish { token, tick, outcome, keep } => {
            let (key, tick) = key_of(tick)?;
            let outcome = match outcome {
                TickOutcome::Succeeded => text("ok"),
                TickOutcome::Failed(words) => text(&format!("failed {words}")),
            };
            let keep = (*keep).max(Duration::from_millis(1));
            (
                Script::TickFinish,
                with(lease, key),
                vec![tick, number(token), outcome, millis(&keep)],
            )
        }
        Request::TickReopen { token, tick } => {
            let (key, tick) = key_of(tick)?;
            // No outcome: it never started.
            let arguments = vec![tick, number(token), Vec::new(), decimal(1)];
            (Script::TickFinish, with(lease, key), arguments)
        }
        Request::TickLook { tick } => {
            let (key, tick) = key_of(tick)?;
            (Script::TickLook, with(lease, key), vec![tick])
        }
        other => return Err(format!("this store does not know the request {other:?}")),
    })
}

fn acquire_arguments(acquire: &Acquire) -> Vec<Vec<u8>> {
    vec![
        decimal(acquire.attempt),
        millis(&acquire.ttl),
        millis(&acquire.fleet_max_ttl),
        decimal(acquire.floor.map_or(0, Token::get)),
        past(acquire),
        millis(&acquire.lock_delay),
        flag(acquire.heal.is_some()),
        acquire.heal.as_ref().map(|id| unescaped(id.as_str())).unwrap_or_default(),
        text(&record_text::encode(&acquire.record)),
        flag(acquire.record.ready),
        flag(acquire.members),
        match acquire.ballot {
            Ballot::Alone => Vec::new(),
            Ballot::Propose => text("p"),
            Ballot::Settle(token) => number(&token),
        },
        flag(false),
    ]
}

/// Why a store without a record may be believed: the user, its age, or nothing.
fn past(acquire: &Acquire) -> Vec<u8> {
    match (acquire.fresh_store, acquire.age_counts) {
        (false, false) => text(AGE_SAYS_NOTHING),
        (is_fresh, _) => flag(is_fresh),
    }
}

/// Key and argument of a tick: numbered ones share a key, named ones have one each.
fn tick_key(resource: &Resource, tick: &TickId) -> Result<(String, Vec<u8>), String> {
    match tick {
        TickId::Number(number) => numbered_tick_key(resource, *number, 0),
        TickId::Period { number, period } => {
            let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
            if !(1..=Token::MAX.get()).contains(&micros) {
                return Err(format!("a tick's period of {period:?} cannot be counted"));
            }
            numbered_tick_key(resource, *number, micros)
        }
        TickId::Named(name) if name.is_empty() || name.len() > TICK_NAME_LEN_MAX => Err(format!(
            "a tick's name must have 1 to {TICK_NAME_LEN_MAX} bytes, this one has {}",
            name.len()
        )),
        TickId::Named(name) => Ok((resource.side_key(&format!("tick:{name}")), Vec::new())),
    }
}

fn numbered_tick_key(
    resource: &Resource,
    number: u64,
    period: u64,
) -> Result<(String, Vec<u8>), String> {
    if number > Token::MAX.get() {
        return Err(format!(
            "tick number {number} exceeds {}: count from a later start",
            Token::MAX
        ));
    }
    Ok((resource.side_key("ticks"), text(&format!("{number}@{period}"))))
}

fn keys_with_members(resource: &Resource) -> Vec<String> {
    let mut keys = vec![resource.key().to_owned()];
    keys.extend(["meta", "history", "beats", "members"].map(|suffix| resource.side_key(suffix)));
    keys
}

fn with(mut keys: Vec<String>, key: String) -> Vec<String> {
    keys.push(key);
    keys
}

fn number(token: &Token) -> Vec<u8> {
    decimal(token.get())
}

fn decimal(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// Whole milliseconds, rounded up: a lease of half a millisecond must not become none.
pub(super) fn millis(duration: &Duration) -> Vec<u8> {
    let millis = duration.as_nanos().div_ceil(1_000_000).min(u128::from(Token::MAX.get()));
    millis.to_string().into_bytes()
}

fn flag(value: bool) -> Vec<u8> {
    text(if value { "1" } else { "0" })
}

fn text(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}
