//! A primary, a replica, and the bytes between them, moved by the test.

use std::time::Duration;

use store_replica::{
    Address, Command, Moment, Output, Replication, Secrets, SessionId, Settings, Transaction,
};
use store_resp::{Limits, OwnedRequest, Parsed, RequestParser};

pub(crate) const SESSION: SessionId = SessionId(1);

pub(crate) fn address() -> Address {
    Address { host: "primary".to_owned(), port: 6379 }
}

/// One server with a clock that the test moves.
pub(crate) struct Server {
    pub(crate) core: Replication,
    pub(crate) now: Moment,
}

impl Server {
    pub(crate) fn new(name: u8, settings: Settings) -> Self {
        let mut count = name;
        let secrets = Secrets::new(move |bytes| {
            bytes.fill(count);
            count = count.wrapping_add(16);
        });
        let now = Moment::from_ms(1_000);
        Self { core: Replication::new(now, settings, secrets), now }
    }

    pub(crate) fn with_delay_zero(name: u8) -> Self {
        Self::new(name, Settings { diskless_delay: Duration::ZERO, ..Settings::default() })
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.core.handle_time(self.now);
    }

    pub(crate) fn outputs(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        loop {
            match self.core.poll_output() {
                Output::WaitUntil(_) => return outputs,
                output => outputs.push(output),
            }
        }
    }

    /// What is sent to a replica, as text.
    pub(crate) fn replies(&mut self) -> String {
        let replies = self.outputs().into_iter().filter_map(|output| match output {
            Output::Reply { bytes, .. } => Some(text(&bytes)),
            _ => None,
        });
        replies.collect()
    }

    /// What is sent to the primary, as text.
    pub(crate) fn sent(&mut self) -> String {
        let sent = self.outputs().into_iter().filter_map(|output| match output {
            Output::LinkSend(bytes) => Some(text(&bytes)),
            _ => None,
        });
        sent.collect()
    }

    pub(crate) fn ask(&mut self, session: SessionId, line: &str) {
        let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
        match line.split(' ').next().unwrap() {
            "PSYNC" => self.core.handle_psync(self.now, session, request.as_request()),
            "SYNC" => self.core.handle_sync(self.now, session),
            _ => self.core.handle_replconf(self.now, session, request.as_request()),
        }
    }

    pub(crate) fn write(&mut self, db: usize, bytes: &str) -> u64 {
        self.core.feed(self.now, [Command { db, bytes: bytes.as_bytes() }].into_iter())
    }

    /// Lets a replica with an empty data set come in and get everything.
    pub(crate) fn full_sync(&mut self, session: SessionId) {
        self.ask(session, "REPLCONF listening-port 7 capa eof capa psync2");
        self.ask(session, "PSYNC ? -1");
        self.core.handle_snapshot_started(self.now);
        self.core.handle_snapshot_made(self.now, 4);
        self.core.handle_payload_sent(self.now, session);
        let offset = self.core.history().offset();
        self.ask(session, &format!("REPLCONF ACK {offset}"));
        self.outputs();
    }

    pub(crate) fn hear(&mut self, bytes: &str) {
        self.core.handle_link_bytes(self.now, bytes.as_bytes());
    }

    /// Follows, and says everything up to PSYNC.
    pub(crate) fn connect(&mut self) {
        self.core.follow(self.now, address());
        self.shake_hands();
    }

    pub(crate) fn shake_hands(&mut self) {
        self.core.handle_link_up(self.now);
        self.hear("+PONG\r\n");
        self.hear("+OK\r\n+OK\r\n");
    }

    /// Applies all whole requests of the stream, each in database `db`.
    pub(crate) fn apply(&mut self, db: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut is_open = false;
        while let Some(request) = self.core.next_request(self.now) {
            let name = text(request.arg(0));
            is_open = name == "MULTI" || is_open && name != "EXEC";
            names.push(name);
            let transaction = if is_open { Transaction::Open } else { Transaction::Closed };
            self.core.handle_applied(self.now, db, transaction);
        }
        names
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "|")
}

/// A request as it stands in a stream.
pub(crate) fn encoded(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    let parsed = RequestParser::default().parse(bytes.as_bytes(), &Limits::default());
    assert_eq!(parsed, Ok(Parsed::Request { consumed: bytes.len() }));
    bytes
}
