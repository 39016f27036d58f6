//! ACL: users, and what they may do.

use crate::acl::{self, Reason, RuleContext, USERS_MAX, User, has_space, merge_selectors, verdict};
use crate::commands::prelude::*;
use crate::effects::ServerRequest;
use crate::key_finder;
use crate::session::{SessionId, session_flag};
use crate::state::ServerState;

pub(crate) const TABLE: &[Command] = &[Command::container("acl", ACL_SUBCOMMANDS)
    .also(SENTINEL)
    .docs(Group::Server, "6.0.0", "O(1)", "Users, and what they may do.")];

const PLAIN: u32 = NO_SCRIPT | LOADING | STALE;

const ACL_SUBCOMMANDS: &[Command] = &[
    Command::new("cat", AtLeast(2), PLAIN, acl_cat)
        .docs(Group::Server, "6.0.0", "O(1)", "Categories of commands, or the commands of one.")
        .arguments("?categoryname#s"),
    Command::new("deluser", AtLeast(3), ADMIN | PLAIN, acl_deluser)
        .docs(Group::Server, "6.0.0", "O(1)", "Removes users and closes their connections.")
        .arguments("*username#s"),
    Command::new("dryrun", AtLeast(4), ADMIN | PLAIN, acl_dryrun)
        .docs(Group::Server, "7.0.0", "O(1)", "Whether a user may run a command.")
        .arguments("username#s command#s ?*arg#s"),
    Command::new("genpass", AtLeast(2), PLAIN, acl_genpass)
        .docs(Group::Server, "6.0.0", "O(1)", "A password that nobody can guess.")
        .arguments("?bits#i"),
    Command::new("getuser", Exactly(3), ADMIN | PLAIN, acl_getuser)
        .docs(Group::Server, "6.0.0", "O(N)", "The rules of a user.")
        .arguments("username#s")
        .history(&[
            ("6.2.0", "Tells the channels."),
            ("7.0.0", "Tells selectors, and patterns as rules instead of lists."),
        ]),
    Command::new("help", Exactly(2), LOADING | STALE, acl_help).docs(
        Group::Server,
        "6.0.0",
        "O(1)",
        "What the subcommands do.",
    ),
    Command::new("list", Exactly(2), ADMIN | PLAIN, acl_list).docs(
        Group::Server,
        "6.0.0",
        "O(N)",
        "All users with their rules.",
    ),
    Command::new("load", Exactly(2), ADMIN | PLAIN, acl_load).docs(
        Group::Server,
        "6.0.0",
        "O(N)",
        "Reads the users from the ACL file.",
    ),
    Command::new("log", AtLeast(2), ADMIN | PLAIN, acl_log)
        .docs(Group::Server, "6.0.0", "O(N)", "What was denied recently.")
        .arguments("?operation#o(count#i reset#t=RESET)"),
    Command::new("save", Exactly(2), ADMIN | PLAIN, acl_save).docs(
        Group::Server,
        "6.0.0",
        "O(N)",
        "Writes the users to the ACL file.",
    ),
    Command::new("setuser", AtLeast(3), ADMIN | PLAIN, acl_setuser)
        .secrets_found_by(|request| (2..request.len()).collect())
        .docs(Group::Server, "6.0.0", "O(N)", "Makes or changes a user.")
        .arguments("username#s ?*rule#s")
        .history(&[
            ("6.2.0", "Takes channels."),
            ("7.0.0", "Takes selectors, and kinds of access to keys."),
        ]),
    Command::new("users", Exactly(2), ADMIN | PLAIN, acl_users).docs(
        Group::Server,
        "6.0.0",
        "O(N)",
        "The names of all users.",
    ),
    Command::new("whoami", Exactly(2), PLAIN, acl_whoami).docs(
        Group::Server,
        "6.0.0",
        "O(1)",
        "The user of this connection.",
    ),
];

pub(crate) fn rule_context(server: &ServerState) -> RuleContext<'_> {
    let all_channels = server.config.settings().clients.has_all_channels;
    RuleContext { registry: &server.registry, all_channels }
}

fn acl_setuser(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let name = request.arg(2);
    if has_space(name) {
        let text = "ERR Usernames can't contain spaces or null characters";
        return Err(CommandError::text(text));
    }
    if name.is_empty() {
        // Redis takes it, and then writes a file that it cannot read.
        return Err(CommandError::text("ERR Usernames can't be empty"));
    }
    let words: Vec<&[u8]> = request.args_from(3).collect();
    let rules = merge_selectors(&words).map_err(|at| {
        let word = String::from_utf8_lossy(words[at]);
        let text = "ERR Unmatched parenthesis in acl selector starting at";
        CommandError::new(format!("{text} '{word}'."))
    })?;
    let context = rule_context(cx.server);
    let known = cx.server.acl.user(name);
    if known.is_none() && cx.server.acl.users().len() >= USERS_MAX {
        return Err(CommandError::text("ERR too many users"));
    }
    let mut user = known.cloned().unwrap_or_else(|| User::new_with(context));
    for rule in rules {
        user.apply(context, &rule).map_err(|error| {
            let rule = String::from_utf8_lossy(&rule);
            let text = format!("ERR Error in ACL SETUSER modifier '{rule}': {}", error.text());
            CommandError::new(text)
        })?;
    }
    close_deaf_listeners(cx, name, &user);
    cx.server.acl.set_user(name, user);
    acl::refresh_all(cx);
    cx.reply.ok();
    Ok(())
}

/// Closes connections of a user that listen to what it may no longer hear.
fn close_deaf_listeners(cx: &mut Context<'_>, name: &[u8], user: &User) {
    let is_deaf = |session: &crate::session::Session| {
        let held = session.subscriptions.as_deref();
        session.user == name && held.is_some_and(|held| !acl::allows_channels(user, held))
    };
    let deaf: Vec<SessionId> =
        cx.server.sessions.iter().filter(|other| is_deaf(other)).map(|other| other.id).collect();
    for id in deaf {
        crate::commands::client::kill(cx.db, cx.server, id);
    }
    if is_deaf(cx.session) {
        close_own(cx);
    }
}

fn close_own(cx: &mut Context<'_>) {
    cx.session.flags |= session_flag::CLOSING;
    cx.server.effects.requests.push(ServerRequest::CloseAfterOutput(cx.session.id));
}

fn acl_deluser(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if request.args_from(2).any(|name| name == acl::DEFAULT) {
        return Err(CommandError::text("ERR The 'default' user cannot be removed"));
    }
    let removed: Vec<&[u8]> =
        request.args_from(2).filter(|name| cx.server.acl.remove_user(name)).collect();
    close_sessions_of(cx, |user| removed.contains(&user));
    cx.reply.count(removed.len());
    Ok(())
}

fn close_sessions_of(cx: &mut Context<'_>, is_gone: impl Fn(&[u8]) -> bool) {
    let others = cx.server.sessions.iter().filter(|other| is_gone(&other.user));
    let ids: Vec<SessionId> = others.map(|other| other.id).collect();
    for id in ids {
        crate::commands::client::kill(cx.db, cx.server, id);
    }
    if is_gone(&cx.session.user) {
        close_own(cx);
    }
}

fn acl_getuser(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let Some(user) = cx.server.acl.user(request.arg(2)) else {
        cx.reply.null();
        return Ok(());
    };
    let flags = user.flags();
    let reply = &mut cx.reply;
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.password_hashes().len());
    user.password_hashes().iter().for_each(|hash| reply.bulk(hash.as_bytes()));
    let described = user.described_selectors(&cx.server.registry);
    for (at, selector) in described.iter().enumerate() {
        // The first is the user's own; the others stand in an array behind it.
        if at > 0 {
            reply.map(3);
        }
        reply.bulk(b"commands");
        reply.bulk(selector.commands.as_bytes());
        reply.bulk(b"keys");
        reply.bulk(&selector.keys);
        reply.bulk(b"channels");
        reply.bulk(&selector.channels);
        if at == 0 {
            reply.bulk(b"selectors");
            reply.array(described.len() - 1);
        }
    }
    Ok(())
}

fn acl_list(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let lines = cx.server.acl.lines(&cx.server.registry);
    cx.reply.array(lines.len());
    lines.iter().for_each(|line| cx.reply.bulk(line));
    Ok(())
}

fn acl_users(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let users = cx.server.acl.users();
    cx.reply.array(users.len());
    users.keys().for_each(|name| cx.reply.bulk(name));
    Ok(())
}

fn acl_whoami(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.bulk(&cx.session.user);
    Ok(())
}

fn acl_cat(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let registry = &cx.server.registry;
    match request.len() {
        2 => {
            cx.reply.array(category::NAMES.len());
            category::NAMES.iter().for_each(|(_, name)| cx.reply.bulk(name.as_bytes()));
        }
        3 => {
            let wanted = request.arg(2);
            let found = category::NAMES.iter().find(|(_, name)| is_word(wanted, name));
            let (bit, _) = found.ok_or_else(|| {
                let name = String::from_utf8_lossy(&wanted[..wanted.len().min(128)]);
                CommandError::new(format!("ERR Unknown category '{name}'"))
            })?;
            let is_of = |row: &&crate::registry::Row| category::of(row.command) & bit != 0;
            let rows: Vec<_> = registry.rows().iter().filter(is_of).collect();
            cx.reply.array(rows.len());
            rows.iter().for_each(|row| cx.reply.bulk(row.full_name.as_bytes()));
        }
        _ => return Err(crate::commands::help::wrong_arguments("ACL", request)),
    }
    Ok(())
}

fn acl_genpass(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    const BITS_MAX: i64 = 4096;
    let bits = match request.len() {
        2 => 256,
        3 => integer(request.arg(2))?,
        _ => return Err(crate::commands::help::wrong_arguments("ACL", request)),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(CommandError::new(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up to {BITS_MAX}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut secret = vec![0; digits.div_ceil(2)];
    if !cx.server.platform.fill_secret(&mut secret) {
        return Err(CommandError::text("ERR this server has no source of secrets"));
    }
    let mut text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    cx.reply.bulk(text.as_bytes());
    Ok(())
}

fn acl_log(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let count = match request.len() {
        2 => 10,
        3 if is_word(request.arg(2), "RESET") => {
            cx.server.acl.log.clear();
            cx.reply.ok();
            return Ok(());
        }
        3 => integer(request.arg(2))?.max(0) as usize,
        _ => return Err(crate::commands::help::wrong_arguments("ACL", request)),
    };
    let (log, now_ms, reply) = (&cx.server.acl.log, cx.db.now_ms(), &mut cx.reply);
    reply.array(count.min(log.len()));
    for denial in log.iter().take(count) {
        reply.map(7);
        reply.bulk(b"count");
        reply.integer(denial.count as i64);
        reply.bulk(b"reason");
        reply.bulk(denial.reason.name().as_bytes());
        reply.bulk(b"context");
        reply.bulk(denial.context.as_bytes());
        reply.bulk(b"object");
        reply.bulk(&denial.object);
        reply.bulk(b"username");
        reply.bulk(&denial.user);
        reply.bulk(b"age-seconds");
        reply.double(now_ms.saturating_sub(denial.at_ms) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(denial.client.as_bytes());
    }
    Ok(())
}

fn acl_dryrun(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let lossy = |arg: &[u8]| String::from_utf8_lossy(arg).into_owned();
    let Some(user) = cx.server.acl.user(request.arg(2)) else {
        let text = format!("ERR User '{}' not found", lossy(request.arg(2)));
        return Err(CommandError::new(text));
    };
    let (registry, inner) = (&cx.server.registry, request.skip(3));
    let row = registry.find(inner.arg(0)).and_then(|row| match inner.get(1) {
        Some(word) if !registry.row(row).command.subcommands.is_empty() => {
            registry.find_subcommand(row, word)
        }
        _ => Some(row),
    });
    let Some(row) = row else {
        let text = format!("ERR Command '{}' not found", lossy(inner.arg(0)));
        return Err(CommandError::new(text));
    };
    let name = &registry.row(row).full_name;
    if !registry.row(row).command.arity.admits(inner.len()) {
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(CommandError::new(text));
    }
    let makes_sense = key_finder::keys_of(registry.row(row).command, inner).is_some();
    let denied = match verdict(user, registry, row, inner) {
        // A real run is denied, though it could only fail. Redis finds no key that is forbidden.
        Err(denied) if denied.reason != Reason::Key || makes_sense => denied,
        _ => {
            cx.reply.ok();
            return Ok(());
        }
    };
    let what = match denied.reason {
        Reason::Key => format!("access the '{}' key", lossy(inner.arg(denied.arg))),
        Reason::Channel => format!("access the '{}' channel", lossy(inner.arg(denied.arg))),
        Reason::Command | Reason::Auth => format!("run the '{name}' command"),
    };
    cx.reply.bulk(format!("This user has no permissions to {what}").as_bytes());
    Ok(())
}

fn acl_load(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    check_has_file(cx)?;
    load_acl_file(cx.server).map_err(|reason| CommandError::new(format!("ERR {reason}")))?;
    // Others than `default` are new users of old names: whoever was logged in is not them.
    close_sessions_of(cx, |user| user != acl::DEFAULT);
    acl::refresh_all(cx);
    cx.reply.ok();
    Ok(())
}

fn acl_save(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    check_has_file(cx)?;
    let lines = cx.server.acl.lines_for_file(rule_context(cx.server));
    let lines = lines.map_err(|reason| CommandError::new(format!("ERR {reason}")))?;
    let mut text = lines.join(&b'\n');
    text.push(b'\n');
    let path = cx.server.config.settings().clients.acl_file.as_str();
    if let Err(reason) = cx.server.platform.write_file(path, &text) {
        let line = format!("Writing ACL file for ACL SAVE: {reason}");
        cx.server.effects.requests.push(ServerRequest::Log(line));
        return Err(CommandError::text(
            "ERR There was an error trying to save the ACLs. Please check the server logs for \
             more information",
        ));
    }
    cx.reply.ok();
    Ok(())
}

fn check_has_file(cx: &Context<'_>) -> CommandResult {
    if !cx.server.config.settings().clients.acl_file.is_empty() {
        return Ok(());
    }
    Err(CommandError::text(
        "ERR This Redis instance is not configured to use an ACL file. You may want to specify \
         users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a \
         Redis configuration file set) in order to store users in the Redis configuration.",
    ))
}

/// Replaces all users by those of the ACL file. Fails with everything that is wrong with it,
/// and changes nothing then.
pub(crate) fn load_acl_file(server: &mut ServerState) -> Result<(), String> {
    let path = server.config.settings().clients.acl_file.clone();
    if path.is_empty() {
        return Ok(());
    }
    let text = server
        .platform
        .read_file(&path)
        .map_err(|reason| format!("Error loading ACLs, opening file '{path}': {reason}"))?;
    let users = acl::parse_file(rule_context(server), &path, &text)?;
    if users.is_empty() {
        // ACL SAVE always writes a user: what has none was emptied, by accident or not.
        return Err(format!(
            "the ACL file '{path}' has no user, and would let everybody do everything. Restore it \
             from a backup; if everybody may, write this line into it: user default on nopass ~* \
             &* +@all"
        ));
    }
    server.acl.replace_users(users);
    Ok(())
}

/// Makes the users of the configuration, whose rules were checked when it was read.
pub(crate) fn load_configured_users(server: &mut ServerState) {
    let lines = server.config.users().to_vec();
    for line in &lines {
        let [name, rules @ ..] = line.as_slice() else { continue };
        let rules: Vec<&[u8]> = rules.iter().map(String::as_bytes).collect();
        if let Ok(user) = acl::user_from_words(rule_context(server), &rules) {
            server.acl.set_user(name.as_bytes(), user);
        }
    }
}

fn acl_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    crate::commands::help::reply(
        cx,
        "ACL",
        &[
            ("CAT [<category>]", "Categories of commands, or the commands of one."),
            ("DELUSER <username> [<username> ...]", "Remove users."),
            ("DRYRUN <username> <command> [<arg> ...]", "Whether a user may run a command."),
            ("GETUSER <username>", "The rules of a user."),
            ("GENPASS [<bits>]", "A password that nobody can guess."),
            ("LIST", "All users with their rules."),
            ("LOAD", "Read the users from the ACL file."),
            ("LOG [<count> | RESET]", "What was denied recently."),
            ("SAVE", "Write the users to the ACL file."),
            ("SETUSER <username> <attribute> [<attribute> ...]", "Make or change a user."),
            ("USERS", "The names of all users."),
            ("WHOAMI", "The user of this connection."),
        ],
    );
    Ok(())
}
