//! A first look: three instances, one leader, and what happens when it goes.
//!
//! ```text
//! cargo run -p tenure-examples --bin first_look [redis://127.0.0.1]
//! ```
//! Without an address it starts a store of its own inside this process. Then it starts three
//! processes that contend for one resource, asks the leader to hand over, kills the next one with
//! SIGKILL, stops the last in order, and says each time how long it took. The work of each instance
//! is to say when it begins and ends.

use std::error::Error;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use store_server::Server;
use tenure::Tenure;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

const RESOURCE: &str = "first-look";
const TTL: Duration = Duration::from_secs(2);
/// Longer than anything here takes on a healthy machine.
const PATIENCE: Duration = Duration::from_secs(20);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("first_look: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [word, name, store] if word == "instance" => work_as(name, store).await,
        [store] => look(store).await,
        [] => look_without_a_store().await,
        _ => Err("usage: first_look [STORE]".into()),
    }
}

/// What each of the three processes does.
async fn work_as(name: &str, store: &str) -> Outcome {
    let tenure = Tenure::builder().instance(name).store(store).ttl(TTL).connect().await?;
    let election = tenure.election(RESOURCE).fresh_store(true).start().await?;
    let leading = election.run_while_leader(|term| async move {
        println!("leads under token {}", term.token());
        term.wait_until_stopping().await;
        println!("stops working");
    });
    tokio::select! {
        _ = leading => {}
        stop = tenure_examples::asked_to_stop() => stop?,
    }
    tenure.shutdown().await;
    Ok(())
}

/// The store lives in this process, and listens on loopback for the other three.
async fn look_without_a_store() -> Outcome {
    let server = Server::builder().any_port().start()?;
    let port = server.port().ok_or("the store listens nowhere")?;
    look(&format!("redis://127.0.0.1:{port}")).await
}

async fn look(store: &str) -> Outcome {
    // A wrong address is told at once, not by three silent processes.
    Tenure::connect(store).await?.shutdown().await;
    let mut stage = Stage::set(store)?;
    println!("three processes contend for {RESOURCE:?}, each with a lease of {TTL:?}");
    let first = stage.next_leader(Instant::now()).await?;

    println!("\nan operator asks {first} to hand over to its best neighbour");
    let operator = Tenure::connect(store).await?;
    let other = stage.other_than(&first);
    let asked_at = Instant::now();
    let answer = operator.observe(RESOURCE)?.ask_to_hand_over(&other).await?;
    if !answer.is_done() {
        return Err(format!("the hand-over did not take place: {answer:?}").into());
    }
    let second = stage.next_leader(asked_at).await?;

    println!("\n{second} is killed: its lease must run out before anybody else may lead");
    let killed_at = Instant::now();
    stage.kill(&second).await?;
    let third = stage.next_leader(killed_at).await?;

    println!("\n{third} is asked to terminate: it stops working, gives the lease back, and ends");
    let asked_at = Instant::now();
    stage.terminate(&third)?;
    stage.next_leader(asked_at).await?;

    println!("\nnever two at once, and every token greater than the one before");
    operator.shutdown().await;
    Ok(())
}

/// The three processes and what they say.
struct Stage {
    players: Vec<(String, Child)>,
    lines: mpsc::Receiver<(String, String)>,
    began_at: Instant,
}

impl Stage {
    fn set(store: &str) -> Outcome<Self> {
        let (sender, lines) = mpsc::channel(64);
        let mut players = Vec::new();
        for name in ["ada", "bob", "eve"] {
            let mut child = Command::new(std::env::current_exe()?)
                .args(["instance", name, store])
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let mut output =
                BufReader::new(child.stdout.take().ok_or("no output of a child")?).lines();
            let sender = sender.clone();
            tokio::spawn(async move {
                while let Ok(Some(line)) = output.next_line().await {
                    if sender.send((name.to_owned(), line)).await.is_err() {
                        return;
                    }
                }
            });
            players.push((name.to_owned(), child));
        }
        Ok(Stage { players, lines, began_at: Instant::now() })
    }

    /// Shows what is said until somebody leads, and how long that took since `since`.
    async fn next_leader(&mut self, since: Instant) -> Outcome<String> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.lines.recv()).await;
            let Ok(Some((name, line))) = next else {
                let next = "start redis-server there, or give no address to use a store of its own";
                return Err(
                    format!("nobody leads: does a store answer at the address? {next}").into()
                );
            };
            println!("  {:>7.3} s  {name} {line}", self.began_at.elapsed().as_secs_f64());
            if line.starts_with("leads") {
                println!(
                    "             {:.0} ms after it began",
                    since.elapsed().as_secs_f64() * 1e3
                );
                return Ok(name);
            }
        }
    }

    fn other_than(&self, leader: &str) -> String {
        let other = self.players.iter().find(|(name, _)| name != leader);
        other.map(|(name, _)| name.clone()).unwrap_or_default()
    }

    async fn kill(&mut self, name: &str) -> Outcome {
        Ok(self.player(name)?.kill().await?)
    }

    fn terminate(&mut self, name: &str) -> Outcome {
        let pid = self.player(name)?.id().ok_or("it has ended already")?;
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).ok_or("no process id")?;
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::TERM)?)
    }

    fn player(&mut self, name: &str) -> Outcome<&mut Child> {
        let player = self.players.iter_mut().find(|(known, _)| known == name);
        player.map(|(_, child)| child).ok_or_else(|| format!("no process called {name}").into())
    }
}
