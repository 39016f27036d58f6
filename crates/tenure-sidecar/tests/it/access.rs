//! Who may ask, and what a stranger gets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tenure::Secret;
use tenure::config::{Format, Loader};
use tenure_sidecar::{CONNECTIONS_MAX, ServerSettings, Sidecar, SidecarError};
use testkit::{GENEROUS, TempFolder};

use crate::http::{head, read, request};
use crate::stage::{RESOURCE, Stage};

const TOKEN: &str = "0123456789abcdef";

#[test]
fn beyond_loopback_strangers_are_not_let_in() {
    let stage = Stage::embedded();
    let builder = || Sidecar::builder(stage.client("ada")).observe(RESOURCE);
    let open = stage.serve_at(builder(), ServerSettings::listen("0.0.0.0:0"));
    let error = open.err().unwrap();
    assert!(matches!(error, SidecarError::OpenToAll { .. }));
    assert!(error.to_string().contains("sidecar.token_file"), "{error}");

    let short = ServerSettings::listen("0.0.0.0:0").token(Secret::new("short"));
    let error = stage.serve_at(builder(), short).err().unwrap();
    assert!(matches!(error, SidecarError::TokenTooShort { .. }));

    let nonsense = stage.serve_at(builder(), ServerSettings::listen("localhost"));
    assert!(matches!(nonsense.err().unwrap(), SidecarError::Address { .. }));

    let guarded = ServerSettings::listen("0.0.0.0:0").token(Secret::new(TOKEN));
    let served = stage.serve_at(builder(), guarded).unwrap();
    let address = (std::net::Ipv4Addr::LOCALHOST, served.address.port()).into();
    for path in ["/livez", "/readyz", "/", "/page/main.js"] {
        assert_ne!(request(address, "GET", path, &[], "").status, 401, "{path}");
    }
    for path in ["/status", "/health", "/metrics", "/leader", "/events", "/history/x"] {
        let refused = request(address, "GET", path, &[], "");
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.head.to_lowercase().contains("www-authenticate: bearer"));
    }
    let right = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(request(address, "GET", "/status", &[&right], "").status, 200);
    assert_eq!(request(address, "POST", "/resign/nightly-report", &[], "").status, 401);
}

#[test]
fn a_busy_port_is_named() {
    let stage = Stage::embedded();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let builder = Sidecar::builder(stage.client("ada")).observe(RESOURCE);
    let error = stage.serve_at(builder, ServerSettings::listen(address.clone())).err().unwrap();
    assert!(error.to_string().contains(&address), "{error}");
}

#[test]
fn foreign_pages_are_refused() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    let asks = |lines: &[&str]| {
        request(served.address, "POST", "/resign/nightly-report", lines, "").status
    };
    assert_eq!(asks(&["Origin: http://evil.example"]), 403);
    assert_eq!(asks(&["Sec-Fetch-Site: cross-site"]), 403);
    assert_eq!(asks(&["Content-Type: text/plain"]), 415);
    assert_eq!(asks(&["Host: evil.example"]), 421);
    assert_eq!(asks(&["Host: localhost", "Host: evil.example"]), 400);
    assert!(leading.is_leader(), "nothing of it had an effect");
    let page = served.get("/");
    let policy = page.head.to_lowercase();
    assert!(policy.contains("content-security-policy: default-src 'none'"), "{policy}");
    let own = format!("Origin: http://{}", served.address);
    assert_eq!(asks(&[&own]), 200);
}

#[test]
fn a_request_that_is_too_large_or_too_slow_harms_nobody() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    let large = format!("X: {}", "x".repeat(64 * 1024));
    assert_eq!(request(served.address, "GET", "/livez", &[&large], "").status, 431);

    let half = |_| {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\n").unwrap();
        stream
    };
    let slow: Vec<TcpStream> = (0..CONNECTIONS_MAX + 1).map(half).collect();
    assert_eq!(served.get("/livez").status, 200, "one makes room");
    drop(slow);
    assert_eq!(served.get("/livez").status, 200);
}

#[test]
fn with_client_certificates_only_those_who_have_one_are_served() {
    let folder = TempFolder::create();
    let authority = Authority::new();
    let (server_cert, server_key) = authority.issue("localhost");
    let ca = folder.write("ca.pem", &authority.pem());
    let (cert, key) =
        (folder.write("cert.pem", &server_cert), folder.write("key.pem", &server_key));
    let text = format!(
        "[sidecar]\nlisten = '0.0.0.0:0'\n[sidecar.tls]\ncert_file = {cert:?}\nkey_file = {key:?}\n\
         client_ca_file = {ca:?}\n"
    );
    let config = Loader::new().text(Format::Toml, "tenure.toml", &text).load().unwrap();
    let stage = Stage::embedded();
    let builder = Sidecar::builder(stage.client("ada")).observe(RESOURCE);
    let settings = ServerSettings::from_config(&config.sidecar).unwrap();
    let served = stage.serve_at(builder, settings).unwrap();
    let port = served.address.port();

    let known = authority.connect(port, Some(authority.issue("ops")));
    assert_eq!(known.map(|answer| answer.status), Some(200));
    assert!(authority.connect(port, None).is_none(), "no certificate, no service");
    let stranger = Authority::new();
    assert!(authority.connect(port, Some(stranger.issue("ops"))).is_none());
}

#[test]
fn renewed_certificates_are_read_again() {
    let folder = TempFolder::create();
    let (old, new) = (Authority::new(), Authority::new());
    let write = |(cert, key): (String, String)| {
        (folder.write("cert.pem", &cert), folder.write("key.pem", &key))
    };
    let (cert, key) = write(old.issue("localhost"));
    let text = format!(
        "[sidecar]\nlisten = '127.0.0.1:0'\n[sidecar.tls]\ncert_file = {cert:?}\nkey_file = {key:?}\n"
    );
    let config = Loader::new().text(Format::Toml, "tenure.toml", &text).load().unwrap();
    let stage = Stage::embedded();
    let builder = Sidecar::builder(stage.client("ada")).observe(RESOURCE);
    let settings = ServerSettings::from_config(&config.sidecar).unwrap();
    let served = stage.serve_at(builder, settings).unwrap();
    let port = served.address.port();
    assert!(old.connect(port, None).is_some() && new.connect(port, None).is_none());
    // Half of a renewal: the certificate without its key. What was there before goes on.
    let (cert, key) = new.issue("localhost");
    let _ = folder.write("cert.pem", &cert);
    std::thread::sleep(Duration::from_secs(6));
    assert!(old.connect(port, None).is_some());
    let _ = folder.write("key.pem", &key);
    testkit::wait_until("the renewed one is shown", GENEROUS, || new.connect(port, None).is_some());
}

#[test]
fn certificates_that_do_not_fit_together_are_told() {
    let settings = |text: &str| {
        let config = Loader::new().text(Format::Toml, "tenure.toml", text).load().unwrap();
        ServerSettings::from_config(&config.sidecar).unwrap_err().to_string()
    };
    assert!(settings("sidecar.tls.cert_file = 'x'").contains("key_file"));
    assert!(settings("sidecar.tls.client_ca_file = 'x'").contains("cert_file"));
}

/// Half a head, and then nothing: whoever does that must not keep others out for ever.
#[test]
fn whoever_does_not_finish_its_head_is_hung_up_on() {
    let stage = Stage::embedded();
    let builder = Sidecar::builder(stage.client("ada")).observe(RESOURCE);
    let settings = ServerSettings::listen("127.0.0.1:0").caller_timeout(Duration::from_millis(200));
    let served = stage.serve_at(builder, settings).unwrap();
    for said in ["", "GET /livez HTTP/1.1\r\nHo"] {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(GENEROUS)).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server hangs up");
        assert!(!String::from_utf8_lossy(&answer).contains("200 OK"), "after {said:?}");
    }
    assert_eq!(served.get("/livez").status, 200, "others are served");
}

/// Whoever issues the certificates of a test.
struct Authority {
    cert: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["ca".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key).unwrap();
        Authority { cert, issuer: rcgen::Issuer::new(params, key) }
    }

    fn pem(&self) -> String {
        self.cert.pem()
    }

    /// A certificate and its key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        (cert.pem(), key.serialize_pem())
    }

    /// Asks for `/livez` with this certificate; `None` when the server hangs up.
    fn connect(&self, port: u16, own: Option<(String, String)>) -> Option<crate::http::Answer> {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some((cert, key)) => {
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        let name = "localhost".try_into().unwrap();
        let mut session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let address = (std::net::Ipv4Addr::LOCALHOST, port).into();
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(GENEROUS)).unwrap();
        let mut stream = rustls::Stream::new(&mut session, &mut socket);
        stream.write_all(head(address, "GET", "/livez", &[], "").as_bytes()).ok()?;
        let answer = read(stream);
        (answer.status != 0).then_some(answer)
    }
}
