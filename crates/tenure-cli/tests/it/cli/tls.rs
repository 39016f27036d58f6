//! Encrypted connections.

use testkit::{Certificates, RedisServer};

use super::{our_store, run, stderr, stdout, tenure_cli};

/// Our store, and the port on which it speaks TLS.
fn encrypted_store(certificates: &Certificates) -> (RedisServer, String) {
    let server = our_store().tls(certificates.settings("localhost", "no")).start();
    let port = server.tls_port().to_string();
    (server, port)
}

#[test]
fn one_command_a_bulk_and_a_large_reply_pass_encrypted() {
    let certificates = Certificates::issue();
    let (server, port) = encrypted_store(&certificates);
    let ca = certificates.file("ca.pem");
    let words = ["--tls", "--cacert", &ca, "-h", "localhost", "-p", &port];
    let on = |more: &[&str]| tenure_cli(&[&words[..], more].concat());
    assert_eq!(stdout(&run(on(&["PING"]), b"")), "PONG\n");
    let address = format!("rediss://localhost:{port}?ca={ca}");
    assert_eq!(stdout(&run(tenure_cli(&["-u", &address, "-3", "PING"]), b"")), "PONG\n");

    let value = "v".repeat(300_000);
    let mut input = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$300000\r\n{value}\r\n");
    for number in 0..2000 {
        input += &format!("SET key:{number} {number}\n");
        input += if number < 30 { "GET k\n" } else { "NOSUCH\n" };
    }
    let output = run(on(&["--pipe"]), input.as_bytes());
    assert_eq!(stdout(&output), "errors: 1970, replies: 4001\n", "{}", stderr(&output));
    assert_eq!(server.cli(&["DBSIZE"]), "2001");
    assert_eq!(run(on(&["--raw", "GET", "k"]), b"").stdout.len(), 300_001);
}

#[test]
fn a_certificate_of_somebody_else_is_refused_unless_told_otherwise() {
    let (ours, others) = (Certificates::issue(), Certificates::issue());
    let (_server, port) = encrypted_store(&ours);
    let stranger = others.file("ca.pem");
    let words = ["--tls", "--cacert", &stranger, "-h", "localhost", "-p", &port, "PING"];
    let output = run(tenure_cli(&words), b"");
    assert_eq!(output.status.code(), Some(69));
    assert!(stderr(&output).contains("certificate"), "{}", stderr(&output));

    let words = ["--tls", "--insecure", "-h", "localhost", "-p", &port, "PING"];
    let output = run(tenure_cli(&words), b"");
    assert_eq!(stdout(&output), "PONG\n");
    assert!(stderr(&output).contains("INSECURE"), "{}", stderr(&output));
}
