//! Finds the row of a command by name, and counts calls per row.

use crate::command::{Command, flag};
use crate::commands;
use crate::latency::Histogram;
use crate::sentinel;

/// Slots of the lookup table: four per command, so that probes are short.
const SLOTS: usize = 1024;

/// Counters of one row, as INFO commandstats tells them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallStats {
    /// Times it ran.
    pub calls: u64,
    /// Microseconds it took in all.
    pub micros: u64,
    /// Times a gate refused it.
    pub rejected: u64,
    /// Times it ran and failed.
    pub failed: u64,
}

/// A row of the table with its counters.
#[derive(Debug)]
pub struct Row {
    /// The row.
    pub command: &'static Command,
    /// The row it is a subcommand of.
    pub parent: Option<RowId>,
    /// The name with its parent's: `get`, `config|get`.
    pub full_name: String,
    /// What clients call it: its name unless `rename-command` says otherwise, and empty when
    /// they may not.
    called: String,
    /// Its counters.
    pub stats: CallStats,
    /// How long it took, once it ran.
    pub histogram: Option<Histogram>,
    first_subcommand: u16,
}

/// Names a row of a [`Registry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowId(u16);

impl RowId {
    /// Any row: stands where none is known yet.
    pub(crate) const FIRST: Self = Self(0);

    /// Its place in the table, for sets of rows.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// All rows, found by name in any case.
#[derive(Debug)]
pub struct Registry {
    rows: Vec<Row>,
    /// Indexes into `rows` plus one; zero is free. Commands only, not subcommands.
    slots: Box<[u16]>,
    /// Which bytes the names of commands that may run a script begin with.
    script_letters: Box<[bool; 256]>,
    /// What clients call SHUTDOWN by.
    shutdown_name: Box<[u8]>,
    /// What clients call those by that tell the offset of the stream.
    offset_names: Vec<Box<[u8]>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// All commands of the table.
    pub fn new() -> Self {
        Self::of(commands::TABLES.iter().copied().flatten())
    }

    /// The commands of a sentinel.
    pub(crate) fn of_sentinel() -> Self {
        let shared = commands::TABLES.iter().copied().flatten();
        Self::of(shared.filter(|row| row.has(flag::SENTINEL)).chain(sentinel::TABLE))
    }

    fn of(commands: impl Iterator<Item = &'static Command>) -> Self {
        let slots = vec![0; SLOTS].into_boxed_slice();
        let script_letters = Box::new([false; 256]);
        let mut registry = Self {
            rows: Vec::new(),
            slots,
            script_letters,
            shutdown_name: Box::default(),
            offset_names: Vec::new(),
        };
        for command in commands {
            registry.add(command);
        }
        registry.find_special_names();
        registry
    }

    fn add(&mut self, command: &'static Command) {
        let id = self.push(command, None);
        self.take_slot(id);
        self.rows[usize::from(id.0)].first_subcommand = id.0 + 1;
        for subcommand in command.subcommands {
            self.push(subcommand, Some(id));
        }
    }

    fn take_slot(&mut self, id: RowId) {
        let mut slot = slot_of(self.row(id).called.as_bytes());
        while self.slots[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        self.slots[slot] = id.0 + 1;
    }

    /// Gives a command another name, or none at all. Fails with the reason when there is no
    /// such command, or the name is taken.
    pub(crate) fn rename(&mut self, name: &str, new_name: &str) -> Result<(), &'static str> {
        let id = self.find(name.as_bytes()).ok_or("No such command in rename-command")?;
        if !new_name.is_empty() && self.find(new_name.as_bytes()).is_some() {
            return Err("Target command name already exists");
        }
        self.rows[id.index()].called = new_name.to_owned();
        self.slots.fill(0);
        let is_called = |id: &RowId| !self.row(*id).called.is_empty();
        let called: Vec<RowId> = self.commands().filter(is_called).collect();
        called.into_iter().for_each(|id| self.take_slot(id));
        self.find_special_names();
        Ok(())
    }

    fn find_special_names(&mut self) {
        self.script_letters.fill(false);
        let runs_scripts = |id: &RowId| {
            let command = self.row(*id).command;
            [command].into_iter().chain(command.subcommands).any(|row| row.has(flag::RUNS_SCRIPTS))
        };
        let names = self.commands().filter(runs_scripts).map(|id| &self.row(id).called);
        let letters: Vec<u8> = names.filter_map(|name| name.bytes().next()).collect();
        for letter in letters {
            self.script_letters[usize::from(letter.to_ascii_lowercase())] = true;
            self.script_letters[usize::from(letter.to_ascii_uppercase())] = true;
        }
        let ends_server = |row: &&Row| row.command.has(flag::ENDS_SERVER);
        let shutdown = self.commands().map(|id| self.row(id)).find(ends_server);
        self.shutdown_name = shutdown.map_or(Box::default(), |row| row.called.as_bytes().into());
        let tells_offset = |row: &&Row| row.command.has(flag::TELLS_OFFSET);
        let tellers = self.commands().map(|id| self.row(id)).filter(tells_offset);
        self.offset_names = tellers.map(|row| row.called.as_bytes().into()).collect();
    }

    /// Whether the command that clients call by this name tells the offset of the stream.
    #[inline]
    pub(crate) fn tells_offset(&self, name: &[u8]) -> bool {
        self.offset_names.iter().any(|teller| name.eq_ignore_ascii_case(teller))
    }

    /// Whether the command that clients call by this name may run a script, or is the one that ends
    /// the server. Says so of some others, too: it looks at one byte and the length, since every
    /// request is asked about.
    #[inline]
    pub(crate) fn needs_busy_handler(&self, name: &[u8]) -> bool {
        name.first().is_some_and(|letter| self.script_letters[usize::from(*letter)])
            || name.eq_ignore_ascii_case(&self.shutdown_name)
    }

    fn push(&mut self, command: &'static Command, parent: Option<RowId>) -> RowId {
        let full_name = match parent {
            Some(parent) => format!("{}|{}", self.row(parent).full_name, command.name),
            None => command.name.to_owned(),
        };
        let stats = CallStats::default();
        self.rows.push(Row {
            command,
            parent,
            full_name,
            called: command.name.to_owned(),
            stats,
            histogram: None,
            first_subcommand: 0,
        });
        RowId((self.rows.len() - 1) as u16)
    }

    /// The row of a name that clients use, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<RowId> {
        let mut slot = slot_of(name);
        loop {
            let index = self.slots[slot].checked_sub(1)?;
            if self.rows[usize::from(index)].called.as_bytes().eq_ignore_ascii_case(name) {
                return Some(RowId(index));
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// The row of a second word, in any case.
    pub fn find_subcommand(&self, parent: RowId, name: &[u8]) -> Option<RowId> {
        let same = |row: &Command| row.name.as_bytes().eq_ignore_ascii_case(name);
        let offset = self.row(parent).command.subcommands.iter().position(same)?;
        Some(RowId(self.row(parent).first_subcommand + offset as u16))
    }

    /// The row of `name`, or of `name|subname`.
    pub fn find_full(&self, name: &[u8]) -> Option<RowId> {
        match name.iter().position(|byte| *byte == b'|') {
            None => self.find(name),
            Some(at) => self.find_subcommand(self.find(&name[..at])?, &name[at + 1..]),
        }
    }

    /// The row of `name`, or of `name|subname`, whatever clients call it: users and their rules
    /// know commands by the names of the table.
    pub(crate) fn find_original(&self, name: &[u8]) -> Option<RowId> {
        let same = |id: &RowId| self.row(*id).full_name.as_bytes().eq_ignore_ascii_case(name);
        self.find_full(name).filter(same).or_else(|| self.ids().find(same))
    }

    /// The row of a command by its name in the table, in any case, whatever clients call it.
    pub(crate) fn find_by_table_name(&self, name: &[u8]) -> Option<RowId> {
        let same = |id: &RowId| {
            let row = self.row(*id);
            row.parent.is_none() && row.command.name.as_bytes().eq_ignore_ascii_case(name)
        };
        self.find(name).filter(same).or_else(|| self.commands().find(same))
    }

    /// The name in the table of a command, or of the parent of a subcommand, when clients call
    /// it otherwise.
    pub(crate) fn table_name_if_renamed(&self, id: RowId) -> Option<&'static str> {
        let row = self.row(self.row(id).parent.unwrap_or(id));
        (row.called != row.command.name).then_some(row.command.name)
    }

    /// A row.
    #[inline]
    pub fn row(&self, id: RowId) -> &Row {
        &self.rows[usize::from(id.0)]
    }

    /// The counters of a row.
    #[inline]
    pub fn stats_mut(&mut self, id: RowId) -> &mut CallStats {
        &mut self.rows[usize::from(id.0)].stats
    }

    /// The subcommands of a row.
    pub fn subcommands(&self, id: RowId) -> impl Iterator<Item = RowId> + use<> {
        let row = self.row(id);
        let count = row.command.subcommands.len() as u16;
        (row.first_subcommand..row.first_subcommand + count).map(RowId)
    }

    /// All rows, each command before its subcommands.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// All rows by name, each command before its subcommands.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RowId> + use<> {
        (0..self.rows.len() as u16).map(RowId)
    }

    /// The names of all commands that are not subcommands.
    pub fn commands(&self) -> impl Iterator<Item = RowId> {
        self.ids().filter(|id| self.row(*id).parent.is_none())
    }

    /// The histogram of a row's durations.
    #[inline]
    pub(crate) fn histogram_mut(&mut self, id: RowId) -> &mut Histogram {
        self.rows[usize::from(id.0)].histogram.get_or_insert_default()
    }

    /// Forgets the durations of all rows.
    pub(crate) fn reset_histograms(&mut self) {
        for row in &mut self.rows {
            row.histogram = None;
        }
    }

    /// Sets all counters to zero.
    pub fn reset_stats(&mut self) {
        for row in &mut self.rows {
            row.stats = CallStats::default();
            row.histogram = None;
        }
    }
}

/// The slot where a name is looked for first. Case and length up to eight bytes come for free
/// by reading the name in one or two words.
#[inline]
fn slot_of(name: &[u8]) -> usize {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    let (first, last) = match *name {
        [] => (0, 0),
        [a] => (u64::from(a), 0),
        [a, b] => (u64::from(a) << 8 | u64::from(b), 0),
        [a, b, c] => (u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c), 0),
        [a, b, c, d, ..] if name.len() < 8 => {
            let tail = name.last_chunk::<4>().expect("four bytes are there");
            (u64::from(u32::from_le_bytes([a, b, c, d])), u64::from(u32::from_le_bytes(*tail)))
        }
        _ => {
            let head = name.first_chunk::<8>().expect("eight bytes are there");
            let tail = name.last_chunk::<8>().expect("eight bytes are there");
            (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
        }
    };
    let mixed = ((first | LOWER) ^ (last | LOWER).rotate_left(23)).wrapping_add(name.len() as u64);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        let registry = Registry::new();
        for id in registry.commands() {
            let name = registry.row(id).command.name;
            assert_eq!(registry.find(name.as_bytes()), Some(id));
            assert_eq!(registry.find(name.to_uppercase().as_bytes()), Some(id), "{name}");
            assert_eq!(registry.find(format!("{name}!").as_bytes()), None);
            for sub in registry.subcommands(id) {
                let full = registry.row(sub).full_name.clone();
                assert_eq!(registry.find_full(full.as_bytes()), Some(sub), "{full}");
            }
        }
        for absent in [&b""[..], b"x", b"nosuchcommand", &[0xff; 100]] {
            assert_eq!(registry.find(absent), None);
        }
    }

    #[test]
    fn a_renamed_command_is_found_by_its_new_name_only() {
        let mut registry = Registry::new();
        let id = registry.find(b"flushall").unwrap();
        registry.rename("FLUSHALL", "wipe").unwrap();
        assert_eq!((registry.find(b"flushall"), registry.find(b"WIPE")), (None, Some(id)));
        assert_eq!(registry.find_original(b"flushall"), Some(id));
        registry.rename("wipe", "").unwrap();
        assert_eq!((registry.find(b"wipe"), registry.find(b"")), (None, None));
        assert!(registry.rename("flushall", "x").is_err());
        assert!(registry.rename("get", "set").is_err());
        assert!(registry.find(b"get").is_some());
    }

    #[test]
    fn a_renamed_command_that_needs_the_driver_is_known_as_one() {
        let mut registry = Registry::new();
        assert!(registry.needs_busy_handler(b"EVAL") && registry.needs_busy_handler(b"exec"));
        assert!(
            registry.needs_busy_handler(b"function") && !registry.needs_busy_handler(b"luarun")
        );
        registry.rename("eval", "luarun").unwrap();
        assert!(registry.needs_busy_handler(b"luarun") && registry.needs_busy_handler(b"LUARUN"));
        assert!(registry.needs_busy_handler(b"ShutDown") && !registry.needs_busy_handler(b"bye"));
        registry.rename("shutdown", "bye").unwrap();
        assert!(registry.needs_busy_handler(b"bye") && !registry.needs_busy_handler(b"shutdown"));
        for name in ["get", "set", "ping", "hset", "incr", "zadd", "mget", ""] {
            assert!(!registry.needs_busy_handler(name.as_bytes()), "{name} is spared");
        }
    }

    #[test]
    fn probes_stay_short() {
        let registry = Registry::new();
        let mut longest = 0;
        let mut run = 0;
        for slot in &registry.slots {
            run = if *slot == 0 { 0 } else { run + 1 };
            longest = longest.max(run);
        }
        assert!(longest <= 8, "{longest} slots in a row are taken");
    }
}
