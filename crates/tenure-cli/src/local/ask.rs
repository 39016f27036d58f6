//! A word with the local store, without a client around it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use store_resp::{Reply, ReplyParser};

/// How long the store may take to answer. It is on this machine, so this only ends a hang.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer that is read: INFO is a few kilobytes.
const ANSWER_LEN_MAX: usize = 1 << 20;

/// Connects. A store that is stopped takes no more connections at some point, and whoever asks
/// must not wait for it without end.
pub(super) fn connect(socket: &Path) -> io::Result<UnixStream> {
    connect_within(socket, ANSWER_TIMEOUT)
}

/// The same, for at most `limit`.
fn connect_within(socket: &Path, limit: Duration) -> io::Result<UnixStream> {
    let stream = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&stream, FdFlags::CLOEXEC)?;
    set_socket_timeout(&stream, Timeout::Send, Some(limit))?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(UnixStream::from(stream))
}

/// Whether a store answers there, within `limit` for each of the two steps. One that only accepts
/// may be ending. Whom `prove` refuses is not asked.
pub(super) fn greet(
    socket: &Path,
    limit: Duration,
    prove: impl FnOnce(&UnixStream) -> io::Result<()>,
) -> io::Result<()> {
    let mut stream = connect_within(socket, limit)?;
    prove(&stream)?;
    ask_within(&mut stream, &["PING"], limit).map(drop)
}

/// Asks one thing. A stream that ends without an answer is an error of its own kind.
pub(super) fn ask(stream: &mut UnixStream, words: &[&str]) -> io::Result<Reply> {
    ask_within(stream, words, ANSWER_TIMEOUT)
}

fn ask_within(stream: &mut UnixStream, words: &[&str], limit: Duration) -> io::Result<Reply> {
    stream.set_read_timeout(Some(limit))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    // A store that takes no more clients says so and closes, often before it is asked anything:
    // what it said is the answer, though the question could not be written.
    let written = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    while answer.len() <= ANSWER_LEN_MAX {
        match stream.read(&mut chunk)? {
            0 => return Err(written.err().unwrap_or(io::ErrorKind::UnexpectedEof.into())),
            len => answer.extend_from_slice(&chunk[..len]),
        }
        match ReplyParser.parse(&answer).map_err(io::Error::other)? {
            Some((reply, _)) => return Ok(reply),
            None => continue,
        }
    }
    Err(io::Error::other("the answer is too long"))
}

/// A field of INFO.
pub(super) fn info(stream: &mut UnixStream, section: &str, field: &str) -> io::Result<String> {
    match ask(stream, &["INFO", section])? {
        Reply::Bulk(text) => {
            let text = String::from_utf8_lossy(&text);
            let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            found.map(str::to_owned).ok_or_else(|| io::Error::other(format!("no {field} in INFO")))
        }
        other => Err(io::Error::other(format!("{other:?} to INFO"))),
    }
}

/// How many others are connected.
pub(super) fn other_clients(stream: &mut UnixStream) -> io::Result<u64> {
    Ok(number(stream, "clients", "connected_clients")?.saturating_sub(1))
}

/// How many connections there were since it started.
pub(super) fn connections_so_far(stream: &mut UnixStream) -> io::Result<u64> {
    number(stream, "stats", "total_connections_received")
}

fn number(stream: &mut UnixStream, section: &str, field: &str) -> io::Result<u64> {
    info(stream, section, field)?.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_sends_a_client_away_unasked_has_answered() {
        let (mut client, mut store) = UnixStream::pair().unwrap();
        let said = "ERR max number of clients reached";
        store.write_all(format!("-{said}\r\n").as_bytes()).unwrap();
        drop(store);
        assert_eq!(ask(&mut client, &["PING"]).unwrap(), Reply::Error(said.into()));
        // One that ends says nothing.
        assert_eq!(ask(&mut client, &["PING"]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
