//! Encrypted connections.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use testkit::{RedisServer, TempFolder};

use super::{our_store, run, stderr, stdout, tenure_cli};

/// An authority, and what it signed for `localhost`.
struct Certificates {
    folder: TempFolder,
}

impl Certificates {
    fn issue() -> Self {
        let folder = TempFolder::create();
        let mut params = named("authority", Vec::new());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = named("localhost", vec!["localhost".to_owned()]);
        let certificate = params.signed_by(&key, &authority).unwrap();
        let certificates = Self { folder };
        for (name, text) in [
            ("ca.pem", authority.pem()),
            ("localhost.pem", certificate.pem()),
            ("localhost.key", key.serialize_pem()),
        ] {
            std::fs::write(certificates.file(name), text).unwrap();
        }
        certificates
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

fn named(name: &str, hosts: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Our store, and the port on which it speaks TLS.
fn encrypted_store(certificates: &Certificates) -> (RedisServer, String) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let file = |name| certificates.file(name);
    let server = our_store().args(["--tls-port", &port, "--tls-auth-clients", "no"]).args([
        "--tls-cert-file",
        &file("localhost.pem"),
        "--tls-key-file",
        &file("localhost.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
    ]);
    (server.start(), port)
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
