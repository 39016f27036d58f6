//! What an operator can set, and what a sentinel is called.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use store_replica::Login;

/// The id of a sentinel, or of one run of a server. Cheap to copy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Arc<str>);

impl RunId {
    /// Longer ids are refused: they would be kept, written and sent on.
    const LEN_MAX: usize = 64;

    /// From what a peer or a file says. `None` unless it can stand in a hello and in a file.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let is_usable = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
        let is_whole = !text.is_empty() && text.len() <= Self::LEN_MAX;
        let text = std::str::from_utf8(text).ok()?;
        (is_whole && text.as_bytes().iter().all(is_usable)).then(|| Self(text.into()))
    }

    /// Its characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A precision cuts it, as it does with strings.
        f.pad(self.as_str())
    }
}

type DrawBelow = dyn FnMut(u64) -> u64 + Send;

/// Where chance comes from: sentinels that start together must not stay together.
pub struct Draw(Box<DrawBelow>);

impl Draw {
    /// `below` gives a number from zero up to, but not including, its argument.
    pub fn new(below: impl FnMut(u64) -> u64 + Send + 'static) -> Self {
        Self(Box::new(below))
    }

    /// A span shorter than `limit`.
    pub(crate) fn span(&mut self, limit: Duration) -> Duration {
        Duration::from_millis((self.0)(limit.as_millis() as u64))
    }
}

impl fmt::Debug for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Draw")
    }
}

/// Periods that hold for all groups. The defaults are Redis's; SENTINEL DEBUG changes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How often everything is looked at.
    pub tick: Duration,
    /// How often a server is pinged, unless `down-after-milliseconds` is shorter.
    pub ping_every: Duration,
    /// How often INFO is asked for.
    pub info_every: Duration,
    /// How often, while a replica's primary is in trouble.
    pub info_every_in_trouble: Duration,
    /// How often other sentinels are asked about a primary that is down.
    pub ask_every: Duration,
    /// How often a hello is published.
    pub hello_every: Duration,
    /// A tick that comes later than this is a sign that clock or process stood still.
    pub tilt_trigger: Duration,
    /// For how long nothing is decided then.
    pub tilt_for: Duration,
    /// How long a candidate waits for votes, unless `failover-timeout` is shorter.
    pub election_max: Duration,
    /// How long a replica may take to say that it follows the new primary.
    pub reconfigure_max: Duration,
    /// Starts and votes are set off by less than this.
    pub desync_max: Duration,
    /// A link younger than this is not reopened for being silent.
    pub link_age_min: Duration,
    /// `down-after-milliseconds` of a group that SENTINEL MONITOR adds.
    pub default_down_after: Duration,
    /// Its `failover-timeout`.
    pub default_failover_timeout: Duration,
    /// How long a script may run.
    pub script_max: Duration,
    /// How long a script that failed rests before its first retry; each later rest is twice as
    /// long as the one before.
    pub script_retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(100),
            ping_every: Duration::from_secs(1),
            info_every: Duration::from_secs(10),
            info_every_in_trouble: Duration::from_secs(1),
            ask_every: Duration::from_secs(1),
            hello_every: Duration::from_secs(2),
            tilt_trigger: Duration::from_secs(2),
            tilt_for: Duration::from_secs(30),
            election_max: Duration::from_secs(10),
            reconfigure_max: Duration::from_secs(10),
            desync_max: Duration::from_secs(1),
            link_age_min: Duration::from_secs(15),
            default_down_after: Duration::from_secs(30),
            default_failover_timeout: Duration::from_secs(180),
            script_max: Duration::from_secs(60),
            script_retry: Duration::from_secs(30),
        }
    }
}

/// Settings of the sentinel itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Globals {
    /// `announce-ip`
    pub announce_ip: Option<String>,
    /// `announce-port`
    pub announce_port: Option<u16>,
    /// `resolve-hostnames`: whether masters may be given by name.
    pub resolve_hostnames: bool,
    /// `announce-hostnames`: whether they are told by name, too.
    pub announce_hostnames: bool,
    /// `deny-scripts-reconfig`: whether scripts are set in the file alone.
    pub deny_scripts_reconfig: bool,
    /// `sentinel-user` and `sentinel-pass`: how to log in at other sentinels.
    pub login: Option<Login>,
}

impl Default for Globals {
    fn default() -> Self {
        Self {
            announce_ip: None,
            announce_port: None,
            resolve_hostnames: false,
            announce_hostnames: false,
            deny_scripts_reconfig: true,
            login: None,
        }
    }
}

/// Settings of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// How many sentinels must hold the primary for down before a failover begins.
    pub quorum: usize,
    /// `down-after-milliseconds`
    pub down_after: Duration,
    /// `failover-timeout`
    pub failover_timeout: Duration,
    /// `parallel-syncs`: how many replicas are turned to a new primary at once.
    pub parallel_syncs: usize,
    /// `master-reboot-down-after-period`; zero turns it off.
    pub reboot_down_after: Duration,
    /// `auth-user` and `auth-pass`.
    pub login: Option<Login>,
    /// `rename-command`: what the servers call commands, by their usual names in capitals.
    pub renamed: BTreeMap<String, String>,
    /// `notification-script`
    pub notification_script: Option<String>,
    /// `client-reconfig-script`
    pub reconfig_script: Option<String>,
}

/// How to log in at servers, and what they call commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) login: Option<Login>,
    pub(crate) renamed: Arc<BTreeMap<String, String>>,
}

impl GroupSettings {
    pub(crate) fn access(&self) -> Access {
        Access { login: usable(self.login.as_ref()), renamed: Arc::new(self.renamed.clone()) }
    }
}

/// A user without a password is not enough to log in.
pub(crate) fn usable(login: Option<&Login>) -> Option<Login> {
    login.filter(|login| !login.password.is_empty()).cloned()
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            quorum: 2,
            down_after: Duration::from_secs(30),
            failover_timeout: Duration::from_secs(180),
            parallel_syncs: 1,
            reboot_down_after: Duration::ZERO,
            login: None,
            renamed: BTreeMap::new(),
            notification_script: None,
            reconfig_script: None,
        }
    }
}
