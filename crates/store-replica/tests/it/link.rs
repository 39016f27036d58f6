//! The replica's side, word by word as Redis 7.0 expects it.

use store_replica::{
    Address, CloseReason, Event, FAILED_WRITES_MAX, Facts, LinkFault, LinkPhase, Login, Output,
    REFUSED_LOADS_MAX, Role, Settings,
};

use crate::pair::{SESSION, Server, address, encoded};

const ID: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "76543210fedcba9876543210fedcba9876543210";

fn synced(mut server: Server, offset: u64) -> Server {
    server.connect();
    server.hear(&format!("+FULLRESYNC {ID} {offset}\r\n$4\r\nDATA"));
    server.core.handle_loaded(server.now, Some(0));
    server.outputs();
    server
}

#[test]
fn the_handshake_is_said_in_order() {
    let login = Login { user: Some("ada".to_owned()), password: b"secret".to_vec() };
    let settings = Settings {
        login: Some(login.clone()),
        announce_ip: Some("10.0.0.7".to_owned()),
        listening_port: 7000,
        ..Settings::default()
    };
    assert!(!format!("{settings:?}").contains("secret"), "no password gets into a log");
    let mut server = Server::new(1, settings);
    server.core.follow(server.now, address());
    assert!(server.outputs().contains(&Output::Dial(address())));
    server.core.handle_link_up(server.now);
    assert_eq!(server.sent(), "*1|$4|PING|");
    server.hear("-NOAUTH Authentication required.\r\n");
    assert_eq!(
        server.sent(),
        "*3|$4|AUTH|$3|ada|$6|secret|*3|$8|REPLCONF|$14|listening-port|$4|7000|\
         *3|$8|REPLCONF|$10|ip-address|$8|10.0.0.7|\
         *5|$8|REPLCONF|$4|capa|$3|eof|$4|capa|$6|psync2|"
    );
    server.hear("+OK\r\n+OK\r\n-ERR unknown option\r\n+O");
    assert_eq!(server.sent(), "", "the last answer is not whole");
    server.hear("K\r\n");
    assert_eq!(server.sent(), "*3|$5|PSYNC|$1|?|$2|-1|");
}

#[test]
fn a_wrong_password_ends_the_link() {
    let login = Login { user: None, password: b"wrong".to_vec() };
    let mut server = Server::new(1, Settings { login: Some(login), ..Settings::default() });
    server.connect_until_auth();
    server.hear("-WRONGPASS invalid username-password pair\r\n");
    assert!(server.outputs().contains(&Output::LinkClose));
    assert_eq!(server.core.link_phase(), Some(LinkPhase::Connect));
}

impl Server {
    fn connect_until_auth(&mut self) {
        self.core.follow(self.now, address());
        self.core.handle_link_up(self.now);
        self.hear("+PONG\r\n");
        self.outputs();
    }
}

#[test]
fn a_cut_inside_a_transaction_asks_for_it_again() {
    let mut server = synced(Server::with_delay_zero(1), 100);
    let set = encoded("SET a 1");
    server.hear(&set);
    server.hear(&(encoded("MULTI") + &set));
    assert_eq!(server.apply(0), ["SET", "MULTI", "SET"]);
    let applied = 100 + set.len() as u64;
    assert_eq!(server.core.history().offset(), applied, "MULTI does not count yet");
    assert!(server.core.read_offset() > applied);
    server.core.handle_link_down(server.now);
    server.pass(0);
    server.outputs();
    server.shake_hands();
    let psync = server.sent();
    assert!(psync.ends_with(&format!("PSYNC|$40|{ID}|$3|{}|", applied + 1)), "{psync}");
}

#[test]
fn an_ack_tells_what_was_applied_before_the_question() {
    let mut server = synced(Server::with_delay_zero(1), 100);
    server.hear(&encoded("REPLCONF GETACK *"));
    assert!(server.core.next_request(server.now).is_some());
    server.core.handle_getack();
    server.core.handle_applied(server.now, 0, store_replica::Transaction::Closed);
    assert_eq!(server.sent(), "*3|$8|REPLCONF|$3|ACK|$3|100|");
    server.pass(1_000);
    assert_eq!(server.sent(), "*3|$8|REPLCONF|$3|ACK|$3|137|", "its bytes show in the next one");
}

#[test]
fn a_new_name_is_adopted_and_the_old_one_stays_valid() {
    let mut server = synced(Server::with_delay_zero(1), 100);
    server.core.handle_link_down(server.now);
    server.pass(0);
    server.shake_hands();
    server.hear(&format!("+CONTINUE {OTHER}\r\n"));
    let history = server.core.history();
    assert_eq!(history.id().as_str(), OTHER);
    assert_eq!(
        history.second().map(|second| (second.id.to_string(), second.until)).unwrap(),
        (ID.to_owned(), 100)
    );
    assert!(server.core.is_linked());
}

#[test]
fn a_primary_that_continues_what_nobody_asked_for_is_left() {
    let mut server = Server::with_delay_zero(1);
    server.connect();
    server.hear(&format!("+CONTINUE {OTHER}\r\n"));
    assert!(server.outputs().contains(&Output::LinkClose));
    assert_eq!(server.core.link_phase(), Some(LinkPhase::Connect));
}

/// When the old data goes, as far as it does before the load fails.
#[derive(Clone, Copy)]
enum DataGoes {
    BeforeThePayload,
    BehindThePayload,
    Never,
}

/// Whether a failed load leaves something to continue from.
fn keeps_its_past(goes: DataGoes) -> bool {
    let mut server = synced(Server::with_delay_zero(1), 100);
    server.core.handle_link_down(server.now);
    server.pass(0);
    server.shake_hands();
    server.hear(&format!("+FULLRESYNC {OTHER} 500\r\n"));
    if let DataGoes::BeforeThePayload = goes {
        server.core.handle_data_forgotten(server.now);
    }
    server.hear("$4\r\nDATA");
    if let DataGoes::BehindThePayload = goes {
        server.core.handle_data_forgotten(server.now);
    }
    server.core.handle_loaded(server.now, None);
    server.pass(2_000);
    server.outputs();
    server.shake_hands();
    let asked = server.sent();
    assert!(asked.contains(ID) || asked.contains("$1|?|"), "{asked}");
    asked.contains(ID)
}

#[test]
fn what_was_thrown_away_is_not_continued_and_what_is_there_is() {
    assert!(!keeps_its_past(DataGoes::BeforeThePayload));
    assert!(!keeps_its_past(DataGoes::BehindThePayload));
    assert!(keeps_its_past(DataGoes::Never), "the old data is still there");
}

#[test]
fn a_replica_promoted_while_it_loads_has_the_past_of_the_data_that_it_has() {
    for is_gone in [false, true] {
        let mut server = synced(Server::with_delay_zero(1), 100);
        server.core.handle_link_down(server.now);
        server.pass(0);
        server.shake_hands();
        server.hear(&format!("+FULLRESYNC {OTHER} 500\r\n$4\r\nDATA"));
        if is_gone {
            server.core.handle_data_forgotten(server.now);
        }
        server.core.promote(server.now);
        assert!(server.outputs().contains(&Output::DropPayload));
        server.core.handle_loaded(server.now, Some(0));
        server.ask(SESSION, &format!("PSYNC {ID} 101"));
        let answer = server.replies();
        assert_eq!(answer.starts_with("+CONTINUE"), !is_gone, "{answer}");
    }
}

impl Server {
    /// Gets a payload that cannot be loaded. Returns how many seconds the primary is left alone.
    fn fail_to_load(&mut self) -> u64 {
        self.shake_hands();
        self.hear(&format!("+FULLRESYNC {OTHER} 500\r\n$4\r\nDATA"));
        self.core.handle_loaded(self.now, None);
        self.outputs();
        self.core.dials_in(self.now).unwrap().as_secs()
    }

    /// Lets so much time pass that the primary is dialled, and not a moment less.
    fn wait_for_dial(&mut self, seconds: u64) {
        self.pass(seconds * 1_000 - 1);
        assert!(!self.outputs().contains(&Output::Dial(address())), "too early");
        self.pass(1);
        assert!(self.outputs().contains(&Output::Dial(address())), "not in time");
    }
}

#[test]
fn a_payload_that_cannot_be_loaded_is_asked_for_less_and_less_often() {
    let mut server = Server::with_delay_zero(1);
    server.core.follow(server.now, address());
    server.outputs();
    for expected in [1, 2, 4, 8, 16, 30, 30] {
        let pause = server.fail_to_load();
        assert_eq!(pause, expected);
        server.wait_for_dial(pause);
    }
    // What cannot be reached is tried every second, and does not make it forget.
    server.core.handle_link_down(server.now);
    server.wait_for_dial(1);
    assert_eq!(server.fail_to_load(), 30);
    // The operator may have mended it.
    server.core.follow(server.now, address());
    assert!(server.outputs().contains(&Output::Dial(address())));
    assert_eq!(server.fail_to_load(), 1);
    server.wait_for_dial(1);
    assert_eq!(server.fail_to_load(), 2);
    server.wait_for_dial(2);
    // One that can be loaded: what comes later is counted anew.
    let mut server = synced(server, 100);
    server.core.handle_link_down(server.now);
    server.pass(0);
    server.outputs();
    assert_eq!(server.fail_to_load(), 1);
}

/// Gets payloads that are not taken here, until it asks for no more. Returns how many.
fn refuse_all(server: &mut Server) -> u32 {
    for count in 1..20 {
        server.shake_hands();
        server.hear(&format!("+FULLRESYNC {OTHER} 500\r\n$4\r\nDATA"));
        server.core.handle_refused(server.now);
        let outputs = server.outputs();
        let stopped = Output::Log(Event::LinkStopped(LinkFault::Unreadable));
        assert_eq!(outputs.contains(&stopped), server.core.is_link_stopped());
        assert!(outputs.contains(&Output::LinkClose));
        let Some(pause) = server.core.dials_in(server.now) else { return count };
        server.wait_for_dial(pause.as_secs());
    }
    panic!("it asks for ever");
}

#[test]
fn what_is_refused_again_and_again_is_asked_for_when_an_operator_says_so_and_not_before() {
    let mut server = synced(Server::with_delay_zero(1), 100);
    server.core.handle_link_down(server.now);
    server.pass(0);
    server.outputs();
    assert_eq!(refuse_all(&mut server), REFUSED_LOADS_MAX);
    assert!(!server.core.is_primary(), "it has not changed sides");
    assert_eq!(server.core.link_phase(), Some(LinkPhase::Connect));
    assert_eq!(server.core.history().id().as_str(), ID, "it has what it had");
    // Whatever time brings, or a connection that is reported late.
    server.core.handle_link_down(server.now);
    server.core.handle_link_up(server.now);
    server.core.handle_link_bytes(server.now, b"+PONG\r\n");
    for _ in 0..100 {
        server.pass(60_000);
        assert!(!server.outputs().iter().any(|it| matches!(it, Output::Dial(_))));
    }
    // Named again, it is asked for as often as at first, and another primary likewise.
    for primary in [address(), Address { host: "elsewhere".to_owned(), port: 1 }] {
        server.core.follow(server.now, primary.clone());
        assert!(server.outputs().contains(&Output::Dial(primary.clone())));
        server.shake_hands();
        server.hear(&format!("+FULLRESYNC {OTHER} 500\r\n$4\r\nDATA"));
        server.core.handle_refused(server.now);
        server.outputs();
        assert_eq!(server.core.dials_in(server.now).unwrap().as_secs(), 1);
        server.core.follow(server.now, address());
    }
    // It can be promoted, and then has no link.
    server.core.promote(server.now);
    assert!(server.core.is_primary() && !server.core.is_link_stopped());
}

#[test]
fn payloads_that_broke_off_are_none_that_were_refused() {
    let mut server = Server::with_delay_zero(1);
    server.core.follow(server.now, address());
    server.outputs();
    for _ in 0..3 * REFUSED_LOADS_MAX {
        let pause = server.fail_to_load();
        server.wait_for_dial(pause);
    }
    assert_eq!(refuse_all(&mut server), REFUSED_LOADS_MAX);
}

#[test]
fn a_payload_that_breaks_off_loses_nothing_that_is_kept_aside() {
    let mut server = synced(Server::with_delay_zero(1), 100);
    server.core.handle_link_down(server.now);
    server.pass(0);
    server.shake_hands();
    server.hear(&format!("+FULLRESYNC {OTHER} 500\r\n$400\r\nDATA"));
    server.core.handle_link_down(server.now);
    assert!(server.outputs().contains(&Output::DropPayload));
    assert_eq!(server.core.history().id().as_str(), ID);
    assert!(server.core.facts().is_some());
}

#[test]
fn a_connection_that_ends_while_the_payload_is_loaded_costs_no_second_one() {
    let mut server = Server::with_delay_zero(1);
    server.connect();
    server.hear(&format!("+FULLRESYNC {ID} 100\r\n$4\r\nDATA"));
    server.core.handle_link_down(server.now);
    server.core.handle_loaded(server.now, Some(0));
    server.pass(0);
    server.outputs();
    server.shake_hands();
    assert!(server.sent().ends_with(&format!("PSYNC|$40|{ID}|$3|101|")));
}

#[test]
fn replicas_of_a_replica_get_the_bytes_as_they_came() {
    let mut server = synced(Server::with_delay_zero(1), 100);
    server.full_sync(SESSION);
    let odd = "*2\r\n$6\r\nsElEcT\r\n$1\r\n3\r\n";
    server.hear(odd);
    server.apply(3);
    assert_eq!(server.core.stream_for(SESSION), odd.as_bytes());
    assert_eq!(server.core.facts().map(|facts| facts.db), Some(3), "a payload names it, too");
}

#[test]
fn a_replica_without_a_link_sends_nobody_anything() {
    let mut server = Server::with_delay_zero(1);
    server.connect();
    server.outputs();
    server.ask(SESSION, "PSYNC ? -1");
    assert!(server.replies().starts_with("-NOMASTERLINK"));
}

#[test]
fn a_restarted_replica_goes_on_in_the_database_of_its_stream() {
    let facts = synced(Server::with_delay_zero(1), 100).core.facts().unwrap();
    let facts = Facts { db: 5, ..facts };
    let mut server = Server::with_delay_zero(2);
    server.core.restore(server.now, facts, &Role::Replica(address()));
    server.connect();
    assert!(server.sent().ends_with(&format!("PSYNC|$40|{ID}|$3|101|")));
    server.hear(&format!("+CONTINUE {ID}\r\n"));
    assert!(server.outputs().contains(&Output::Linked { db: 5 }));
}

#[test]
fn a_restarted_primary_lets_those_continue_who_have_no_more() {
    let facts = synced(Server::with_delay_zero(1), 100).core.facts().unwrap();
    let mut server = Server::with_delay_zero(2);
    server.core.restore(server.now, facts, &Role::Primary);
    server.ask(SESSION, &format!("PSYNC {ID} 101"));
    assert!(server.replies().starts_with("+CONTINUE"));
    let other = store_replica::SessionId(2);
    server.ask(other, &format!("PSYNC {ID} 102"));
    assert_eq!(server.core.sync_counts().full, 1, "what it has more is not ours");
}

#[test]
fn sub_replicas_go_before_the_data_does() {
    let mut server = synced(Server::with_delay_zero(1), 100);
    server.full_sync(SESSION);
    server.core.handle_link_down(server.now);
    server.pass(0);
    server.shake_hands();
    server.outputs();
    server.hear(&format!("+FULLRESYNC {OTHER} 500\r\n$4\r\nDATA"));
    let closed = Output::Close { session: SESSION, reason: CloseReason::DataReplaced };
    let outputs = server.outputs();
    assert!(outputs.contains(&Output::Load) && !outputs.contains(&closed), "the data is there");
    server.core.handle_data_forgotten(server.now);
    assert!(server.outputs().contains(&closed), "it goes now");
}

#[test]
fn a_primary_without_psync_is_followed_by_sync() {
    let mut server = Server::with_delay_zero(1);
    server.connect();
    server.hear("-ERR unknown command 'PSYNC'\r\n");
    assert!(server.sent().ends_with("SYNC|"));
    server.hear("$4\r\nDATA");
    server.core.handle_loaded(server.now, Some(0));
    assert!(server.core.is_linked());
    server.pass(1_000);
    assert_eq!(server.sent(), "", "it would not understand an ack");
}

#[test]
fn hostile_primaries_are_left_without_a_panic() {
    for bytes in ["+FULLRESYNC x y\r\n", "+FULLRESYNC\r\n", "\0\r\n", "+CONTINUE a b\r\n", "$5\r\n"]
    {
        let mut server = Server::with_delay_zero(1);
        server.connect();
        server.hear(bytes);
        assert!(server.outputs().contains(&Output::LinkClose), "{bytes:?}");
    }
    let mut server = synced(Server::with_delay_zero(1), 0);
    server.hear("SET a 1\r\n");
    assert!(server.core.next_request(server.now).is_none());
    assert!(server.outputs().contains(&Output::LinkClose), "an inline request");
    let settings = Settings { intake_max: 1_000, ..Settings::default() };
    let mut server = synced(Server::new(1, settings), 0);
    server.hear(&format!("*1\r\n$2000\r\n{}", "x".repeat(1_500)));
    assert!(server.outputs().contains(&Output::LinkClose), "longer than its limit");
}

#[test]
fn behind_a_write_that_failed_everything_is_asked_for_and_less_and_less_often() {
    let mut server = synced(Server::with_delay_zero(1), 100);
    for pause_ms in [1_000, 2_000, 4_000] {
        server.hear(&encoded("LPUSH s 1"));
        assert!(server.core.next_request(server.now).is_some());
        server.core.handle_failed_write(server.now, 0);
        let outputs = server.outputs();
        let fault = Event::LinkFailed(LinkFault::FailedWrite);
        assert!(outputs.contains(&Output::Log(fault)) && outputs.contains(&Output::LinkClose));
        assert_ne!(server.core.history().id().as_str(), ID, "its data is nobody's");
        server.pass(pause_ms - 1);
        assert!(!server.outputs().contains(&Output::Dial(address())));
        server.pass(1);
        assert!(server.outputs().contains(&Output::Dial(address())), "after {pause_ms} ms");
        server.shake_hands();
        assert!(server.sent().ends_with("PSYNC|$1|?|$2|-1|"));
        server.hear(&format!("+FULLRESYNC {ID} 100\r\n$4\r\nDATA"));
        server.core.handle_loaded(server.now, Some(0));
        server.outputs();
    }
}

#[test]
fn a_primary_whose_writes_fail_again_and_again_is_left_alone() {
    let mut server = synced(Server::with_delay_zero(1), 100);
    for count in 1..=FAILED_WRITES_MAX {
        assert!(!server.core.is_link_stopped());
        server.hear(&encoded("LPUSH s 1"));
        assert!(server.core.next_request(server.now).is_some());
        server.core.handle_failed_write(server.now, 0);
        let outputs = server.outputs();
        let stopped = Output::Log(Event::LinkStopped(LinkFault::FailedWrite));
        assert_eq!(outputs.contains(&stopped), count == FAILED_WRITES_MAX);
        let Some(pause) = server.core.dials_in(server.now) else { break };
        server.wait_for_dial(pause.as_secs());
        server.shake_hands();
        server.hear(&format!("+FULLRESYNC {ID} 100\r\n$4\r\nDATA"));
        server.core.handle_loaded(server.now, Some(0));
        server.outputs();
    }
    assert!(server.core.is_link_stopped());
    server.pass(600_000);
    assert!(!server.outputs().iter().any(|it| matches!(it, Output::Dial(_))));
    server.core.follow(server.now, address());
    assert!(server.outputs().contains(&Output::Dial(address())));
}

#[test]
fn a_transaction_that_takes_too_much_memory_ends_the_link() {
    let settings = Settings { transaction_max: 1_000, ..Settings::default() };
    let mut server = synced(Server::new(1, settings), 100);
    server.hear(&(encoded("MULTI") + &encoded("PING") + &encoded("PING")));
    for memory in [0, 1_000, 1_001] {
        assert!(server.core.next_request(server.now).is_some());
        server.core.handle_queued(server.now, 0, memory);
    }
    let too_long = Output::Log(Event::LinkFailed(LinkFault::TooLong));
    assert!(server.outputs().contains(&too_long));
    assert_eq!(server.core.history().offset(), 100, "nothing of it counts");
}

#[test]
fn a_link_is_down_since_the_primary_was_last_heard() {
    let mut server = synced(Server::with_delay_zero(1), 100);
    server.now = server.now + std::time::Duration::from_secs(50);
    // The process, or its machine, stood still meanwhile.
    server.core.handle_link_down(server.now);
    let down_for = server.core.link_down_for(server.now).unwrap();
    assert_eq!(down_for.as_secs(), 50, "the data is as old as that");
}
