//! `tenure watch`: the state of elections, kept up to date in the terminal.

mod lines;
mod one;
mod screen;
mod several;
mod view;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use tenure::Tenure;
use tenure::config::Config;
use tokio::task::JoinSet;

use self::lines::Printer;
use self::one::View;
use crate::exit::Failure;
use crate::list::{self, Kind};
use crate::log_queue::STDOUT;
use crate::output::{OutputOptions, talk};
use crate::run::block_on;
use crate::run::signals::Signals;
use crate::store_options::{self, KeyOption, StoreObserver, StoreOptions, Target, blame};

/// How often the view is drawn without a change: leases and heartbeats count down.
const REDRAW_EVERY: Duration = Duration::from_millis(500);
/// How often to look without a hint.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often to look for elections that are new, where none is named.
const FIND_EVERY: Duration = Duration::from_secs(15);
/// How many elections are followed at the most: each is asked for once a second.
const FOLLOWED_MAX: usize = 500;

/// Show who leads, who takes part and what happened, live. q or Ctrl-C ends it.
///
/// Of several elections, or without names of all that the store has, it shows a line each, trouble
/// first. Into a pipe it writes one line per change; with --json, one object.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure watch nightly
  tenure watch nightly mailer
  tenure watch
  tenure watch nightly --json")]
pub(crate) struct Arguments {
    /// The elections; all that the store has, if none is named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    key: KeyOption,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { mut names, output, store, key } = arguments;
    // A terminal that moves no cursor gets lines.
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_live = std::io::stdout().is_terminal() && !is_dumb && !output.json;
    if names.len() == 1 {
        let target = Target { name: names.remove(0), store, key };
        return watch_one(&target, output, is_live);
    }
    if key.key.is_some() {
        return Err(Failure::usage("--key is the key of one election: name that one"));
    }
    names.iter().try_for_each(|name| store_options::check_name(name))?;
    let config = store_options::load_to_look(store.loader()?)?;
    let tenure = store_options::connect(config.clone())?;
    let given: Vec<_> = names.into_iter().map(|name| (name, Kind::Election)).collect();
    let first = match given.is_empty() {
        true => list::names(&config)?,
        false => given.clone(),
    };
    let several = Several { tenure, config, finds_more: given.is_empty() };
    until_farewell(async {
        match is_live {
            true => several::follow(&several, first).await,
            false => several.print_all(first, output).await,
        }
    })
}

fn watch_one(target: &Target, output: OutputOptions, is_live: bool) -> Result<ExitCode, Failure> {
    let store_observer = target.observer()?;
    until_farewell(async {
        if !is_live {
            return Printer::new(store_observer, output, false).follow().await;
        }
        let changes = store_observer.observer.changes().await;
        let changes = changes.map_err(|error| blame(&store_observer.tenure, error))?;
        View { name: &target.name, store_observer: &store_observer }.follow(changes).await
    })
}

fn until_farewell(
    following: impl Future<Output = Result<(), Failure>>,
) -> Result<ExitCode, Failure> {
    block_on(async {
        let mut farewells = Signals::listen()?;
        // A reader that stalls must not keep us from ending.
        STDOUT.start();
        tokio::select! {
            _ = farewells.next_farewell() => {}
            followed = following => followed?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Elections of one store that are followed together.
struct Several {
    tenure: Tenure,
    config: Config,
    /// Whether those that are new are followed as well.
    finds_more: bool,
}

impl Several {
    /// Those of `names` that are not followed yet, as far as there is room.
    fn unfollowed(
        &self,
        names: Vec<(String, Kind)>,
        followed: &mut BTreeSet<String>,
    ) -> Result<Vec<(StoreObserver, Kind)>, Failure> {
        let mut new = Vec::new();
        for (name, kind) in names {
            if followed.len() >= FOLLOWED_MAX || !followed.insert(name.clone()) {
                continue;
            }
            new.push((StoreObserver::of(&self.tenure, &self.config, &name)?, kind));
        }
        Ok(new)
    }

    /// Waits, and looks which elections there are. A store that does not answer has none that are
    /// new.
    async fn find_more(&self) -> Vec<(String, Kind)> {
        if !self.finds_more {
            return std::future::pending().await;
        }
        tokio::time::sleep(FIND_EVERY).await;
        let config = self.config.clone();
        let found = tokio::task::spawn_blocking(move || list::names(&config)).await;
        found.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// Writes a line per change of any of them, for as long as somebody reads.
    async fn print_all(
        &self,
        first: Vec<(String, Kind)>,
        output: OutputOptions,
    ) -> Result<(), Failure> {
        if first.is_empty() {
            talk("no elections yet: they are followed as soon as there are some");
        }
        let mut followed = BTreeSet::new();
        let mut printers = JoinSet::new();
        let mut names = first;
        loop {
            for (store_observer, _) in self.unfollowed(names, &mut followed)? {
                printers.spawn(Printer::new(store_observer, output, true).follow());
            }
            names = tokio::select! {
                Some(ended) = printers.join_next() => match ended {
                    // The reader has gone, or nothing can be asked for.
                    Ok(ended) => return ended,
                    Err(_) => Vec::new(),
                },
                found = self.find_more() => found,
            };
        }
    }
}
