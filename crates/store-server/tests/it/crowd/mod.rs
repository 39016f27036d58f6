//! A crowd of sessions on one seeded schedule: transactions, blocking, tracking, MONITOR, pauses,
//! channels, events, scripts, users and restarts across connections.
//!
//! One connection says one thing to both servers; then all that it caused has to arrive, so that
//! every answer is determined. Compared are replies and messages in their order per connection
//! after every request; now and then whatever the servers tell about themselves, and all keys;
//! and the keys again after restarts, on a server's own files and on those of the other.

mod control;
mod counts;
mod excepted;
mod order;
mod servers;
mod state;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime};

use store_resp::{Reply, split_quoted};
use testkit::Random;

use crate::connection::Arrived;
use crate::generate::{self, RESULT, commands_wanted_or, expand, seeds_wanted};

use excepted::Usage;
use servers::{Files, MAIN, Side};
use words::{
    CONNECTIONS, FAMILIES, Family, LEFT_OUT, NOT_BY_LISTENERS, NOT_WHILE_PAUSED, OTHER_FAMILIES,
    Part,
};

/// Requests per seed and protocol in the everyday run.
const REQUESTS: usize = 450;
/// Requests between two looks at what the servers tell about themselves.
const REQUESTS_PER_LOOK: usize = 100;
/// Parts of a run; between any two both servers are restarted.
const LIVES: usize = 3;
/// How long the other server may take to say what one has said. Ends a test; measures nothing.
const PATIENCE: Duration = Duration::from_secs(3);
/// Requests that are shown before a difference.
const STORY_MAX: usize = 60;
/// `%soon` is so far away at first, and at last. Long enough to be in the future when the request
/// is run.
const SOON: Duration = Duration::from_millis(40);
const SOON_MAX: Duration = Duration::from_millis(500);

#[test]
fn a_crowd_of_sessions_hears_the_same_from_both_servers() {
    let usage = Usage::new();
    let mut tried = BTreeMap::new();
    let mut differences = Vec::new();
    let mut crashes = 0;
    for (seed, protocol) in seeds().into_iter().flat_map(|seed| [(seed, 2), (seed, 3)]) {
        let (crowd, result) = Crowd::try_run(seed, protocol, Looks::NowAndThen, &usage);
        if let Err(difference) = result {
            differences.push(crowd.closer_story(&difference));
        }
        crashes += usize::from(crowd.theirs_crashed);
        for (family, count) in crowd.tried {
            *tried.entry(family).or_insert(0) += count;
        }
    }
    for family in FAMILIES {
        let count = tried.get(family.name).copied().unwrap_or(0);
        println!("{RESULT} crowd: {:<25} {count:>9} requests", family.name);
    }
    for line in usage.lines() {
        println!("{RESULT} not compared: {line}");
    }
    if crashes > 0 {
        println!("{RESULT} redis-server crashed in {crashes} runs: compared until then");
    }
    let (total, count) = (tried.values().sum::<usize>(), differences.len());
    println!("{RESULT} {:<32} {total:>9} compared {count:>4} differences", "a crowd");
    assert!(differences.is_empty(), "{count} differences\n{}", differences.join("\n"));
}

/// A few in the everyday run, unless so many are asked for.
fn seeds() -> Vec<u64> {
    const EVERYDAY: u64 = 3;
    match std::env::var_os("COMPAT_SEEDS").is_some() {
        true => seeds_wanted().collect(),
        false => (0..EVERYDAY).map(|offset| testkit::seed().wrapping_add(offset)).collect(),
    }
}

/// When to compare what the servers tell about themselves.
#[derive(Clone, Copy)]
enum Looks {
    NowAndThen,
    /// After every request behind the first so many.
    From(usize),
}

struct Crowd {
    seed: u64,
    protocol: u8,
    random: Random,
    ours: Side,
    theirs: Side,
    history: Vec<String>,
    /// Requests by family.
    tried: BTreeMap<&'static str, usize>,
    /// Who has not been answered yet, and is asked for nothing more meanwhile.
    waiting: BTreeSet<&'static str>,
    /// What CLIENT ID tells, equal on both sides.
    ids: BTreeMap<&'static str, i64>,
    /// Whether writes are paused.
    is_paused: bool,
    last_entry: usize,
    /// How far `%soon` is away.
    soon: Duration,
    /// Whether a request was run when its `%soon` was over, on a machine with other work to do.
    is_late: bool,
    /// How long one server may be behind the other.
    patience: Duration,
    /// Whether redis-server ended by a bug of its own: there is nothing to compare with then.
    theirs_crashed: bool,
}

impl Crowd {
    fn start(seed: u64, protocol: u8) -> Self {
        let mut random = Random::seeded(seed);
        let files = *random.choose(&[Files::Snapshot, Files::AppendOnly]);
        let mut crowd = Self {
            seed,
            protocol,
            random,
            ours: Side::ours(files),
            theirs: Side::theirs(files),
            history: Vec::new(),
            tried: BTreeMap::new(),
            waiting: BTreeSet::new(),
            ids: BTreeMap::new(),
            is_paused: false,
            last_entry: 0,
            soon: SOON,
            is_late: false,
            patience: PATIENCE,
            theirs_crashed: false,
        };
        crowd.begin_life();
        crowd
    }

    /// A run, and how it ended. One that was too slow for its times is begun anew with later ones.
    fn try_run(seed: u64, protocol: u8, looks: Looks, usage: &Usage) -> (Self, Result<(), String>) {
        let mut soon = SOON;
        loop {
            let mut crowd = Self::start(seed, protocol);
            crowd.soon = soon;
            let result = crowd.run(commands_wanted_or(REQUESTS), looks, usage);
            if !crowd.is_late || soon > SOON_MAX {
                return (crowd, result);
            }
            soon *= 2;
        }
    }

    /// The whole run. A server that does not answer ends it as a difference does.
    fn run(&mut self, requests: usize, looks: Looks, usage: &Usage) -> Result<(), String> {
        let work = AssertUnwindSafe(|| self.run_lives(requests, looks, usage));
        catch_unwind(work).unwrap_or_else(|panic| {
            let log = self.theirs.log();
            self.theirs_crashed = log.contains("REDIS BUG REPORT END");
            let text = panic.downcast_ref::<String>().map_or("it panicked", String::as_str);
            match self.theirs_crashed {
                true => Ok(()),
                false => Err(format!("{text}\n{log}")),
            }
        })
    }

    fn run_lives(&mut self, requests: usize, looks: Looks, usage: &Usage) -> Result<(), String> {
        for life in 0..LIVES {
            for at in 0..requests / LIVES {
                self.step(usage)?;
                let is_due = match looks {
                    Looks::NowAndThen => at % REQUESTS_PER_LOOK == REQUESTS_PER_LOOK - 1,
                    Looks::From(first) => self.history.len() > first,
                };
                if is_due {
                    self.look(usage)?;
                }
            }
            self.look(usage)?;
            if life + 1 < LIVES {
                self.restart(usage)?;
                state::compare_keys(&mut self.ours, &mut self.theirs, usage)
                    .map_err(|difference| format!("after the restart: {difference}"))?;
            }
        }
        Ok(())
    }

    /// The story of a difference, from a second run that looks after each of the last requests and
    /// so finds it where it begins; unless it is found no more.
    fn closer_story(&self, difference: &str) -> String {
        let looks = Looks::From(self.history.len().saturating_sub(REQUESTS_PER_LOOK));
        match Self::try_run(self.seed, self.protocol, looks, &Usage::new()) {
            (again, Err(closer)) => again.story(&closer),
            (_, Ok(())) => self.story(difference),
        }
    }

    /// What a difference came after.
    fn story(&self, difference: &str) -> String {
        let recent = self.history[self.history.len().saturating_sub(STORY_MAX)..].join("\n    ");
        let Self { seed, protocol, .. } = self;
        format!("crowd RESP{protocol}, seed {seed}, after\n    {recent}\n{difference}")
    }

    fn sides(&mut self) -> [&mut Side; 2] {
        [&mut self.ours, &mut self.theirs]
    }

    /// Compares what the servers tell about themselves, and all keys.
    fn look(&mut self, usage: &Usage) -> Result<(), String> {
        state::compare_facts(&mut self.ours, &mut self.theirs, usage)?;
        state::compare_keys(&mut self.ours, &mut self.theirs, usage)
    }

    /// Servers that have just started, made alike.
    fn begin_life(&mut self) {
        let [ours, theirs] = self.sides();
        while ours.id(MAIN) != theirs.id(MAIN) {
            let late = if ours.id(MAIN) < theirs.id(MAIN) { &mut *ours } else { &mut *theirs };
            // The next one gets the next number.
            late.forget(MAIN);
        }
        for side in self.sides() {
            // When an ended key is looked for depends on the moment; who asks for it does not. Of
            // those that had ended when files were loaded, either server may have removed some.
            side.ask_line("DEBUG SET-ACTIVE-EXPIRE 0");
            state::remove_ended_keys(side);
            for line in [
                "HELLO 3",
                "CONFIG SET notify-keyspace-events KEA",
                // Everything is slow, so that everything is logged.
                "CONFIG SET slowlog-log-slower-than 0",
                "CONFIG SET slowlog-max-len 100000",
                // Redis counts what it loaded from an append-only file as changes.
                "SAVE",
                "SLOWLOG RESET",
                "CONFIG RESETSTAT",
            ] {
                let reply = side.ask_line(line);
                assert!(!matches!(reply, Reply::Error(_)), "{}: {line}: {reply:?}", side.name);
            }
        }
    }

    /// Both servers end and come back, on their own files or on each other's.
    fn restart(&mut self, usage: &Usage) -> Result<(), String> {
        let swap = self.random.in_range(0..2) == 1;
        self.history.push(format!("(restart{})", if swap { " on each other's files" } else { "" }));
        for side in self.sides() {
            side.ask_line("CLIENT UNPAUSE");
        }
        self.settle(usage)?;
        for side in self.sides() {
            side.shut_down();
        }
        if swap {
            servers::swap_files(&self.ours, &self.theirs);
        }
        for side in self.sides() {
            side.start_again();
        }
        self.waiting.clear();
        self.ids.clear();
        self.is_paused = false;
        self.begin_life();
        Ok(())
    }

    /// One request of one connection.
    fn step(&mut self, usage: &Usage) -> Result<(), String> {
        let family = self.choose_family();
        let speakers: Vec<&'static str> = CONNECTIONS
            .iter()
            .filter(|(name, part)| family.parts.contains(part) && !self.waiting.contains(name))
            .map(|(name, _)| *name)
            .collect();
        if speakers.is_empty() {
            return Ok(());
        }
        let name = *self.random.choose::<&'static str>(&speakers);
        let text = match family.templates {
            [] => self.any_command(),
            templates => expand(self.random.choose::<&str>(templates), &mut self.random),
        };
        let is_of = |list: &[&str]| list.iter().any(|front| text.starts_with(front));
        let is_listener = part_of(name) == Part::Listener;
        if self.is_paused && is_of(NOT_WHILE_PAUSED) || is_listener && is_of(NOT_BY_LISTENERS) {
            return Ok(());
        }
        self.is_paused = match &*text {
            "CLIENT PAUSE 100000 WRITE" => true,
            "CLIENT UNPAUSE" => false,
            _ => self.is_paused,
        };
        *self.tried.entry(family.name).or_insert(0) += 1;
        self.say(name, &text, usage)
    }

    /// A line of the families that one session tries.
    fn any_command(&mut self) -> String {
        let name: &str = self.random.choose::<&str>(OTHER_FAMILIES);
        let family = generate::FAMILIES.iter().find(|family| family.name == name);
        let family = family.expect("a family of this name");
        loop {
            let line = family.line(&mut self.random);
            let is_left_out = |word: &str| LEFT_OUT.contains(&word) || word.starts_with('@');
            if !line.split(' ').any(is_left_out) && words::counts_its_keys_well(&line) {
                return line;
            }
        }
    }

    fn choose_family(&mut self) -> &'static Family {
        let total = FAMILIES.iter().map(|family| family.weight).sum();
        let mut at = self.random.in_range(0..total);
        let mut families = FAMILIES.iter();
        loop {
            let family = families.next().expect("the weights make the total");
            match at.checked_sub(family.weight) {
                Some(rest) => at = rest,
                None => return family,
            }
        }
    }

    /// A connection says this to both servers, and all that follows from it arrives.
    fn say(&mut self, name: &'static str, text: &str, usage: &Usage) -> Result<(), String> {
        self.open(name);
        let soon = SystemTime::now() + self.soon;
        let text = self.fill_in(text, soon);
        self.history.push(format!("{name}: {text}"));
        let words = split_quoted(text.as_bytes()).expect("balanced quotes");
        if part_of(name) == Part::Worker {
            self.waiting.insert(name);
        }
        for side in self.sides() {
            side.connection(name).send(&words);
        }
        let result = self.settle(usage);
        if text.contains(&milliseconds(soon)) {
            self.is_late = SystemTime::now() >= soon;
            if self.is_late {
                let difference = result.err().unwrap_or_default();
                return Err(format!("too late for a time that was set; {difference}"));
            }
            result?;
            // A millisecond more than it takes, on either server's clock.
            while SystemTime::now() < soon + Duration::from_millis(2) {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Ok(());
        }
        result
    }

    /// The words that only this crowd's templates have.
    fn fill_in(&mut self, text: &str, soon: SystemTime) -> String {
        let mut text = text.replace("%soon", &milliseconds(soon));
        if text.contains(" * ") {
            self.last_entry += 1;
            text = text.replace(" * ", &format!(" {}-1 ", self.last_entry));
        }
        for (name, _) in CONNECTIONS {
            let id = self.ids.get(name).copied().unwrap_or(99_999);
            text = text.replace(&format!("%{name}"), &id.to_string());
        }
        text.replace('⟨', "[").replace('⟩', "]").replace('«', "{").replace('»', "}")
    }

    /// Opens a connection on both sides, unless it is open.
    fn open(&mut self, name: &'static str) {
        if self.ours.is_open(name) {
            return;
        }
        let protocol = self.protocol;
        let ids = self.sides().map(|side| {
            let id = side.id(name);
            if protocol == 3 {
                side.connection(name).words("HELLO 3");
            }
            id
        });
        assert_eq!(ids[0], ids[1], "numbers of connection {name}");
        self.ids.insert(name, ids[0]);
    }

    /// Waits until everything that the last request caused has arrived, and compares it.
    fn settle(&mut self, usage: &Usage) -> Result<(), String> {
        // Once a request on another connection is answered, what came before it has been run. A
        // reply may wake sessions whose own output follows in the next turn.
        for _ in 0..2 {
            for side in self.sides() {
                side.ask_line("PING");
            }
        }
        for (name, _) in CONNECTIONS {
            self.compare_news(name, usage)?;
        }
        Ok(())
    }

    fn compare_news(&mut self, name: &'static str, usage: &Usage) -> Result<(), String> {
        let patience_ends_at = Instant::now() + self.patience;
        loop {
            for side in self.sides() {
                side.listen(name);
            }
            let [ours, theirs] = [&self.ours, &self.theirs].map(|side| side.news.get(name));
            let (Some(our_news), Some(their_news)) = (ours, theirs) else { return Ok(()) };
            if is_same(our_news, their_news, usage) {
                break;
            }
            // A connection's end may follow a moment after what was written.
            if Instant::now() > patience_ends_at || !may_follow(our_news, their_news) {
                return Err(format!("{name}\n    ours   {ours:?}\n    theirs {theirs:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let news = self.ours.news.remove(name).unwrap_or_default();
        self.theirs.news.remove(name);
        if news.is_closed {
            for side in self.sides() {
                side.forget(name);
            }
            self.ids.remove(name);
        }
        let is_message = |reply: &Reply| matches!(reply, Reply::Push(_));
        if news.is_closed || !news.replies.iter().all(is_message) {
            self.waiting.remove(name);
        }
        Ok(())
    }
}

fn part_of(name: &str) -> Part {
    CONNECTIONS.iter().find(|(other, _)| *other == name).expect("one of the crowd").1
}

fn milliseconds(moment: SystemTime) -> String {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    since.as_millis().to_string()
}

/// What comes on a connection, apart from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Reply,
    Message,
    Invalidation,
}

impl Kind {
    fn of(reply: &Reply) -> Self {
        let (Reply::Push(items) | Reply::Array(items)) = reply else { return Self::Reply };
        match items.first() {
            Some(Reply::Bulk(name)) => match name.as_slice() {
                b"message" if items.get(1) == Some(&Reply::Bulk(INVALIDATE.to_vec())) => {
                    Self::Invalidation
                }
                b"message" | b"pmessage" | b"smessage" => Self::Message,
                b"invalidate" => Self::Invalidation,
                _ => Self::Reply,
            },
            _ => Self::Reply,
        }
    }
}

/// The channel of invalidations in RESP2.
const INVALIDATE: &[u8] = b"__redis__:invalidate";

/// The order within a kind must be the same; that between kinds, too, but for the list.
fn is_same(ours: &Arrived, theirs: &Arrived, usage: &Usage) -> bool {
    if ours.is_closed != theirs.is_closed {
        return false;
    }
    if texts(&ours.replies) == texts(&theirs.replies) {
        return true;
    }
    let by_kind = |arrived: &Arrived| {
        let mut replies = arrived.replies.clone();
        replies.sort_by_key(Kind::of);
        texts(&replies)
    };
    by_kind(ours) == by_kind(theirs) && usage.hides("messages", "order between kinds")
}

/// Whether one side is only behind the other.
fn may_follow(ours: &Arrived, theirs: &Arrived) -> bool {
    let is_longer = |one: &Arrived, other: &Arrived| {
        let others = texts(&other.replies);
        texts(&one.replies).iter().filter(|text| others.contains(text)).count() == others.len()
    };
    is_longer(ours, theirs) || is_longer(theirs, ours)
}

/// The order of replies and messages is that of the server, but for what one message brings to
/// several patterns: Redis looks through them in the order of a random hash.
fn texts(replies: &[Reply]) -> Vec<String> {
    let mut texts: Vec<String> = replies.iter().map(|it| format!("{it:?}")).collect();
    let is_by_pattern: Vec<bool> = replies.iter().map(is_by_pattern).collect();
    let mut at = 0;
    for run in is_by_pattern.chunk_by(|one, other| one == other) {
        if run[0] {
            texts[at..at + run.len()].sort();
        }
        at += run.len();
    }
    texts
}

fn is_by_pattern(reply: &Reply) -> bool {
    match reply {
        Reply::Push(items) | Reply::Array(items) => {
            items.first() == Some(&Reply::Bulk(b"pmessage".to_vec()))
        }
        _ => false,
    }
}
