//! Primaries that cannot be followed: data stays, and the log says what to do.

use store_resp::Reply;
use testkit::RedisServer;

use super::{Ours, ok};

fn wait_for_line(ours: &Ours, part: &str) {
    testkit::wait_until(part, testkit::GENEROUS, || ours.has_logged(part));
}

#[test]
fn who_follows_itself_or_in_a_circle_or_nobody_is_told_so_and_keeps_its_data() {
    let mut ours = Ours::start();
    ours.words("SET own 1");
    ours.follow(ours.server.port().unwrap());
    wait_for_line(&ours, "follow themselves or each other in a circle");
    assert_eq!(ours.words("GET own"), Reply::Bulk(b"1".to_vec()));

    let mut second = Ours::start();
    second.words("SET second 1");
    ours.follow(second.server.port().unwrap());
    second.follow(ours.server.port().unwrap());
    wait_for_line(&second, "follow themselves or each other in a circle");
    assert_eq!(second.words("GET second"), Reply::Bulk(b"1".to_vec()));
    assert_eq!(second.words("REPLICAOF NO ONE"), ok());
    assert_eq!(second.words("SET more 1"), ok());

    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut third = Ours::start();
    third.words("SET third 1");
    third.follow(port);
    wait_for_line(&third, "Error condition on socket for SYNC: Connection refused");
    assert_eq!(third.words("REPLICAOF no-such-host.invalid 6379"), ok());
    wait_for_line(&third, "Connecting to MASTER no-such-host.invalid:6379");
    assert_eq!(third.words("GET third"), Reply::Bulk(b"1".to_vec()));
}

/// Redis says that something is wrong and goes on in another database.
#[test]
fn a_primary_with_more_databases_is_followed_up_to_the_first_that_is_missing() {
    let theirs = RedisServer::builder()
        .args(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"])
        .args(["--databases", "32"])
        .start();
    let mut ours = Ours::start_with(|builder| builder.setting("repl-diskless-load", "swapdb"));
    ours.follow(theirs.port());
    ours.wait_for("master_link_status", "up");
    theirs.cli(&["SET", "first", "1"]);
    theirs.cli(&["-n", "20", "SET", "astray", "1"]);
    theirs.cli(&["-n", "20", "SET", "astray", "2"]);
    wait_for_line(&ours, "Start this replica with as many as the master has");
    assert_eq!(ours.words("KEYS *"), Reply::Array(vec![Reply::Bulk(b"first".to_vec())]));
    let lost =
        ours.lines.lock().unwrap().iter().filter(|line| line.contains("databases is")).count();
    assert!(lost < 50, "it tries again and again: {lost} times");

    // In a payload, too.
    let mut fresh = Ours::start_with(|builder| builder.setting("repl-diskless-load", "swapdb"));
    fresh.words("SET own 1");
    fresh.follow(theirs.port());
    wait_for_line(&fresh, "databases");
    assert_eq!(fresh.words("REPLICAOF NO ONE"), ok());
    assert_eq!(fresh.words("GET own"), Reply::Bulk(b"1".to_vec()));
}
