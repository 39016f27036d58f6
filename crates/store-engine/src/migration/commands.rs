//! MIGRATE, and RESTORE of what it sends.

use store_cluster::{Credentials, MigrationOrder};
use store_types::Limits;
use store_types::dump::{self as format, RestoreError, Value as Loaded};

use super::{DECODED_HERE_MAX, DecodeRequest, MigrateRequest};
use crate::commands::prelude::*;
use crate::commands::secrets;
use crate::context::Caller;
use crate::effects::ServerRequest;
use crate::key_finder::FoundKey;
use crate::session::{TimeoutReply, session_flag};
use crate::state::server_gate;

/// How long nothing may happen, if the request says nothing of use.
const DEFAULT_TIMEOUT_MS: i64 = 1000;

/// Where MIGRATE names its keys: behind KEYS, if the argument for one key is empty.
pub(crate) fn migrated_keys(request: Request<'_>) -> Option<Vec<FoundKey>> {
    let key = |arg| FoundKey { arg, access: RW | ACCESS | DELETE };
    let mut at = 6;
    while let Some(word) = request.get(at) {
        at += match word {
            _ if is_word(word, "KEYS") && request.arg(3).is_empty() => {
                return Some((at + 1..request.len()).map(key).collect());
            }
            _ if is_word(word, "KEYS") => return None,
            _ if is_word(word, "AUTH") => 2,
            _ if is_word(word, "AUTH2") => 3,
            _ => 1,
        };
    }
    Some(vec![key(3)])
}

pub(crate) fn migrate_passwords(request: Request<'_>) -> Vec<usize> {
    secrets::behind(request, "AUTH", 1).chain(secrets::behind(request, "AUTH2", 2)).collect()
}

/// The options of MIGRATE.
#[derive(Default)]
struct Options {
    copies: bool,
    replaces: bool,
    credentials: Option<Credentials>,
}

fn parse_options(request: Request<'_>) -> Result<Options, CommandError> {
    let (mut options, mut at) = (Options::default(), 6);
    while let Some(word) = request.get(at) {
        let left = request.len() - at - 1;
        let behind = |place: usize| request.arg(at + place).to_vec();
        at += match word {
            _ if is_word(word, "COPY") => {
                options.copies = true;
                1
            }
            _ if is_word(word, "REPLACE") => {
                options.replaces = true;
                1
            }
            _ if is_word(word, "AUTH") && left >= 1 => {
                options.credentials = Some(Credentials { user: None, password: behind(1) });
                2
            }
            _ if is_word(word, "AUTH2") && left >= 2 => {
                let (user, password) = (Some(behind(1)), behind(2));
                options.credentials = Some(Credentials { user, password });
                3
            }
            _ if is_word(word, "KEYS") && request.arg(3).is_empty() => break,
            _ if is_word(word, "KEYS") => {
                return Err(CommandError::text(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the \
                     empty string",
                ));
            }
            _ => return Err(CommandError::SYNTAX),
        };
    }
    Ok(options)
}

/// Sends the keys away by the driver, and waits for what comes of it.
pub(crate) fn migrate(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let Options { copies, replaces, credentials } = parse_options(request)?;
    let timeout = integer(request.arg(5))?;
    let db = integer(request.arg(4))?;
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for found in migrated_keys(request).unwrap_or_default() {
        let key = request.arg(found.arg);
        if cx.db.read(key).is_some() {
            keys.push(key.to_vec());
        }
    }
    if keys.is_empty() {
        cx.reply.simple("NOKEY");
        return Ok(());
    }
    if matches!(cx.caller, Caller::Transaction | Caller::Script) {
        let text = "ERR MIGRATE waits for another server, which a transaction or script cannot";
        return Err(CommandError::text(text));
    }
    keys.sort();
    keys.dedup();
    let source = cx.db.selected();
    if !copies {
        for key in &keys {
            cx.server.migrations.leaving.insert(source, key);
        }
        cx.server.gates |= server_gate::LEAVING;
    }
    let timeout_ms = if timeout <= 0 { DEFAULT_TIMEOUT_MS } else { timeout } as u64;
    let number = cx.server.migrations.next_number();
    let migrate = MigrateRequest {
        number,
        host: String::from_utf8_lossy(request.arg(1)).into_owned(),
        // As in Redis, what is no port is one that nobody listens at.
        port: integer(request.arg(2)).ok().and_then(|port| port.try_into().ok()).unwrap_or(0),
        db: source,
        order: MigrationOrder { keys, db, copies, timeout_ms, credentials },
        replaces,
    };
    let asked = ServerRequest::Migrate(cx.session.id, Box::new(migrate));
    cx.server.effects.requests.push(asked);
    cx.block(request, std::iter::empty(), 0, TimeoutReply::Driver(number))
}

pub(crate) fn decode(
    payload: &[u8],
    limits: &Limits,
    skips_checksum: bool,
) -> Result<Loaded, RestoreError> {
    match skips_checksum {
        true => format::restore_unsummed(payload, limits),
        false => format::restore(payload, limits),
    }
}

/// What RESTORE is to put under its key: `None` when the driver decodes it, and the session waits.
pub(crate) fn decoded(
    cx: &mut Context<'_>,
    request: Request<'_>,
) -> Result<Option<Loaded>, CommandError> {
    if let Some(value) = cx.server.migrations.decoded.take() {
        return value.0.map(Some).map_err(refusal);
    }
    let skips_checksum = cx.server.debug.skips_checksums;
    let payload = request.arg(3);
    let is_taken = cx.session.has(session_flag::LOADER | session_flag::PRIMARY_LINK);
    if is_taken && !skips_checksum {
        return taken(cx, request).map(Some);
    }
    let is_bound = matches!(cx.caller, Caller::Transaction | Caller::Script) || is_taken;
    if payload.len() <= DECODED_HERE_MAX || is_bound {
        let value = decode(payload, &cx.server.limits, skips_checksum);
        return value.map(Some).map_err(refusal);
    }
    let number = cx.server.migrations.next_number();
    let limits = cx.server.limits;
    let decode = DecodeRequest { request: request.to_owned(), skips_checksum, limits, number };
    let asked = ServerRequest::Decode(cx.session.id, Box::new(decode));
    cx.server.effects.requests.push(asked);
    cx.block(request, std::iter::empty(), 0, TimeoutReply::Driver(number))?;
    Ok(None)
}

/// What a primary, or this server before it started, has taken already.
fn taken(cx: &mut Context<'_>, request: Request<'_>) -> Result<Loaded, CommandError> {
    let restored = format::restore_taken(request.arg(3), &cx.server.limits);
    let (value, mended) = restored.map_err(refusal)?;
    if let Some(fault) = mended {
        let line = format!(
            "RESTORE: the value of key \"{}\" was made whole, as redis-server takes it: {fault}",
            request.arg(1).escape_ascii()
        );
        cx.server.effects.requests.push(ServerRequest::Log(line));
    }
    Ok(value)
}

fn refusal(error: RestoreError) -> CommandError {
    match error {
        RestoreError::Footer => {
            CommandError::text("ERR DUMP payload version or checksum are wrong")
        }
        RestoreError::Data(_) => CommandError::text("ERR Bad data format"),
    }
}
