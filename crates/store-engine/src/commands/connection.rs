//! The connection itself: greeting, login, database, name.

use store_resp::Protocol;

use super::prelude::*;
use super::secrets;
use super::transaction::end_transaction;
use crate::acl;
use crate::effects::ServerRequest;
use crate::session::session_flag;

const ALWAYS: u32 = NO_SCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY;
/// What sentinels have, too.
const EVERYWHERE: u32 = ALWAYS | SENTINEL;
/// Whatever state the session is in, this leaves it.
const LEAVES: u32 = ALWAYS | RUNS_IN_MULTI | DROPS_QUEUED | ALLOW_SUBSCRIBED;

pub(super) const TABLE: &[Command] = &[
    Command::new("auth", AtLeast(2), EVERYWHERE, auth)
        .secrets_found_by(|request| (1..request.len()).collect())
        .categories(category::CONNECTION)
        .docs(
            Group::Connection,
            "1.0.0",
            "O(N)",
            "Logs in with a password, and optionally a user name.",
        )
        .arguments("?username#s^6.0.0 password#s")
        .history(&[("6.0.0", "Takes the name of a user.")]),
    Command::new("echo", Exactly(2), LOADING | STALE | FAST, echo)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "1.0.0", "O(1)", "Returns what it was given.")
        .arguments("message#s"),
    Command::new("hello", AtLeast(1), EVERYWHERE, hello)
        .secrets_found_by(|request| secrets::behind(request, "AUTH", 2).collect())
        .categories(category::CONNECTION)
        .docs(
            Group::Connection,
            "6.0.0",
            "O(1)",
            "Chooses the protocol, logs in and sets the name in one step.",
        )
        .arguments(
            "?arguments#b(protover#i ?username_password#b=AUTH(username#s password#s) \
             ?clientname#s=SETNAME)",
        )
        .history(&[("6.2.0", "Without a version, only tells about the connection.")]),
    Command::new("ping", AtLeast(1), FAST | ALLOW_SUBSCRIBED | TELLS_TROUBLE | SENTINEL, ping)
        .categories(category::CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Connection, "1.0.0", "O(1)", "Answers, with the given text if there is one.")
        .arguments("?message#s"),
    Command::new("quit", AtLeast(1), LEAVES, quit).categories(category::CONNECTION).docs(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Closes the connection after answering.",
    ),
    Command::new("reset", Exactly(1), LEAVES, reset).categories(category::CONNECTION).docs(
        Group::Connection,
        "6.2.0",
        "O(1)",
        "Resets the connection to its initial state.",
    ),
    Command::new("select", Exactly(2), LOADING | STALE | FAST, select)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "1.0.0", "O(1)", "Chooses the database of this connection.")
        .arguments("index#i"),
];

fn ping(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if request.len() > 2 {
        return Err(CommandError::text("ERR wrong number of arguments for 'ping' command"));
    }
    if cx.session.has(session_flag::SUBSCRIBED) && !cx.reply.is_resp3() {
        // In RESP2 a subscribed client reads only arrays.
        cx.reply.array(2);
        cx.reply.bulk(b"pong");
        cx.reply.bulk(request.get(1).unwrap_or_default());
        return Ok(());
    }
    match request.get(1) {
        None => cx.reply.simple("PONG"),
        Some(text) => cx.reply.bulk(text),
    }
    Ok(())
}

fn echo(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.reply.bulk(request.arg(1));
    Ok(())
}

fn select(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if integer32(request.arg(1)).is_ok_and(|db| db != 0) {
        cx.refuse_in_cluster("ERR SELECT is not allowed in cluster mode")?;
    }
    let db = cx.database(request.arg(1))?;
    cx.select(db);
    cx.reply.ok();
    Ok(())
}

fn quit(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.ok();
    cx.session.flags |= session_flag::CLOSING;
    let id = cx.session.id;
    cx.server.effects.requests.push(ServerRequest::CloseAfterOutput(id));
    Ok(())
}

fn auth(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (user, password) = match request.len() {
        2 => (&b"default"[..], request.arg(1)),
        3 => (request.arg(1), request.arg(2)),
        _ => return Err(CommandError::SYNTAX),
    };
    if request.len() == 2 && cx.server.acl.default_user().needs_no_password() {
        return Err(CommandError::text(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        ));
    }
    acl::authenticate(cx, request.arg(0), user, password)?;
    cx.reply.ok();
    Ok(())
}

/// The options of HELLO.
#[derive(Default)]
struct HelloOptions<'a> {
    protocol: Option<Protocol>,
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

fn hello(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = parse_hello(request)?;
    if let Some((user, password)) = options.login {
        acl::authenticate(cx, request.arg(0), user, password)?;
    }
    if cx.session.has(session_flag::NEEDS_AUTH) {
        return Err(CommandError::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = options.name {
        set_name(cx, name)?;
    }
    if let Some(protocol) = options.protocol {
        cx.session.protocol = protocol;
        cx.reply.set_protocol(protocol);
    }
    greet(cx);
    Ok(())
}

fn parse_hello(request: Request<'_>) -> Result<HelloOptions<'_>, CommandError> {
    let mut options = HelloOptions::default();
    if let Some(version) = request.get(1) {
        let not_integer = "ERR Protocol version is not an integer or out of range";
        let version = store_resp::parse_integer(version).ok_or(CommandError::text(not_integer))?;
        options.protocol = Some(match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(CommandError::text("NOPROTO unsupported protocol version")),
        });
    }
    let mut at = 2;
    while let Some(word) = request.get(at) {
        if is_word(word, "AUTH") && at + 2 < request.len() {
            options.login = Some((request.arg(at + 1), request.arg(at + 2)));
            at += 3;
        } else if is_word(word, "SETNAME") && at + 1 < request.len() {
            options.name = Some(request.arg(at + 1));
            at += 2;
        } else {
            let option = String::from_utf8_lossy(word);
            let text = format!("ERR Syntax error in HELLO option '{option}'");
            return Err(CommandError::new(text));
        }
    }
    Ok(options)
}

fn greet(cx: &mut Context<'_>) {
    let is_sentinel = cx.server.identity.is_sentinel;
    let reply = &mut cx.reply;
    reply.map(if is_sentinel { 6 } else { 7 });
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(crate::REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(if cx.session.protocol == Protocol::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(cx.session.id.number as i64);
    reply.bulk(b"mode");
    reply.bulk(cx.server.mode().as_bytes());
    if !is_sentinel {
        reply.bulk(b"role");
        reply.bulk(if cx.server.replication.link.is_some() { b"replica" } else { b"master" });
    }
    reply.bulk(b"modules");
    reply.array(0);
}

fn reset(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    end_transaction(cx.db, cx.session);
    super::leave_all_modes(cx);
    // CLIENT REPLY SKIP holds for this request, too.
    const KEPT: u32 = session_flag::CLOSING
        | session_flag::NO_EVICT
        | session_flag::REPLY_SKIP
        | session_flag::HEARS_FOR_OTHERS;
    cx.session.flags &= KEPT;
    let needs_password = !cx.server.acl.default_user().is_open();
    cx.session.set_flag(session_flag::NEEDS_AUTH, needs_password);
    cx.session.user = acl::DEFAULT.to_vec();
    acl::refresh(cx);
    cx.session.name.clear();
    cx.session.protocol = Protocol::Resp2;
    cx.reply.set_protocol(Protocol::Resp2);
    cx.select(0);
    cx.reply.simple("RESET");
    Ok(())
}

/// Names the connection. Fails for names that CLIENT LIST could not show.
pub(super) fn set_name(cx: &mut Context<'_>, name: &[u8]) -> CommandResult {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        let text = "ERR Client names cannot contain spaces, newlines or special characters.";
        return Err(CommandError::text(text));
    }
    cx.session.name = name.to_vec();
    Ok(())
}
