//! Where the store is: the flags that all commands about elections share.
//!
//! Flags are the strongest layer of the library's own configuration, so every value keeps its
//! origin, and an error names the flag, the variable or the line of the file.

use std::path::PathBuf;
use std::time::Duration;

use tenure::config::{Config, Loader};
use tenure::{
    Leadership, Observation, Observer, Resource, StoreErrorKind, Tenure, Vacancy, blocking,
};

use crate::author;
use crate::exit::{self, Failure};
use crate::{list, local, output, postgres};

/// Where the store is and how its keys are named.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreOptions {
    /// The store's address, such as redis://127.0.0.1; --help lists all forms.
    ///
    /// One server: redis://host:port/db, with TLS rediss://host?ca=FILE, or unix:///path.
    /// The primary that sentinels name: redis+sentinel://host1,host2,host3/master-name.
    /// A cluster, by any of its nodes: redis+cluster://host1,host2.
    /// A majority of independent servers: redis+quorum://host1,host2,host3.
    /// TLS for the last three: rediss+sentinel://, rediss+cluster://, rediss+quorum://.
    /// PostgreSQL: postgres://user@host/database?sslmode=verify-full.
    /// Write a login before the host: user:password@. A password is safer in TENURE_STORE or in a
    /// file: everyone on the host can read the arguments of a process.
    #[arg(long, value_name = "URL", verbatim_doc_comment)]
    pub(crate) store: Option<String>,
    /// The configuration file: TOML, YAML, JSON or HCL; TENURE_CONFIG otherwise.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The profile of the configuration file; TENURE_PROFILE otherwise.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// What a grant waits for: `available` (the primary has it), or `strict` (replicas, too); a
    /// redis+quorum:// address is a mode of its own and takes neither.
    #[arg(long, value_name = "MODE", value_parser = ["available", "strict"])]
    pub(crate) mode: Option<String>,
    /// How many replicas must confirm a grant in mode strict: as many as the primary has.
    #[arg(long, value_name = "N", requires = "mode")]
    pub(crate) replicas: Option<u32>,
    /// The start of every key, before the name; `tenure:` by default.
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
}

/// The whole key of one election.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct KeyOption {
    /// The whole key in the store, instead of prefix and name.
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    pub(crate) key: Option<String>,
}

impl StoreOptions {
    /// The layers, with these flags on top. Fails when a mode is asked for that the local store
    /// does not have.
    pub(crate) fn loader(&self) -> Result<Loader, Failure> {
        let mut loader = Loader::of_process();
        if let Some(file) = &self.config {
            loader = loader.file(file);
        }
        if let Some(profile) = &self.profile {
            loader = loader.profile(profile, "--profile");
        }
        if let Some(store) = &self.store {
            loader = loader.set(["store", "url"], store, "--store");
        }
        if let Some(mode) = &self.mode {
            loader = self.with_mode(loader, mode)?;
        }
        if let Some(prefix) = &self.prefix {
            loader = loader.set(["prefix"], prefix, "--prefix");
        }
        Ok(loader)
    }

    /// Adds the mode to the address that the layers name. Where that is wrong, the final load says
    /// so.
    fn with_mode(&self, loader: Loader, mode: &str) -> Result<Loader, Failure> {
        let Ok(config) = loader.clone().load() else { return Ok(loader) };
        let Some(url) = config.store.url() else {
            return match mode {
                "strict" if config.enabled => Err(Failure::usage(
                    "--mode strict waits for replicas, and the local store has none: name a store \
                     with --store",
                )),
                _ => Ok(loader),
            };
        };
        let url = self.moded(url.reveal(), mode)?;
        Ok(loader.set(["store", "url"], url, "--mode"))
    }

    /// An address with this mode in place of its own. Its count of replicas stays unless there is
    /// a flag for it.
    fn moded(&self, url: &str, mode: &str) -> Result<String, Failure> {
        let (url, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
        let is_strict = mode == "strict";
        let counts = |pair: &&str| pair.starts_with("replicas=");
        options.retain(|pair| !pair.starts_with("mode="));
        options.retain(|pair| !counts(pair) || is_strict && self.replicas.is_none());
        // The server itself says how many standbys a commit waits for.
        let counts_itself = postgres::is_meant(url);
        if is_strict && !counts_itself && self.replicas.is_none() && !options.iter().any(counts) {
            return Err(Failure::usage(
                "--mode strict needs the number of replicas that must confirm a grant: add \
                 --replicas N, N = how many replicas the primary has",
            ));
        }
        let own =
            [Some(format!("mode={mode}")), self.replicas.map(|count| format!("replicas={count}"))];
        let own = own.into_iter().flatten();
        let query: Vec<String> = options.into_iter().map(str::to_owned).chain(own).collect();
        Ok(format!("{place}?{}{fragment}", query.join("&")))
    }
}

/// One election on one store: what most commands look at.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Target {
    /// The election's name.
    #[arg(index = 1)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) key: KeyOption,
}

impl Target {
    /// The layers, with the flags on top.
    pub(crate) fn loader(&self) -> Result<Loader, Failure> {
        check_name(&self.name)?;
        let loader = self.store.loader()?;
        Ok(match &self.key.key {
            Some(key) => loader.set(["elections", &self.name, "key"], key, "--key"),
            None => loader,
        })
    }

    /// Somebody who looks at the election.
    pub(crate) fn observer(&self) -> Result<StoreObserver, Failure> {
        let mut config = load_to_look(self.loader()?)?;
        // What an operator asks for is told with who asked.
        config.instance = config.instance.or_else(|| Some(author::as_instance()));
        let tenure = connect(config.clone())?;
        StoreObserver::of(&tenure, &config, &self.name)
    }
}

/// Before flags are laid over the settings of that name: they would be blamed for it.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    let checked = Resource::named(name).map_err(tenure::Error::Name);
    Ok(checked.map(drop)?)
}

/// Looks at one election, and says which store it was when that does not answer.
#[derive(Clone, Debug)]
pub(crate) struct StoreObserver {
    pub(crate) tenure: Tenure,
    pub(crate) observer: Observer,
    config: Config,
}

impl StoreObserver {
    /// One of the election `name`, with a client of this configuration.
    pub(crate) fn of(tenure: &Tenure, config: &Config, name: &str) -> Result<Self, Failure> {
        let observer = tenure.observe(name)?;
        Ok(StoreObserver { tenure: tenure.clone(), observer, config: config.clone() })
    }

    pub(crate) fn wait<T>(
        &self,
        asked: impl Future<Output = Result<T, tenure::Error>>,
    ) -> Result<T, Failure> {
        blocking::wait(asked).map_err(|error| blame(&self.tenure, error))
    }

    /// For how long the leader has led, where the history tells.
    pub(crate) fn leads_for(&self, seen: &Observation) -> Option<Duration> {
        // Nothing but the grant of the running term is looked for.
        const ENTRIES: usize = 2;
        seen.leadership.leader()?;
        list::leads_for(seen, &self.wait(self.observer.history(ENTRIES)).ok()?)
    }

    /// Whether the store has no trace of an election: probably its name was misspelt.
    pub(crate) fn is_unheard_of(&self, seen: &Observation) -> bool {
        let is_free = matches!(seen.leadership, Leadership::Vacant(Vacancy::Free));
        let history = || self.wait(self.observer.history(1));
        is_free
            && seen.members.is_empty()
            && seen.warnings.is_empty()
            && history().is_ok_and(|terms| terms.is_empty())
    }

    /// The election that was probably meant, where the store knows nothing of this one.
    pub(crate) fn meant(&self, seen: &Observation) -> Option<String> {
        let name = self.observer.resource().name();
        let has_own_key = self.config.named(name).is_some_and(|election| election.key.is_some());
        match !has_own_key && self.is_unheard_of(seen) {
            true => list::meant(&self.config, name),
            false => None,
        }
    }

    /// The same in words: that there is no such election, and which there is.
    pub(crate) fn meant_text(&self, seen: &Observation) -> Option<String> {
        let name = output::plain(self.observer.resource().name());
        self.meant(seen).map(|meant| no_such(&name, &meant))
    }
}

/// What to say of a name that nothing is known of, and that is nearly the name of another election.
pub(crate) fn no_such(name: &str, meant: &str) -> String {
    format!("no election `{}`; did you mean `{}`?", output::plain(name), output::plain(meant))
}

/// Names the store in what went wrong there, and the next step where that is not said yet.
pub(crate) fn blame(tenure: &Tenure, error: tenure::Error) -> Failure {
    blame_on(&tenure.store(), error)
}

/// The same where there is no client yet.
pub(crate) fn blame_on(store: &str, error: tenure::Error) -> Failure {
    let tenure::Error::Store(trouble) = &error else { return Failure::from(error) };
    let next = match trouble.next_step() {
        Some(_) => String::new(),
        None => format!("; {}", usual_step(trouble.kind())),
    };
    let failure = Failure::from(error);
    let place = match failure.message.contains(store) {
        true => String::new(),
        false => format!("{store}: "),
    };
    let or_another = match failure.code {
        exit::UNREACHABLE => ", or name another with --store",
        _ => "",
    };
    Failure { message: format!("{place}{}{next}{or_another}", failure.message), ..failure }
}

/// What to do where the library knows nothing better.
fn usual_step(kind: StoreErrorKind) -> &'static str {
    match kind {
        StoreErrorKind::Denied => "see docs/acl.md for what the login needs",
        StoreErrorKind::NotNow => "wait, or look at the store's own log",
        StoreErrorKind::Unreachable | StoreErrorKind::TimedOut => "start it",
        _ => "check the store's address, and what runs there",
    }
}

/// The whole configuration. Where nobody names a store, it is the local one.
pub(crate) fn load(loader: Loader) -> Result<Config, Failure> {
    let config = loader.clone().load()?;
    match config.store.url() {
        None if config.enabled => Ok(local::lay(loader)?.load()?),
        _ => Ok(config),
    }
}

/// The same for somebody who looks at elections or changes them: where they are switched off there
/// is nothing to see, and "nobody leads" would be untrue.
pub(crate) fn load_to_look(loader: Loader) -> Result<Config, Failure> {
    let config = load(loader)?;
    match config.enabled {
        true => Ok(config),
        false => Err(Failure::new(
            exit::CONFIGURATION,
            "elections are switched off (TENURE_ENABLED or enabled = false): every instance acts \
             alone, so there is no leader to be seen; switch them on for this command",
        )),
    }
}

/// The whole configuration where only the election `name` counts: one that is switched off needs no
/// store, so none is started for it.
pub(crate) fn load_for(loader: Loader, name: &str) -> Result<Config, Failure> {
    let config = loader.clone().load()?;
    match config.store.url() {
        None if !config.is_enabled(name) => {
            Ok(loader.set(["enabled"], "false", "enabled").load()?)
        }
        _ => load(loader),
    }
}

/// A client as `config` says. What works but is probably not meant is told.
pub(crate) fn connect(config: Config) -> Result<Tenure, Failure> {
    for warning in config.warnings() {
        output::talk(&format!("{} ({}): {}", warning.key, warning.origin, warning.text));
    }
    let is_local = local::serves(&config);
    let tenure = blocking::wait(Tenure::from_config(config))?;
    if is_local {
        local::keep(&tenure);
    }
    Ok(tenure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::StoreError;

    #[test]
    fn the_flag_for_the_mode_counts_before_the_address() {
        let moded = |url: &str, mode: &str, replicas| {
            StoreOptions { replicas, ..StoreOptions::default() }.moded(url, mode).ok()
        };
        let of = |url: &str| Some(url.to_owned());
        let strict = "rediss://h?ca=/c&mode=strict&replicas=2#insecure";
        assert_eq!(
            moded(strict, "available", None),
            of("rediss://h?ca=/c&mode=available#insecure")
        );
        assert_eq!(moded("redis://h", "strict", Some(1)), of("redis://h?mode=strict&replicas=1"));
        let kept = "redis://h?replicas=2&mode=strict";
        assert_eq!(moded("redis://h?mode=strict&replicas=2", "strict", None), of(kept));
        assert_eq!(moded(kept, "strict", Some(1)), of("redis://h?mode=strict&replicas=1"));
        assert_eq!(moded("redis://h", "strict", None), None, "nobody says how many");
        let database = "postgres://a@h/d";
        assert_eq!(moded(database, "strict", None), of("postgres://a@h/d?mode=strict"));
    }

    #[test]
    fn what_is_wrong_with_a_store_is_said_once_and_so_is_what_to_do() {
        let of = |error| blame_on("redis://h:1/0", tenure::Error::Store(error)).message;
        let unreachable = StoreError::unreachable("redis://h:1/0: refused");
        let unreachable = unreachable.with_next_step("start the store");
        assert_eq!(
            of(unreachable),
            "store unreachable: redis://h:1/0: refused; start the store, or name another with \
             --store"
        );
        let silent = of(StoreError::timed_out(std::time::Duration::from_secs(3)));
        assert!(
            silent.starts_with("redis://h:1/0: no answer from the store within 3s"),
            "{silent}"
        );
        assert!(silent.ends_with("; start it, or name another with --store"), "{silent}");
        assert_eq!(
            of(StoreError::denied("NOPERM")),
            "redis://h:1/0: store denies access: NOPERM; see docs/acl.md for what the login needs"
        );
        let odd = StoreError::unexpected("it is not a sentinel").with_next_step("write redis://h");
        let odd = of(odd);
        assert!(odd.ends_with("it is not a sentinel; write redis://h"), "{odd}");
        let odd = of(StoreError::unexpected("a number"));
        assert!(odd.ends_with("a number; check the store's address, and what runs there"), "{odd}");
    }
}
