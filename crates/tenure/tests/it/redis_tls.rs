//! Encrypted connections: a certificate is checked unless the user loudly asks otherwise.

use std::time::Duration;
use tenure_core::{StoreError, StoreErrorKind};
use testkit::{Certificates, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::actor::Actor;

/// A server that shows the certificate `name` and asks clients for theirs as told.
fn server(certificates: &Certificates, name: &str, auth_clients: &str) -> RedisServer {
    RedisServer::builder().tls(certificates.settings(name, auth_clients)).start()
}

/// What taking part at this address fails of.
async fn refusal(address: &str) -> StoreError {
    let actor = Actor::at(address, "job").within(Duration::from_secs(5));
    actor.acquire(1).await.unwrap_err()
}

/// Fails unless a person is told what is refused and what to do.
async fn assert_denied(address: &str, words: [&str; 2]) {
    let error = refusal(address).await;
    assert_eq!(error.kind(), StoreErrorKind::Denied, "{address}: {error:?}");
    for word in words {
        assert!(error.to_string().contains(word), "{error} does not say {word}");
    }
}

#[tokio::test]
async fn a_certificate_is_checked_against_the_named_authority() {
    let certificates = Certificates::issue();
    let server = server(&certificates, "localhost", "no");
    let (port, ca) = (server.tls_port(), certificates.file("ca.pem"));

    let ada = Actor::at(&format!("rediss://localhost:{port}?ca={ca}"), "job");
    let answer = ada.acquire(1).await.unwrap();
    assert_eq!(answer.warnings, Vec::<String>::new());

    // A stranger keeps its files as long as they are needed.
    let strangers = Certificates::issue();
    let elsewhere = format!("rediss://localhost:{port}?ca={}", strangers.file("ca.pem"));
    let named = format!("another issuer than {}", strangers.file("ca.pem"));
    assert_denied(&elsewhere, [&named, "?ca=FILE"]).await;
}

#[tokio::test]
async fn a_certificate_of_another_name_is_refused() {
    let certificates = Certificates::issue();
    let server = server(&certificates, "localhost", "no");
    let (port, ca) = (server.tls_port(), certificates.file("ca.pem"));
    let by_number = format!("rediss://127.0.0.1:{port}?ca={ca}");
    assert_denied(&by_number, ["not valid for name", "a name that it holds"]).await;
}

#[tokio::test]
async fn a_certificate_that_has_ended_is_refused() {
    let certificates = Certificates::issue();
    let server = server(&certificates, "expired", "no");
    let (port, ca) = (server.tls_port(), certificates.file("ca.pem"));
    let address = format!("rediss://localhost:{port}?ca={ca}");
    assert_denied(&address, ["expired", "renew it"]).await;
}

#[tokio::test]
async fn the_wrong_kind_of_port_is_told_both_ways() {
    let certificates = Certificates::issue();
    let server = server(&certificates, "localhost", "no");
    let ca = certificates.file("ca.pem");
    let error = refusal(&format!("rediss://localhost:{}?ca={ca}", server.port())).await;
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error:?}");
    assert!(error.to_string().contains("the port has no TLS"), "{error}");

    let error = refusal(&format!("redis://localhost:{}", server.tls_port())).await;
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error:?}");
    assert!(error.to_string().contains("rediss://"), "{error}");
}

/// How our own store and others end a plain request at a port that expects TLS.
#[tokio::test]
async fn an_alert_in_answer_to_a_plain_request_is_a_wrong_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 64];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"\x15\x03\x03\x00\x02\x02\x0a").await;
        }
    });
    let error = refusal(&address).await;
    assert_eq!(error.kind(), StoreErrorKind::WrongAddress, "{error:?}");
    assert!(error.to_string().contains("write rediss://"), "{error}");
}

#[tokio::test]
async fn any_certificate_is_taken_only_when_asked_loudly() {
    let certificates = Certificates::issue();
    let server = server(&certificates, "expired", "no");
    let ada = Actor::at(&format!("rediss://127.0.0.1:{}#insecure", server.tls_port()), "job");
    assert!(ada.backend.describe().contains("insecure"));
    let answer = ada.acquire(1).await.unwrap();
    assert!(answer.warnings.iter().any(|w| w.starts_with("INSECURE")), "{:?}", answer.warnings);
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_the_server_asks_for_one() {
    let certificates = Certificates::issue();
    let server = server(&certificates, "localhost", "yes");
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|f| certificates.file(f));
    let plain = format!("rediss://localhost:{}?ca={ca}", server.tls_port());
    Actor::at(&format!("{plain}&cert={cert}&key={key}"), "job").lead(1).await;
    assert_denied(&plain, ["asks for a client certificate", "?cert=FILE&key=FILE"]).await;

    let strangers = Certificates::issue();
    let [cert, key] = ["client.pem", "client.key"].map(|f| strangers.file(f));
    let stranger = format!("{plain}&cert={cert}&key={key}");
    assert_denied(&stranger, ["client certificate is refused", "the server trusts"]).await;
}
