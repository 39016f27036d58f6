//! One instance as a process of its own, for tests that kill, stop and cut off processes.
//!
//! Tells on stdout what happens, one line each with the host clock in nanoseconds, and stops in
//! order on SIGTERM. A watching thread asks `is_leader()` all the time and says what the first
//! answer after a pause of the whole process was, and when its wall clock jumped.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Election, Event, EventKind, OnLoss, OnceOutcome, Tenure, Term, Tick};
use tenure_core::Moment;
use tokio::signal::unix::{SignalKind, signal};
use trials::clock;
use trials::torture::history::What;
use trials::torture::worker::Worker;

/// A move of the wall clock against the other that only a jump explains, in seconds.
const JUMPED: u64 = 60;

/// A gap between two looks that no scheduler explains: the process was stopped.
const PAUSED: Duration = Duration::from_millis(400);

struct Arguments {
    store: String,
    name: String,
    id: String,
    ttl: Duration,
    /// The longest lease of anybody.
    fleet_max_ttl: Option<Duration>,
    /// How often there is a tick, if there are any.
    tick_every: Option<Duration>,
    priority: i32,
    /// How long work takes to end once told to.
    lingers: Duration,
    /// With which code to end when leadership is lost.
    exit_on_loss: Option<i32>,
    /// Whether to vouch that nobody led before on this store.
    fresh_store: bool,
    /// What to write to while leading; with it, a history is told instead.
    resource: Option<String>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = parse(std::env::args().skip(1))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(run(arguments))
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        store: String::new(),
        name: "job".into(),
        id: "trial".into(),
        ttl: Duration::from_secs(2),
        fleet_max_ttl: None,
        tick_every: None,
        priority: 0,
        lingers: Duration::from_millis(20),
        exit_on_loss: None,
        fresh_store: true,
        resource: None,
    };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let millis =
            || value.parse().map(Duration::from_millis).map_err(|e| format!("{word}: {e}"));
        match word.as_str() {
            "--store" => arguments.store = value,
            "--name" => arguments.name = value,
            "--id" => arguments.id = value,
            "--ttl-ms" => arguments.ttl = millis()?,
            "--fleet-max-ttl-ms" => arguments.fleet_max_ttl = Some(millis()?),
            "--tick-every-ms" => arguments.tick_every = Some(millis()?),
            "--lingers-ms" => arguments.lingers = millis()?,
            "--priority" => {
                arguments.priority = value.parse().map_err(|e| format!("{word}: {e}"))?
            }
            "--exit-on-loss" => {
                arguments.exit_on_loss = Some(value.parse().map_err(|e| format!("{word}: {e}"))?)
            }
            "--fresh-store" => arguments.fresh_store = value == "yes",
            "--resource" => arguments.resource = Some(value),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(arguments)
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let tenure =
        Tenure::builder().instance(&arguments.id).store(&arguments.store).connect().await?;
    let mut election = tenure.election(&arguments.name).ttl(arguments.ttl);
    if let Some(longest) = arguments.fleet_max_ttl {
        election = election.fleet_max_ttl(longest);
    }
    let election = election
        .priority(arguments.priority)
        .fresh_store(arguments.fresh_store)
        .on_event(if arguments.resource.is_some() { tell_history } else { tell })
        .on_loss(arguments.exit_on_loss.map_or(OnLoss::Recontend, OnLoss::Exit))
        .start()
        .await?;
    let day_began_at = day_begins_at();
    say(&format!("started {}", election.id()));
    watch_for_pauses(election.clone(), day_began_at);
    let mut terminated = signal(SignalKind::terminate())?;
    let stopping = tokio::spawn({
        let election = election.clone();
        async move {
            terminated.recv().await;
            election.stop().await;
        }
    });
    let lingers = arguments.lingers;
    let token = Arc::new(AtomicU64::new(0));
    if let Some(resource) = arguments.resource {
        let (election, token) = (election.clone(), Arc::clone(&token));
        let worker = Worker { name: arguments.id, resource, token };
        std::thread::spawn(move || worker.run(|| election.is_leader(), tell_what));
    }
    if let Some(every) = arguments.tick_every {
        tokio::spawn(run_ticks(tenure.clone(), arguments.ttl, every));
    }
    // Ends only when the election was stopped.
    let _ = election.run_while_leader(move |term| work(term, lingers, Arc::clone(&token))).await;
    stopping.await?;
    say("stopped");
    Ok(())
}

/// Says what became of a term.
fn tell(event: &Event) {
    match &event.kind {
        EventKind::Lost { reason, .. } => say(&format!("told lost {}", reason.code())),
        EventKind::Overrun { .. } => say("told overrun"),
        _ => {}
    }
}

/// Says what a checker of histories wants to know, and when it happened.
fn tell_history(event: &Event) {
    let what = match &event.kind {
        EventKind::Acquired { token, ends_at } => {
            What::Granted { token: token.get(), until: *ends_at }
        }
        EventKind::Renewed { token, ends_at } => {
            What::Renewed { token: token.get(), until: *ends_at }
        }
        EventKind::Lost { token, reason } => {
            What::Lost { token: token.get(), why: reason.code().to_owned() }
        }
        _ => return,
    };
    say_at(event.at, &what.to_string());
}

fn tell_what(what: What) {
    say(&what.to_string());
}

/// Works until told to stop, and then takes its time.
async fn work(term: Term, lingers: Duration, token: Arc<AtomicU64>) {
    token.store(term.token().get(), Ordering::Release);
    let _guard = Ended(term.token().get(), token);
    say(&format!("work-begin {}", term.token()));
    term.wait_until_stopping().await;
    tokio::time::sleep(lingers).await;
}

/// Runs what is due, for as long as the process lives. The host's clock, which no fault moves, says
/// which tick that is, so that all instances mean the same one.
async fn run_ticks(tenure: Tenure, ttl: Duration, every: Duration) {
    loop {
        let tick = clock::now().as_nanos() / every.as_nanos() as u64;
        let job = tenure.job("ticks").ttl(ttl).tick(Tick::named(&tick.to_string()));
        let outcome = job.run(|term| work_at_tick(term, tick, every / 4)).await;
        if let Ok(OnceOutcome::Ran(Ok(()))) = outcome {
            tell_what(What::TickDone(tick));
        }
        tokio::time::sleep(every / 10).await;
    }
}

/// Works in small steps, each of which looks whether it still may.
async fn work_at_tick(term: Term, tick: u64, takes: Duration) -> Result<(), &'static str> {
    tell_what(What::TickBegun(tick));
    let until = clock::now() + takes;
    loop {
        let step_at = clock::now();
        if !term.is_valid() || term.is_stopping() {
            return Err("stopped");
        }
        say_at(step_at, &What::TickUnderWay(tick).to_string());
        if step_at >= until {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Says when work is gone, however it went.
struct Ended(u64, Arc<AtomicU64>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.1.store(0, Ordering::Release);
        say(&format!("work-end {}", self.0));
    }
}

fn watch_for_pauses(election: Election, mut day_began_at: u64) {
    std::thread::spawn(move || {
        let (mut looked_at, mut led) = (clock::now(), false);
        let mut led_at = looked_at;
        loop {
            let before = clock::now();
            let leads = election.is_leader();
            let now = clock::now();
            if now.since(looked_at) >= PAUSED {
                say(&format!("resumed leader-before={led} leader={leads}"));
            }
            if led != leads {
                say(&format!("is-leader {leads}"));
            }
            if led && !leads {
                say_at(led_at, &What::Led.to_string());
            }
            led_at = if leads { before } else { led_at };
            let begins_at = day_begins_at();
            if begins_at.abs_diff(day_began_at) >= JUMPED {
                say(&format!("wall-clock {}", begins_at as i64 - day_began_at as i64));
                day_began_at = begins_at;
            }
            (looked_at, led) = (now, leads);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// What the wall clock said, or would have said, when the other clock began.
fn day_begins_at() -> u64 {
    clock::wall_seconds() - clock::now().as_nanos() / 1_000_000_000
}

fn say(line: &str) {
    say_at(clock::now(), line);
}

fn say_at(at: Moment, line: &str) {
    let mut out = std::io::stdout().lock();
    // A test that stopped listening does not care any more.
    let _ = writeln!(out, "{} {line}", at.as_nanos());
    let _ = out.flush();
}
