//! What a user may do: passwords, and selectors of commands, keys and channels.

use std::collections::BTreeMap;

use crate::registry::{Registry, RowId};

/// Rows that a set of commands has bits for; a test keeps the table within.
pub(super) const ROWS_MAX: usize = 512;

/// A set of rows of the command table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandSet([u64; ROWS_MAX / 64]);

impl CommandSet {
    pub(super) const ALL: Self = Self([u64::MAX; ROWS_MAX / 64]);

    pub(super) fn has(&self, row: RowId) -> bool {
        self.0[row.index() / 64] & (1 << (row.index() % 64)) != 0
    }

    pub(super) fn set(&mut self, row: RowId, on: bool) {
        let bit = 1 << (row.index() % 64);
        let word = &mut self.0[row.index() / 64];
        if on { *word |= bit } else { *word &= !bit }
    }
}

/// Keys that match may be read, written, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPattern {
    pub(super) pattern: Vec<u8>,
    pub(super) read: bool,
    pub(super) write: bool,
}

/// One set of permissions; a request is admitted when one selector of the user admits all of it.
#[derive(Clone, Debug)]
pub(super) struct Selector {
    pub(super) commands: CommandSet,
    /// Every command, also those that are added later.
    pub(super) all_commands: bool,
    /// Whether the rules began with `+@all`: commands to come are allowed.
    pub(super) future_commands: bool,
    /// Commands allowed only with one of these first arguments.
    pub(super) first_args: BTreeMap<usize, Vec<Vec<u8>>>,
    pub(super) all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Vec<u8>>,
}

impl Selector {
    /// Nothing is allowed, but for channels if the setting says so.
    pub(super) fn new(all_channels: bool) -> Self {
        Self {
            commands: CommandSet::default(),
            all_commands: false,
            future_commands: false,
            first_args: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    /// Bytes of what it lists.
    fn listed_bytes(&self) -> usize {
        let text = |text: &Vec<u8>| text.capacity() + size_of::<Vec<u8>>();
        let first_args: usize = self.first_args.values().flatten().map(text).sum();
        let rows = self.first_args.len() * size_of::<(usize, Vec<Vec<u8>>)>();
        let key = |key: &KeyPattern| key.pattern.capacity() + size_of::<KeyPattern>();
        let keys: usize = self.keys.iter().map(key).sum();
        let channels: usize = self.channels.iter().map(text).sum();
        first_args + rows + keys + channels
    }

    pub(super) fn allow_all_commands(&mut self) {
        self.commands = CommandSet::ALL;
        (self.all_commands, self.future_commands) = (true, true);
        self.first_args.clear();
    }

    pub(super) fn deny_all_commands(&mut self) {
        self.commands = CommandSet::default();
        (self.all_commands, self.future_commands) = (false, false);
        self.first_args.clear();
    }

    /// Allows or denies a command and all its subcommands.
    pub(super) fn set_command(&mut self, registry: &Registry, row: RowId, allow: bool) {
        self.commands.set(row, allow);
        self.first_args.remove(&row.index());
        if !allow {
            self.all_commands = false;
        }
        for sub in registry.subcommands(row) {
            self.set_command(registry, sub, allow);
        }
    }
}

/// Whether payloads of RESTORE are checked for a user; told only where it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sanitize {
    Unsaid,
    Yes,
    Skip,
}

/// A user of the access control list.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(super) is_on: bool,
    pub(super) no_password: bool,
    pub(super) sanitize: Sanitize,
    /// SHA-256 in hexadecimal digits.
    pub(super) passwords: Vec<String>,
    pub(super) root: Selector,
    pub(super) selectors: Vec<Selector>,
}

impl User {
    /// A user that may do nothing yet.
    pub(super) fn new(all_channels: bool) -> Self {
        Self {
            is_on: false,
            no_password: false,
            sanitize: Sanitize::Unsaid,
            passwords: Vec::new(),
            root: Selector::new(all_channels),
            selectors: Vec::new(),
        }
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        let password = |password: &String| password.capacity() + size_of::<String>();
        let passwords: usize = self.passwords.iter().map(password).sum();
        let selectors = self.selectors.len() * size_of::<Selector>();
        let listed: usize = self.all_selectors().map(Selector::listed_bytes).sum();
        size_of::<Self>() + passwords + selectors + listed
    }

    /// A user that may do nothing yet, but for channels if the setting says so.
    pub(crate) fn new_with(rule_context: super::RuleContext<'_>) -> Self {
        Self::new(rule_context.all_channels)
    }

    /// The user `default` as it is before anybody changes it: it may do everything.
    pub(super) fn unrestricted() -> Self {
        let mut user = Self::new(true);
        (user.is_on, user.no_password) = (true, true);
        user.root.allow_all_commands();
        user.root.all_keys = true;
        user
    }

    pub(super) fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether the gates need not ask about this user.
    pub(crate) fn may_do_everything(&self) -> bool {
        self.root.all_commands && self.root.all_keys && self.root.all_channels
    }

    /// Whether nobody has to log in as this user.
    pub(crate) fn is_open(&self) -> bool {
        self.is_on && self.no_password
    }

    /// Whether the user has no password at all.
    pub(crate) fn needs_no_password(&self) -> bool {
        self.no_password
    }
}
