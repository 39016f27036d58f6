//! Links by TLS (`tls-replication`), with a user of their own, between ours and real servers.

use store_resp::Reply;
use store_server::{Server, ServerBuilder};
use testkit::{Certificates, GENEROUS, RedisServer, wait_until};

use super::support::{LogLines, assert_equal, connect, info, primary, text, wait_for_link};
use crate::connection::Connection;

/// What a replica may do, and no more.
const REPLICA_USER: &str = "ACL SETUSER repl on >secret +psync +replconf +ping";

fn encrypted(builder: ServerBuilder, certificates: &Certificates) -> ServerBuilder {
    let settings = certificates.settings("localhost", "yes");
    let builder = builder.any_tls_port().setting("tls-replication", "yes");
    settings.iter().fold(builder, |builder, (name, value)| builder.setting(name, value))
}

fn with_login(builder: ServerBuilder) -> ServerBuilder {
    builder.setting("masteruser", "repl").setting("masterauth", "secret")
}

/// A real server that speaks TLS and wants certificates.
fn real(certificates: &Certificates, arguments: &[&str]) -> RedisServer {
    RedisServer::builder()
        .args(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"])
        .args(["--tls-replication", "yes"])
        .args(arguments)
        .tls(certificates.settings("localhost", "yes"))
        .start()
}

fn follow_tls(replica: &mut Connection, host: &str, port: u16) {
    assert_eq!(text(&replica.words(&format!("REPLICAOF {host} {port}"))), "OK");
    wait_for_link(replica);
}

#[test]
fn ours_follows_redis_by_tls_as_a_user_that_may_do_nothing_else() {
    let certificates = Certificates::issue();
    let theirs = real(&certificates, &[]);
    let mut top = Connection::tcp(theirs.port());
    top.words("DEBUG POPULATE 3000 key 500");
    top.words(REPLICA_USER);
    top.words("ACL SETUSER default nopass");
    // A certificate for clients, in the place of the server's own.
    let builder = with_login(encrypted(primary(), &certificates))
        .setting("tls-client-cert-file", &certificates.file("client.pem"))
        .setting("tls-client-key-file", &certificates.file("client.key"));
    let server = builder.start().unwrap();
    let mut ours = connect(&server);
    follow_tls(&mut ours, "localhost", theirs.tls_port());
    top.words("SET large 1");
    top.ask(&["SET", "large", &"v".repeat(3_000_000)]);
    assert_equal(&mut top, &mut ours);
    let told = info(&mut top, "replication", "slave0");
    let port = format!("port={},", server.tls_port().unwrap());
    assert!(told.contains(&port), "it tells the port that speaks TLS: {told}");
}

#[test]
fn redis_and_ours_follow_ours_by_tls() {
    let certificates = Certificates::issue();
    let server = encrypted(primary(), &certificates).start().unwrap();
    let mut ours = connect(&server);
    ours.words("DEBUG POPULATE 3000 key 500");
    ours.words(REPLICA_USER);
    let login = ["--masteruser", "repl", "--masterauth", "secret"];
    let theirs = real(&certificates, &login);
    let second = with_login(encrypted(primary(), &certificates)).start().unwrap();
    let (mut theirs, mut second) = (Connection::tcp(theirs.port()), connect(&second));
    for replica in [&mut theirs, &mut second] {
        follow_tls(replica, "127.0.0.1", server.tls_port().unwrap());
        ours.ask(&["SET", "large", &"v".repeat(3_000_000)]);
        assert_equal(&mut ours, replica);
    }
}

#[test]
fn a_primary_that_nobody_vouches_for_is_not_followed() {
    let (certificates, others) = (Certificates::issue(), Certificates::issue());
    let theirs = real(&others, &[]);
    let lines = LogLines::default();
    let server = lines.of(encrypted(primary(), &certificates)).start().unwrap();
    let mut ours = connect(&server);
    ours.words("SET own 1");
    ours.words(&format!("REPLICAOF 127.0.0.1 {}", theirs.tls_port()));
    wait_until("a line about the certificate", GENEROUS, || lines.count("certificate") > 0);
    assert_eq!(ours.words("GET own"), Reply::Bulk(b"1".to_vec()));
    let refused = text(&ours.words("CONFIG SET tls-ca-cert-file ''"));
    assert!(refused.contains("tls-ca-cert-file"), "{refused}");
    let builder = Server::builder().any_port().setting("tls-replication", "yes");
    let error = builder.start().err().expect("it cannot start").to_string();
    assert!(error.contains("tls-ca-cert-file"), "{error}");
}

#[test]
fn a_link_with_tls_to_a_port_without_and_the_reverse_are_told_at_once() {
    let certificates = Certificates::issue();
    let top = encrypted(primary(), &certificates).start().unwrap();
    let lines = LogLines::default();
    let secured = lines.of(encrypted(primary(), &certificates)).start().unwrap();
    connect(&secured).words(&format!("REPLICAOF 127.0.0.1 {}", top.port().unwrap()));
    wait_until("a line about TLS", GENEROUS, || {
        lines.count("Error condition on socket for SYNC") > 0
            && lines.count("If its port speaks no TLS, take the one that does") > 0
    });
    let lines = LogLines::default();
    let plain = lines.of(primary()).start().unwrap();
    connect(&plain).words(&format!("REPLICAOF 127.0.0.1 {}", top.tls_port().unwrap()));
    wait_until("a line about TLS", GENEROUS, || lines.count("set tls-replication yes") > 0);
}
