//! Which kind an error is: waiting helps, another node helps, or an operator has to act.

use std::io;

use redis::{ErrorKind, RedisError, ServerError};
use tenure_core::{StoreError, StoreErrorKind};

use super::text::cleaned;
use super::tls;

/// Error codes by which a node says that it is not, or not any more, the one to talk to.
const WRONG_NODE: [&str; 2] = ["READONLY", "MASTERDOWN"];
/// Error codes that pass by themselves or by an operator's work on the store.
const NOT_NOW: [&str; 8] =
    ["LOADING", "CLUSTERDOWN", "MISCONF", "OOM", "NOREPLICAS", "BUSY", "TRYAGAIN", "UNKILLABLE"];
/// Error codes that ask for other credentials, and the words of servers that have no code for it.
const DENIED: [&str; 10] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "invalid password",
    "has no permissions",
    "can't run this command",
    "can't access at least one of the keys",
    "without any password configured",
    "DB index is out of range",
    "SELECT is not allowed",
];

/// What to do about a replica.
pub(super) const REPLICA_REMEDY: &str =
    "name the primary in the store's address, or wait until this one is promoted";
/// What to do about a server that speaks something else.
pub(super) const FOREIGN_REMEDY: &str =
    "is this the port of Redis or Valkey? correct host and port in the store's address";
/// What to do about a port that speaks TLS.
pub(super) const TLS_REMEDY: &str = "write rediss:// instead of redis:// (or rediss+sentinel://, rediss+cluster://, \
     rediss+quorum://)";
/// What to do about words of a cluster. Connections to one follow them, so the address is not that
/// of a cluster.
const CLUSTER_REMEDY: &str =
    "this is a node of a cluster: write redis+cluster:// in the store's address";

/// The error for an error reply.
pub(super) fn from_reply(error: &ServerError) -> StoreError {
    from_words(error.code(), error.details().unwrap_or_default())
}

/// The error for a failure of the connection itself, or of its set-up.
pub(super) fn from_connection(error: &RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => {
            from_words(error.code().unwrap_or_default(), error.detail().unwrap_or_default())
        }
        // The client keeps the server's own words to itself.
        ErrorKind::AuthenticationFailed => {
            let refusal = "the login is refused";
            StoreError::denied(refusal).with_next_step(remedy("WRONGPASS"))
        }
        ErrorKind::InvalidClientConfig => match from_words("", &error.to_string()) {
            odd if odd.kind() == StoreErrorKind::Unexpected => {
                odd.with_kind(StoreErrorKind::Denied)
            }
            known => known,
        },
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            StoreError::unexpected(format!("reply not understood: {}", one_line(error)))
        }
        _ => StoreError::unreachable(one_line(error)),
    }
}

/// The words of the client library, whose parser tells what it expected in several lines.
fn one_line(error: &RedisError) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    cleaned(&lines.join(", "))
}

/// The error for a stream that was broken off while it was read, where its encryption is why.
pub(super) fn of_encryption(error: &io::Error) -> Option<StoreError> {
    tls::error_of(error)
}

/// The error for a stream that could not be opened.
pub(super) fn from_dial(error: &io::Error) -> StoreError {
    if let Some(known) = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>()) {
        return known.clone();
    }
    of_encryption(error).unwrap_or_else(|| unopened(error, advice(error)))
}

/// The error for a stream that could not be opened, with what helps.
pub(super) fn unopened(error: &io::Error, advice: &str) -> StoreError {
    StoreError::unreachable(cleaned(&error.to_string())).with_next_step(advice)
}

/// What to look at when a stream cannot be opened.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: start the store, or correct host and port"
        }
        io::ErrorKind::NotFound => "there is no such socket: start the store, or correct the path",
        io::ErrorKind::PermissionDenied => "this user may not connect there: check its permissions",
        io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => "check the network and the firewalls on the way",
        _ if error.to_string().contains("lookup address") => {
            "the host's name is not known: correct it, or look at DNS"
        }
        _ => "check the store's address and the network to it",
    }
}

/// The same error, with the place at which it happened.
pub(super) fn at(place: &str, error: StoreError) -> StoreError {
    use StoreErrorKind::{Denied, Unreachable, WrongAddress, WrongNode};
    match error.kind() {
        Unreachable | Denied | WrongNode | WrongAddress => error.at(place),
        _ => error,
    }
}

/// The error for a group of servers, `(what one of them is, how many)`, none of which answers, with
/// what went wrong at one of them.
pub(super) fn of_silent(group: (&str, usize), one: &str, error: &StoreError) -> StoreError {
    let why = match error.kind() {
        StoreErrorKind::Unreachable => error.message().to_owned(),
        _ => error.clone().without_next_step().to_string(),
    };
    let silent = StoreError::unreachable(match group {
        (kind, 1) => format!("the {kind} at {one} does not answer: {why}"),
        (kind, count) => format!("none of {count} {kind}s answers (the one at {one}: {why})"),
    });
    match error.next_step() {
        Some(step) => silent.with_next_step(step),
        None => silent,
    }
}

/// Whether this error means that the connected node must be left.
pub(super) fn leaves_node(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::WrongNode | StoreErrorKind::WrongAddress)
}

fn from_words(code: &str, words: &str) -> StoreError {
    let text = cleaned(&format!("{code} {words}"));
    // Older servers wrap the code of a failing script: look at every word, not at the first only.
    let says = |needle: &&str| {
        code == *needle
            || words.contains(*needle) && (needle.contains(' ') || has_word(words, needle))
    };
    if DENIED.iter().any(&says) {
        let remedy = remedy(&text);
        StoreError::denied(text).with_next_step(remedy)
    } else if code == "CROSSSLOT" {
        StoreError::unexpected(text).with_next_step(CLUSTER_REMEDY)
    } else if ["MOVED", "ASK"].contains(&code) {
        StoreError::wrong_address(text).with_next_step(CLUSTER_REMEDY)
    } else if WRONG_NODE.iter().any(&says) {
        StoreError::wrong_node(text).with_next_step(REPLICA_REMEDY)
    } else if NOT_NOW.iter().any(&says) || words.contains("max number of clients") {
        match refusal_step(&text) {
            Some(step) => StoreError::not_now(text).with_next_step(step),
            None => StoreError::not_now(text),
        }
    } else {
        StoreError::unexpected(text)
    }
}

/// The next step when a server cannot serve at the moment, by the code of its error.
pub fn refusal_step(said: &str) -> Option<&'static str> {
    let says = |word: &str| has_word(said, word);
    Some(match () {
        () if says("OOM") => "CONFIG SET maxmemory to more, or remove keys that nobody needs",
        () if says("NOREPLICAS") => "attach replicas, or CONFIG SET min-replicas-to-write to fewer",
        () if says("MISCONF") && said.contains("AOF") => {
            "free space on its disk; it recovers by itself, and its log says why it failed"
        }
        () if says("MISCONF") => {
            "free space on its disk, then BGSAVE there; its log says why it failed"
        }
        () if says("LOADING") => "wait until it has read its data",
        () if says("BUSY") => "wait until the script there ends, or SCRIPT KILL it",
        () if said.contains("max number of clients") => {
            "close connections that nobody needs, or CONFIG SET maxclients to more"
        }
        () => return None,
    })
}

/// What a person can do about a refusal.
fn remedy(refusal: &str) -> &'static str {
    let says = |part: &str| refusal.contains(part);
    if says("NOAUTH") {
        "this store wants a login: write redis://user:password@host in its address"
    } else if says("without any password configured") {
        "this store wants no password: leave it out of its address"
    } else if says("WRONGPASS") || says("invalid password") {
        "check user and password in the store's address"
    } else if says("DB index") || says("SELECT is not allowed") {
        "choose another database number in the store's address"
    } else {
        "grant it to this user: docs/acl.md lists what elections need"
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_uppercase()).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_parser_did_not_understand_is_told_in_one_line() {
        for reply in [&b"\x15\x03\x03"[..], b":x\r\n", b"*1\r\n:x\r\n"] {
            let error = from_connection(&redis::parse_redis_value(reply).unwrap_err()).to_string();
            assert!(error.contains("reply not understood"), "{error}");
            assert!(!error.contains("\\n") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn every_known_error_reply_is_somebodys_fault() {
        let cases = [
            ("READONLY You can't write against a read only replica.", "WrongNode"),
            ("MASTERDOWN Link with MASTER is down", "WrongNode"),
            ("MOVED 3999 127.0.0.1:6381", "WrongAddress"),
            ("ASK 3999 127.0.0.1:6381", "WrongAddress"),
            ("CROSSSLOT Keys in request don't hash to the same slot", "Unexpected"),
            ("LOADING Redis is loading the dataset in memory", "NotNow"),
            ("CLUSTERDOWN Hash slot not served", "NotNow"),
            ("MISCONF Redis is configured to save RDB snapshots", "NotNow"),
            ("OOM command not allowed when used memory > 'maxmemory'.", "NotNow"),
            ("ERR Error running script: @user_script:1: -OOM command not allowed", "NotNow"),
            ("NOREPLICAS Not enough good replicas to write.", "NotNow"),
            ("BUSY Redis is busy running a script.", "NotNow"),
            ("ERR max number of clients reached", "NotNow"),
            ("NOAUTH Authentication required.", "Denied"),
            ("WRONGPASS invalid username-password pair or user is disabled.", "Denied"),
            ("NOPERM this user has no permissions to run the 'eval' command", "Denied"),
            ("ERR The user executing the script can't run this command or subcommand", "Denied"),
            ("ERR invalid password", "Denied"),
            ("ERR this user has no permissions to run the 'select' command", "Denied"),
            ("ERR unknown command 'EVALSHA'", "Unexpected"),
            ("WHATEVER it is", "Unexpected"),
        ];
        for (reply, expected) in cases {
            let (code, words) = reply.split_once(' ').unwrap();
            let error = from_words(code, words);
            assert_eq!(format!("{:?}", error.kind()), expected, "{reply}: {error:?}");
            let helps = expected == "Unexpected" && !reply.starts_with("CROSSSLOT")
                || code == "CLUSTERDOWN"
                || error.next_step().is_some();
            assert!(helps, "{reply}: what is the next step?");
        }
    }
}
