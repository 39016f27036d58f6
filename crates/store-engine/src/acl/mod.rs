//! Who may do what: users, the gate that asks about every request, logging in.
//!
//! ```text
//! words of ACL SETUSER, redis.conf, ACL file ─ rules ─► User ─ describe ─► the same words
//! request + User ─ check ─► Ok, or NOPERM and an entry in the log
//! ```
//! What cannot be told apart is denied: no rule, no keys found, no user.

mod check;
pub(crate) mod commands;
mod describe;
mod log;
mod rules;
mod sha256;
mod user;

use std::collections::BTreeMap;

pub(crate) use check::{
    allows_channels, check, check_queued, check_scripted, may_read_all_keys, verdict, verdict_of,
};
pub(crate) use describe::user_from_words;
pub(crate) use log::{Denial, DenialLog, Reason};
pub(crate) use rules::{RuleContext, has_space, merge_selectors};
pub(crate) use user::User;

use crate::commands::describe_client;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::registry::Registry;
use crate::session::session_flag;

/// The name of the user that sessions begin as.
pub(crate) const DEFAULT: &[u8] = b"default";
/// Users that can be kept; more can only mean harm.
pub(crate) const USERS_MAX: usize = 100_000;

/// All users and what was denied to them.
#[derive(Debug)]
pub struct Acl {
    users: BTreeMap<Vec<u8>, User>,
    /// Bytes of all of them.
    users_memory: usize,
    pub(crate) log: DenialLog,
    /// Whether nobody has to log in, as each turn of the server asks.
    is_open: bool,
    /// The `requirepass` that the user `default` was last given.
    seen_requirepass: String,
}

impl Default for Acl {
    fn default() -> Self {
        let users = BTreeMap::from([(DEFAULT.to_vec(), User::unrestricted())]);
        let (log, users_memory) = (DenialLog::default(), memory_of(&users));
        Self { users, users_memory, log, is_open: true, seen_requirepass: String::new() }
    }
}

impl Acl {
    pub(crate) fn user(&self, name: &[u8]) -> Option<&User> {
        self.users.get(name)
    }

    /// The user that sessions begin as.
    pub(crate) fn default_user(&self) -> &User {
        self.users.get(DEFAULT).expect("the user default is never removed")
    }

    /// Whether sessions may do something without logging in.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    fn note_default_user(&mut self) {
        self.is_open = self.default_user().is_open();
    }

    pub(crate) fn users(&self) -> &BTreeMap<Vec<u8>, User> {
        &self.users
    }

    /// Bytes of all users.
    #[inline]
    pub(crate) fn users_memory(&self) -> usize {
        self.users_memory
    }

    pub(crate) fn set_user(&mut self, name: &[u8], user: User) {
        self.users_memory += memory_of_one(name, &user);
        if let Some(before) = self.users.insert(name.to_vec(), user) {
            self.users_memory -= memory_of_one(name, &before);
        }
        self.note_default_user();
    }

    pub(crate) fn remove_user(&mut self, name: &[u8]) -> bool {
        if name == DEFAULT {
            return false;
        }
        let removed = self.users.remove(name);
        self.users_memory -= removed.as_ref().map_or(0, |user| memory_of_one(name, user));
        removed.is_some()
    }

    /// Replaces all users; `default` is as unrestricted as at the start unless it is among them.
    pub(crate) fn replace_users(&mut self, mut users: BTreeMap<Vec<u8>, User>) {
        users.entry(DEFAULT.to_vec()).or_insert_with(User::unrestricted);
        self.users_memory = memory_of(&users);
        self.users = users;
        self.note_default_user();
    }

    /// Gives the user `default` the password of a changed `requirepass`.
    pub(crate) fn follow_requirepass(&mut self, password: &str) {
        if self.seen_requirepass == password {
            return;
        }
        password.clone_into(&mut self.seen_requirepass);
        let registry = Registry::new();
        let rule_context = RuleContext { registry: &registry, all_channels: false };
        let user = self.users.entry(DEFAULT.to_vec()).or_insert_with(User::unrestricted);
        let password_rule = match password {
            "" => b"nopass".to_vec(),
            _ => format!(">{password}").into_bytes(),
        };
        for rule in [b"resetpass".to_vec(), password_rule] {
            user.apply(rule_context, &rule).expect("these rules are always understood");
        }
        self.users_memory = memory_of(&self.users);
        self.note_default_user();
    }

    /// All users as lines of a file.
    pub(crate) fn lines(&self, registry: &Registry) -> Vec<Vec<u8>> {
        let line = |(name, user): (&Vec<u8>, &User)| {
            [b"user ", name.as_slice(), b" ", &user.describe(registry)].concat()
        };
        self.users.iter().map(line).collect()
    }

    /// The same for who writes a file. Fails with the user that would be another one when the
    /// file is read: nothing may be written then.
    pub(crate) fn lines_for_file(
        &self,
        rule_context: RuleContext<'_>,
    ) -> Result<Vec<Vec<u8>>, String> {
        let unfit = |(name, user): &(&Vec<u8>, &User)| !reads_back(rule_context, name, user);
        match self.users.iter().find(unfit) {
            None => Ok(self.lines(rule_context.registry)),
            Some((name, _)) => Err(format!(
                "the user '{}' has a name or a rule that a file cannot keep, so nothing is written: \
                 remove the user or the rule, and try again",
                name.escape_ascii()
            )),
        }
    }
}

fn memory_of(users: &BTreeMap<Vec<u8>, User>) -> usize {
    users.iter().map(|(name, user)| memory_of_one(name, user)).sum()
}

fn memory_of_one(name: &[u8], user: &User) -> usize {
    size_of::<Vec<u8>>() + name.len() + user.memory()
}

/// Whether the words of a user in a file make the same user again.
fn reads_back(rule_context: RuleContext<'_>, name: &[u8], user: &User) -> bool {
    let text = user.describe(rule_context.registry);
    let is_text = |bytes: &[u8]| {
        let text = str::from_utf8(bytes).ok();
        text.is_some_and(|text| !text.chars().any(char::is_control))
    };
    let line = [b"user ", name, b" ", &text].concat();
    let Some(line) = str::from_utf8(&line).ok().filter(|_| is_text(name) && is_text(&text)) else {
        return false;
    };
    // By the way that the file takes, so that nothing is taken for the same that is not.
    let Ok(users) = parse_file(rule_context, "", line) else { return false };
    users.get(name).is_some_and(|read| read.describe(rule_context.registry) == text)
}

/// The users in the text of an ACL file. Fails with everything that is wrong with it.
pub(crate) fn parse_file(
    rule_context: RuleContext<'_>,
    path: &str,
    text: &str,
) -> Result<BTreeMap<Vec<u8>, User>, String> {
    let mut users = BTreeMap::new();
    let mut errors = String::new();
    for (index, line) in text.lines().enumerate() {
        // Other white space than this is a part of a rule.
        let (number, line) = (index + 1, line.trim_ascii());
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        match words.as_slice() {
            [b""] => {}
            [b"user", name, rules @ ..] => match user_from_words(rule_context, rules) {
                _ if has_space(name) || name.is_empty() => {
                    let name = String::from_utf8_lossy(name);
                    let what = format!("username '{name}' contains invalid characters. ");
                    errors.push_str(&format!("'{path}:{number}: {what}"));
                }
                _ if users.contains_key(*name) => {
                    let name = String::from_utf8_lossy(name);
                    let what = format!("Duplicate user '{name}' found on line {number}. ");
                    errors.push_str(&format!("WARNING: {what}"));
                }
                Ok(_) if users.len() >= USERS_MAX => errors.push_str("too many users. "),
                Ok(user) => _ = users.insert(name.to_vec(), user),
                Err((_, reason)) => errors.push_str(&format!("{path}:{number}: {reason}. ")),
            },
            _ => {
                let what = "should start with user keyword followed by the username. ";
                errors.push_str(&format!("{path}:{number} {what}"));
            }
        }
    }
    if errors.is_empty() {
        return Ok(users);
    }
    let end = "ACL errors detected, no change to the previously active ACL rules was performed";
    Err(format!("{errors}WARNING: {end}"))
}

/// Logs the session in. Fails when name and password do not match; `word` is the command that
/// was used, for the log.
pub(crate) fn authenticate(
    cx: &mut Context<'_>,
    word: &[u8],
    name: &[u8],
    password: &[u8],
) -> CommandResult {
    let admitted = cx.server.acl.user(name).is_some_and(|user| is_password_of(user, password));
    if !admitted {
        cx.server.stats.auth_failures += 1;
        add_to_log(cx, Reason::Auth, word, Some(name));
        let text = "WRONGPASS invalid username-password pair or user is disabled.";
        return Err(CommandError::text(text));
    }
    cx.session.user = name.to_vec();
    cx.session.flags &= !session_flag::NEEDS_AUTH;
    refresh(cx);
    Ok(())
}

fn is_password_of(user: &User, password: &[u8]) -> bool {
    if !user.is_on {
        return false;
    }
    let hash = sha256::hex_digest(password);
    let same = |known: &String| same(known.as_bytes(), hash.as_bytes());
    // All are looked at, so that the time tells nothing.
    let matches = user.passwords.iter().filter(|known| same(known)).count();
    user.no_password || matches > 0
}

/// Compares in a time that tells nothing of where two texts differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    let different = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && std::hint::black_box(different) == 0
}

/// Brings the running session's flag in line with its user.
pub(crate) fn refresh(cx: &mut Context<'_>) {
    let user = cx.server.acl.user(&cx.session.user);
    let is_restricted = !user.is_some_and(User::may_do_everything);
    cx.session.set_flag(session_flag::RESTRICTED, is_restricted);
}

/// Brings all sessions' flags in line with their users, the running one's too.
pub(crate) fn refresh_all(cx: &mut Context<'_>) {
    let acl = &cx.server.acl;
    for session in cx.server.sessions.iter_mut() {
        let is_restricted = !acl.user(&session.user).is_some_and(User::may_do_everything);
        session.set_flag(session_flag::RESTRICTED, is_restricted);
    }
    refresh(cx);
}

/// Adds to the log of denials.
pub(crate) fn add_to_log(cx: &mut Context<'_>, reason: Reason, object: &[u8], user: Option<&[u8]>) {
    /// Bytes of an object that are kept: a key may be as long as a request.
    const OBJECT_MAX: usize = 1024;
    use crate::context::Caller;
    let context = match cx.caller {
        Caller::Script => "lua",
        Caller::Transaction => "multi",
        Caller::Client | Caller::Resumed if cx.in_multi() => "multi",
        Caller::Client | Caller::Resumed => "toplevel",
    };
    let denial = Denial {
        count: 1,
        reason,
        context,
        object: object[..object.len().min(OBJECT_MAX)].to_vec(),
        user: user.unwrap_or(&cx.session.user).to_vec(),
        at_ms: cx.db.now_ms(),
        client: describe_client(cx.server, cx.session, cx.db.now_ms()),
    };
    let len_max = cx.server.config.settings().logs.acl_len_max;
    cx.server.acl.log.add(denial, len_max);
}
