//! A plain client: words out, one reply back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use store_resp::{Reply, ReplyParser};

/// Ends a hung test; measures nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// An encrypted stream, from the client's side.
pub(crate) type TlsWire = StreamOwned<ClientConnection, TcpStream>;

trait Wire: Read + Write + Send {
    fn set_waiting(&self, waits: bool);
}

impl Wire for TcpStream {
    fn set_waiting(&self, waits: bool) {
        self.set_nonblocking(!waits).unwrap();
    }
}

impl Wire for UnixStream {
    fn set_waiting(&self, waits: bool) {
        self.set_nonblocking(!waits).unwrap();
    }
}

impl Wire for TlsWire {
    fn set_waiting(&self, waits: bool) {
        self.sock.set_nonblocking(!waits).unwrap();
    }
}

/// What came without waiting.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) replies: Vec<Reply>,
    pub(crate) is_closed: bool,
}

pub(crate) struct Connection {
    wire: Box<dyn Wire>,
    bytes: Vec<u8>,
    /// Our end's port, where there is one.
    local_port: u16,
}

impl Connection {
    pub(crate) fn tcp(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let local_port = stream.local_addr().unwrap().port();
        Self { wire: Box::new(stream), bytes: Vec::new(), local_port }
    }

    pub(crate) fn unix(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { wire: Box::new(stream), bytes: Vec::new(), local_port: 0 }
    }

    pub(crate) fn tls(wire: TlsWire) -> Self {
        wire.sock.set_nodelay(true).unwrap();
        wire.sock.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { wire: Box::new(wire), bytes: Vec::new(), local_port: 0 }
    }

    pub(crate) fn local_port(&self) -> u16 {
        self.local_port
    }

    pub(crate) fn send(&mut self, words: &[impl AsRef<[u8]>]) {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend(word);
            request.extend(b"\r\n");
        }
        self.send_raw(&request);
    }

    /// Failing to send is no failure here: the reply, or its absence, will tell.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        let _ = self.wire.write_all(bytes);
    }

    /// The next reply; `None` when the server closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Reply> {
        loop {
            if let Some((reply, used)) = ReplyParser.parse(&self.bytes).expect("a valid reply") {
                self.bytes.drain(..used);
                return Some(reply);
            }
            let mut chunk = [0; 16 * 1024];
            match self.wire.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply within {PATIENCE:?}: {error}"),
            }
        }
    }

    /// The next reply that is no message; messages before it go to `pushes`.
    pub(crate) fn receive_reply(&mut self, pushes: &mut Vec<Reply>) -> Option<Reply> {
        loop {
            match self.receive()? {
                push @ Reply::Push(_) => pushes.push(push),
                reply => return Some(reply),
            }
        }
    }

    /// Asks a server that may not want to talk: `None` when it does not answer.
    pub(crate) fn try_ask(&mut self, words: &[impl AsRef<[u8]>]) -> Option<Reply> {
        self.send(words);
        let mut chunk = [0; 1024];
        let count = self.wire.read(&mut chunk).ok()?;
        ReplyParser.parse(&chunk[..count]).ok()?.map(|(reply, _)| reply)
    }

    /// Everything that is there already.
    pub(crate) fn arrived(&mut self) -> Arrived {
        self.wire.set_waiting(false);
        let mut arrived = Arrived::default();
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.wire.read(&mut chunk) {
                Ok(0) => arrived.is_closed = true,
                Ok(count) => {
                    self.bytes.extend_from_slice(&chunk[..count]);
                    continue;
                }
                Err(error) => {
                    arrived.is_closed = error.kind() != std::io::ErrorKind::WouldBlock;
                }
            }
            break;
        }
        self.wire.set_waiting(true);
        while let Some((reply, used)) = ReplyParser.parse(&self.bytes).expect("a valid reply") {
            self.bytes.drain(..used);
            arrived.replies.push(reply);
        }
        arrived
    }

    pub(crate) fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Option<Reply> {
        self.send(words);
        self.receive()
    }

    /// Asks with words separated by spaces.
    pub(crate) fn words(&mut self, line: &str) -> Reply {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.ask(&words).expect("the connection stays open")
    }
}
