//! The primary's side: who gets what, and what is promised about it.

use std::time::Duration;

use store_replica::{
    BlockSize, CloseReason, Moment, Output, OutputLimit, SessionId, Settings, SnapshotContent,
    SnapshotNeeds, SnapshotTarget,
};

use crate::pair::{SESSION, Server, encoded};

#[test]
fn nothing_is_sent_between_the_mark_and_the_first_ack() {
    let mut primary = Server::with_delay_zero(1);
    primary.ask(SESSION, "REPLCONF capa eof capa psync2");
    primary.ask(SESSION, "PSYNC ? -1");
    let needs = SnapshotNeeds { target: SnapshotTarget::Sockets, content: SnapshotContent::All };
    assert!(primary.outputs().contains(&Output::StartSnapshot(needs)));
    primary.core.handle_snapshot_started(primary.now);
    let id = primary.core.history().id();
    let head = primary.replies();
    assert!(head.starts_with(&format!("+FULLRESYNC {id} 0|$EOF:")), "{head}");
    primary.write(0, "<write>");
    primary.core.handle_payload_sent(primary.now, SESSION);
    assert!(head.contains(&primary.replies()), "the same mark ends the payload");
    assert!(primary.core.stream_for(SESSION).is_empty(), "it may still be loading");
    primary.ask(SESSION, "REPLCONF ACK 0");
    assert_eq!(primary.core.stream_for(SESSION), b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n<write>");
}

#[test]
fn a_replica_cannot_put_lines_into_what_is_told_of_it() {
    let mut primary = Server::with_delay_zero(1);
    let mut says = |ip: &str| {
        primary.ask(SESSION, &format!("REPLCONF ip-address {ip}"));
        primary.replies()
    };
    for host in ["192.0.2.7", "fe80::1%eth0", "replica-1.example_net"] {
        assert_eq!(says(host), "+OK|", "{host}");
    }
    for text in ["9.9.9.9\r\nrole:slave\r\nx:", "a\nb", "a,port=1", "\u{e9}", "\0"] {
        let refusal = "-ERR REPLCONF ip-address is not the address or name of a host|";
        assert_eq!(says(text), refusal, "{text:?}");
    }
    assert!(says(&"x".repeat(256)).contains("too long"));
    assert_eq!(primary.core.replicas()[0].address().host, "replica-1.example_net");
}

#[test]
fn a_write_behind_a_payload_names_its_database_although_others_know_it() {
    let mut primary = Server::with_delay_zero(1);
    primary.full_sync(SESSION);
    primary.write(5, "<a>");
    let second = SessionId(2);
    primary.full_sync(second);
    primary.write(5, "<b>");
    assert_eq!(primary.core.stream_for(second), b"*2\r\n$6\r\nSELECT\r\n$1\r\n5\r\n<b>");
    primary.write(5, "<c>");
    assert!(primary.core.stream_for(second).ends_with(b"<b><c>"), "once is enough");
}

#[test]
fn a_payload_from_disk_has_a_length_and_empty_lines_before_it() {
    let mut primary = Server::new(1, Settings { diskless: false, ..Settings::default() });
    primary.ask(SESSION, "PSYNC ? -1");
    primary.core.handle_snapshot_started(primary.now);
    assert!(primary.replies().starts_with("+FULLRESYNC"));
    primary.pass(1_000);
    assert_eq!(primary.replies(), "\n");
    primary.core.handle_snapshot_made(primary.now, 9);
    assert_eq!(primary.replies(), "$9|");
    primary.pass(1_000);
    assert_eq!(primary.replies(), "", "an empty line would be taken for data now");
    primary.core.handle_payload_sent(primary.now, SESSION);
    primary.write(0, "<write>");
    assert!(!primary.core.stream_for(SESSION).is_empty());
}

#[test]
fn one_snapshot_serves_all_who_came_in_time() {
    let mut primary = Server::new(1, Settings::default());
    for number in 1..=3 {
        primary.ask(SessionId(number), "REPLCONF capa eof");
        primary.ask(SessionId(number), "PSYNC ? -1");
    }
    let is_start = |output: &Output| matches!(output, Output::StartSnapshot(_));
    assert!(!primary.outputs().iter().any(is_start), "others may come");
    primary.pass(5_000);
    assert_eq!(primary.outputs().iter().filter(|output| is_start(output)).count(), 1);
    primary.core.handle_snapshot_started(primary.now);
    assert_eq!(primary.core.in_transfer().len(), 3);
}

#[test]
fn without_a_backlog_writes_are_not_counted_and_the_next_one_has_a_new_name() {
    let settings = Settings { backlog_ttl: Duration::from_secs(3), ..Settings::default() };
    let mut primary = Server::new(1, settings);
    primary.full_sync(SESSION);
    let (id, offset) = (primary.core.history().id(), primary.write(0, "<a>"));
    primary.core.handle_session_closed(primary.now, SESSION);
    for _ in 0..3 {
        primary.pass(1_000);
    }
    assert!(primary.core.backlog().is_none());
    assert_eq!(primary.write(0, "<b>"), offset);
    primary.ask(SessionId(2), &format!("PSYNC {id} {}", offset + 1));
    primary.ask(SessionId(3), &format!("PSYNC {id} {}", offset + 1));
    assert_eq!(primary.core.sync_counts().partial_done, 0, "it lacks what was not counted");
}

#[test]
fn bad_offsets_are_errors_and_no_full_sync() {
    let mut primary = Server::with_delay_zero(1);
    primary.ask(SESSION, "PSYNC ? x");
    assert!(primary.replies().starts_with("-ERR value is not an integer"));
    primary.ask(SESSION, "PSYNC ?");
    assert!(primary.replies().starts_with("-ERR wrong number"));
    assert_eq!(primary.core.sync_counts().full, 0);
    primary.ask(SESSION, "REPLCONF version 8.0 capa eof");
    assert!(primary.replies().starts_with("-ERR Unrecognized REPLCONF option: version"));
    primary.ask(SESSION, "REPLCONF listening-port");
    assert!(primary.replies().starts_with("-ERR syntax error"));
}

#[test]
fn wait_counts_those_who_said_so_on_this_connection() {
    let mut primary = Server::with_delay_zero(1);
    let client = SessionId(9);
    primary.full_sync(SESSION);
    let offset = primary.write(0, "<a>");
    let until = Some(primary.now + Duration::from_secs(1));
    assert_eq!(primary.core.wait(primary.now, client, offset, 1, until), None);
    primary.core.handle_turn_end(primary.now);
    assert_eq!(primary.core.history().offset(), offset + 37, "they are asked, once");
    primary.core.handle_turn_end(primary.now);
    assert_eq!(primary.core.history().offset(), offset + 37);
    primary.ask(SESSION, &format!("REPLCONF ACK {}", offset - 1));
    assert_eq!(primary.outputs(), []);
    primary.ask(SESSION, &format!("REPLCONF ACK {offset} FACK 1"));
    assert_eq!(primary.outputs(), [Output::Waited { session: client, count: 1 }]);
}

#[test]
fn a_replica_that_has_not_said_anything_has_nothing_not_even_zero_bytes() {
    // What was written before there was a backlog is waited for at offset zero.
    let mut primary = Server::new(1, Settings { diskless: false, ..Settings::default() });
    assert_eq!(primary.write(0, "<a>"), 0);
    primary.ask(SESSION, "PSYNC ? -1");
    primary.core.handle_snapshot_started(primary.now);
    primary.core.handle_snapshot_made(primary.now, 9);
    primary.core.handle_payload_sent(primary.now, SESSION);
    let until = Some(Moment::from_ms(2_000));
    assert_eq!(primary.core.wait(primary.now, SessionId(9), 0, 1, until), None, "it is loading");
}

#[test]
fn claims_beyond_the_end_are_not_believed() {
    let mut primary = Server::with_delay_zero(1);
    primary.full_sync(SESSION);
    primary.ask(SESSION, "REPLCONF ACK 999999");
    let offset = primary.write(0, "<a>");
    assert_eq!(primary.core.wait(primary.now, SessionId(9), offset, 1, Some(primary.now)), Some(0));
}

#[test]
fn writes_need_replicas_that_were_heard_of_lately() {
    let settings = Settings {
        min_replicas: 1,
        min_replicas_lag: Duration::from_secs(10),
        diskless_delay: Duration::ZERO,
        ..Settings::default()
    };
    let mut primary = Server::new(1, settings);
    assert!(primary.core.has_too_few_replicas(primary.now));
    primary.full_sync(SESSION);
    assert!(!primary.core.has_too_few_replicas(primary.now));
    primary.pass(10_001);
    assert!(primary.core.has_too_few_replicas(primary.now));
}

#[test]
fn the_slow_one_goes_and_the_others_stay() {
    let settings = Settings {
        backlog_size: 100,
        block_size: BlockSize { min: 16, max: 32 },
        output_limit: OutputLimit { hard_max: 300, soft_max: 0, soft_for: Duration::ZERO },
        diskless_delay: Duration::ZERO,
        ..Settings::default()
    };
    let mut primary = Server::new(1, settings);
    let slow = SessionId(2);
    primary.full_sync(SESSION);
    primary.full_sync(slow);
    let mut closed = Vec::new();
    for _ in 0..40 {
        primary.write(0, &encoded("SET a 1"));
        loop {
            let len = primary.core.stream_for(SESSION).len();
            if len == 0 {
                break;
            }
            primary.core.handle_stream_written(SESSION, len);
        }
        closed.extend(primary.outputs());
    }
    assert_eq!(closed, [Output::Close { session: slow, reason: CloseReason::OutputLimit }]);
    assert!(primary.core.backlog().unwrap().len() <= 100 + 32, "what it held is given up");
}

/// It would hold up the others, and every later snapshot.
#[test]
fn who_does_not_take_its_payload_is_closed_whatever_it_says() {
    for greeting in ["PSYNC ? -1", "SYNC"] {
        let mut primary = Server::with_delay_zero(1);
        let (stuck, good) = (SESSION, SessionId(2));
        for session in [stuck, good] {
            primary.ask(session, "REPLCONF capa eof");
            primary.ask(session, greeting);
        }
        primary.core.handle_snapshot_started(primary.now);
        primary.outputs();
        for _ in 0..70 {
            primary.pass(1_000);
            primary.core.handle_newline(primary.now, stuck);
            primary.core.handle_progress(primary.now, good);
        }
        let is_close = |output: &Output| matches!(output, Output::Close { .. });
        let closed: Vec<_> = primary.outputs().into_iter().filter(is_close).collect();
        let reason = CloseReason::Silent;
        assert_eq!(closed, [Output::Close { session: stuck, reason }], "{greeting}");
    }
}

/// Lets a replica come in. Whether a snapshot is begun for it at once.
fn begins_for(primary: &mut Server, session: SessionId) -> bool {
    primary.ask(session, "PSYNC ? -1");
    let is_start = |output: &Output| matches!(output, Output::StartSnapshot(_));
    let is_begun = primary.outputs().iter().any(is_start);
    if is_begun {
        primary.core.handle_snapshot_started(primary.now);
        assert_eq!(primary.core.in_transfer(), [session]);
        primary.core.handle_snapshot_made(primary.now, 9);
        assert_eq!(primary.replies().matches("$9|").count(), 1, "to the one that waits for it");
    }
    is_begun
}

#[test]
fn who_reads_an_old_file_holds_up_nobody_and_so_do_not_many_of_them() {
    let mut primary = Server::new(1, Settings { diskless: false, ..Settings::default() });
    let sessions: Vec<_> = (1..=5).map(SessionId).collect();
    for session in &sessions[..4] {
        assert!(begins_for(&mut primary, *session), "{session:?} waits for another one");
    }
    assert!(!begins_for(&mut primary, sessions[4]), "four payloads are kept, and no more");
    let is_start = |output: &Output| matches!(output, Output::StartSnapshot(_));
    // One of them has read its payload; or is gone.
    primary.core.handle_payload_sent(primary.now, sessions[1]);
    assert!(primary.outputs().iter().any(is_start));
    primary.core.handle_snapshot_started(primary.now);
    assert_eq!(primary.core.in_transfer(), sessions[4..]);
    primary.core.handle_session_closed(primary.now, sessions[0]);
    let outputs = primary.outputs();
    assert!(!outputs.contains(&Output::CancelSnapshot), "the fifth wants what is made now");
    primary.core.handle_snapshot_failed(primary.now);
    let closed: Vec<_> = primary.core.replicas().iter().map(|it| it.session()).collect();
    assert_eq!(closed, sessions[1..4], "only the fifth waited for it");
}

/// A large write leaves more in the backlog than its size until that is trimmed.
#[test]
fn no_partial_sync_begins_with_more_than_a_replica_may_lack() {
    let settings = Settings {
        backlog_size: 100,
        block_size: BlockSize { min: 16, max: 32 },
        output_limit: OutputLimit { hard_max: 300, soft_max: 0, soft_for: Duration::ZERO },
        ..Settings::default()
    };
    let mut primary = Server::new(1, settings);
    primary.full_sync(SESSION);
    let id = primary.core.history().id();
    primary.write(0, &encoded(&format!("SET a {}", "x".repeat(5_000))));
    let has = primary.core.history().offset() - 1_000;
    assert!(primary.core.backlog().unwrap().has(has), "it is still there");
    primary.replies();
    let late = SessionId(2);
    primary.ask(late, &format!("PSYNC {id} {}", has + 1));
    assert!(!primary.replies().contains("+CONTINUE"), "it would be closed at once");
}

#[test]
fn a_silent_replica_is_closed_and_a_loading_one_is_not() {
    let mut primary = Server::with_delay_zero(1);
    primary.full_sync(SESSION);
    let loading = SessionId(2);
    primary.ask(loading, "REPLCONF capa eof");
    primary.ask(loading, "PSYNC ? -1");
    primary.core.handle_snapshot_started(primary.now);
    primary.core.handle_payload_sent(primary.now, loading);
    primary.outputs();
    for _ in 0..70 {
        primary.pass(1_000);
        primary.core.handle_newline(primary.now, loading);
    }
    let is_close = |output: &Output| matches!(output, Output::Close { .. });
    let closed: Vec<_> = primary.outputs().into_iter().filter(is_close).collect();
    assert_eq!(closed, [Output::Close { session: SESSION, reason: CloseReason::Silent }]);
}

#[test]
fn nothing_is_fed_while_clients_are_paused() {
    let mut primary = Server::with_delay_zero(1);
    primary.full_sync(SESSION);
    primary.core.set_paused(true);
    let before = primary.core.history().offset();
    primary.core.want_acks();
    primary.core.handle_turn_end(primary.now);
    for _ in 0..20 {
        primary.pass(1_000);
    }
    assert_eq!(primary.core.history().offset(), before);
    primary.core.set_paused(false);
    primary.pass(10_000);
    assert_eq!(primary.core.history().offset(), before + 14, "a PING");
}
