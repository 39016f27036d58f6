//! `tenure demo`: three real instances on a store of their own, killed and paused in turn.
//!
//! ```text
//! this process: the store, the page, the plot
//!   ├─ ada ─┐
//!   ├─ bob ─┼─ contend for one resource; each is this program again
//!   └─ eve ─┘
//! ```
//! The children die with this process, whatever becomes of it: on Linux the kernel sees to that.

mod cluster;
mod sentinel;
mod servers;

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, kill_process};
use store_server::Server as Store;
use tenure::{CloseReason, HistoryEntry, HistoryKind, Tenure, Token};
use tenure_sidecar::{Server, ServerSettings, Sidecar, SidecarError};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::exit::{self, Failure};
use crate::log_queue::{self, STDOUT};
use crate::output::{duration, result, talk};
use crate::own_program::{not_started_again, own_program};
use crate::sidecar::{asked_to_end, runtime};

const RESOURCE: &str = "nightly-report";
const NAMES: [&str; 3] = ["ada", "bob", "eve"];
/// Short, so that there is something to see.
const TTL: Duration = Duration::from_secs(2);
/// Between two acts, so that people can follow.
const INTERVAL: Duration = Duration::from_secs(5);
/// Longer than anything here takes on a healthy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many lines of the children may wait to be read.
const LINES_QUEUED_MAX: usize = 64;
/// Where the page is unless that place is taken.
const PAGE: &str = "127.0.0.1:8420";

/// Show elections at work: three instances, killed and paused in turn, and a page to watch.
///
/// Needs nothing else: the store is part of the program. Ends on Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure demo
  tenure demo --seconds 30
  tenure demo --sentinel
  tenure demo --cluster")]
pub(crate) struct Arguments {
    /// End by itself after this many seconds.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// The address of the page; 127.0.0.1:8420 or any free port by default.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Run the elections on a primary with two replicas, watched by three sentinels, and kill the
    /// primary again and again.
    #[arg(long)]
    sentinel: bool,
    /// Run the elections on a cluster of six nodes; kill primaries, and move slots.
    #[arg(long, conflicts_with = "sentinel")]
    cluster: bool,
    /// Be one of the servers.
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true, value_name = "WORDS")]
    serve: Option<Vec<String>>,
    /// Be one of the instances.
    #[arg(long, hide = true, requires = "store", value_name = "NAME")]
    instance: Option<String>,
    #[arg(long, hide = true, value_name = "URL")]
    store: Option<String>,
    /// The process that shows the demo.
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<u32>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    // Whoever leads, shows or must end waits for no reader.
    log_queue::start();
    STDOUT.start();
    if let Some(words) = arguments.serve {
        end_with_the_demo(arguments.parent)?;
        return crate::serve::run(crate::serve::Arguments::of(words));
    }
    match (&arguments.instance, &arguments.store) {
        (Some(name), Some(store)) => runtime()?.block_on(take_part(name, store, arguments.parent)),
        _ => runtime()?.block_on(show(&arguments)),
    }
}

// ---------------------------------------------------------------------- an instance

/// What each of the three processes does: says when it leads, and works until it must not.
async fn take_part(name: &str, store: &str, parent: Option<u32>) -> Result<ExitCode, Failure> {
    end_with_the_demo(parent)?;
    let tenure = Tenure::builder().instance(name).store(store).ttl(TTL).connect().await?;
    let election = tenure.election(RESOURCE).version(env!("CARGO_PKG_VERSION"));
    let election = election.fresh_store(true).start().await?;
    let leading = election.run_while_leader(|term| async move {
        result(&format!("leads {}", term.token()));
        term.wait_until_stopping().await;
        let why = term.stop_reason().map_or_else(String::new, |reason| reason.to_string());
        result(&format!("stops {why}"));
    });
    tokio::select! {
        done = leading => done?,
        () = asked_to_end()? => {}
    }
    tenure.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// Whatever becomes of the demo, this process does not outlive it.
fn end_with_the_demo(parent: Option<u32>) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| no(&e))?;
    let found = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    match parent.is_some_and(|parent| found != Some(parent)) {
        true => Err(Failure::new(exit::NO, "the demo is over already")),
        false => Ok(()),
    }
}

// ---------------------------------------------------------------------- the show

async fn show(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let ends = asked_to_end()?;
    let mut store = StoreOfDemo::start(arguments).await?;
    let address = store.address()?;
    let mut stage = Stage::set(&address)?;

    let operator = Tenure::builder().instance("operator").store(&address).connect().await?;
    let sidecar = Sidecar::builder(operator.clone()).observe(RESOURCE).start()?;
    let page = serve_page(&sidecar, arguments.listen.as_deref()).await?;
    let url = page.url().map_err(|error| no(&error))?;
    result(&format!("three instances contend for {RESOURCE:?}; each lease lasts {TTL:?}"));
    result(&format!("\n  watch them at {url}\n"));

    let limit = arguments.seconds.map_or(Duration::MAX, Duration::from_secs);
    let played = tokio::select! {
        played = timeout(limit, stage.play_on(&mut store, &operator)) => played.unwrap_or(Ok(())),
        () = page.serve(std::future::pending()) => Ok(()),
        () = ends => Ok(()),
    };
    stage.clear().await;
    operator.shutdown().await;
    store.clear().await;
    result("\nthe demo is over; nothing of it is left running");
    played.map(|()| ExitCode::SUCCESS)
}

/// What the instances contend on.
enum StoreOfDemo {
    /// In this process.
    One(Store),
    /// Processes of their own.
    Watched(sentinel::Group),
    Cluster(cluster::Nodes),
}

impl StoreOfDemo {
    async fn start(arguments: &Arguments) -> Result<Self, Failure> {
        if arguments.cluster {
            return Ok(Self::Cluster(cluster::Nodes::start().await?));
        }
        if arguments.sentinel {
            return Ok(Self::Watched(sentinel::Group::start().await?));
        }
        let store = Store::builder().any_port().start().map_err(|error| no(&error))?;
        Ok(Self::One(store))
    }

    fn address(&self) -> Result<String, Failure> {
        let nowhere = || Failure::new(exit::NO, "the store listens nowhere");
        match self {
            Self::One(store) => {
                Ok(format!("redis://127.0.0.1:{}", store.port().ok_or_else(nowhere)?))
            }
            Self::Watched(group) => Ok(group.address()),
            Self::Cluster(nodes) => Ok(nodes.address()),
        }
    }

    async fn clear(self) {
        match self {
            Self::One(_) => {}
            Self::Watched(group) => group.clear().await,
            Self::Cluster(nodes) => nodes.clear().await,
        }
    }
}

/// The usual port, or any other if that is taken; the one that was asked for, or none.
async fn serve_page(sidecar: &Sidecar, listen: Option<&str>) -> Result<Server, SidecarError> {
    let bind = |address: &str| Server::bind(sidecar, ServerSettings::listen(address));
    match listen {
        Some(address) => bind(address).await,
        None => match bind(PAGE).await {
            Err(SidecarError::Listen { .. }) => bind("127.0.0.1:0").await,
            bound => bound,
        },
    }
}

fn no(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(exit::NO, error.to_string())
}

/// The three processes and what they say.
struct Stage {
    store: String,
    players: Vec<Player>,
    said: mpsc::Receiver<Line>,
    says: mpsc::Sender<Line>,
    began_at: std::time::Instant,
    leader: Option<(String, Token)>,
}

struct Player {
    name: &'static str,
    process: Child,
}

struct Line {
    name: &'static str,
    text: String,
}

impl Stage {
    fn set(store: &str) -> Result<Self, Failure> {
        let (says, said) = mpsc::channel(LINES_QUEUED_MAX);
        let mut stage = Stage {
            store: store.to_owned(),
            players: Vec::new(),
            said,
            says,
            began_at: clock::now(),
            leader: None,
        };
        for name in NAMES {
            stage.enter(name)?;
        }
        Ok(stage)
    }

    fn enter(&mut self, name: &'static str) -> Result<(), Failure> {
        let mut process = Command::new(own_program())
            .args(["demo", "--instance", name, "--store", &self.store])
            .args(["--parent", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C is for the one who shows, not for those who are shown.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| no(&not_started_again(error)))?;
        if let Some(output) = process.stdout.take() {
            let says = self.says.clone();
            tokio::spawn(async move {
                let mut lines = BufReader::new(output).lines();
                while let Ok(Some(text)) = lines.next_line().await {
                    if says.send(Line { name, text }).await.is_err() {
                        return;
                    }
                }
            });
        }
        self.players.retain(|player| player.name != name);
        self.players.push(Player { name, process });
        Ok(())
    }

    async fn play_on(&mut self, store: &mut StoreOfDemo, by: &Tenure) -> Result<(), Failure> {
        match store {
            StoreOfDemo::One(_) => self.play(by).await,
            StoreOfDemo::Watched(group) => self.play_failovers(group, by).await,
            StoreOfDemo::Cluster(nodes) => self.play_cluster(nodes, by).await,
        }
    }

    /// The plot: again and again, until somebody ends it.
    async fn play(&mut self, operator: &Tenure) -> Result<(), Failure> {
        self.next_leader(operator, "the start", self.began_at).await?;
        loop {
            self.linger(INTERVAL).await;
            self.planned_hand_over(operator).await?;
            self.linger(INTERVAL).await;
            self.crash(operator).await?;
            self.linger(INTERVAL).await;
            self.pause(operator).await?;
            self.linger(INTERVAL).await;
            self.farewell(operator).await?;
        }
    }

    async fn planned_hand_over(&mut self, operator: &Tenure) -> Result<(), Failure> {
        let (from, to) = (self.leader_name(), self.other_than_leader());
        self.say(&format!("an operator asks {from} to hand over to {to}"));
        let asked_at = clock::now();
        let asked = operator.observe(RESOURCE)?.ask_to_hand_over(to).await?;
        if !asked.is_done() {
            talk(&format!("the hand-over did not take place: {asked:?}"));
            return Ok(());
        }
        self.next_leader(operator, "the request", asked_at).await
    }

    async fn crash(&mut self, operator: &Tenure) -> Result<(), Failure> {
        let victim = self.leader_name();
        self.say(&format!("{victim} is killed (SIGKILL): its lease has to run out first"));
        let killed_at = clock::now();
        self.signal(victim, Signal::KILL);
        self.next_leader(operator, "the kill", killed_at).await?;
        self.say(&format!("{victim} is started again"));
        self.enter(victim)
    }

    async fn pause(&mut self, operator: &Tenure) -> Result<(), Failure> {
        let victim = self.leader_name();
        self.say(&format!("{victim} is frozen (SIGSTOP), as when its host pauses for long"));
        let stopped_at = clock::now();
        self.signal(victim, Signal::STOP);
        let led = self.next_leader(operator, "the freeze", stopped_at).await;
        self.linger(TTL / 2).await;
        self.say(&format!(
            "{victim} runs again (SIGCONT), and knows at once that it no longer leads"
        ));
        self.signal(victim, Signal::CONT);
        led
    }

    async fn farewell(&mut self, operator: &Tenure) -> Result<(), Failure> {
        let leaver = self.leader_name();
        self.say(&format!(
            "{leaver} is asked to end (SIGTERM): it stops its work, then releases the lease"
        ));
        let asked_at = clock::now();
        self.signal(leaver, Signal::TERM);
        self.next_leader(operator, "the signal", asked_at).await?;
        self.enter(leaver)
    }

    /// Shows what is said until somebody new leads, and how long that took.
    async fn next_leader(
        &mut self,
        operator: &Tenure,
        what: &str,
        since: std::time::Instant,
    ) -> Result<(), Failure> {
        loop {
            let Ok(Some(line)) = timeout(PATIENCE, self.said.recv()).await else {
                return Err(Failure::new(exit::TIMED_OUT, "nobody leads: is the machine asleep?"));
            };
            let Some(token) = self.hear(&line) else { continue };
            let took = duration(clock::now().saturating_duration_since(since));
            let gap = gap_before(&operator.observe(RESOURCE)?.history(8).await?, token)
                .unwrap_or_default();
            self.say(&format!("{} leads, {took} after {what}{gap} (token {token})", line.name));
            return Ok(());
        }
    }

    /// Lets time pass, and shows what is said meanwhile.
    async fn linger(&mut self, time: Duration) {
        let mut pause = std::pin::pin!(sleep(time));
        loop {
            tokio::select! {
                () = &mut pause => return,
                Some(line) = self.said.recv() => {
                    if self.hear(&line).is_some() {
                        self.say(&format!("{} leads without being asked: the machine stalled", line.name));
                    }
                }
            }
        }
    }

    /// Takes over who leads, or shows who stops.
    fn hear(&mut self, line: &Line) -> Option<Token> {
        let (verb, rest) = line.text.split_once(' ')?;
        if verb != "leads" {
            self.say(&format!("{} stops its work ({rest})", line.name));
            return None;
        }
        let token = rest.parse().ok().and_then(Token::new)?;
        self.leader = Some((line.name.to_owned(), token));
        Some(token)
    }

    fn say(&self, text: &str) {
        let at = clock::now().saturating_duration_since(self.began_at).as_secs_f64();
        result(&format!("{at:>8.3} s  {text}"));
    }

    fn leader_name(&self) -> &'static str {
        let leads = |name: &&&str| self.leader.as_ref().is_some_and(|(leader, _)| leader == **name);
        NAMES.iter().find(leads).copied().unwrap_or(NAMES[0])
    }

    fn other_than_leader(&self) -> &'static str {
        let leader = self.leader_name();
        NAMES.into_iter().find(|name| *name != leader).unwrap_or(NAMES[0])
    }

    fn signal(&self, name: &str, signal: Signal) {
        let player = self.players.iter().find(|player| player.name == name);
        let id = player.and_then(|player| player.process.id());
        if let Some(pid) = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            // Whoever is gone already needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    /// Nobody stays behind.
    async fn clear(&mut self) {
        for player in &mut self.players {
            // It may have ended by itself.
            let _ = player.process.kill().await;
        }
    }
}

/// How long nobody led before the term `token`, by the store's clock, in words. Newest entries come
/// first.
fn gap_before(entries: &[HistoryEntry], token: Token) -> Option<String> {
    let granted = entries.iter().position(|entry| {
        entry.token == Some(token) && matches!(entry.what, HistoryKind::Granted)
    })?;
    let before = entries[granted + 1..].iter().find_map(|entry| match &entry.what {
        HistoryKind::Closed { reason, .. } => Some((entry.at, *reason)),
        _ => None,
    });
    let (closed_at, reason) = before?;
    let gap = fine(entries[granted].at.since(closed_at));
    Some(match reason {
        CloseReason::Expired => format!(", {gap} after the lease was over"),
        _ => format!(", nobody led for {gap}"),
    })
}

fn fine(gap: Duration) -> String {
    match gap.as_micros() {
        micros @ 0..10_000 => format!("{:.1}ms", micros as f64 / 1e3),
        _ => duration(gap),
    }
}
