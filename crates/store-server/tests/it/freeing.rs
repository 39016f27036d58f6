//! Large values are freed by a thread of their own, and nobody waits for it.

use std::time::Duration;

use store_resp::Reply;
use store_server::Server;

use crate::connection::Connection;

const MEMBERS: usize = 1_000_000;

/// A number that INFO tells.
fn fact(connection: &mut Connection, name: &str) -> u64 {
    let Reply::Bulk(text) = connection.words("INFO") else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let prefix = format!("{name}:");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("INFO has no {name}")).parse().unwrap()
}

fn make_big(connection: &mut Connection, key: &str) {
    const STEP: usize = 5000;
    for start in (0..MEMBERS).step_by(STEP) {
        let mut words = vec!["SADD".to_owned(), key.to_owned()];
        words.extend((start..start + STEP).map(|number| format!("member:{number}")));
        assert_eq!(connection.ask(&words), Some(Reply::Integer(STEP as i64)));
    }
}

/// The longest turn of the loop, in processor time, around one request.
fn longest_turn(connection: &mut Connection, line: &str) -> Duration {
    connection.words("CONFIG RESETSTAT");
    connection.words(line);
    for _ in 0..3 {
        connection.words("PING");
    }
    Duration::from_micros(fact(connection, "tenure_longest_turn_usec"))
}

/// The control is DEL, which frees before it answers.
#[test]
fn a_million_members_are_unlinked_without_a_stall() {
    let server = Server::builder().start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    make_big(&mut connection, "big");
    connection.words("COPY big other");
    let before = fact(&mut connection, "used_memory");
    let unlinked = longest_turn(&mut connection, "UNLINK big");
    testkit::wait_until("all is freed", testkit::GENEROUS, || {
        fact(&mut connection, "lazyfreed_objects") == 1
            && fact(&mut connection, "lazyfree_pending_objects") == 0
    });
    assert!(fact(&mut connection, "used_memory") < before / 3 * 2);
    let deleted = longest_turn(&mut connection, "DEL other");
    println!("UNLINK {unlinked:?}, DEL {deleted:?}");
    assert!(unlinked * 4 < deleted, "UNLINK {unlinked:?}, DEL {deleted:?}");
}

#[test]
fn a_flush_in_the_background_counts_its_keys() {
    let server = Server::builder().start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    for number in 0..3000 {
        connection.words(&format!("SET key:{number} value"));
    }
    connection.words("FLUSHALL ASYNC");
    testkit::wait_until("all is freed", testkit::GENEROUS, || {
        fact(&mut connection, "lazyfreed_objects") == 3000
    });
    assert_eq!(fact(&mut connection, "lazyfree_pending_objects"), 0);
    connection.words("CONFIG RESETSTAT");
    assert_eq!(fact(&mut connection, "lazyfreed_objects"), 0);
}

#[test]
fn a_server_with_values_to_free_stops_at_once() {
    let server = Server::builder().start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    for number in 0..20_000 {
        connection.send(&["SADD".to_owned(), "big".to_owned(), format!("member:{number}")]);
    }
    for _ in 0..20_000 {
        connection.receive();
    }
    connection.words("UNLINK big");
    drop(server);
    assert_eq!(connection.receive(), None);
}
