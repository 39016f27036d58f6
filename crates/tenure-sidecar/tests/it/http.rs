//! A client that sends exactly what a test wants to be sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use testkit::GENEROUS;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends `method path` with further header lines and a body, and reads the whole answer.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    lines: &[&str],
    body: &str,
) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    stream.write_all(head(address, method, path, lines, body).as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    read(stream)
}

pub(crate) fn head(
    address: SocketAddr,
    method: &str,
    path: &str,
    lines: &[&str],
    body: &str,
) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !lines.iter().any(|line| line.to_ascii_lowercase().starts_with("host:")) {
        head += &format!("Host: {address}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    for line in lines {
        head += &format!("{line}\r\n");
    }
    head + "\r\n"
}

/// Reads one answer: as long as it says that it is, or to the end of the connection.
pub(crate) fn read(mut stream: impl Read) -> Answer {
    let mut text = Vec::new();
    let mut part = [0; 16 * 1024];
    // A peer that cuts the connection after its answer is no failure.
    while let Ok(length @ 1..) = stream.read(&mut part) {
        text.extend_from_slice(&part[..length]);
        if is_whole(&text) {
            break;
        }
    }
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { dechunked(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

fn is_whole(text: &[u8]) -> bool {
    let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&text[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: Option<usize> = length.and_then(|length| length.trim().parse().ok());
    length.is_some_and(|length| text.len() >= end + 4 + length)
}

fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap();
        if length == 0 {
            break;
        }
        whole += &rest[..length];
        body = &rest[length + 2..];
    }
    whole
}

/// One of the events of a stream.
#[derive(Debug, Clone)]
pub(crate) struct ServerSent {
    pub(crate) id: Option<String>,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

/// A stream of server-sent events.
pub(crate) struct Stream {
    reader: BufReader<TcpStream>,
    pub(crate) status: u16,
}

impl Stream {
    pub(crate) fn open(address: SocketAddr, lines: &[&str]) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(GENEROUS)).unwrap();
        stream.write_all(head(address, "GET", "/events", lines, "").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        reader.read_line(&mut first).unwrap();
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                return Stream { reader, status };
            }
        }
    }

    /// The next event; lengths of chunks and signs of life are skipped.
    pub(crate) fn next(&mut self) -> ServerSent {
        let (mut id, mut kind, mut data) = (None, String::new(), String::new());
        loop {
            let mut line = String::new();
            assert!(self.reader.read_line(&mut line).unwrap() > 0, "the stream ended");
            let line = line.trim_end();
            if let Some(text) = line.strip_prefix("event: ") {
                kind = text.to_owned();
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = text.to_owned();
            } else if line.is_empty() && !data.is_empty() {
                return ServerSent { id, kind, data: serde_json::from_str(&data).unwrap() };
            }
        }
    }

    /// Reads on until an event that `is_wanted`.
    pub(crate) fn next_with(&mut self, is_wanted: impl Fn(&ServerSent) -> bool) -> ServerSent {
        loop {
            let event = self.next();
            if is_wanted(&event) {
                return event;
            }
        }
    }
}
