//! Leaders that are stopped before, inside and at the end of a fenced transaction: nothing of it is
//! committed once their successor's first fenced transaction is.
//!
//! `TENURE_FENCE_ROUNDS=1000` runs more rounds than the few that a test run has time for.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tenure_core::Token;
use tenure_core::protocol::Outcome;
use tenure_postgres::{Fence, FenceError};
use testkit::{GENEROUS, PostgresServer, Process};
use tokio::net::TcpStream;
use tokio_postgres::{Client, NoTls};

use crate::player::{Player, install};

/// What is left of the lease of a leader that stops.
const LEFT: Duration = Duration::from_millis(300);
const ROUNDS: &str = "TENURE_FENCE_ROUNDS";
/// What tells the program below that it is one.
const LEADER: &str = "TENURE_FENCE_LEADER";

fn fence() -> Fence {
    Fence::named("report").unwrap()
}

async fn connected(port: u16) -> Client {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut config = tokio_postgres::Config::new();
    config.user("postgres").dbname("postgres");
    let (client, connection) = config.connect_raw(stream, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn prepared() -> PostgresServer {
    let server = PostgresServer::start();
    install(&server).await;
    server.psql("CREATE TABLE work (number bigserial, token bigint)");
    server
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// Where a leader stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Before,
    Inside,
    AtTheEnd,
}

/// With what it talks to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rust,
    Psql,
}

/// A leader in a process of its own. It does a stage at a time, each when it is told to.
struct Leader {
    process: Process,
    kind: Kind,
    token: u64,
    words: std::io::PipeWriter,
}

impl Leader {
    fn start(kind: Kind, server: &PostgresServer, token: u64) -> Self {
        let (reader, words) = std::io::pipe().unwrap();
        let mut command = match kind {
            Kind::Psql => server.psql_command("postgres"),
            Kind::Rust => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["--exact", "fence::acts_as_a_leader", "--ignored", "--nocapture"]);
                command.env(LEADER, format!("{} {token}", server.port()));
                command
            }
        };
        command.stdin(reader).stderr(Stdio::null());
        let mut leader = Leader { process: Process::spawn(command), kind, token, words };
        if kind == Kind::Psql {
            leader.say("\\echo Before");
        }
        leader.process.next_line_with("Before", GENEROUS);
        leader
    }

    /// Lets it do what comes behind `point`, without waiting for it.
    fn go_on_from(&mut self, point: Point) {
        let Leader { kind, token, .. } = self;
        let left = LEFT.as_millis();
        let words = match (kind, point) {
            (Kind::Rust, _) => "go on".to_owned(),
            (Kind::Psql, Point::Before) => format!(
                "BEGIN; SELECT tenure.enter('tenure:report', {token}, '{left} ms'); INSERT INTO \
                 work (token) VALUES ({token}); \\echo Inside"
            ),
            (Kind::Psql, Point::Inside) => {
                format!("INSERT INTO work (token) VALUES ({token}); \\echo AtTheEnd")
            }
            (Kind::Psql, Point::AtTheEnd) => "COMMIT; \\echo Committed".to_owned(),
        };
        self.say(&words.replace(" \\echo", "\n\\echo"));
    }

    fn say(&mut self, words: &str) {
        // It may have ended by now.
        let _ = self.words.write_all(format!("{words}\n").as_bytes());
    }

    /// Its steps up to `point`, where it waits.
    fn bring_to(&mut self, point: Point) {
        if point != Point::Before {
            self.go_on_from(Point::Before);
            self.process.next_line_with("Inside", GENEROUS);
        }
        if point == Point::AtTheEnd {
            self.go_on_from(Point::Inside);
            self.process.next_line_with("AtTheEnd", GENEROUS);
        }
    }

    /// Everything that is left to do, from `point` on.
    fn finish_from(&mut self, point: Point) {
        let points = [Point::Before, Point::Inside, Point::AtTheEnd];
        points.into_iter().skip_while(|other| *other != point).for_each(|at| self.go_on_from(at));
    }

    /// Waits for its end; whether it committed.
    fn has_committed(mut self) -> bool {
        drop(self.words);
        self.process.wait(GENEROUS);
        let mut lines = std::iter::from_fn(|| self.process.try_next_line(GENEROUS));
        lines.any(|line| line.contains("Committed"))
    }
}

#[tokio::test]
#[ignore = "the program of a leader in other tests"]
async fn acts_as_a_leader() {
    let Ok(place) = std::env::var(LEADER) else { return };
    let (port, number) = place.split_once(' ').unwrap();
    let (port, number): (u16, u64) = (port.parse().unwrap(), number.parse().unwrap());
    let mut client = connected(port).await;
    let at = |point: &str| {
        println!("{point}");
        let mut line = String::new();
        assert!(std::io::stdin().read_line(&mut line).unwrap() > 0, "nobody says go on");
    };
    at("Before");
    let transaction = match fence().begin(&mut client, token(number), LEFT).await {
        Ok(transaction) => transaction,
        Err(error) => return println!("refused: {error}"),
    };
    let write = format!("INSERT INTO work (token) VALUES ({number})");
    for point in ["Inside", "AtTheEnd"] {
        if let Err(error) = transaction.batch_execute(&write).await {
            return println!("refused: {error}");
        }
        at(point);
    }
    match transaction.commit().await {
        Ok(()) => println!("Committed"),
        Err(error) => println!("refused: {error}"),
    }
}

fn written(server: &PostgresServer, token: u64) -> String {
    server.psql(&format!("SELECT count(*) FROM work WHERE token = {token}"))
}

/// One leader is stopped at `point`, and another follows it.
async fn round(server: &PostgresServer, kind: Kind, point: Point, number: u64) {
    let mut stopped = Leader::start(kind, server, number);
    stopped.bring_to(point);
    stopped.process.pause();
    stopped.finish_from(point);

    let mut client = connected(server.port()).await;
    let began_at = Instant::now();
    let fence = fence();
    let begun = fence.begin(&mut client, token(number + 1), GENEROUS);
    let transaction = tokio::time::timeout(GENEROUS, begun).await;
    let waited = began_at.elapsed();
    let transaction =
        transaction.expect("a leader that is stopped holds nobody up for long").unwrap();
    let write = format!("INSERT INTO work (token) VALUES ({})", number + 1);
    transaction.batch_execute(&write).await.unwrap();
    transaction.commit().await.unwrap();

    stopped.process.resume();
    let what = format!("{kind:?} {point:?} {number}, after {waited:?}");
    assert!(!stopped.has_committed(), "{what}");
    assert_eq!(written(server, number), "0", "{what}");
    assert_eq!(written(server, number + 1), "1", "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_stopped_commits_nothing_behind_its_successor() {
    let server = prepared().await;
    // One that is not stopped commits, or all of this would say nothing.
    for (kind, number) in [(Kind::Rust, 1), (Kind::Psql, 2)] {
        let mut leader = Leader::start(kind, &server, number);
        leader.finish_from(Point::Before);
        assert!(leader.has_committed(), "{kind:?}");
        assert_eq!(written(&server, number), "2", "{kind:?}");
    }
    let rounds = std::env::var(ROUNDS).map_or(6, |rounds| rounds.parse().unwrap());
    let points = [Point::Before, Point::Inside, Point::AtTheEnd];
    for number in 0..rounds {
        let kind = if number % 2 == 0 { Kind::Rust } else { Kind::Psql };
        let point = points[number as usize / 2 % points.len()];
        round(&server, kind, point, 10 + number * 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_says_why_it_refuses() {
    let server = prepared().await;
    let mut client = connected(server.port()).await;
    let long = Duration::from_secs(60);
    let transaction = fence().begin(&mut client, token(7), long).await.unwrap();
    transaction.commit().await.unwrap();
    let again = fence().begin(&mut client, token(7), long).await.unwrap();
    again.rollback().await.unwrap();
    let refused = fence().begin(&mut client, token(6), long).await.err().unwrap();
    assert!(matches!(refused, FenceError::FencedOff(_)), "{refused}");
    assert!(refused.to_string().contains("tenure:report"), "{refused}");
    let refused = fence().begin(&mut client, token(8), Duration::ZERO).await.err().unwrap();
    assert!(matches!(refused, FenceError::LeaseOver), "{refused}");
    assert_eq!(server.psql("SELECT token FROM tenure.fence"), "7");
    let other = Fence::named("other").unwrap().begin(&mut client, token(1), long).await.unwrap();
    other.commit().await.unwrap();
    let plain = server.try_psql("postgres", "SELECT tenure.enter('tenure:report', 6, '1 s')");
    let told = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(told.contains("fenced off") && told.contains("another instance leads"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquiring_waits_for_nobodys_transaction() {
    let server = prepared().await;
    let ttl = Duration::from_secs(2);
    let mut ada = Player::new("ada", &server.url(), ttl);
    let first = ada.lead().await;
    let mut client = connected(server.port()).await;
    let open = fence().begin(&mut client, first, GENEROUS).await.unwrap();
    open.batch_execute("INSERT INTO work (token) VALUES (1)").await.unwrap();

    let mut bob = Player::new("bob", &server.url(), ttl);
    let (term, before) = bob.lead_at_last().await;
    assert!(before.iter().all(|outcome| *outcome == Outcome::Held), "{before:?}");
    assert!(term.token > first);
    open.commit().await.unwrap();
    // From now on nothing of the first term passes.
    let mut other = connected(server.port()).await;
    fence().begin(&mut other, term.token, GENEROUS).await.unwrap().commit().await.unwrap();
    assert!(fence().begin(&mut client, first, GENEROUS).await.is_err());
}
