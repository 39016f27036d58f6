//! A connection to a real server that hands out replies as they are on the wire.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::RedisServer;

/// One connection; the server ends with it.
pub(crate) struct Real {
    stream: TcpStream,
    buffer: Vec<u8>,
    _server: RedisServer,
}

impl Real {
    pub(crate) fn start() -> Self {
        let server = RedisServer::start();
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_read_timeout(Some(testkit::GENEROUS)).unwrap();
        Self { stream, buffer: Vec::new(), _server: server }
    }

    /// The reply, byte for byte.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&request).unwrap();
        loop {
            if let Some(length) = reply_length(&self.buffer) {
                return self.buffer.drain(..length).collect();
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk).unwrap() {
                0 => panic!("the server closed on {:?}", String::from_utf8_lossy(words[0])),
                count => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

/// How long the reply at the front is, once it is whole.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let head = line_end + 2;
    let number = || -> i64 { std::str::from_utf8(&bytes[1..line_end]).unwrap().parse().unwrap() };
    let items = match bytes[0] {
        b'$' | b'=' | b'!' => {
            let body = number();
            let length = if body < 0 { head } else { head + body as usize + 2 };
            return (bytes.len() >= length).then_some(length);
        }
        b'*' | b'~' | b'>' => number(),
        b'%' | b'|' => number() * 2,
        _ => 0,
    };
    let mut length = head;
    for _ in 0..items {
        length += reply_length(&bytes[length..])?;
    }
    Some(length)
}
