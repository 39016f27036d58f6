//! Servers that cannot be used, or not now: a typed error that names the next step, in time.

use std::time::{Duration, Instant};

use tenure::backend::{Backend, Connection};
use tenure_core::protocol::{Outcome, Request};
use tenure_core::{StoreError, StoreErrorKind};
use tenure_postgres::{Installed, PostgresUrl};
use testkit::{GENEROUS, PostgresServer};

use crate::player::{Player, install};

const TTL: Duration = Duration::from_secs(3);
const LOOK: Request = Request::Observe { members: false };

/// What an instance with this address is told.
async fn told(address: &str) -> StoreError {
    let mut player = Player::new("ada", address, TTL);
    player.timeout = Duration::from_secs(5);
    let looked = player.ask(LOOK).await.map(|answer| answer.outcome);
    let tried = player.acquire(true).await;
    let error = tried.expect_err("nothing is granted there");
    // A right to write may be all that is missing.
    if let Err(seen) = looked {
        assert_eq!(seen.kind(), error.kind(), "{seen} but {error}");
    }
    error
}

fn in_database(server: &PostgresServer, name: &str) -> String {
    server.url().strip_suffix("postgres").unwrap().to_owned() + name
}

fn assert_says(error: &StoreError, kind: StoreErrorKind, step: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    let said = error.next_step().unwrap_or_default();
    assert!(said.contains(step), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_cannot_use_a_database_is_told_what_to_run() {
    let server = PostgresServer::start();
    let error = told(&server.url()).await;
    assert_says(&error, StoreErrorKind::WrongAddress, "tenure store init");

    install(&server).await;
    server.psql("CREATE ROLE app LOGIN; CREATE ROLE \"Odd Role\" LOGIN");
    let error = told(&server.url_of("app")).await;
    assert_says(&error, StoreErrorKind::Denied, "GRANT tenure_member TO app");
    let error = told(&server.url_of("Odd%20Role")).await;
    assert_says(&error, StoreErrorKind::Denied, "GRANT tenure_member TO \"Odd Role\"");
    server.psql("GRANT tenure_member TO app");
    let mut player = Player::new("ada", &server.url_of("app"), TTL);
    let token = player.lead().await;
    assert_eq!(player.renew(token).await.unwrap(), Outcome::Renewed);
    assert_eq!(player.release(token).await, Outcome::Released);

    let error = told(&server.url_of("nobody_here")).await;
    assert_says(&error, StoreErrorKind::Denied, "check the user nobody_here");
    let error = told(&in_database(&server, "missing")).await;
    assert_says(&error, StoreErrorKind::WrongAddress, "CREATE DATABASE missing");
    server.psql(
        "CREATE DATABASE old ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    let error = told(&in_database(&server, "old")).await;
    assert_says(&error, StoreErrorKind::WrongAddress, "ENCODING 'UTF8'");
    server.psql("ALTER ROLE app SET default_transaction_read_only = on");
    let error = told(&server.url_of("app")).await;
    assert_says(&error, StoreErrorKind::Denied, "ALTER ROLE app");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_refused_and_names_its_primary() {
    let server = PostgresServer::start();
    install(&server).await;
    let standby = server.standby("one");
    let primary = format!("127.0.0.1:{}", server.port());
    testkit::wait_until("the standby to follow", GENEROUS, || {
        standby.psql("SELECT count(*) FROM pg_stat_wal_receiver") == "1"
    });
    let error = told(&standby.url()).await;
    assert_says(&error, StoreErrorKind::WrongNode, &primary);
    // With both in the address, the one that takes writes is found.
    let other = format!("@127.0.0.1:{},", standby.port());
    let both = server.url().replacen('@', &other, 1);
    Player::new("ada", &both, TTL).lead().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_somebody_else_are_refused_and_left_alone() {
    let server = PostgresServer::start();
    let foreign = "CREATE SCHEMA tenure; CREATE TABLE tenure.lease (resource text, ends date); \
                   INSERT INTO tenure.lease VALUES ('flat', '2030-01-01'); \
                   CREATE TABLE tenure.life (a int); CREATE TABLE tenure.members (b int)";
    server.psql(foreign);
    let before = server.dump(&[]);
    let error = told(&server.url()).await;
    assert_says(&error, StoreErrorKind::Unexpected, "a database of their own");
    let url = PostgresUrl::parse(&server.url()).unwrap();
    let error = tenure_postgres::install(&url).await.unwrap_err();
    assert_says(&error, StoreErrorKind::Unexpected, "a database of their own");
    let settings_aside = |dump: &str| {
        dump.lines().filter(|line| !line.starts_with('\\')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(settings_aside(&server.dump(&[])), settings_aside(&before));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_is_installed_once_and_by_whoever_may() {
    let server = PostgresServer::start();
    let url = PostgresUrl::parse(&server.url()).unwrap();
    server.psql("CREATE ROLE app LOGIN");
    let app = PostgresUrl::parse(&server.url_of("app")).unwrap();
    let error = tenure_postgres::install(&app).await.unwrap_err();
    assert_says(&error, StoreErrorKind::Denied, "GRANT CREATE ON DATABASE postgres TO app");
    assert_eq!(tenure_postgres::install(&url).await.unwrap(), Installed::Now);
    assert_eq!(tenure_postgres::install(&url).await.unwrap(), Installed::Before);
    // By hand, as it is printed.
    server.psql("DROP SCHEMA tenure CASCADE");
    server.psql(&tenure_postgres::statements_to_install());
    assert_eq!(tenure_postgres::install(&url).await.unwrap(), Installed::Before);
    // A database that has just been prepared makes nobody wait.
    let mut player = Player::new("ada", &server.url(), Duration::from_millis(100));
    testkit::wait_until("its age to count", GENEROUS, || {
        server.psql("SELECT clock_timestamp() - since > interval '2 s' FROM tenure.life") == "t"
    });
    let outcome = player.acquire(false).await.unwrap();
    assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_is_told_in_time_and_found_again() {
    let mut server = PostgresServer::start();
    install(&server).await;
    let mut player = Player::new("ada", &server.url(), TTL);
    let token = player.lead().await;
    server.pause();
    for _ in 0..5 {
        let (began_at, limit) = (Instant::now(), Duration::from_millis(300));
        let failed = player.ask_within(LOOK, limit).await;
        assert!(failed.is_err(), "a stopped server answered");
        assert!(began_at.elapsed() < GENEROUS, "it took {:?}", began_at.elapsed());
    }
    server.resume();
    until_answered(&player).await;
    server.kill();
    let error = loop {
        if let Err(error) = player.ask_within(LOOK, Duration::from_secs(1)).await {
            break error;
        }
    };
    assert!(error.is_temporary(), "{error}");
    server.restart();
    until_answered(&player).await;
    assert!(matches!(player.renew(token).await.unwrap(), Outcome::Renewed | Outcome::Lost(_)));
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'";
    let count: u32 = server.psql(connections).parse().unwrap();
    assert!(count <= 5, "{count} connections of one process");
}

async fn until_answered(player: &Player) {
    let began_at = Instant::now();
    while player.ask_within(LOOK, Duration::from_secs(2)).await.is_err() {
        assert!(began_at.elapsed() < GENEROUS, "it is not found again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_locks_holds_up_its_election_alone() {
    let server = PostgresServer::start();
    install(&server).await;
    let mut player = Player::new("ada", &server.url(), TTL);
    let token = player.lead().await;
    let mut psql = server.psql_command("postgres");
    psql.args(["-c", "BEGIN; SELECT 'locked' FROM tenure.lease FOR UPDATE; SELECT pg_sleep(600)"]);
    let mut locker = testkit::Process::spawn(psql);
    testkit::wait_until("the lock", GENEROUS, || {
        server.psql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
    });
    let renew = Request::Renew { token, ttl: TTL, fleet_max_ttl: TTL };
    for _ in 0..6 {
        let error = player.ask_within(renew.clone(), Duration::from_millis(400)).await;
        let error = error.expect_err("the row is locked");
        assert!(error.is_temporary(), "{error}");
    }
    assert!(player.ask(LOOK).await.is_ok(), "reading waits for nobody");
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    testkit::wait_until("abandoned calls to end on the server, too", GENEROUS, || {
        server.psql(waiting) == "0"
    });
    server.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
    );
    locker.kill();
    player.ask(renew).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_waits_for_the_standby_and_says_so() {
    let server = PostgresServer::start();
    install(&server).await;
    let strict = format!("{}?mode=strict", server.url());
    let error = told(&strict).await;
    assert_says(&error, StoreErrorKind::NotNow, "ALTER SYSTEM SET synchronous_standby_names");

    let mut standby = server.standby("one");
    server.psql("ALTER SYSTEM SET synchronous_standby_names = 'one'");
    server.psql("SELECT pg_reload_conf()");
    testkit::wait_until("the standby to count", GENEROUS, || {
        server.psql("SELECT sync_state FROM pg_stat_replication") == "sync"
    });
    let mut player = Player::new("ada", &strict, TTL);
    let token = player.lead().await;
    let found = "SELECT content LIKE '%ada%' FROM tenure.lease";
    assert_eq!(standby.psql(found), "t", "whatever is granted is on the standby");

    standby.stop();
    let renew = Request::Renew { token, ttl: TTL, fleet_max_ttl: TTL };
    let error = player.ask_within(renew.clone(), Duration::from_secs(1)).await;
    error.expect_err("nobody confirmed it");
    // Whoever ends the wait by hand does not make it true.
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let cancelled = player.ask_within(renew.clone(), Duration::from_secs(10));
    let (outcome, ()) = tokio::join!(cancelled, async {
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            server.psql(cancel);
        }
    });
    outcome.expect_err("a commit that was cancelled is confirmed by nobody");
    // In mode available the primary decides alone.
    let mut other = Player::new("bob", &server.url(), TTL);
    server.psql(cancel);
    other.acquire(false).await.unwrap();

    standby.restart();
    let began_at = Instant::now();
    while player.ask_within(renew.clone(), Duration::from_secs(2)).await.is_err() {
        assert!(began_at.elapsed() < GENEROUS, "it is not confirmed any more");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_of_the_connection_is_told() {
    let mut server = PostgresServer::start();
    install(&server).await;
    let backend = tenure_postgres::PostgresBackend::open(&server.url()).unwrap();
    let mut state = backend.connection();
    let within = |wait| tokio::time::timeout(GENEROUS, wait);
    within(Box::pin(async { state.wait_for(|state| *state == Connection::Up).await.map(|_| ()) }))
        .await
        .unwrap()
        .unwrap();
    server.stop();
    let mut state = backend.connection();
    let is_down = |state: &Connection| matches!(state, Connection::Down(_));
    tokio::time::timeout(GENEROUS, state.wait_for(is_down)).await.unwrap().unwrap();
}
