//! A connection to a real server, and replies to compare with.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use testkit::RedisServer;

/// A reply, with no more detail than the comparisons need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(Vec<u8>),
    Integer(i64),
    Error(String),
    Nothing,
    List(Vec<Reply>),
}

impl Reply {
    #[track_caller]
    pub(crate) fn text(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text,
            other => panic!("expected text, got {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn texts(self) -> Vec<Vec<u8>> {
        match self {
            Self::List(replies) => replies.into_iter().map(Reply::text).collect(),
            other => panic!("expected a list, got {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn integer(self) -> i64 {
        match self {
            Self::Integer(integer) => integer,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

/// A server of the test's own with one connection.
pub(crate) struct Redis {
    reader: BufReader<TcpStream>,
    _server: RedisServer,
}

impl Redis {
    /// A server that does not compress, so that payloads do not hang on LZF's luck.
    pub(crate) fn start() -> Self {
        Self::with_settings(&["--rdbcompression", "no"])
    }

    pub(crate) fn with_settings(settings: &[&str]) -> Self {
        let server =
            RedisServer::builder().args(["--enable-debug-command", "yes"]).args(settings).start();
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { reader: BufReader::new(stream), _server: server }
    }

    /// Sends words, each bytes or text, and returns the reply.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Reply {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.reader.get_mut().write_all(&request).unwrap();
        self.read_reply()
    }

    /// Sends words of text.
    pub(crate) fn say(&mut self, words: &[&str]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.ask(&words)
    }

    fn read_reply(&mut self) -> Reply {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).unwrap();
        let rest = String::from_utf8_lossy(&line[1..line.len() - 2]).into_owned();
        match line[0] {
            b'+' => Reply::Text(rest.into_bytes()),
            b'-' => Reply::Error(rest),
            b':' => Reply::Integer(rest.parse().unwrap()),
            b'$' | b'*' if rest == "-1" => Reply::Nothing,
            b'$' => {
                let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.reader.read_exact(&mut text).unwrap();
                text.truncate(text.len() - 2);
                Reply::Text(text)
            }
            b'*' => {
                let count: usize = rest.parse().unwrap();
                Reply::List((0..count).map(|_| self.read_reply()).collect())
            }
            other => panic!("unknown reply {other}"),
        }
    }

    /// The payload of a key.
    #[track_caller]
    pub(crate) fn dump(&mut self, key: &str) -> Vec<u8> {
        self.say(&["DUMP", key]).text()
    }
}

/// Compares payloads with a message that can be read.
#[track_caller]
pub(crate) fn assert_same_payload(ours: &[u8], theirs: &[u8], story: &str) {
    assert!(
        ours == theirs,
        "{story}\nours:   {}\ntheirs: {}",
        ours.escape_ascii(),
        theirs.escape_ascii()
    );
}
