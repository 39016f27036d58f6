//! Encrypted connections: what each `sslmode` takes and refuses.

use std::time::Duration;

use tenure_core::protocol::Request;
use tenure_core::{StoreError, StoreErrorKind};
use testkit::{Certificates, PostgresServer};

use crate::player::{Player, install};

const LOOK: Request = Request::Observe { members: false };

async fn looked(address: &str) -> Result<(), StoreError> {
    let mut player = Player::new("ada", address, Duration::from_secs(3));
    player.timeout = Duration::from_secs(10);
    player.ask(LOOK).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_checked_as_far_as_the_mode_says() {
    let (certificates, others) = (Certificates::issue(), Certificates::issue());
    let server = PostgresServer::start_with_tls(&certificates, "localhost");
    install(&server).await;
    let at = |host: &str, options: String| {
        server.url().replace("127.0.0.1", host) + "?application_name=looker&" + &options
    };
    let (ca, other_ca) = (certificates.file("ca.pem"), others.file("ca.pem"));
    let full = |ca: &str| format!("sslmode=verify-full&sslrootcert={ca}");
    let authority = |ca: &str| format!("sslmode=verify-ca&sslrootcert={ca}");

    for address in [
        at("localhost", full(&ca)),
        at("127.0.0.1", authority(&ca)),
        at("127.0.0.1", "sslmode=require".to_owned()),
        at("127.0.0.1", "sslmode=prefer".to_owned()),
    ] {
        let player = Player::new("ada", &address, Duration::from_secs(3));
        player.ask(LOOK).await.unwrap_or_else(|error| panic!("{address}: {error}"));
        let seen = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE \
                    application_name = 'looker'";
        assert_eq!(server.psql(seen), "t", "{address}");
    }
    for (address, step) in [
        (at("127.0.0.1", full(&ca)), "write a name that it holds as the host"),
        (at("localhost", full(&other_ca)), "?sslrootcert=FILE"),
        (at("localhost", authority(&other_ca)), "?sslrootcert=FILE"),
    ] {
        let error = looked(&address).await.expect_err(&address);
        assert_eq!(error.kind(), StoreErrorKind::Denied, "{address}: {error}");
        assert!(error.next_step().unwrap_or_default().contains(step), "{address}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_refused_where_it_is_asked_for() {
    let server = PostgresServer::start();
    install(&server).await;
    let error = looked(&format!("{}?sslmode=require", server.url())).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
    looked(&format!("{}?sslmode=prefer", server.url())).await.unwrap();
    looked(&format!("{}?sslmode=disable", server.url())).await.unwrap();
}
