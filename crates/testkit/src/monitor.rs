//! What a server was asked, as the server itself reports it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::GENEROUS;
use crate::lines::Lines;

/// Part of each line's text by which our own marker commands are known.
const MARKER: &str = "testkit-monitor-marker";

/// Collects the lines that `MONITOR` reports, from the moment it was asked for.
#[derive(Debug)]
pub struct Monitor {
    stream: TcpStream,
    /// Opened before monitoring began, so that its own log-in is not among the lines.
    marking: Mutex<Connection>,
    lines: Lines,
}

impl Monitor {
    pub(crate) fn start(port: u16, login: Option<&[String]>) -> Self {
        let marking = Connection::open(port, login);
        let mut monitoring = Connection::open(port, login);
        let reply = monitoring.ask(&["MONITOR"]);
        assert_eq!(reply, "+OK", "the server on port {port} refuses MONITOR");
        let stream = monitoring.stream.try_clone().expect("a socket can be cloned");
        stream.set_read_timeout(None).expect("a connected socket takes options");
        // Lines may have arrived behind the reply, so reading goes on in the same buffer.
        let lines = Lines::collect(monitoring.replies);
        Self { stream, marking: Mutex::new(marking), lines }
    }

    /// All lines so far: every command that the server answered before this call is among them.
    ///
    /// # Panics
    /// When the server does not answer, for example because it is paused.
    #[must_use]
    pub fn lines(&self) -> Vec<MonitorLine> {
        self.catch_up();
        let lines = self.lines.snapshot();
        lines.iter().filter(|line| !line.contains(MARKER)).map(|line| parse(line)).collect()
    }

    /// The lines that clients sent; what scripts called is left out.
    #[must_use]
    pub fn requests(&self) -> Vec<MonitorLine> {
        self.lines().into_iter().filter(|line| !line.from_script).collect()
    }

    /// Forgets all lines so far, so that counting starts anew.
    pub fn clear(&self) {
        self.catch_up();
        self.lines.clear();
    }

    /// Commands reach the monitor in the order in which the server ran them: once a marker of our
    /// own is there, so is all that came before it.
    fn catch_up(&self) {
        static MARKERS: AtomicU64 = AtomicU64::new(0);
        let marker = format!("{MARKER}-{}-", MARKERS.fetch_add(1, Ordering::Relaxed));
        let mut marking = self.marking.lock().unwrap_or_else(PoisonError::into_inner);
        let bulk_header = marking.ask(&["ECHO", &marker]);
        assert!(bulk_header.starts_with('$'), "ECHO got {bulk_header}");
        marking.skip_line();
        let seen = self.lines.find(GENEROUS, |line| line.contains(&marker));
        assert!(seen.is_some(), "MONITOR reports no more: has the server ended?");
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // The server may have closed it before.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.lines.join();
    }
}

/// One command that a server ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitorLine {
    /// Whether a script called it, rather than a client.
    pub from_script: bool,
    /// The words as the server quotes them, for example `"SET" "key" "value"`.
    pub words: String,
}

/// `+1700000000.123456 [0 127.0.0.1:5000] "GET" "key"`, with `lua` in place of the address when a
/// script called it.
fn parse(line: &str) -> MonitorLine {
    let (head, words) = line.split_once("] ").unwrap_or(("", line));
    MonitorLine { from_script: head.ends_with(" lua"), words: words.to_owned() }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Connection {
    fn open(port: u16, login: Option<&[String]>) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .unwrap_or_else(|error| panic!("cannot connect to 127.0.0.1:{port}: {error}"));
        stream.set_read_timeout(Some(GENEROUS)).expect("the bound is not zero");
        let replies = BufReader::new(stream.try_clone().expect("a socket can be cloned"));
        let mut connection = Self { stream, replies };
        if let Some(words) = login {
            let reply = connection.ask(words);
            assert_eq!(reply, "+OK", "the server on port {port} refuses the log-in");
        }
        connection
    }

    /// Sends a request and returns the first line of the reply.
    fn ask<T: AsRef<str>>(&mut self, words: &[T]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            let word = word.as_ref();
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let mut reply = String::new();
        let exchange = self.stream.write_all(request.as_bytes());
        if let Err(error) = exchange.and_then(|()| self.replies.read_line(&mut reply)) {
            panic!("the server does not answer: {error}. Is it paused or ended?");
        }
        reply.trim_end().to_owned()
    }

    fn skip_line(&mut self) {
        self.replies.read_line(&mut String::new()).expect("a bulk follows its header");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_its_words_and_whether_a_script_called() {
        let asked = parse(r#"+1700000000.123456 [0 127.0.0.1:5000] "GET" "a] b""#);
        assert_eq!(asked, MonitorLine { from_script: false, words: r#""GET" "a] b""#.into() });

        let called = parse(r#"+1700000000.123456 [0 lua] "pexpire" "key" "5""#);
        assert!(called.from_script);
        assert_eq!(called.words, r#""pexpire" "key" "5""#);
    }
}
