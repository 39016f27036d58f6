//! Peers that lie, break off and send rubbish: no panic, no growth, and the next one is heard.

use std::time::Duration;

use store_replica::{BlockSize, LinkPhase, Output, SessionId, Settings};
use store_resp::OwnedRequest;

use crate::pair::{Server, address, encoded};

const ID: &str = "0123456789abcdef0123456789abcdef01234567";

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

/// What an honest primary says, from PONG on.
fn honest_words() -> Vec<u8> {
    let mark = "f7a1c09be2d84635f1e0a9c8b7d6e5f4a3b2c1d0";
    let mut words = format!("+PONG\r\n+OK\r\n+OK\r\n\n\n+FULLRESYNC {ID} 12\r\n\n$EOF:{mark}\r\n");
    words.push_str(&format!("REDIS0010 some data{mark}"));
    for line in ["SELECT 3", "SET a 1", "MULTI", "INCR b", "EXEC", "REPLCONF GETACK *"] {
        words.push_str(&encoded(line));
    }
    words.into_bytes()
}

fn settings() -> Settings {
    Settings { intake_max: 2_000, diskless_delay: Duration::ZERO, ..Settings::default() }
}

/// Says `words` in pieces, and does what a server does meanwhile.
fn listen(server: &mut Server, words: &[u8], numbers: &mut Numbers) {
    let mut rest = words;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(1 + numbers.below(rest.len()));
        server.core.handle_link_bytes(server.now, piece);
        server.apply(0);
        for output in server.outputs() {
            match output {
                Output::Payload(_) if numbers.below(4) == 0 => {
                    server.core.handle_data_forgotten(server.now);
                }
                Output::Load => {
                    let is_good = numbers.below(4) > 0;
                    server.core.handle_loaded(server.now, is_good.then_some(3));
                }
                Output::LinkClose => return,
                _ => {}
            }
        }
        rest = later;
    }
}

#[test]
fn a_primary_that_breaks_off_or_changes_a_byte_anywhere_does_no_harm() {
    let honest = honest_words();
    let mut numbers = Numbers(7);
    for round in 0..20_000 {
        let mut words = honest.clone();
        match numbers.below(3) {
            0 => words.truncate(numbers.below(words.len())),
            1 => {
                let at = numbers.below(words.len());
                words[at] = numbers.below(256) as u8;
            }
            _ => {
                let at = numbers.below(words.len());
                let garbage: Vec<u8> = (0..numbers.below(40)).map(|n| (n * 37) as u8).collect();
                words.splice(at..at, garbage);
            }
        }
        let mut server = Server::new(1, settings());
        server.core.follow(server.now, address());
        server.core.handle_link_up(server.now);
        listen(&mut server, &words, &mut numbers);
        server.core.handle_link_down(server.now);
        server.core.handle_loaded(server.now, Some(0));
        server.pass(1_500);
        server.outputs();
        // Whatever it was told, it can follow an honest one.
        server.core.handle_link_up(server.now);
        server.hear(&format!("+PONG\r\n+OK\r\n+OK\r\n+FULLRESYNC {ID} 7\r\n$1\r\nx"));
        server.core.handle_loaded(server.now, Some(0));
        assert_eq!(server.core.link_phase(), Some(LinkPhase::Connected), "round {round}");
        assert_eq!(server.core.history().offset(), 7, "round {round}");
    }
}

#[test]
fn a_replica_that_says_anything_in_any_order_does_no_harm() {
    let words = [
        "REPLCONF",
        "PSYNC",
        "ACK",
        "GETACK",
        "listening-port",
        "ip-address",
        "capa",
        "eof",
        "psync2",
        "rdb-only",
        "rdb-filter-only",
        "functions",
        "FAILOVER",
        "?",
        "-1",
        "0",
        "1",
        "99999999999999999999",
        "-9223372036854775808",
        "9223372036854775807",
        ID,
        "",
        "*",
        "\0\u{ff}",
    ];
    let mut numbers = Numbers(11);
    for _ in 0..3_000 {
        let mut server = Server::new(1, settings());
        for _ in 0..12 {
            let session = SessionId(numbers.below(3) as u64);
            let count = 1 + numbers.below(5);
            let mut line = vec![["REPLCONF", "PSYNC"][numbers.below(2)]];
            line.extend((0..count).map(|_| words[numbers.below(words.len())]));
            let request = OwnedRequest::from_args(line.iter().map(|word| word.as_bytes()));
            match line[0] {
                "PSYNC" => server.core.handle_psync(server.now, session, request.as_request()),
                _ => server.core.handle_replconf(server.now, session, request.as_request()),
            }
            match numbers.below(8) {
                0 => server.core.handle_snapshot_started(server.now),
                1 => server.core.handle_snapshot_failed(server.now),
                2 => server.core.handle_payload_sent(server.now, session),
                3 => server.core.handle_session_closed(server.now, session),
                4 => server.core.handle_snapshot_made(server.now, 9),
                5 => _ = server.write(numbers.below(3), "<write>"),
                6 => server.pass(numbers.below(30_000) as u64),
                _ => {
                    let len = server.core.stream_for(session).len();
                    server.core.handle_stream_written(session, len);
                }
            }
            server.outputs();
            assert!(server.core.replicas().len() <= 3, "one per session");
        }
    }
}

/// Lets one thing happen to a session of a primary, as its loop would.
fn happen(server: &mut Server, session: SessionId, numbers: &mut Numbers) {
    let now = server.now;
    let (id, end) = (server.core.history().id(), server.core.history().offset());
    match numbers.below(9) {
        0 => server.ask(session, &format!("PSYNC {id} {}", end + 1)),
        1 => server.ask(session, "PSYNC ? -1"),
        2 => server.core.handle_snapshot_started(now),
        3 => server.core.handle_snapshot_made(now, 9),
        4 => server.core.handle_payload_sent(now, session),
        5 => server.ask(session, &format!("REPLCONF ACK {end}")),
        6 | 7 => _ = server.write(0, &"x".repeat(400)),
        _ => server.pass(numbers.below(2_000) as u64),
    }
}

#[test]
fn what_a_replica_says_of_itself_in_any_state_leaves_nobody_behind_the_backlog() {
    const SAID: [&str; 8] = [
        "rdb-only 1",
        "rdb-only 0",
        "rdb-filter-only functions",
        "capa eof",
        "capa psync2",
        "listening-port 7",
        "ip-address 10.0.0.1",
        "rdb-only 0 capa eof",
    ];
    let small = BlockSize { min: 64, max: 64 };
    let settings = Settings { backlog_size: 256, block_size: small, ..settings() };
    let mut numbers = Numbers(13);
    for round in 0..3_000 {
        let mut server = Server::new(1, settings.clone());
        server.full_sync(SessionId(9));
        for _ in 0..40 {
            let session = SessionId(numbers.below(3) as u64);
            if numbers.below(2) == 0 {
                let said = SAID[numbers.below(SAID.len())];
                server.ask(session, &format!("REPLCONF {said}"));
            } else {
                happen(&mut server, session, &mut numbers);
            }
            let backlog_first = server.core.backlog().map_or(0, |backlog| backlog.first());
            let end = server.core.history().offset();
            for replica in server.core.replicas() {
                let needs_from = end - replica.unsent(end);
                assert!(needs_from >= backlog_first, "round {round}: {replica:?}");
            }
            // Some read, and the others are slow.
            for session in [9, numbers.below(3) as u64].map(SessionId) {
                let len = server.core.stream_for(session).len();
                server.core.handle_stream_written(session, len);
            }
            server.outputs();
        }
    }
}

#[test]
fn who_wants_a_payload_only_is_never_counted_as_following() {
    let mut primary = Server::with_delay_zero(1);
    primary.full_sync(SessionId(9));
    primary.write(0, "<write>");
    let (id, end) = (primary.core.history().id(), primary.core.history().offset());
    let session = SessionId(2);
    primary.ask(session, "REPLCONF capa eof capa psync2 rdb-only 1");
    primary.ask(session, &format!("PSYNC {id} {}", end + 1));
    assert!(!primary.replies().contains("CONTINUE"), "it gets what it asked for: a payload");
    primary.core.handle_snapshot_started(primary.now);
    primary.ask(session, "REPLCONF rdb-only 0");
    primary.core.handle_snapshot_made(primary.now, 4);
    primary.core.handle_payload_sent(primary.now, session);
    assert_eq!(primary.core.good_replicas(primary.now), 1, "the other one");
    assert!(primary.core.replicas().iter().all(|replica| replica.session() != session));
}
