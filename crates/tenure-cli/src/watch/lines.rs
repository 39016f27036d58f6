//! What `watch` writes into a pipe: a line per change, or an object.

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;
use tenure::{Changes, Leadership, Observation, Token};

use super::LOOK_EVERY;
use crate::clock;
use crate::exit::Failure;
use crate::log_line::iso_moment;
use crate::log_queue::STDOUT;
use crate::output::{OutputOptions, moment, plain, result, unwritten};
use crate::sight::{Sight, Unknown};
use crate::status::status_json;
use crate::store_options::{StoreObserver, blame};
use crate::who::leadership_json;

/// Writes a line per change, for as long as somebody reads.
pub(super) struct Printer {
    name: String,
    store_observer: StoreObserver,
    output: OutputOptions,
    /// Whether others write as well, so that a line has to say which election it is about.
    is_one_of_several: bool,
    /// What the last line said, its time apart: not all that changes is on the line.
    told: String,
    /// What was seen last; `None` once it was said that nobody can tell.
    sight: Option<Sight>,
}

impl Printer {
    pub(super) fn new(
        store_observer: StoreObserver,
        output: OutputOptions,
        is_one_of_several: bool,
    ) -> Self {
        let name = store_observer.observer.resource().name().to_owned();
        let (told, sight) = (String::new(), None);
        Printer { name, store_observer, output, is_one_of_several, told, sight }
    }

    pub(super) async fn follow(mut self) -> Result<(), Failure> {
        let changes = self.store_observer.observer.changes().await;
        let changes = changes.map_err(|error| blame(&self.store_observer.tenure, error))?;
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
                self.output.print(&json, || self.line(&at, &failure.message));
                self.told.clear();
            }
        }
    }

    fn tell_seen(&mut self, seen: &Observation) {
        if self.output.json {
            return self.output.print(&status_json(&self.name, seen), String::new);
        }
        let news = news(seen);
        if news != self.told {
            result(&self.line(&moment(seen.server_time), &news));
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
        self.output.print(&json, || self.line(&at, &format!("leader {}", unknown.text())));
        self.told.clear();
    }

    fn line(&self, at: &str, news: &str) -> String {
        match self.is_one_of_several {
            true => format!("{at}  {}: {news}", plain(&self.name)),
            false => format!("{at}  {news}"),
        }
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
fn news(seen: &Observation) -> String {
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
