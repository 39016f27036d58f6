//! Encrypted connections: a certificate is checked unless the user loudly asks otherwise.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tenure::core::protocol::StoreError;
use testkit::{RedisServer, TempFolder};

use crate::actor::Actor;

/// An authority, and what it signed for the server and for a client.
struct Certificates {
    folder: TempFolder,
}

impl Certificates {
    fn issue() -> Self {
        let folder = TempFolder::create();
        let mut params = named("authority", Vec::new());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let _ = folder.write("ca.pem", &authority.pem());
        for name in ["localhost", "client"] {
            let key = KeyPair::generate().unwrap();
            let certificate =
                named(name, vec![name.to_owned()]).signed_by(&key, &authority).unwrap();
            let _ = folder.write(&format!("{name}.pem"), &certificate.pem());
            let _ = folder.write(&format!("{name}.key"), &key.serialize_pem());
        }
        Certificates { folder }
    }

    fn file(&self, name: &str) -> String {
        path(&self.folder.path().join(name))
    }

    /// A server that speaks TLS on `tls_port` and asks clients for certificates as told.
    fn server(&self, tls_port: u16, auth_clients: &str) -> RedisServer {
        let arguments = [
            ["--tls-port", &tls_port.to_string()],
            ["--tls-cert-file", &self.file("localhost.pem")],
            ["--tls-key-file", &self.file("localhost.key")],
            ["--tls-ca-cert-file", &self.file("ca.pem")],
            ["--tls-auth-clients", auth_clients],
        ];
        let arguments: Vec<String> = arguments.concat().into_iter().map(String::from).collect();
        RedisServer::builder().args(arguments).start()
    }
}

/// With a name of its own: two of one name would look like one that signed itself.
fn named(name: &str, hosts: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn path(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_certificate_is_checked_against_the_named_authority() {
    let certificates = Certificates::issue();
    let port = free_port();
    let server = certificates.server(port, "no");
    let ca = certificates.file("ca.pem");

    let ada = Actor::at(&format!("rediss://localhost:{port}?ca={ca}"), "job");
    let answer = ada.acquire(1).await.unwrap();
    assert_eq!(answer.warnings, Vec::<String>::new());

    // Another authority, and another name than the certificate's.
    let strangers = Certificates::issue();
    for address in [
        format!("rediss://localhost:{port}?ca={}", strangers.file("ca.pem")),
        format!("rediss://127.0.0.1:{port}?ca={ca}"),
    ] {
        let error = Actor::at(&address, "job").acquire(1).await.unwrap_err();
        assert!(matches!(&error, StoreError::Denied(_)), "{address}: {error:?}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }

    // A port that does not speak TLS.
    let address = format!("rediss://localhost:{}?ca={ca}", server.port());
    let ada = Actor::at(&address, "job").within(std::time::Duration::from_secs(5));
    let error = ada.acquire(1).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn any_certificate_is_taken_only_when_asked_loudly() {
    let certificates = Certificates::issue();
    let port = free_port();
    let _server = certificates.server(port, "no");
    let ada = Actor::at(&format!("rediss://127.0.0.1:{port}#insecure"), "job");
    assert!(ada.backend.describe().contains("insecure"));
    let answer = ada.acquire(1).await.unwrap();
    assert!(answer.warnings.iter().any(|w| w.starts_with("INSECURE")), "{:?}", answer.warnings);
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_the_server_asks_for_one() {
    let certificates = Certificates::issue();
    let port = free_port();
    let _server = certificates.server(port, "yes");
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|f| certificates.file(f));
    let with = format!("rediss://localhost:{port}?ca={ca}&cert={cert}&key={key}");
    Actor::at(&with, "job").lead(1).await;
    let without = Actor::at(&format!("rediss://localhost:{port}?ca={ca}"), "job");
    let error = without.within(std::time::Duration::from_secs(1)).acquire(1).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unreachable(_)), "{error:?}");
}
