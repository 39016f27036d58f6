//! Data that came back from a copy, in the middle of a term that it knows nothing of: whoever led
//! may believe in its lease, so nobody follows before that is over, and tokens grow.

use std::time::Duration;

use tenure_core::Token;
use tenure_core::protocol::Outcome;
use testkit::PostgresServer;

use crate::player::{Player, Term, install};

const TTL: Duration = Duration::from_secs(3);

/// A term that ended is in the copy, one that runs is not.
struct Story {
    server: PostgresServer,
    ada: Player,
    bob: Player,
}

impl Story {
    async fn begin() -> Self {
        let server = PostgresServer::start();
        install(&server).await;
        let mut ada = Player::new("ada", &server.url(), TTL);
        let token = ada.lead().await;
        assert_eq!(ada.release(token).await, Outcome::Released);
        let bob = Player::new("bob", &server.url(), TTL);
        Story { server, ada, bob }
    }

    /// Ada leads from now on, by a term that the copy does not have.
    async fn lead_after_the_copy(&mut self) -> Term {
        self.ada.lead_at_last().await.0
    }

    /// Bob leads after the copy was put back.
    async fn succeed(&mut self, term: &Term) {
        let (next, before) = self.bob.lead_at_last().await;
        assert!(before.iter().any(|o| matches!(o, Outcome::Quarantine { .. })), "{before:?}");
        assert!(next.granted_at >= term.asked_at + TTL, "the lease of ada was not over");
        assert!(next.token > term.token, "{:?} follows {:?}", next.token, term.token);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_was_copied_back_makes_everyone_wait() {
    let mut story = Story::begin().await;
    let copy = story.server.copy();
    let term = story.lead_after_the_copy().await;
    story.server.bring_back(&copy);
    story.succeed(&term).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_that_was_loaded_into_the_running_server_makes_everyone_wait() {
    let mut story = Story::begin().await;
    let dump = story.server.dump(&["--schema=tenure", "--inserts"]);
    let term = story.lead_after_the_copy().await;
    story.server.psql("DROP SCHEMA tenure CASCADE");
    story.server.psql(&without_settings(&dump));
    story.succeed(&term).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_were_loaded_into_the_tables_make_everyone_wait() {
    let mut story = Story::begin().await;
    let dump = story.server.dump(&["--schema=tenure", "--data-only", "--inserts"]);
    let term = story.lead_after_the_copy().await;
    let emptied = "DELETE FROM tenure.life; DELETE FROM tenure.lease; DELETE FROM tenure.members; \
                   DELETE FROM tenure.history; DELETE FROM tenure.hint;";
    story.server.psql(&format!("BEGIN; {emptied} {} COMMIT;", without_settings(&dump)));
    story.succeed(&term).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_of_a_lease_that_was_put_back_makes_everyone_wait() {
    let mut story = Story::begin().await;
    story.server.psql("CREATE TABLE aside AS SELECT * FROM tenure.lease");
    let term = story.lead_after_the_copy().await;
    story.server.psql(
        "UPDATE tenure.lease AS l SET content = aside.content, version = aside.version, \
         written_by = aside.written_by FROM aside WHERE aside.resource = l.resource",
    );
    story.succeed(&term).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_made_from_a_template_makes_everyone_wait() {
    let mut story = Story::begin().await;
    let cut_off =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres'";
    testkit::wait_until("nobody to be connected for a moment", testkit::GENEROUS, || {
        admin(&story.server, "ALTER DATABASE postgres ALLOW_CONNECTIONS false");
        admin(&story.server, cut_off);
        let is_copied = admin(&story.server, "CREATE DATABASE copy TEMPLATE postgres");
        admin(&story.server, "ALTER DATABASE postgres ALLOW_CONNECTIONS true");
        is_copied
    });
    let term = story.lead_after_the_copy().await;
    testkit::wait_until("the copy to take the place", testkit::GENEROUS, || {
        admin(&story.server, "ALTER DATABASE postgres ALLOW_CONNECTIONS false");
        admin(&story.server, cut_off);
        admin(&story.server, "ALTER DATABASE postgres RENAME TO gone")
    });
    assert!(admin(&story.server, "ALTER DATABASE copy RENAME TO postgres"));
    story.succeed(&term).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_lagged_and_was_promoted_makes_everyone_wait() {
    let mut story = Story::begin().await;
    let mut standby = story.server.standby("one");
    standby.stop();
    let term = story.lead_after_the_copy().await;
    story.server.kill();
    standby.restart();
    standby.promote();
    story.bob = Player::new("bob", &standby.url(), TTL);
    story.succeed(&term).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_lost_nothing_leaves_the_leader_its_term() {
    let mut story = Story::begin().await;
    let term = story.lead_after_the_copy().await;
    story.server.restart();
    let outcome = renewed(&story.ada, term.token).await;
    assert_eq!(outcome, Outcome::Renewed);
    assert_eq!(story.ada.release(term.token).await, Outcome::Released);
    let (next, before) = story.bob.lead_at_last().await;
    assert!(next.token > term.token);
    assert!(before.iter().all(|o| matches!(o, Outcome::Quarantine { .. })), "{before:?}");
}

/// Whether a statement succeeds that is given from another database.
fn admin(server: &PostgresServer, statement: &str) -> bool {
    let mut psql = server.psql_command("postgres");
    psql.args(["-d", "template1", "-c", statement]);
    psql.output().unwrap().status.success()
}

/// The connection may have to be opened again first.
async fn renewed(player: &Player, token: Token) -> Outcome {
    for _ in 0..100 {
        if let Ok(outcome) = player.renew(token).await {
            return outcome;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no answer");
}

/// A dump sets things that a single statement of `psql -c` may not be mixed with.
fn without_settings(dump: &str) -> String {
    dump.lines().filter(|line| !line.starts_with('\\')).collect::<Vec<_>>().join("\n")
}
