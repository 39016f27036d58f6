//! `tenure run`: a program that runs only while this instance leads.

mod fork;
pub(crate) mod guard;
mod guard_link;
mod health;
pub(crate) mod lock;
pub(crate) mod mark;
mod proc;
pub(crate) mod program;
mod search;
pub(crate) mod signals;
pub(crate) mod supervise;
mod terminal;
mod waited;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::Signal;
use tenure::backend::Connection;
use tenure::config::Loader;
use tenure::{Election, OnLoss, Reason, Role, Tenure, Term};
use tenure_sidecar::{Listener, ServerSettings, Sidecar};

use self::health::HealthCheck;
use self::program::Program;
use self::signals::Signals;
use self::supervise::{Ended, Supervisor, Work, code_of};
use crate::exit::{self, Failure};
use crate::local;
use crate::logging::LogOptions;
use crate::output::{plain, talk, warn};
use crate::store_options::{self, Target, blame};

/// How long the store may take to hear that this instance leaves, once nothing here needs the term
/// any more. If it does not, the lease ends by itself.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Run a program only while this instance leads.
///
/// The program runs in a process group of its own. When the leadership ends it gets the stop
/// signal, and what is left of it is killed before anybody else can lead; then this instance
/// contends again. When the program ends by itself, the leadership is released and its exit code
/// passed on. A small guard process does the killing if this process is killed or stopped.
///
/// The program finds TENURE_NAME, TENURE_ID, TENURE_TOKEN and TENURE_TTL_MS in its environment.
/// Only a token that the resource itself checks keeps a late write out.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure run nightly -- ./worker
  tenure run nightly --store redis://redis.internal --ttl 5s -- ./worker --verbose
  tenure run nightly --health-cmd 'test -e /run/worker.ok' --health-every 2s -- ./worker
  tenure run nightly --wait-timeout 1m --on-loss exit -- sh -c 'echo term $TENURE_TOKEN'")]
pub(crate) struct Arguments {
    /// After losing the leadership: contend again (the default), or exit.
    #[arg(long, value_name = "WHAT", value_parser = ["recontend", "exit"])]
    on_loss: Option<String>,
    /// The exit code of a loss with `--on-loss exit`.
    #[arg(long, value_name = "N", default_value_t = 1)]
    loss_code: u8,
    /// Exit after waiting this long for the leadership, at the start or again: with 75, or with 69
    /// while the store cannot be reached.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait_timeout: Option<Duration>,
    /// A shell command that succeeds while the program makes progress; if it fails for three
    /// periods, the leader steps down.
    #[arg(long, value_name = "COMMAND")]
    health_cmd: Option<String>,
    /// How often to run the health command; it may take as long as this.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s",
          requires = "health_cmd")]
    health_every: Duration,
    /// Serve health, status, metrics and a page at this address or unix:FILE, as `tenure sidecar`
    /// does.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// The program and its arguments.
    #[arg(index = 2, last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    election: ElectionOptions,
    #[command(flatten)]
    child: ChildOptions,
    #[command(flatten)]
    log: LogOptions,
    #[arg(skip)]
    purpose: Purpose,
}

/// What the term is for: words and patience differ, what it is does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Purpose {
    #[default]
    Leadership,
    Lock,
    /// A lock that is not waited for.
    LockAtOnce,
}

impl Purpose {
    fn is_lock(self) -> bool {
        matches!(self, Purpose::Lock | Purpose::LockAtOnce)
    }

    fn not_had_after(self, limit: &str) -> String {
        match self {
            Purpose::Leadership => format!("not leading after {limit}"),
            Purpose::Lock | Purpose::LockAtOnce => format!("no lock after {limit}"),
        }
    }

    fn held_by(self, holder: &str) -> String {
        match self {
            Purpose::Leadership => format!("{holder} leads"),
            Purpose::Lock | Purpose::LockAtOnce => format!("{holder} holds it"),
        }
    }

    fn lost(self) -> &'static str {
        match self {
            Purpose::Leadership => "the leadership was lost: exiting, as --on-loss says",
            Purpose::Lock | Purpose::LockAtOnce => "the lock was lost: exiting",
        }
    }
}

/// What an instance brings to an election.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Election")]
pub(crate) struct ElectionOptions {
    /// The name of this instance; host and process id by default.
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// How long a lease lasts without renewal; 10s by default.
    #[arg(long, value_name = "DURATION")]
    ttl: Option<String>,
    /// How often to renew the lease; a third of the ttl by default.
    #[arg(long, value_name = "DURATION")]
    renew_every: Option<String>,
    /// Instances with a higher priority are preferred; 0 by default.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    priority: Option<String>,
    /// How long the program gets to stop before the lease ends; 30 % of the ttl by default.
    #[arg(long, value_name = "DURATION")]
    stop_grace: Option<String>,
    /// Any other setting of this election, such as lock_delay=30s; may be given several times.
    ///
    /// The names are those of docs/configuration.md below `elections.NAME`, for example
    /// failback.delay or metadata.address.
    #[arg(long, value_name = "SETTING=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
}

/// Reads the name and the value of a setting.
fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write SETTING=VALUE, for example lock_delay=30s".to_owned()),
    }
}

/// How the program is treated.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ChildOptions {
    /// The signal that asks the program to stop.
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = signals::parse)]
    pub(crate) stop_signal: Signal,
}

/// Reads a duration for a flag that is no setting.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match tenure_core::duration::parse_duration(text) {
        Ok(Duration::ZERO) => Err("it must be longer than 0s: leave it out instead".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

impl ElectionOptions {
    /// Lays the flags over the settings of the election `name`.
    pub(crate) fn lay(&self, mut loader: Loader, name: &str) -> Loader {
        if let Some(id) = &self.id {
            loader = loader.set(["instance"], id, "--id");
        }
        let flags = [
            ("ttl", &self.ttl, "--ttl"),
            ("renew_every", &self.renew_every, "--renew-every"),
            ("priority", &self.priority, "--priority"),
            ("stop_grace", &self.stop_grace, "--stop-grace"),
        ];
        for (setting, value, flag) in flags {
            if let Some(value) = value {
                loader = loader.set(["elections", name, setting], value, flag);
            }
        }
        for (setting, value) in &self.set {
            let names = ["elections", name].into_iter().chain(setting.split('.'));
            loader = loader.set(names, value, "--set");
        }
        loader
    }
}

/// With fewer open files than this, a wrapper that leads may be unable to start its program, or to
/// see what is left of it.
const DESCRIPTORS_MIN: u64 = 32;

/// Fails where a wrapper could lead and do nothing. The limit is left as it is: programs inherit
/// it.
pub(crate) fn require_descriptors() -> Result<(), Failure> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if limit < DESCRIPTORS_MIN => Err(Failure::new(
            exit::CONFIGURATION,
            format!(
                "only {limit} files may be open, {DESCRIPTORS_MIN} are needed: raise the limit \
                 (ulimit -n)"
            ),
        )),
        _ => Ok(()),
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    arguments.log.start();
    require_descriptors()?;
    let program = Program::find(arguments.command.clone())?;
    let name = &arguments.target.name;
    let mut loader = arguments.election.lay(arguments.target.loader()?, name);
    if let Some(on_loss) = &arguments.on_loss {
        loader = loader.set(["elections", name, "on_loss"], on_loss, "--on-loss");
    }
    if let Some(address) = &arguments.http {
        loader = loader.set(["sidecar", "listen"], address, "--http");
    }
    let config = store_options::load_for(loader, name)?;
    let http = match &arguments.http {
        Some(_) => Some(ServerSettings::from_config(&config.sidecar)?),
        None => None,
    };
    let settings = config.election(name).clone();
    if settings.require_beat.is_some() && arguments.health_cmd.is_none() {
        talk("require_beat is ignored: without --health-cmd nobody tells whether the work goes on");
    }
    let timing = settings.timing().map_err(tenure::Error::from)?;
    let exits_on_loss = settings.on_loss != OnLoss::Recontend;
    let code = block_on(async {
        let mut signals = Signals::listen()?;
        // Before it takes part: whoever cannot answer there does not lead either.
        let http = match http {
            Some(settings) => Some(settings.bind().await?),
            None => None,
        };
        let tenure = store_options::connect(config)?;
        let check = arguments
            .health_cmd
            .map(|command| HealthCheck { command, every: arguments.health_every });
        let election = start(&tenure, name, check.as_ref()).await?;
        if let Some(listener) = http {
            serve_http(&tenure, &election, listener)?;
        }
        let stop_signal = arguments.child.stop_signal;
        let supervisor = Supervisor::new(tenure.clone(), program, timing, stop_signal)?;
        let mut wrapper = Wrapper {
            supervisor,
            contest: Contest {
                tenure,
                election,
                wait_timeout: arguments.wait_timeout,
                wait_left: local::left_to_wait(),
                purpose: arguments.purpose,
            },
            check,
            loss_code: exits_on_loss.then_some(arguments.loss_code),
            illnesses: 0,
            has_term: false,
            lost: None,
        };
        wrapper.contend(&mut signals).await
    })?;
    Ok(ExitCode::from(code))
}

/// Runs a command that lasts, on a runtime of one thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(exit::NO, format!("cannot start the runtime: {error}")))?;
    runtime.block_on(work)
}

async fn start(
    tenure: &Tenure,
    name: &str,
    check: Option<&HealthCheck>,
) -> Result<Election, Failure> {
    // The library would end the process on a loss; here the child comes first.
    let builder = tenure.election(name).on_loss(OnLoss::Recontend);
    // Without a check nobody beats, whatever the configuration wants of others.
    Ok(builder.require_beat(check.map(HealthCheck::require_beat)).start().await?)
}

/// Answers over HTTP for as long as this process lives.
fn serve_http(tenure: &Tenure, election: &Election, listener: Listener) -> Result<(), Failure> {
    let sidecar = Sidecar::builder(tenure.clone()).election(election.clone()).start()?;
    let server = listener.show(&sidecar);
    tokio::spawn(async move {
        server.serve(std::future::pending()).await;
        drop(sidecar);
    });
    Ok(())
}

/// An instance that runs its program in every term it gets.
struct Wrapper {
    supervisor: Supervisor,
    contest: Contest,
    check: Option<HealthCheck>,
    /// The exit code of a loss, unless this instance contends again.
    loss_code: Option<u8>,
    /// Terms in a row that ended because the work was found ill.
    illnesses: u32,
    /// The last program ended before its lease did, and the term is not released yet.
    has_term: bool,
    /// The last term, where it was over before this process ends: once it is dropped, the election
    /// contends again.
    lost: Option<Term>,
}

impl Wrapper {
    /// Contends, again and again, until there is an exit code.
    async fn contend(&mut self, signals: &mut Signals) -> Result<u8, Failure> {
        let over = self.contend_until_over(signals).await;
        let lost = self.lost.take();
        // Together: neither a guard nor a store that is silent holds up the other. Polled in this
        // order: the first stops the election before the term is dropped.
        let (is_heard, (), ()) =
            tokio::join!(self.contest.leave(), async move { drop(lost) }, self.supervisor.close());
        if self.has_term && !is_heard {
            warn(
                "the store did not confirm the release: nobody else can lead until the lease ends",
            );
        }
        over
    }

    async fn contend_until_over(&mut self, signals: &mut Signals) -> Result<u8, Failure> {
        let mut has_led = false;
        loop {
            self.has_term = false;
            let term = tokio::select! {
                biased;
                signal = signals.next_farewell() => return Ok(code_of_signal(signal)),
                failure = self.contest.denied(), if !has_led => return Err(failure),
                failure = self.contest.refused_at_once() => return Err(failure),
                failure = self.supervisor.stand_by() => return Err(failure),
                term = self.contest.wait() => term?,
            };
            has_led = true;
            self.contest.wait_left = self.contest.wait_timeout;
            let work = Work { election: &self.contest.election, check: self.check.as_ref() };
            let ended = self.supervisor.run(&term, Some(work), signals).await;
            self.has_term = !term.remaining().is_zero();
            if let Some(code) = self.code_after(ended?, &term) {
                self.lost = Some(term).filter(|_| !self.has_term);
                return Ok(code);
            }
            // One that came too late for the child is for this process.
            tokio::select! {
                biased;
                signal = signals.next_farewell() => return Ok(code_of_signal(signal)),
                () = self.stand_down(term) => {}
            }
        }
    }

    /// The exit code, where the end of the program is that of this process.
    fn code_after(&self, ended: Ended, term: &Term) -> Option<u8> {
        match ended {
            Ended::ByItself(ending) | Ended::Leaving(ending) => return Some(code_of(ending)),
            Ended::Stuck => return Some(exit::NO),
            Ended::NeverRan(Some(signal)) => return Some(code_of_signal(signal)),
            // Who asks a holder to resign does not ask for a second run.
            Ended::WithItsTerm if self.contest.purpose.is_lock() => {}
            Ended::WithItsTerm | Ended::NeverRan(None) if !is_loss(term) => return None,
            Ended::WithItsTerm | Ended::NeverRan(None) => {}
        }
        let code = self.loss_code?;
        warn(self.contest.purpose.lost());
        Some(code)
    }

    /// Releases a term whose program is gone, so that the next has a token of its own.
    async fn stand_down(&mut self, term: Term) {
        let was_ill = matches!(term.stop_reason(), Some(Reason::WorkStalled));
        let Some(check) = self.check.as_ref().filter(|_| was_ill) else {
            self.illnesses = 0;
            return self.resign(term).await;
        };
        // Work that was found ill gets another chance, but not at once, and healthy rivals first.
        if self.supervisor.was_well {
            self.illnesses = 0;
        }
        let pause = check.pause_after(self.illnesses);
        self.illnesses = self.illnesses.saturating_add(1);
        // Not `set_ready`: whether it may lead at all is for an operator to say, over HTTP.
        self.contest.election.stand_back();
        self.resign(term).await;
        let shown = crate::output::duration(pause);
        warn(&format!("the health check failed: not contending for {shown}"));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // The guard and orphans are looked after meanwhile; why that ends is told again later.
            _ = self.supervisor.stand_by() => {}
        }
        self.contest.election.beat();
        self.contest.election.contend_again();
    }
}

impl Wrapper {
    /// Gives a term back. The store may take its time, in which the guard and orphans are looked
    /// after.
    async fn resign(&mut self, term: Term) {
        let mut resigning = std::pin::pin!(term.resign());
        tokio::select! {
            () = &mut resigning => return,
            // There cannot be a guard, which is told before anything is run again.
            _ = self.supervisor.stand_by() => {}
        }
        resigning.await;
    }
}

/// What this instance waits for.
struct Contest {
    tenure: Tenure,
    election: Election,
    wait_timeout: Option<Duration>,
    /// What is left of it for this wait. The first began with the command, which may have waited
    /// for a local store.
    wait_left: Option<Duration>,
    purpose: Purpose,
}

impl Contest {
    async fn wait(&self) -> Result<Term, Failure> {
        let (Some(limit), Some(left)) = (self.wait_timeout, self.wait_left) else {
            return Ok(self.election.wait_for_leadership().await?);
        };
        let waited = self.election.wait_for_leadership_within(left).await;
        waited.map_err(|error| match (error, self.tenure.connection()) {
            (tenure::Error::TimedOut { .. }, Connection::Down(error)) => {
                self.not_had_after(limit, blame(&self.tenure, tenure::Error::Store(error)))
            }
            (tenure::Error::TimedOut { .. }, _) => self.not_had_after(limit, self.too_late()),
            (error, _) => Failure::from(error),
        })
    }

    /// Releases what is held; `true` if the store knows. Whoever was told over HTTP that this
    /// instance leads for so long can rely on that: the store's time begins afterwards.
    async fn leave(&self) -> bool {
        let mut leaving = std::pin::pin!(self.tenure.shutdown());
        let is_done = tokio::select! {
            biased;
            () = &mut leaving => true,
            () = self.term_is_over() => false,
        };
        let in_time = is_done || tokio::time::timeout(LEAVE_TIMEOUT, leaving).await.is_ok();
        in_time && !matches!(self.tenure.connection(), Connection::Down(_))
    }

    async fn term_is_over(&self) {
        let mut watch = self.election.watch();
        while watch.status().token.is_some() && watch.wait_for_change().await.is_some() {}
    }

    /// Why this instance does not lead although the store is there.
    fn too_late(&self) -> Failure {
        let status = self.election.status();
        match (status.seen_leader, status.reason) {
            (Some(leader), _) => {
                let holder = plain(leader.id.as_str());
                Failure::new(exit::TIMED_OUT, self.purpose.held_by(&holder))
            }
            (None, Reason::Store(error)) => blame(&self.tenure, tenure::Error::Store(error)),
            (None, Reason::Paused) => {
                let why = "an operator paused it (`tenure resume` ends that)";
                Failure::new(exit::TIMED_OUT, why)
            }
            (None, reason) => Failure::new(exit::TIMED_OUT, reason.to_string()),
        }
    }

    fn not_had_after(&self, limit: Duration, failure: Failure) -> Failure {
        let had = self.purpose.not_had_after(&crate::output::duration(limit));
        Failure { message: format!("{had}: {}", failure.message), ..failure }
    }

    /// Why a lock that is not waited for is not granted; never, where it is waited for.
    async fn refused_at_once(&self) -> Failure {
        if self.purpose != Purpose::LockAtOnce {
            return std::future::pending().await;
        }
        let mut watch = self.election.watch();
        loop {
            let status = watch.status();
            match (status.role, status.connection) {
                (Role::Standby, _) => return self.too_late(),
                (Role::Unknown, Connection::Down(error)) => {
                    return blame(&self.tenure, tenure::Error::Store(error));
                }
                _ => {}
            }
            if watch.wait_for_change().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// A login that is refused from the start will not be accepted by waiting, and an address that
    /// leads to the wrong kind of server will not lead elsewhere. Once a login was accepted, people
    /// have changed something since, and may put it right: that is waited for.
    async fn denied(&self) -> Failure {
        let mut watch = self.election.watch();
        loop {
            match watch.status().connection {
                Connection::Up => std::future::pending::<()>().await,
                Connection::Down(error) if error.needs_person() => {
                    return blame(&self.tenure, tenure::Error::Store(error));
                }
                _ => {}
            }
            if watch.wait_for_change().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Whether a term ended against this instance's will.
fn is_loss(term: &Term) -> bool {
    match term.stop_reason() {
        // The guard acted before this process could notice.
        None => true,
        Some(reason) => reason.is_involuntary(),
    }
}

pub(crate) fn code_of_signal(signal: Signal) -> u8 {
    exit::of_signal(signal.as_raw() as u8)
}
