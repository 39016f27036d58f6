//! The words that make up a user: `on`, `>password`, `~key*`, `&channel`, `+command`, `(…)`.

use super::sha256;
use super::user::{KeyPattern, Sanitize, Selector, User};
use crate::command::category;
use crate::registry::Registry;

/// Rules of one kind that one user or selector may have; more can only mean harm.
const RULES_MAX: usize = 10_000;

/// Why a rule was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    Syntax,
    UnknownCommand,
    KeysAfterAll,
    ChannelsAfterAll,
    NoSuchPassword,
    BadHash,
    FirstArgOfSubcommand,
    TooMany,
}

impl RuleError {
    /// In the words of Redis.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Syntax => "Syntax error",
            Self::UnknownCommand => "Unknown command or category name in ACL",
            Self::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                 does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid \
                 and does not have any effect. Try 'resetchannels' to start with an empty list of \
                 channels"
            }
            Self::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Self::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            Self::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            Self::TooMany => "Too many rules",
        }
    }
}

/// What rules are read against.
#[derive(Clone, Copy)]
pub(crate) struct RuleContext<'a> {
    pub(crate) registry: &'a Registry,
    /// `acl-pubsub-default allchannels`: whether new selectors may use all channels.
    pub(crate) all_channels: bool,
}

/// Joins the words of a selector that was given in several: `(~a` `+get)`. Fails with the
/// place of a parenthesis that does not close.
pub(crate) fn merge_selectors(words: &[&[u8]]) -> Result<Vec<Vec<u8>>, usize> {
    let mut merged: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (at, word) in words.iter().enumerate() {
        if let Some((_, selector)) = &mut open {
            selector.push(b' ');
            selector.extend_from_slice(word);
            if word.ends_with(b")") {
                merged.extend(open.take().map(|(_, selector)| selector));
            }
        } else if word.starts_with(b"(") && !word.ends_with(b")") {
            open = Some((at, word.to_vec()));
        } else {
            merged.push(word.to_vec());
        }
    }
    match open {
        Some((at, _)) => Err(at),
        None => Ok(merged),
    }
}

impl User {
    /// Applies one rule. A failed one may have changed a part: work on a copy.
    pub(crate) fn apply(
        &mut self,
        rule_context: RuleContext<'_>,
        rule: &[u8],
    ) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("skip-sanitize-payload") => self.sanitize = Sanitize::Skip,
            _ if is("sanitize-payload") => self.sanitize = Sanitize::Yes,
            _ if is("nopass") || is("resetpass") => {
                self.no_password = is("nopass");
                self.passwords.clear();
            }
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => {
                *self = User::new(rule_context.all_channels);
                self.sanitize = Sanitize::Yes;
            }
            [b'>', password @ ..] => self.add_password(sha256::hex_digest(password))?,
            [b'#', hash @ ..] => self.add_password(checked_hash(hash)?)?,
            [b'<', password @ ..] => self.remove_password(&sha256::hex_digest(password))?,
            [b'!', hash @ ..] => self.remove_password(&checked_hash(hash)?)?,
            [b'(', inner @ .., b')'] => {
                bounded(self.selectors.len())?;
                self.selectors.push(Selector::parse(rule_context, inner)?);
            }
            _ => self.root.apply(rule_context, rule)?,
        }
        Ok(())
    }

    fn add_password(&mut self, hash: String) -> Result<(), RuleError> {
        bounded(self.passwords.len())?;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.no_password = false;
        Ok(())
    }

    fn remove_password(&mut self, hash: &str) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == hash);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }
}

fn bounded(count: usize) -> Result<(), RuleError> {
    if count < RULES_MAX { Ok(()) } else { Err(RuleError::TooMany) }
}

fn checked_hash(hash: &[u8]) -> Result<String, RuleError> {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if hash.len() != 64 || !hash.iter().all(is_hex) {
        return Err(RuleError::BadHash);
    }
    Ok(String::from_utf8_lossy(hash).into_owned())
}

impl Selector {
    /// The rules between parentheses.
    fn parse(rule_context: RuleContext<'_>, inner: &[u8]) -> Result<Self, RuleError> {
        let words = store_resp::split_quoted(inner).ok_or(RuleError::Syntax)?;
        let mut selector = Selector::new(rule_context.all_channels);
        for word in words {
            selector.apply(rule_context, &word)?;
        }
        Ok(selector)
    }

    fn apply(&mut self, rule_context: RuleContext<'_>, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || is("~*") || is("resetkeys") => {
                self.all_keys = !is("resetkeys");
                self.keys.clear();
            }
            _ if is("allchannels") || is("&*") || is("resetchannels") => {
                self.all_channels = !is("resetchannels");
                self.channels.clear();
            }
            _ if is("allcommands") || is("+@all") => self.allow_all_commands(),
            _ if is("nocommands") || is("-@all") => self.deny_all_commands(),
            [b'~', pattern @ ..] => self.add_keys(pattern, (true, true))?,
            [b'%', rest @ ..] => {
                let (pattern, permissions) = parse_permissions(rest)?;
                self.add_keys(pattern, permissions)?;
            }
            [b'&', pattern @ ..] => self.add_channel(pattern)?,
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                self.set_category(rule_context.registry, name, *sign == b'+')?;
            }
            [b'+', name @ ..] => self.allow_command(rule_context.registry, name)?,
            [b'-', name @ ..] => {
                let row =
                    rule_context.registry.find_original(name).ok_or(RuleError::UnknownCommand)?;
                self.set_command(rule_context.registry, row, false);
            }
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn add_keys(&mut self, pattern: &[u8], (read, write): (bool, bool)) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::KeysAfterAll);
        }
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        bounded(self.keys.len())?;
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.read |= read;
                known.write |= write;
            }
            None => self.keys.push(KeyPattern { pattern: pattern.to_vec(), read, write }),
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::ChannelsAfterAll);
        }
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        bounded(self.channels.len())?;
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    pub(super) fn set_category(
        &mut self,
        registry: &Registry,
        name: &[u8],
        allow: bool,
    ) -> Result<(), RuleError> {
        let named = |known: &&(u32, &str)| name.eq_ignore_ascii_case(known.1.as_bytes());
        let (bit, _) = category::NAMES.iter().find(named).ok_or(RuleError::UnknownCommand)?;
        for row in registry.ids() {
            if category::of(registry.row(row).command) & bit != 0 {
                self.set_command(registry, row, allow);
            }
        }
        Ok(())
    }

    fn allow_command(&mut self, registry: &Registry, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let row = registry.find_original(name).ok_or(RuleError::UnknownCommand)?;
            self.set_command(registry, row, true);
            return Ok(());
        };
        let (parent, sub) = (&name[..bar], &name[bar + 1..]);
        let row = registry.find_original(parent).ok_or(RuleError::UnknownCommand)?;
        if registry.row(row).parent.is_some() {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        // It stands between spaces in files, as text.
        if sub.is_empty() || has_space(sub) || str::from_utf8(sub).is_err() {
            return Err(RuleError::Syntax);
        }
        if !registry.row(row).command.subcommands.is_empty() {
            let row = registry.find_subcommand(row, sub).ok_or(RuleError::UnknownCommand)?;
            self.set_command(registry, row, true);
            return Ok(());
        }
        let allowed = self.first_args.entry(row.index()).or_default();
        bounded(allowed.len())?;
        if !allowed.iter().any(|known| known.eq_ignore_ascii_case(sub)) {
            allowed.push(sub.to_vec());
        }
        Ok(())
    }
}

/// `R~pattern`, `W~pattern` or `RW~pattern`.
fn parse_permissions(rest: &[u8]) -> Result<(&[u8], (bool, bool)), RuleError> {
    let (mut read, mut write) = (false, false);
    for (at, byte) in rest.iter().enumerate() {
        match byte.to_ascii_uppercase() {
            b'R' if !read => read = true,
            b'W' if !write => write = true,
            b'~' if read || write => return Ok((&rest[at + 1..], (read, write))),
            _ => return Err(RuleError::Syntax),
        }
    }
    // Without a pattern it is about the empty key.
    if read || write { Ok((b"", (read, write))) } else { Err(RuleError::Syntax) }
}

/// Names and patterns stand between spaces in files, so they have none.
pub(crate) fn has_space(text: &[u8]) -> bool {
    text.iter().any(|byte| *byte == 0 || byte.is_ascii_whitespace() || *byte == 0x0b)
}
