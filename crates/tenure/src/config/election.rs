//! The settings of one election, resolved: its own, else the defaults.
//!
//! [`ElectionConfig`] is the one form that all of them have: files and environment are read into
//! it, the methods of a builder change it, a job and the commands carry it, and an election is
//! started with what it makes of itself.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::protocol::MemberRecord;
use tenure_core::timing::duration_text;
use tenure_core::{
    Contest, Failback, InstanceId, Resource, Settings, Timing, TimingError, TimingSettings,
};

use super::hooks::{HooksConfig, HooksReader};
use super::layers::{Leaf, Leaves, bad_value};
use super::origin::Path;
use super::problem::{Fault, Problems};
use super::resolve::Warning;
use super::store::ReadFile;
use super::value::Parsed;
use crate::{Error, OnLoss};

/// The code of a process that `on_loss = "exit"` ends.
const EXIT_CODE: i32 = 1;

/// A version is compared number by number; nobody needs more of them than this.
const VERSION_LEN_MAX: usize = 128;
/// Below it the scheduler decides who leads.
const REQUIRE_BEAT_MIN: Duration = Duration::from_millis(10);

/// The settings of one election. In a loaded [`Config`](super::Config) they have been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionConfig {
    /// The whole key in the store; `None` for prefix and name.
    pub key: Option<String>,
    /// If `false`, this instance leads at once, without the store.
    pub enabled: bool,
    /// How long a lease lasts without renewal.
    pub ttl: Duration,
    /// From one renewal to the next; `None` for a third of the ttl.
    pub renew_every: Option<Duration>,
    /// How long work gets to stop before the lease ends; `None` for 30 % of the ttl.
    pub stop_grace: Option<Duration>,
    /// Instances with a higher priority are preferred.
    pub priority: i32,
    /// Whether and when a leader hands over to an instance with a higher priority.
    pub failback: Option<Failback>,
    /// The work must beat at least this often while leading, else the leader steps down.
    pub require_beat: Option<Duration>,
    /// How long nobody leads after a crash.
    pub lock_delay: Duration,
    /// The shortest lease that any other program writes at this key.
    pub fleet_min_ttl: Option<Duration>,
    /// The longest lease that any other instance may still rely on.
    pub fleet_max_ttl: Option<Duration>,
    /// The prefix of the key where a leader keeps a heartbeat for other programs; `None` for none.
    pub heartbeat_prefix: Option<String>,
    /// Declares that nobody has led on this store before.
    pub fresh_store: bool,
    /// What to do when a term is lost.
    pub on_loss: OnLoss,
    /// Whether the process is aborted when work is still running at the end of its grace.
    pub abort_on_overrun: bool,
    /// The application's version.
    pub version: String,
    /// Free text shown beside this instance.
    pub metadata: BTreeMap<String, String>,
    /// What a sidecar calls when this instance starts or stops leading.
    pub hooks: HooksConfig,
}

impl Default for ElectionConfig {
    /// The defaults of all settings.
    fn default() -> Self {
        Scope::defaults(&Leaves::presets()).values()
    }
}

impl ElectionConfig {
    /// The time settings, with defaults filled in and checked.
    pub fn timing(&self) -> Result<Timing, TimingError> {
        Timing::new(&TimingSettings {
            ttl: self.ttl,
            renew_every: self.renew_every,
            stop_grace: self.stop_grace,
            fleet_min_ttl: self.fleet_min_ttl,
            fleet_max_ttl: self.fleet_max_ttl,
        })
    }

    /// What the state machine of an election is given.
    pub(crate) fn settings(
        &self,
        resource: Resource,
        id: InstanceId,
        contest: Contest,
    ) -> Result<Settings, Error> {
        self.check_limits()?;
        Ok(Settings {
            contest,
            priority: self.priority,
            version: self.version.clone(),
            metadata: self.metadata.clone(),
            failback: self.failback,
            // Whoever leads once has no handle by which its work could beat.
            require_beat: self.require_beat.filter(|_| contest == Contest::Lasting),
            lock_delay: self.lock_delay,
            fresh_store: self.fresh_store || !self.enabled,
            ..Settings::new(resource, id, self.timing()?)
        })
    }

    fn check_limits(&self) -> Result<(), Error> {
        let bytes: usize = self.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        let max = MemberRecord::METADATA_MAX;
        if bytes > max {
            let why = format!("{bytes} bytes, the limit is {max}: shorten it");
            return Err(Error::Setting { setting: "metadata", why });
        }
        if self.version.len() > VERSION_LEN_MAX {
            let why = format!("longer than {VERSION_LEN_MAX} bytes: shorten it");
            return Err(Error::Setting { setting: "version", why });
        }
        match self.require_beat {
            Some(every) if every < REQUIRE_BEAT_MIN => {
                let [every, least] = [every, REQUIRE_BEAT_MIN].map(duration_text);
                let why = format!("{every} is under {least}: lengthen it");
                Err(Error::Setting { setting: "require_beat", why })
            }
            _ => Ok(()),
        }
    }
}

/// Reads the settings of one election: from `scope` first, then from `defaults`.
pub(super) struct Scope<'a> {
    leaves: &'a Leaves,
    paths: Vec<Path>,
}

/// The settings that the time budget joins.
const TIMES: [&str; 5] = ["ttl", "renew_every", "stop_grace", "fleet_min_ttl", "fleet_max_ttl"];

impl<'a> Scope<'a> {
    pub(super) fn defaults(leaves: &'a Leaves) -> Self {
        Scope { leaves, paths: vec![Path::of(["defaults"])] }
    }

    pub(super) fn election(leaves: &'a Leaves, name: &str) -> Self {
        Scope { leaves, paths: vec![Path::of(["elections", name]), Path::of(["defaults"])] }
    }

    /// The settings, with what is wrong about them noted.
    pub(super) fn read(
        &self,
        read: ReadFile<'_>,
        problems: &mut Problems,
        warnings: &mut Vec<Warning>,
    ) -> ElectionConfig {
        let mut config = self.values();
        let is_time = |key: &str| TIMES.contains(&key.rsplit('.').next().unwrap_or_default());
        if let (false, Err(rule)) = (problems.concern(is_time), config.timing()) {
            let (scope, settings) = (self.paths[0].to_string(), self.times());
            problems.add(Fault::Timing { scope, rule, settings });
        }
        for name in ["require_beat", "failback.delay", "failback.min_tenure"] {
            self.refuse_zero(name, problems);
        }
        config.hooks = HooksReader { scope: self, read, problems, warnings }.read();
        config
    }

    pub(super) fn leaves(&self) -> &'a Leaves {
        self.leaves
    }

    /// Where its settings are, the strongest first.
    pub(super) fn paths(&self) -> &[Path] {
        &self.paths
    }

    fn values(&self) -> ElectionConfig {
        ElectionConfig {
            key: self.text("key"),
            enabled: self.switch("enabled").unwrap_or(true),
            ttl: self.duration("ttl").expect("ttl has a default"),
            renew_every: self.duration("renew_every"),
            stop_grace: self.duration("stop_grace"),
            priority: self.priority(),
            failback: self.failback(),
            require_beat: self.duration("require_beat"),
            lock_delay: self.duration("lock_delay").unwrap_or_default(),
            fleet_min_ttl: self.duration("fleet_min_ttl"),
            fleet_max_ttl: self.duration("fleet_max_ttl"),
            heartbeat_prefix: self.text("heartbeat_prefix"),
            fresh_store: self.switch("fresh_store").unwrap_or_default(),
            on_loss: match self.text("on_loss").as_deref() {
                Some("exit") => OnLoss::Exit(EXIT_CODE),
                _ => OnLoss::Recontend,
            },
            abort_on_overrun: self.switch("abort_on_overrun").unwrap_or_default(),
            version: self.text("version").unwrap_or_default(),
            metadata: self.metadata(),
            hooks: HooksConfig::default(),
        }
    }

    /// The setting that counts: the full name and the value.
    pub(super) fn find(&self, name: &str) -> Option<(Path, &'a Leaf)> {
        self.paths.iter().find_map(|scope| {
            let path = name.split('.').fold(scope.clone(), |path, part| path.child(part));
            let leaf = self.leaves.get(&path)?;
            Some((path, leaf))
        })
    }

    fn duration(&self, name: &str) -> Option<Duration> {
        match self.find(name)?.1.parsed {
            Parsed::Duration(duration) => Some(duration),
            _ => unreachable!("{name} is a duration"),
        }
    }

    fn switch(&self, name: &str) -> Option<bool> {
        match self.find(name)?.1.parsed {
            Parsed::Switch(on) => Some(on),
            _ => unreachable!("{name} is a switch"),
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        match &self.find(name)?.1.parsed {
            Parsed::Text(text) => Some(text.clone()),
            _ => unreachable!("{name} is text"),
        }
    }

    fn priority(&self) -> i32 {
        match self.find("priority").map(|(_, leaf)| &leaf.parsed) {
            Some(Parsed::Whole(number)) => {
                i32::try_from(*number).expect("the schema bounds priority")
            }
            _ => 0,
        }
    }

    fn failback(&self) -> Option<Failback> {
        let (delay, min_tenure) =
            (self.duration("failback.delay"), self.duration("failback.min_tenure"));
        let implied = delay.is_some() || min_tenure.is_some();
        let usual = Failback::default();
        self.switch("failback.enabled").unwrap_or(implied).then(|| Failback {
            delay: delay.unwrap_or(usual.delay),
            min_tenure: min_tenure.unwrap_or(usual.min_tenure),
        })
    }

    /// Labels of the defaults, with those of the election laid over them.
    fn metadata(&self) -> BTreeMap<String, String> {
        let mut metadata = BTreeMap::new();
        for scope in self.paths.iter().rev() {
            for (label, leaf) in self.leaves.below(&scope.child("metadata")) {
                if let Parsed::Text(text) = &leaf.parsed {
                    metadata.insert(label.to_owned(), text.clone());
                }
            }
        }
        metadata
    }

    /// Each time setting that was given, with its origin.
    fn times(&self) -> String {
        let given = TIMES.iter().filter_map(|name| self.find(name));
        let given = given
            .map(|(path, leaf)| format!("{path} = {} from {}", leaf.parsed.shown(), leaf.origin));
        given.collect::<Vec<_>>().join(", ")
    }

    fn refuse_zero(&self, name: &str, problems: &mut Problems) {
        if self.duration(name) == Some(Duration::ZERO)
            && let Some((path, leaf)) = self.find(name)
        {
            let problem = "must be longer than 0s: leave it out to switch it off";
            problems.add(bad_value(path.to_string(), leaf.origin.clone(), problem));
        }
    }
}
