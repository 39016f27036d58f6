//! `tenure watch`: how an election stands, kept up to date in the terminal.

mod screen;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use tenure::{Changes, Leadership, Observation};

use self::screen::Screen;
use crate::clock;
use crate::exit::{self, Failure};
use crate::history::{Past, past, past_text};
use crate::log_line::iso_moment;
use crate::members::members_text;
use crate::output::{OutputOptions, moment, plain, result, table};
use crate::run::block_on;
use crate::run::signals::Signals;
use crate::status::{status_json, status_text};
use crate::store_options::{OnLooker, Target, blame};
use crate::who::leadership_json;

/// How often the view is drawn without a change: leases and heartbeats count down.
const REDRAW_EVERY: Duration = Duration::from_secs(1);
/// How many past terms the view shows.
const TERMS_SHOWN: usize = 8;

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
    let looker = arguments.target.look_on()?;
    let name = arguments.target.name;
    block_on(async {
        let changes = looker.observer.changes().await;
        let changes = changes.map_err(|error| blame(&looker.tenure, error))?;
        let mut farewells = Signals::listen()?;
        let live = std::io::stdout().is_terminal() && !arguments.output.json;
        let following = async {
            match live {
                true => View { name: &name, looker: &looker }.follow(changes).await,
                false => {
                    print_changes(&name, &looker, changes, arguments.output).await;
                    Ok(())
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

async fn print_changes(name: &str, looker: &OnLooker, mut changes: Changes, output: OutputOptions) {
    // What the last line said, its time apart: not all that changes is on the line.
    let mut told = String::new();
    loop {
        match changes.next().await {
            Ok(seen) if output.json => output.print(&status_json(name, &seen), String::new),
            Ok(seen) => {
                let news = line(&seen);
                if news != told {
                    result(&format!("{}  {news}", moment(seen.server_time)));
                }
                told = news;
            }
            Err(error) => {
                let failure = blame(&looker.tenure, error);
                // The store's clock is out of reach as well.
                let at = iso_moment(clock::unix_ms());
                let json = json!({ "name": name, "at": at, "error": failure.message });
                output.print(&json, || format!("{at}  {}", failure.message));
                told.clear();
            }
        }
    }
}

/// One change on one line, without its time.
fn line(seen: &Observation) -> String {
    let leader = match &seen.leadership {
        Leadership::Led { leader, .. } => {
            format!("{} leads, token {}", plain(leader.id.as_str()), leader.token)
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
    looker: &'a OnLooker,
}

impl View<'_> {
    /// Until somebody wants to leave.
    async fn follow(&self, mut changes: Changes) -> Result<(), Failure> {
        let screen = Screen::enter();
        let mut screen =
            screen.map_err(|error| Failure::new(exit::NO, format!("no view: {error}")))?;
        loop {
            screen.draw(&self.text().await);
            tokio::select! {
                () = screen.until_left() => return Ok(()),
                _ = changes.next() => {}
                () = tokio::time::sleep(REDRAW_EVERY) => {}
            }
        }
    }

    async fn text(&self) -> String {
        let observer = &self.looker.observer;
        match (observer.look().await, observer.history(TERMS_SHOWN * 3).await) {
            (Ok(seen), Ok(entries)) => {
                let mut terms: Vec<Past> = past(&entries);
                terms.truncate(TERMS_SHOWN);
                let place = self.looker.tenure.store();
                let status = status_text(self.name, &place, &seen);
                format!("{status}\n{}\n{}", members_text(&seen), past_text(&terms))
            }
            (Err(error), _) | (_, Err(error)) => {
                let failure = blame(&self.looker.tenure, error);
                table(&["NO ANSWER"], &[vec![failure.message]])
            }
        }
    }
}
