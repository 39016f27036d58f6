//! What a primary says to a replica, and a replica to a primary. The first byte chooses which.

use store_replica::{
    Address, LinkPhase, Moment, Output, Replication, Secrets, SessionId, Settings, Transaction,
};
use store_resp::{Limits, Parsed, RequestParser};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "replication",
    about: "both ends of a replication link: handshake, payload, stream, REPLCONF and PSYNC",
    run,
    words: &[
        b"+PONG\r\n",
        b"+OK\r\n",
        b"-NOAUTH x\r\n",
        b"+FULLRESYNC 0123456789abcdef0123456789abcdef01234567 12\r\n",
        b"+CONTINUE 0123456789abcdef0123456789abcdef01234567\r\n",
        b"+CONTINUE\r\n",
        b"$EOF:f7a1c09be2d84635f1e0a9c8b7d6e5f4a3b2c1d0\r\n",
        b"f7a1c09be2d84635f1e0a9c8b7d6e5f4a3b2c1d0",
        b"$4\r\nDATA",
        b"$9223372036854775807\r\n",
        b"\n",
        b"*1\r\n$5\r\nMULTI\r\n",
        b"*1\r\n$4\r\nEXEC\r\n",
        b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n",
        b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n0\r\n",
        b"*5\r\n$8\r\nREPLCONF\r\n$4\r\ncapa\r\n$3\r\neof\r\n$4\r\ncapa\r\n$6\r\npsync2\r\n",
        b"*3\r\n$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n",
        b"*4\r\n$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n$8\r\nFAILOVER\r\n",
    ],
};

/// More bytes than this in one request are not waited for.
const INTAKE_MAX: usize = 4096;
const SESSION: SessionId = SessionId(1);

fn run(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    match choice % 4 {
        0 => hear_replica(bytes),
        1 => hear_primary(bytes, DataGoes::AtTheEnd),
        2 => hear_primary(bytes, DataGoes::AtTheBeginning),
        _ => hear_primary(bytes, DataGoes::WhenReplaced),
    }
}

/// When the old data goes for a payload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DataGoes {
    AtTheBeginning,
    AtTheEnd,
    WhenReplaced,
}

fn new_core() -> Replication {
    let secrets = Secrets::new(|bytes| bytes.fill(0x17));
    let settings = Settings { intake_max: INTAKE_MAX, ..Settings::default() };
    Replication::new(Moment::default(), settings, secrets)
}

/// The bytes come in pieces as long as the last one began: both ways are the same stream.
fn hear_primary(bytes: &[u8], goes: DataGoes) {
    let mut core = new_core();
    let now = Moment::from_ms(1);
    core.follow(now, Address { host: "primary".to_owned(), port: 1 });
    core.handle_link_up(now);
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let (piece, later) = rest.split_at(usize::from(first % 61 + 1).min(rest.len()));
        core.handle_link_bytes(now, piece);
        let mut is_closed = carry_out(&mut core, now, goes);
        while core.next_request(now).is_some() {
            let is_open = first % 7 == 0;
            let transaction = if is_open { Transaction::Open } else { Transaction::Closed };
            core.handle_applied(now, 0, transaction);
        }
        is_closed |= carry_out(&mut core, now, goes);
        assert!(core.read_offset() >= core.history().offset(), "more is applied than was read");
        let pending = core.read_offset() - core.history().offset();
        assert!(pending <= INTAKE_MAX as u64, "{pending} bytes are kept");
        if is_closed {
            break;
        }
        rest = later;
    }
    core.handle_link_down(now);
    core.handle_time(Moment::from_ms(5_000));
    assert!(core.link_phase() != Some(LinkPhase::Connected), "the connection is gone");
}

/// Whether the connection was closed from here.
fn carry_out(core: &mut Replication, now: Moment, goes: DataGoes) -> bool {
    let mut is_closed = false;
    loop {
        match core.poll_output() {
            Output::WaitUntil(_) => return is_closed,
            Output::Payload(_) if goes == DataGoes::AtTheBeginning => {
                core.handle_data_forgotten(now);
            }
            Output::Load => {
                if goes == DataGoes::AtTheEnd {
                    core.handle_data_forgotten(now);
                }
                core.handle_loaded(now, Some(0));
            }
            Output::LinkClose => is_closed = true,
            _ => {}
        }
    }
}

fn hear_replica(bytes: &[u8]) {
    let mut core = new_core();
    let now = Moment::from_ms(1);
    let mut parser = RequestParser::default();
    let mut rest = bytes;
    loop {
        match parser.parse(rest, &Limits::default()) {
            Ok(Parsed::Request { consumed }) => {
                let request = parser.request(rest);
                match request.arg(0) {
                    b"PSYNC" => core.handle_psync(now, SESSION, request),
                    b"SYNC" => core.handle_sync(now, SESSION),
                    _ => core.handle_replconf(now, SESSION, request),
                }
                parser.clear();
                rest = &rest[consumed..];
            }
            Ok(Parsed::Empty { consumed }) => {
                core.handle_newline(now, SESSION);
                rest = &rest[consumed..];
            }
            Ok(Parsed::Incomplete) | Err(_) => break,
        }
        core.handle_snapshot_started(now);
        core.handle_payload_sent(now, SESSION);
        carry_out(&mut core, now, DataGoes::WhenReplaced);
        assert!(core.replicas().len() <= 1, "one session is one replica");
        let acked = core.replicas().first().map_or(0, |replica| replica.acked());
        assert!(acked <= core.history().offset(), "{acked} bytes were never sent");
    }
}
