//! `tenure once`: a program that runs once per tick across the fleet.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::future::poll_fn;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Job, NotStarted, OnceOutcome, Reason, Tenure, Term, Tick, TickOutcome};
use tenure_run::Ending;
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::exit::{self, Failure};
use crate::local;
use crate::logging::LogOptions;
use crate::output::{self, plain, talk};
use crate::run::program::Program;
use crate::run::signals::{self, Signals};
use crate::run::supervise::{Ended, Supervisor, code_of};
use crate::run::{ChildOptions, ElectionOptions, block_on, code_of_signal, duration};
use crate::store_options::{self, Target, blame};

/// How long the outcome is waited for unless told otherwise: for ever, as people count.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long the store may take to hear the last words: one that is not answered is said again, on
/// another connection.
const LEAVE_MAX: Duration = Duration::from_secs(4);
/// The same where that time is used up already.
const LAST_WORD_MAX: Duration = Duration::from_millis(500);

/// How a tick that is left to an operator is run all the same.
const BY_PEOPLE: &str = "check what it has done; without `--on-crash skip` it is run again";

/// Run a program once per tick, whichever instance comes first.
///
/// A tick is a period by the store's clock (`--every`), a due time (`--cron`) or a name (`--tick`).
/// When it was run before or runs elsewhere, this exits with 0 and says `skipped` on stderr; with
/// `--wait` it waits for the outcome, and exits with 1 if the run failed. Ticks of one name never
/// overlap: one that comes while another still runs is skipped, or waits its turn. Without a tick
/// the program runs whenever nobody else runs it.
///
/// If a runner crashes, its tick runs again by default, so a tick may begin twice. Exactly once
/// needs a resource that checks TENURE_TOKEN.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure once report --every 1h -- ./report
  tenure once nightly --cron '0 3 * * *' --tz Europe/Berlin --wait -- ./nightly
  tenure once migrate --tick 2026-11-15-users --wait -- ./migrate")]
pub(crate) struct Arguments {
    /// Run once per period of this length, by the store's clock. Periods are counted from 1970 in
    /// UTC: `1d` begins at midnight UTC.
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with_all = ["tick", "cron"])]
    every: Option<Duration>,
    /// Run once per time that this cron expression names, by the store's clock: minute, hour, day,
    /// month, day of the week. The latest time that has come is run, however late.
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "tick")]
    cron: Option<String>,
    /// The time zone of `--cron`, for example Europe/Berlin.
    #[arg(long, value_name = "ZONE", requires = "cron", default_value = "UTC")]
    tz: String,
    /// Run once under this name, for example the name of a migration.
    #[arg(long, value_name = "ID")]
    tick: Option<String>,
    /// How long the outcome of `--tick` is remembered.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "7d")]
    keep: Duration,
    /// Wait for the outcome when somebody else runs it, and for a store that does not answer.
    #[arg(long)]
    wait: bool,
    /// Exit after waiting this long for the outcome: with 75, or with 69 if the store cannot be
    /// reached.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    wait_timeout: Option<Duration>,
    /// What to do about a tick that somebody began and never finished.
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    on_crash: OnCrash,
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
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum OnCrash {
    /// Run it again, though it may have done part of its work.
    #[default]
    Rerun,
    /// Leave it to an operator.
    Skip,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    arguments.log.start();
    crate::run::require_descriptors()?;
    if arguments.wait
        && arguments.every.is_none()
        && arguments.cron.is_none()
        && arguments.tick.is_none()
    {
        let why = "--wait needs a tick whose outcome it waits for: add --every, --cron or --tick";
        return Err(Failure::usage(why));
    }
    let due = match &arguments.cron {
        Some(expression) => Some(Tick::cron(expression, &arguments.tz)?),
        None => None,
    };
    let program = Program::find(arguments.command.clone())?;
    let name = &arguments.target.name;
    let loader = arguments.election.lay(arguments.target.loader()?, name);
    // The library would end the process on a loss; here the program comes first.
    let loader = loader.set(["elections", name, "on_loss"], "recontend", "once");
    let config = store_options::load_for(loader, name)?;
    let timing = config.election(name).timing().map_err(tenure::Error::from)?;
    let code = block_on(async {
        let signals = Signals::listen()?;
        let tenure = store_options::connect(config)?;
        let job = job(&arguments, due, &tenure);
        let stop_signal = arguments.child.stop_signal;
        let supervisor = Supervisor::new(tenure.clone(), program, timing, stop_signal)?;
        let turn = Turn {
            tenure: tenure.clone(),
            waits: arguments.wait,
            on_crash: arguments.on_crash,
            ended: Cell::new(None),
            left_by: Cell::new(None),
            leave_max: Cell::new(LEAVE_MAX),
        };
        let code = turn.run(job, supervisor, signals).await;
        // What is not heard by then ends by itself.
        let _ = tokio::time::timeout(turn.leave_max.get(), tenure.shutdown()).await;
        code.map_err(|error| match error {
            Trouble::Library(error) => failure(&tenure, error),
            Trouble::Here(failure) => failure,
        })
    })?;
    Ok(ExitCode::from(code))
}

/// What ended the run. A wait in which the store was missed at the end is the store's fault.
fn failure(tenure: &Tenure, error: tenure::Error) -> Failure {
    match error {
        tenure::Error::TimedOut { waited, reason: Some(Reason::Store(error)), .. } => {
            let failure = blame(tenure, tenure::Error::Store(error));
            let waited = output::duration(waited);
            Failure {
                message: format!("no outcome after {waited}: {}", failure.message),
                ..failure
            }
        }
        error => blame(tenure, error),
    }
}

fn job(arguments: &Arguments, due: Option<Tick>, tenure: &Tenure) -> Job {
    let mut job = tenure
        .job(&arguments.target.name)
        .keep_outcome(arguments.keep)
        .rerun_crashed(arguments.on_crash == OnCrash::Rerun);
    if let Some(period) = arguments.every {
        job = job.tick(Tick::every(period));
    }
    if let Some(due) = due {
        job = job.tick(due);
    }
    if let Some(tick) = &arguments.tick {
        job = job.tick(Tick::named(tick));
    }
    match arguments.wait {
        // A store that had to be waited for has used up some of it.
        true => job.wait_for_outcome(local::left_to_wait().unwrap_or(WAIT_MAX)),
        false => job,
    }
}

enum Trouble {
    Library(tenure::Error),
    Here(Failure),
}

/// A term to run the program under, the signals that are the program's affair from now on, and
/// whoever waits to hear how that went.
struct TermToRun {
    term: Term,
    signals: Signals,
    tell: oneshot::Sender<Result<Ended, String>>,
}

/// How a run ended, and the signals that came too late for the program.
struct RunEnd {
    ended: Result<Ended, Failure>,
    signals: Signals,
}

/// Looks after the guard and orphans until there is a term, runs the program under it, and leaves
/// nobody to be reaped. `None` if there never was a term.
async fn keep(
    mut supervisor: Supervisor,
    mut next_run: oneshot::Receiver<TermToRun>,
) -> Option<RunEnd> {
    let run = tokio::select! {
        run = &mut next_run => run.ok(),
        // There cannot be a guard, which is told once the program is to be run.
        _ = supervisor.stand_by() => next_run.await.ok(),
    };
    let Some(TermToRun { term, mut signals, tell }) = run else {
        supervisor.close().await;
        return None;
    };
    let ended = supervise(&mut supervisor, term, &mut signals, tell).await;
    supervisor.close().await;
    Some(RunEnd { ended, signals })
}

/// Runs the program under its term, and tells how that went before the term is released.
async fn supervise(
    supervisor: &mut Supervisor,
    term: Term,
    signals: &mut Signals,
    tell: oneshot::Sender<Result<Ended, String>>,
) -> Result<Ended, Failure> {
    let mut ended = supervisor.run(&term, None, signals).await;
    let left_by = match (&ended, supervisor.left_by()) {
        // With any other end it is left for whoever has the signals next.
        (Ok(Ended::ByItself(_)), None) => signals.unread_farewell().await,
        (_, left_by) => left_by,
    };
    if let Some(cut_short) = ended.as_ref().ok().and_then(|ended| cut_short(*ended, left_by)) {
        // Not before the term is being released: until then the library would take it for the
        // outcome of the tick, which stays open.
        supervisor.resign();
        term.wait_until_stopping().await;
        ended = Ok(cut_short);
    }
    let told = match &ended {
        Ok(Ended::NeverRan(_)) => Err("its term ended before it was started".to_owned()),
        Ok(ended) => Ok(*ended),
        Err(failure) => Err(failure.message.clone()),
    };
    // Whoever does not listen any more has been cut off.
    let _ = tell.send(told);
    ended
}

/// How a program ended that may not have come to an end of its own; `None` for one that did, or
/// that never began. `left_by` is the signal by which this process was asked to end, too.
fn cut_short(ended: Ended, left_by: Option<Signal>) -> Option<Ended> {
    match (ended, left_by) {
        // A service manager tells the program and this process, in any order. What the program says
        // then is not the outcome of the tick.
        (Ended::ByItself(ending), _) if was_told_to_end(ending) => Some(Ended::Leaving(ending)),
        (Ended::ByItself(_), Some(signal)) => {
            Some(Ended::Leaving(Ending::Signalled(signal.as_raw() as u8)))
        }
        // Its term may go on: it was killed for want of a guard, say.
        (Ended::WithItsTerm | Ended::Leaving(_), _) => Some(ended),
        (Ended::ByItself(_) | Ended::NeverRan(_) | Ended::Stuck, _) => None,
    }
}

/// Whether the program died of a signal by which people and service managers end programs.
fn was_told_to_end(ending: Ending) -> bool {
    match ending {
        Ending::Signalled(number) => {
            Signal::from_named_raw(number.into()).is_some_and(signals::is_farewell)
        }
        Ending::Exited(_) => false,
    }
}

/// The next farewell for as long as the signals are there.
async fn next_farewell(signals: &RefCell<Option<Signals>>) -> Signal {
    poll_fn(|context| {
        let mut signals = signals.borrow_mut();
        let signal = signals.as_mut().and_then(|signals| signals.poll_farewell(context));
        signal.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// What the library says of a run.
type RunResult = Result<OnceOutcome<Result<(), String>>, tenure::Error>;

/// One try at the tick.
struct Turn {
    tenure: Tenure,
    waits: bool,
    on_crash: OnCrash,
    /// How the program ended, once it has.
    ended: Cell<Option<Ended>>,
    /// The signal that came before there was a program, or when it was gone.
    left_by: Cell<Option<Signal>>,
    /// How long the store may still take to hear the last words.
    leave_max: Cell<Duration>,
}

impl Turn {
    async fn run(&self, job: Job, supervisor: Supervisor, signals: Signals) -> Result<u8, Trouble> {
        // A task of its own: the library drops work whose term is cut off, but whoever ends the
        // program must see it gone, and holds the term until then.
        let (run, next_run) = oneshot::channel();
        let mut supervised = tokio::spawn(keep(supervisor, next_run));
        // Ours until there is a program, then the supervisor's, and ours again while the store is
        // told what became of it.
        let signals = RefCell::new(Some(signals));
        let work = async |term: Term| {
            let (tell, told) = oneshot::channel();
            match signals.take() {
                // One that has ended early does not tell.
                Some(signals) => drop(run.send(TermToRun { term, signals, tell })),
                None => drop(tell),
            }
            match told.await {
                Ok(Ok(ended)) => Ok(self.note(ended)),
                Ok(Err(words)) => Err(NotStarted(words)),
                Err(_) => Ok(Err("its supervisor ended early".to_owned())),
            }
        };
        let mut running = Box::pin(job.run_startable(work));
        let mut kept = None;
        let once = loop {
            tokio::select! {
                biased;
                once = &mut running => break once,
                ended = &mut supervised, if kept.is_none() => {
                    kept = Some(self.take_back(ended, &signals));
                }
                signal = next_farewell(&signals) => {
                    self.left_by.set(Some(signal));
                    break match self.ended.get() {
                        None => self.leave(&mut running).await,
                        Some(ended) => self.finish(&mut running, ended).await,
                    };
                }
            }
        };
        // Whoever waits for a term hears that there will be none.
        drop(running);
        match kept {
            Some(kept) => kept?,
            None => self.take_back(supervised.await, &signals)?,
        }
        // One that came too late for the program. Without one, what was found out counts.
        let is_over = self.ended.get().is_some() && self.left_by.get().is_none();
        if let Some(mut signals) = signals.take().filter(|_| is_over) {
            self.left_by.set(signals.unread_farewell().await);
        }
        self.told(once)
    }

    /// Takes note of how the program ended, and has its signals back.
    fn take_back(
        &self,
        kept: Result<Option<RunEnd>, JoinError>,
        signals: &RefCell<Option<Signals>>,
    ) -> Result<(), Trouble> {
        match kept {
            Ok(None) => Ok(()),
            Ok(Some(kept)) => {
                signals.replace(Some(kept.signals));
                self.ended.set(Some(kept.ended.map_err(Trouble::Here)?));
                Ok(())
            }
            Err(_) => Err(Trouble::Here(Failure::new(exit::NO, "a bug: see above"))),
        }
    }

    /// The exit code; what has to be said is said.
    fn told(&self, once: RunResult) -> Result<u8, Trouble> {
        match (self.left_by.get(), self.ended.get()) {
            (Some(signal), Some(Ended::WithItsTerm)) => {
                talk(&format!("terminated: {}", self.left_begun()));
                Ok(code_of_signal(signal))
            }
            (Some(signal), Some(Ended::ByItself(_)))
                if matches!(once, Ok(OnceOutcome::Unrecorded(_))) =>
            {
                let left = self.left_unrecorded();
                talk(&format!("terminated before its run could be recorded: {left}"));
                Ok(code_of_signal(signal))
            }
            (Some(signal), None) if matches!(once, Ok(OnceOutcome::Interrupted(_))) => {
                let left = self.perhaps_begun();
                talk(&format!("terminated before the program was started: {left}"));
                Ok(code_of_signal(signal))
            }
            (Some(signal), None | Some(Ended::NeverRan(_))) => Ok(code_of_signal(signal)),
            _ => Ok(self.code(once.map_err(Trouble::Library)?)),
        }
    }

    /// Ends before there was a program. The tick may have been begun a moment ago: releasing the
    /// term takes that back, for as long as the store may take to answer.
    async fn leave(&self, running: impl Future<Output = RunResult>) -> RunResult {
        let leaving = async {
            let (once, ()) = tokio::join!(running, self.tenure.shutdown());
            once
        };
        let once = self.in_time(leaving).await;
        once.unwrap_or(Err(tenure::Error::Closed))
    }

    /// Ends while the store is told what became of the program, which has ended.
    async fn finish(&self, running: impl Future<Output = RunResult>, ended: Ended) -> RunResult {
        let unheard = || match ended {
            Ended::ByItself(_) => OnceOutcome::Unrecorded(self.note(ended)),
            _ => OnceOutcome::Interrupted(Reason::Stopped),
        };
        self.in_time(running).await.unwrap_or_else(|| Ok(unheard()))
    }

    /// Waits for as long as the store may take to hear the last words, all in all.
    async fn in_time<T>(&self, words: impl Future<Output = T>) -> Option<T> {
        let heard = tokio::time::timeout(LEAVE_MAX, words).await.ok();
        if heard.is_none() {
            self.leave_max.set(LAST_WORD_MAX);
        }
        heard
    }

    /// What the record of the tick says, if there is one: a term that ends keeps it open.
    fn note(&self, ended: Ended) -> Result<(), String> {
        match ended {
            Ended::ByItself(ending) => match code_of(ending) {
                0 => Ok(()),
                code => Err(format!("exit code {code}")),
            },
            Ended::Stuck => Err("it could not be ended".to_owned()),
            Ended::WithItsTerm | Ended::NeverRan(_) | Ended::Leaving(_) => Ok(()),
        }
    }

    fn code(&self, once: OnceOutcome<Result<(), String>>) -> u8 {
        match (once, self.ended.get()) {
            // Its own code would say that it was done; the tick is open.
            (OnceOutcome::Interrupted(_), Some(Ended::Leaving(ending))) => {
                talk(&format!("terminated: {}", self.left_begun()));
                match ending {
                    Ending::Signalled(signal) if was_told_to_end(ending) => exit::of_signal(signal),
                    // It was killed because it did not stop in time, or stopped in its own way.
                    _ => code_of_signal(Signal::TERM),
                }
            }
            (_, Some(Ended::NeverRan(Some(signal)))) => {
                talk("terminated before the program was started: the tick is open");
                code_of_signal(signal)
            }
            (OnceOutcome::Unrecorded(_), Some(Ended::ByItself(ending))) => {
                let left = self.left_unrecorded();
                talk(&format!("it ran, but the store could not record it: {left}"));
                code_of(ending).max(exit::NO)
            }
            // Nobody may write under a term that is over.
            (OnceOutcome::Interrupted(reason), Some(Ended::ByItself(ending))) => {
                let left = self.left_begun();
                talk(&format!("it ran, but too late to be recorded: {reason}; {left}"));
                code_of(ending).max(exit::NO)
            }
            (_, Some(Ended::ByItself(ending) | Ended::Leaving(ending))) => code_of(ending),
            (OnceOutcome::Ran(_), Some(Ended::Stuck)) => exit::NO,
            (_, Some(Ended::Stuck)) => {
                talk(&format!("not all of it could be ended: {}", self.left_begun()));
                exit::NO
            }
            (OnceOutcome::AlreadyDone(outcome), _) => self.done(&outcome),
            (OnceOutcome::RunningElsewhere { by }, _) => {
                talk(&format!("skipped: {} is running it", plain(by.as_str())));
                0
            }
            (OnceOutcome::Unfinished { by, token }, _) => {
                let by = plain(by.as_str());
                let under = token.map(|token| format!(" under token {token}")).unwrap_or_default();
                talk(&format!("skipped: {by} began it{under} and never finished: {BY_PEOPLE}"));
                u8::from(self.waits)
            }
            (OnceOutcome::NotNow(reason), _) => {
                let next = match &reason {
                    Reason::Conflict(_) => "with --wait it is ended after a lease",
                    _ if self.waits => "try again",
                    _ => "try again then, or add --wait",
                };
                talk(&format!("not now: {reason}; {next}"));
                exit::TIMED_OUT
            }
            (OnceOutcome::Interrupted(reason), None) => {
                talk(&format!("not run: {reason}; {}", self.perhaps_begun()));
                exit::NO
            }
            (OnceOutcome::Interrupted(reason), _) => {
                talk(&format!("interrupted: {reason}; {}", self.left_begun()));
                exit::NO
            }
            (other, _) => {
                talk(&format!("not run: {other:?}"));
                exit::NO
            }
        }
    }

    /// What becomes of a tick whose program ran, and not to its end.
    fn left_begun(&self) -> String {
        match self.on_crash {
            OnCrash::Rerun => "the tick is open, so the next call runs it again".to_owned(),
            OnCrash::Skip => format!("the tick counts as begun and is skipped: {BY_PEOPLE}"),
        }
    }

    /// What becomes of a tick whose program ran to its end, where the store may not know that.
    fn left_unrecorded(&self) -> String {
        match self.on_crash {
            OnCrash::Rerun => "the tick may be run again".to_owned(),
            OnCrash::Skip => self.left_begun(),
        }
    }

    /// What becomes of a tick whose program did not run, where the store may know it as begun.
    fn perhaps_begun(&self) -> String {
        match self.on_crash {
            OnCrash::Rerun => "the tick is open, so the next call runs it again".to_owned(),
            OnCrash::Skip => {
                format!(
                    "the store may count the tick as begun, and then it is skipped: {BY_PEOPLE}"
                )
            }
        }
    }

    fn done(&self, outcome: &TickOutcome) -> u8 {
        match outcome {
            TickOutcome::Succeeded => {
                talk("skipped: it was run before");
                0
            }
            TickOutcome::Failed(why) => {
                talk(&format!("skipped: it was run before and failed: {}", plain(why)));
                u8::from(self.waits)
            }
        }
    }
}
