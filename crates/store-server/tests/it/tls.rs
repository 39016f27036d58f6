//! TLS: who is let in, who is not, and what a client that never finishes its handshake costs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use store_resp::Reply;
use store_server::{Server, ServerBuilder, StartError};
use testkit::{Certificates, TempFolder};

use crate::connection::Connection;

/// A server of these certificates; `auth_clients` as the setting.
fn server_of(certificates: &Certificates, auth_clients: &str) -> ServerBuilder {
    let settings = certificates.settings("localhost", auth_clients);
    let builder = Server::builder().any_tls_port();
    settings.iter().fold(builder, |builder, (name, value)| builder.setting(name, value))
}

fn roots(certificates: &Certificates) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.file("ca.pem")).unwrap()).unwrap();
    roots
}

/// What a client trusts, shows and speaks.
struct Dialer<'a> {
    trusts: &'a Certificates,
    shows: Option<&'a Certificates>,
    version: &'static SupportedProtocolVersion,
}

impl<'a> Dialer<'a> {
    fn new(trusts: &'a Certificates) -> Self {
        Self { trusts, shows: None, version: &TLS13 }
    }

    fn dial(&self, server: &Server) -> Connection {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[self.version])
            .unwrap()
            .with_root_certificates(roots(self.trusts));
        let config = match self.shows {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain = vec![CertificateDer::from_pem_file(own.file("client.pem")).unwrap()];
                let key = PrivateKeyDer::from_pem_file(own.file("client.key")).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = "localhost".try_into().unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        Connection::tls(StreamOwned::new(session, plain(server)))
    }

    /// Whether the server answers.
    fn is_served(&self, server: &Server) -> bool {
        self.dial(server).try_ask(&["PING"]) == Some(Reply::Simple("PONG".into()))
    }
}

fn plain(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.tls_port().unwrap())).unwrap();
    stream.set_read_timeout(Some(testkit::GENEROUS)).unwrap();
    stream
}

fn assert_closed(mut stream: TcpStream) {
    let mut answer = Vec::new();
    // An alert may come first; a reset is an end as well.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() < 100, "{} bytes came", answer.len());
}

#[test]
fn requests_large_and_small_pass_through_both_versions() {
    let certificates = Certificates::issue();
    let server = server_of(&certificates, "no").start().unwrap();
    assert_eq!(server.port(), None);
    for version in [&TLS12, &TLS13] {
        let mut client = Dialer { version, ..Dialer::new(&certificates) }.dial(&server);
        for len in [0, 1, 16_384, 16_385, 5_000_000] {
            let value: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let stored = client.ask(&[&b"SET"[..], b"key", &value]).unwrap();
            assert_eq!(stored, Reply::Simple("OK".into()));
            assert_eq!(client.words("GET key"), Reply::Bulk(value));
        }
        client.send_raw(&b"PING\r\n".repeat(10_000));
        for _ in 0..10_000 {
            assert_eq!(client.receive(), Some(Reply::Simple("PONG".into())));
        }
        assert_eq!(client.words("QUIT"), Reply::Simple("OK".into()));
        assert_eq!(client.receive(), None);
    }
}

#[test]
fn only_those_with_a_certificate_of_the_authority_are_served() {
    let (ours, strangers) = (Certificates::issue(), Certificates::issue());
    let asks = server_of(&ours, "yes").start().unwrap();
    let may = server_of(&ours, "optional").start().unwrap();
    let trusting = Dialer::new(&ours);
    let known = Dialer { shows: Some(&ours), ..Dialer::new(&ours) };
    let stranger = Dialer { shows: Some(&strangers), ..Dialer::new(&ours) };
    for (dialer, server, is_served) in [
        (&known, &asks, true),
        (&trusting, &asks, false),
        (&stranger, &asks, false),
        (&known, &may, true),
        (&trusting, &may, true),
        (&stranger, &may, false),
        // The client does not trust the server.
        (&Dialer::new(&strangers), &may, false),
    ] {
        assert_eq!(dialer.is_served(server), is_served);
    }
    // Those of TLS 1.2 learn it during the handshake, not after it.
    let older = Dialer { version: &TLS12, ..Dialer::new(&ours) };
    assert!(!older.is_served(&asks));
    assert!(older.is_served(&may));
}

#[test]
fn redis_cli_speaks_to_it() {
    let certificates = Certificates::issue();
    let server = server_of(&certificates, "yes").start().unwrap();
    let port = server.tls_port().unwrap().to_string();
    let run = |extra: &[&str]| {
        let ca = certificates.file("ca.pem");
        let words = ["-h", "localhost", "-p", &port, "--tls", "--cacert", &ca];
        let output = Command::new("redis-cli").args(words).args(extra).arg("PING").output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let [cert, key] = ["client.pem", "client.key"].map(|name| certificates.file(name));
    assert_eq!(run(&["--cert", &cert, "--key", &key]), "PONG\n");
    assert_ne!(run(&[]), "PONG\n");
}

#[test]
fn plain_requests_on_the_tls_port_are_closed_on() {
    let certificates = Certificates::issue();
    let server = server_of(&certificates, "no").start().unwrap();
    for bytes in
        [&b"PING\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\n\r\n", &[0x16; 900]]
    {
        let mut stream = plain(&server);
        stream.write_all(bytes).unwrap();
        assert_closed(stream);
    }
    assert!(Dialer::new(&certificates).is_served(&server));
}

#[test]
fn a_handshake_that_never_ends_is_ended_and_harms_nobody() {
    let certificates = Certificates::issue();
    let server = server_of(&certificates, "no").start().unwrap();
    // A hello that announces 16,000 bytes and never brings them, and one that says nothing.
    let half_open: Vec<TcpStream> = (0..50)
        .map(|number| {
            let mut stream = plain(&server);
            if number % 2 == 0 {
                stream.write_all(&[0x16, 3, 1, 0x3e, 0x80, 1, 0, 0x3e, 0x7c]).unwrap();
            }
            stream
        })
        .collect();
    assert!(Dialer::new(&certificates).is_served(&server));
    for stream in half_open {
        assert_closed(stream);
    }
    assert!(Dialer::new(&certificates).is_served(&server));
}

#[test]
fn certificates_are_read_anew_when_they_are_set_anew() {
    let (before, after) = (Certificates::issue(), Certificates::issue());
    let server = server_of(&before, "no").any_port().start().unwrap();
    let mut admin = Connection::tcp(server.port().unwrap());
    let mut old_client = Dialer::new(&before).dial(&server);
    assert_eq!(old_client.words("PING"), Reply::Simple("PONG".into()));

    let [cert, key] = ["localhost.pem", "localhost.key"].map(|name| after.file(name));
    let mut set = |cert: &str, key: &str| {
        let tls_port = server.tls_port().unwrap().to_string();
        let words = ["CONFIG", "SET", "tls-port", &tls_port, "tls-cert-file", cert];
        admin.ask(&[&words[..], &["tls-key-file", key]].concat()).unwrap()
    };
    let Reply::Error(reason) = set(&before.file("nosuch.pem"), &key) else { panic!("no error") };
    assert!(reason.contains("tls-cert-file") && reason.contains("nosuch.pem"), "{reason}");
    assert!(Dialer::new(&before).is_served(&server), "what was there stays");

    assert_eq!(set(&cert, &key), Reply::Simple("OK".into()));
    assert!(Dialer::new(&after).is_served(&server));
    assert!(!Dialer::new(&before).is_served(&server));
    assert_eq!(old_client.words("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn what_cannot_be_had_stops_the_start_with_the_setting_and_the_reason() {
    let certificates = Certificates::issue();
    let folder = TempFolder::create();
    let empty = folder.write("empty.pem", "");
    for (setting, value, reason) in [
        ("tls-cert-file", "", "tls-cert-file: not set"),
        ("tls-cert-file", "/nosuch", "tls-cert-file: /nosuch: No such file"),
        ("tls-cert-file", empty.to_str().unwrap(), "no certificate in PEM form"),
        ("tls-key-file", &certificates.file("ca.pem"), "no private key in plain PEM form"),
        ("tls-key-file", &certificates.file("client.key"), "tls-cert-file: "),
        ("tls-key-file-pass", "secret", "tls-key-file-pass: encrypted keys cannot be read"),
        ("tls-ca-cert-file", "", "or say tls-auth-clients no"),
        ("tls-protocols", "TLSv1.1 TLSv1.2", "TLSv1.1: only TLSv1.2 and TLSv1.3 are spoken"),
        ("tls-ciphers", "RC4-MD5", "tls-ciphers: RC4-MD5 is not supported"),
        ("tls-dh-params-file", "x", "only elliptic curves are supported"),
    ] {
        let builder = server_of(&certificates, "yes").setting(setting, value);
        let Err(error) = builder.start() else { panic!("{setting} {value} was taken") };
        assert!(matches!(error, StartError::Tls(_)), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn versions_and_suites_follow_the_settings() {
    let certificates = Certificates::issue();
    let modern =
        server_of(&certificates, "no").setting("tls-protocols", "TLSv1.3").start().unwrap();
    let older = Dialer { version: &TLS12, ..Dialer::new(&certificates) };
    assert!(!older.is_served(&modern));
    assert!(Dialer::new(&certificates).is_served(&modern));
    let picky = server_of(&certificates, "no")
        .setting("tls-protocols", "TLSv1.2")
        .setting("tls-ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256")
        .setting("tls-session-caching", "no")
        .setting("tls-prefer-server-ciphers", "yes")
        .start()
        .unwrap();
    assert!(older.is_served(&picky));
    assert!(!Dialer::new(&certificates).is_served(&picky));
}
