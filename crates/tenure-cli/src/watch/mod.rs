//! `tenure watch`: the state of an election, kept up to date in the terminal.

mod screen;
mod view;

use std::io::{ErrorKind, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure::{Changes, HistoryEntry, Leadership, Observation, Token};
use tokio::sync::{Notify, mpsc};

use self::screen::Screen;
use self::view::{Knowledge, TERMS_SHOWN};
use crate::clock;
use crate::exit::{self, Failure};
use crate::log_line::iso_moment;
use crate::log_queue::STDOUT;
use crate::output::{OutputOptions, moment, plain, result, unwritten};
use crate::run::block_on;
use crate::run::signals::Signals;
use crate::sight::{Sight, Unknown};
use crate::status::status_json;
use crate::store_options::{StoreObserver, Target, blame};
use crate::who::leadership_json;

/// How often the view is drawn without a change: leases and heartbeats count down.
const REDRAW_EVERY: Duration = Duration::from_millis(500);
/// How often to look without a hint.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Show who leads, who takes part and what happened, live. q or Ctrl-C ends it.
///
/// Into a pipe it writes one line per change; with --json, one object.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure watch nightly
  tenure watch nightly --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    let name = arguments.target.name;
    block_on(async {
        let changes = store_observer.observer.changes().await;
        let changes = changes.map_err(|error| blame(&store_observer.tenure, error))?;
        let mut farewells = Signals::listen()?;
        // A reader that stalls must not keep us from ending.
        STDOUT.start();
        // A terminal that moves no cursor gets lines.
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let live = std::io::stdout().is_terminal() && !is_dumb && !arguments.output.json;
        let following = async {
            match live {
                true => View { name: &name, store_observer: &store_observer }.follow(changes).await,
                false => {
                    let (told, sight) = (String::new(), None);
                    let output = arguments.output;
                    let mut printer = Printer {
                        name: &name,
                        store_observer: &store_observer,
                        output,
                        told,
                        sight,
                    };
                    printer.follow(changes).await
                }
            }
        };
        tokio::select! {
            _ = farewells.next_farewell() => {}
            followed = following => followed?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Writes a line per change, for as long as somebody reads.
struct Printer<'a> {
    name: &'a str,
    store_observer: &'a StoreObserver,
    output: OutputOptions,
    /// What the last line said, its time apart: not all that changes is on the line.
    told: String,
    /// What was seen last; `None` once it was said that nobody can tell.
    sight: Option<Sight>,
}

impl Printer<'_> {
    async fn follow(&mut self, changes: Changes) -> Result<(), Failure> {
        let mut next = Box::pin(next_change(changes));
        loop {
            // An answer that shows no change would not be told, and it may end a doubt.
            let looks_in = match &self.sight {
                Some(sight) => sight.believed_for() * 2 / 3,
                None => LOOK_EVERY,
            };
            tokio::select! {
                (changes, changed) = &mut next => {
                    self.tell(changed).await;
                    next = Box::pin(next_change(changes));
                }
                () = tokio::time::sleep(looks_in) => self.look().await,
            }
            // No line is lost: the next one waits until this one was taken.
            match STDOUT.written().await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(unwritten(&error)),
            }
        }
    }

    async fn tell(&mut self, changed: Result<Observation, tenure::Error>) {
        match changed {
            Ok(seen) => {
                // The change itself says nothing about its age; a look of our own does.
                self.confirm(Sight::arrived(seen.clone())).await;
                if self.sight.is_some() {
                    self.tell_seen(&seen);
                }
            }
            Err(error) => {
                let failure = blame(&self.store_observer.tenure, error);
                // The store's clock is out of reach as well.
                let at = iso_moment(clock::unix_ms());
                let json = json!({ "name": self.name, "at": at, "error": failure.message });
                self.output.print(&json, || format!("{at}  {}", failure.message));
                self.told.clear();
            }
        }
    }

    fn tell_seen(&mut self, seen: &Observation) {
        if self.output.json {
            return self.output.print(&status_json(self.name, seen), String::new);
        }
        let news = line(seen);
        if news != self.told {
            result(&format!("{}  {news}", moment(seen.server_time)));
        }
        self.told = news;
    }

    /// Looks whether what was seen goes on, or whether anybody can tell again.
    async fn look(&mut self) {
        if let Some(known) = self.sight.take() {
            return self.confirm(known).await;
        }
        let looked = Sight::of(&self.store_observer.observer).await;
        if let Some(sight) = looked.ok().filter(|sight| sight.unknown().is_none()) {
            self.tell_seen(sight.then());
            self.sight = Some(sight);
        }
    }

    /// Looks whether the lease that was seen goes on. Once it is over and nothing was heard, nobody
    /// can tell who leads.
    async fn confirm(&mut self, known: Sight) {
        self.sight = None;
        let looking = Sight::of(&self.store_observer.observer);
        let looked = tokio::time::timeout(known.believed_for() + EXPIRY_GRAIN, looking).await;
        match (looked, known.unknown()) {
            (Ok(Ok(sight)), _) => match sight.unknown() {
                None => self.sight = Some(sight),
                Some(unknown) => self.tell_unknown(&unknown),
            },
            (_, Some(unknown)) => self.tell_unknown(&unknown),
            // It could not be confirmed, and is not over yet.
            (_, None) => {
                tokio::time::sleep(LOOK_AGAIN).await;
                self.sight = Some(known);
            }
        }
    }

    fn tell_unknown(&mut self, unknown: &Unknown) {
        let at = iso_moment(clock::unix_ms());
        let last = unknown.last_leader.as_ref();
        let json = json!({
            "name": self.name,
            "at": at,
            "leader": null,
            "unknown_since": iso_moment(unknown.since_ms),
            "last_leader": last.map(|leader| leader.id.as_str()),
            "last_token": last.and_then(|l| l.token).map(Token::get),
        });
        self.output.print(&json, || format!("{at}  leader {}", unknown.text()));
        self.told.clear();
    }
}

/// The next change, and those who wait for the one after it.
async fn next_change(mut changes: Changes) -> (Changes, Result<Observation, tenure::Error>) {
    let changed = changes.next().await;
    (changes, changed)
}

/// The store ends a lease on a whole millisecond.
const EXPIRY_GRAIN: Duration = Duration::from_millis(3);
/// The pause between two looks that fail at once.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// One change on one line, without its time.
fn line(seen: &Observation) -> String {
    let leader = match &seen.leadership {
        Leadership::Led { leader, .. } => {
            let token = leader.token.map(|token| format!(", token {token}")).unwrap_or_default();
            format!("{} leads{token}", plain(leader.id.as_str()))
        }
        vacant => {
            let why = leadership_json("", vacant)["vacancy"].clone();
            format!("nobody leads ({})", why.as_str().unwrap_or("free"))
        }
    };
    match seen.members.len() {
        1 => format!("{leader}, 1 member"),
        count => format!("{leader}, {count} members"),
    }
}

/// The view on a terminal.
struct View<'a> {
    name: &'a str,
    store_observer: &'a StoreObserver,
}

impl View<'_> {
    /// Until somebody wants to leave. Drawing never waits for the store.
    async fn follow(&self, mut changes: Changes) -> Result<(), Failure> {
        let screen = Screen::enter();
        let mut screen = screen
            .map_err(|error| Failure::new(exit::NO, format!("cannot use the terminal: {error}")))?;
        let (hints, mut looks) = self.keep_looking();
        let mut knowledge = Knowledge::default();
        let place = self.store_observer.tenure.store();
        if let Ok(Some(looked)) = tokio::time::timeout(LOOK_EVERY, looks.recv()).await {
            knowledge.take(looked);
        }
        loop {
            screen.draw(|columns| knowledge.lines(self.name, &place, columns));
            tokio::select! {
                () = screen.until_left() => return Ok(()),
                Some(looked) = looks.recv() => knowledge.take(looked),
                _ = changes.next() => hints.notify_one(),
                () = tokio::time::sleep(REDRAW_EVERY) => {}
            }
        }
    }

    /// Looks beside the drawing, again and again and at each hint.
    fn keep_looking(&self) -> (Arc<Notify>, mpsc::Receiver<Looked>) {
        let hints = Arc::new(Notify::new());
        let hinted = Arc::clone(&hints);
        let (send, looks) = mpsc::channel(1);
        let (observer, tenure) =
            (self.store_observer.observer.clone(), self.store_observer.tenure.clone());
        tokio::spawn(async move {
            loop {
                let looked = async {
                    let sight = Sight::of(&observer).await?;
                    Ok((sight, observer.history(TERMS_SHOWN * 3).await?))
                };
                let looked = looked.await.map_err(|error| blame(&tenure, error));
                if send.send(looked).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                    () = hinted.notified() => {}
                }
            }
        });
        (hints, looks)
    }
}

type Looked = Result<(Sight, Vec<HistoryEntry>), Failure>;
