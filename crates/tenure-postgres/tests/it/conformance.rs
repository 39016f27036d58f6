//! The PostgreSQL backend keeps the contract of backends: directly, by a unix socket, behind a
//! pooler, and on a standby that was promoted.

use std::sync::Arc;

use tenure::backend::Backend;
use tenure::backend::conformance;
use tenure_postgres::PostgresBackend;
use testkit::{PgBouncer, PostgresServer};

use crate::player::install;

fn opened(url: &str) -> Arc<dyn Backend> {
    Arc::new(PostgresBackend::open(url).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_contract() {
    let server = PostgresServer::start();
    install(&server).await;
    let report = conformance::check(|| opened(&server.url())).await;
    report.assert_passed();
    assert!(report.passed().len() > 40, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_contract_behind_a_pooler() {
    let server = PostgresServer::start();
    install(&server).await;
    let pooler = PgBouncer::before(&server);
    let report = conformance::check(|| opened(&server.url_at(pooler.port()))).await;
    report.assert_passed();
    assert_eq!(server.psql("SELECT count(*) FROM pg_prepared_statements"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_keeps_the_contract() {
    let mut server = PostgresServer::start();
    install(&server).await;
    let standby = server.standby("one");
    server.kill();
    standby.promote();
    let report = conformance::check(|| opened(&standby.socket_url())).await;
    report.assert_passed();
}
