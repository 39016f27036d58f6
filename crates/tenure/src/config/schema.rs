//! The one list of settings: names, kinds, defaults and meanings.
//!
//! Files, environment variables, defaults, suggestions and `docs/configuration.md` all read it. A
//! new setting is a row here and a field in [`Config`](super::Config) or its parts.

use super::origin::Path;

/// One setting, or a group of them.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) default: Preset,
    pub(super) meaning: &'static str,
}

/// What may stand at a name.
pub(super) enum Shape {
    /// One value.
    Leaf(Kind),
    /// Known names below. A plain value in its place is given to the row named `shorthand`.
    Table { rows: &'static [Row], shorthand: Option<&'static str> },
    /// Names that the user chooses, shown as `placeholder`; each has the shape of `each`.
    Map { placeholder: &'static str, each: &'static Shape },
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// Never shown.
    Secret,
    /// May contain a password, so never shown whole.
    Address,
    /// The address of a hook: only scheme and host are shown.
    Hook,
    /// A command of a shell: only the program is shown.
    Command,
    /// A file. Written relative in a configuration file, it is relative to that file's folder.
    File,
    Switch,
    Whole {
        min: i64,
        max: i64,
    },
    Duration,
    OneOf(&'static [&'static str]),
}

/// What counts when nobody sets it.
pub(super) enum Preset {
    /// This value, written as in the environment.
    Value(&'static str),
    /// Nothing, which means what the text says.
    Unset(&'static str),
    /// For groups.
    None,
}

use Kind::{Address, Command, Duration, File, Hook, OneOf, Secret, Switch, Text, Whole};
use Preset::{Unset, Value};
use Shape::{Leaf, Map, Table};

/// Everything that may stand at the top of a file or in a profile.
pub(super) const ROOT: &[Row] = &[
    Row {
        name: "store",
        shape: Table { rows: STORE, shorthand: Some("url") },
        default: Preset::None,
        meaning: "The store that holds the elections. A plain value is its `url`.",
    },
    Row {
        name: "prefix",
        shape: Leaf(Text),
        default: Value(tenure_core::DEFAULT_PREFIX),
        meaning: "What every key in the store starts with, before the election's name.",
    },
    Row {
        name: "instance",
        shape: Leaf(Text),
        default: Unset("`HOST_PID`"),
        meaning: "The name of this process. A random part is added, so that two of the same name \
                  never both lead.",
    },
    Row {
        name: "enabled",
        shape: Leaf(Switch),
        default: Value("true"),
        meaning: "Off: there is no election; this instance leads at once and needs no store.",
    },
    Row {
        name: "defaults",
        shape: Table { rows: DEFAULTS, shorthand: None },
        default: Preset::None,
        meaning: "Settings for every election that does not set its own.",
    },
    Row {
        name: "elections",
        shape: Map { placeholder: "NAME", each: &Table { rows: ELECTION, shorthand: None } },
        default: Preset::None,
        meaning: "Settings for the election `NAME` alone.",
    },
    Row {
        name: "sidecar",
        shape: Table { rows: SIDECAR, shorthand: None },
        default: Preset::None,
        meaning: "How `tenure sidecar` is served, and who may call it.",
    },
];

const SIDECAR: &[Row] = &[
    Row {
        name: "listen",
        shape: Leaf(Text),
        default: Value("127.0.0.1:8420"),
        meaning: "The address to listen on, `unix:` and a file, or both with a comma between them. \
                  Beyond loopback, callers must identify themselves.",
    },
    Row {
        name: "token",
        shape: Leaf(Secret),
        default: Unset("none"),
        meaning: "The bearer token that callers must send.",
    },
    Row {
        name: "token_file",
        shape: Leaf(File),
        default: Unset("none"),
        meaning: "A file that holds the token; white space around it does not count.",
    },
    Row {
        name: "hosts",
        shape: Leaf(Text),
        default: Unset("`localhost` and addresses"),
        meaning: "Further host names under which it may be called, separated by commas.",
    },
    Row {
        name: "observe",
        shape: Leaf(Text),
        default: Unset("none"),
        meaning: "Elections to observe without taking part, separated by commas.",
    },
    Row {
        name: "empty",
        shape: Leaf(Switch),
        default: Value("false"),
        meaning: "Whether it may start without any election, because programs join over HTTP.",
    },
    Row {
        name: "standby_is_degraded",
        shape: Leaf(Switch),
        default: Value("false"),
        meaning: "Whether `/health` calls a standby Degraded, and one without a store Unhealthy.",
    },
    Row {
        name: "tls",
        shape: Table { rows: SIDECAR_TLS, shorthand: None },
        default: Preset::None,
        meaning: "Encryption.",
    },
];

const SIDECAR_TLS: &[Row] = &[
    Row {
        name: "cert_file",
        shape: Leaf(File),
        default: Unset("none: plain HTTP"),
        meaning: "The certificate to show, as PEM.",
    },
    Row {
        name: "key_file",
        shape: Leaf(File),
        default: Unset("none"),
        meaning: "The key of that certificate, as PEM.",
    },
    Row {
        name: "client_ca_file",
        shape: Leaf(File),
        default: Unset("none"),
        meaning: "The authorities whose certificates callers must show, as PEM.",
    },
];

const STORE: &[Row] = &[
    Row {
        name: "url",
        shape: Leaf(Address),
        default: Unset("none"),
        meaning: "The whole address, for example `rediss://user:password@host:6379/0`.",
    },
    Row {
        name: "url_file",
        shape: Leaf(File),
        default: Unset("none"),
        meaning: "A file that holds the address, for example a mounted secret.",
    },
    Row {
        name: "host",
        shape: Leaf(Text),
        default: Unset("`127.0.0.1` if a `port` is set"),
        meaning: "The host, in place of a URL.",
    },
    Row {
        name: "port",
        shape: Leaf(Whole { min: 1, max: 65_535 }),
        default: Unset("`6379`"),
        meaning: "The port of `host`.",
    },
    Row {
        name: "socket",
        shape: Leaf(File),
        default: Unset("none"),
        meaning: "A unix socket, in place of a URL or a host.",
    },
    Row {
        name: "user",
        shape: Leaf(Text),
        default: Unset("the server's default user"),
        meaning: "The ACL user. Outranks the user in a URL of a lower layer.",
    },
    Row {
        name: "password",
        shape: Leaf(Secret),
        default: Unset("none"),
        meaning: "The password. Outranks the password in a URL of a lower layer.",
    },
    Row {
        name: "password_file",
        shape: Leaf(File),
        default: Unset("none"),
        meaning: "A file that holds the password; a line break at its end does not count.",
    },
    Row {
        name: "database",
        shape: Leaf(Whole { min: 0, max: i32::MAX as i64 }),
        default: Unset("`0`"),
        meaning: "The number of the database.",
    },
    Row {
        name: "tls",
        shape: Table { rows: TLS, shorthand: Some("enabled") },
        default: Preset::None,
        meaning: "Encryption. A plain `true` or `false` is its `enabled`.",
    },
];

const TLS: &[Row] = &[
    Row {
        name: "enabled",
        shape: Leaf(Switch),
        default: Unset("as the URL says; on if another `tls` setting is set"),
        meaning: "Whether to speak TLS.",
    },
    Row {
        name: "ca_file",
        shape: Leaf(File),
        default: Unset("the system's authorities"),
        meaning: "The authorities to trust, as PEM.",
    },
    Row {
        name: "cert_file",
        shape: Leaf(File),
        default: Unset("none"),
        meaning: "The client certificate, as PEM.",
    },
    Row {
        name: "key_file",
        shape: Leaf(File),
        default: Unset("none"),
        meaning: "The key of the client certificate, as PEM.",
    },
    Row {
        name: "insecure",
        shape: Leaf(Switch),
        default: Value("false"),
        meaning: "Accepts any certificate, so anyone on the network path can pose as the store. \
                  Tests only.",
    },
];

const FAILBACK: &[Row] = &[
    Row {
        name: "enabled",
        shape: Leaf(Switch),
        default: Unset("off; on if `delay` or `min_tenure` is set"),
        meaning: "Whether a leader hands over to a ready instance with a higher priority.",
    },
    Row {
        name: "delay",
        shape: Leaf(Duration),
        default: Unset("`5m`"),
        meaning: "How long the other must have been ready; doubled when it did not last.",
    },
    Row {
        name: "min_tenure",
        shape: Leaf(Duration),
        default: Unset("`1m`"),
        meaning: "How long this instance must have led.",
    },
];

/// The hook that was once a setting of the sidecar, below `defaults` since.
pub(super) fn moved_hook(above: &Path, name: &str) -> Option<&'static str> {
    let is_sidecar = *above == Path::of(["sidecar"]);
    let moved = HOOKS.iter().find(|row| row.name == name && name.starts_with("on_"));
    moved.filter(|_| is_sidecar).map(|row| row.name)
}

const HOOKS: &[Row] = &[
    Row {
        name: "on_gain",
        shape: Leaf(Command),
        default: Unset("none"),
        meaning: "A shell command that `tenure sidecar` runs when this instance starts to lead. \
                  Empty: none, whatever `defaults` says.",
    },
    Row {
        name: "on_loss",
        shape: Leaf(Command),
        default: Unset("none"),
        meaning: "A shell command that it runs when this instance stops leading.",
    },
    Row {
        name: "on_gain_url",
        shape: Leaf(Hook),
        default: Unset("none"),
        meaning: "An address that it posts to when this instance starts to lead.",
    },
    Row {
        name: "on_loss_url",
        shape: Leaf(Hook),
        default: Unset("none"),
        meaning: "An address that it posts to when this instance stops leading.",
    },
    Row {
        name: "on_loss_first",
        shape: Leaf(Switch),
        default: Value("false"),
        meaning: "Whether the lease is released only after `on_loss` and `on_loss_url` have ended, \
                  or `stop_grace` is over.",
    },
    Row {
        name: "headers",
        shape: Map { placeholder: "HEADER", each: &Leaf(Secret) },
        default: Preset::None,
        meaning: "A header to send to these addresses, for example `Authorization`. Never shown.",
    },
    Row {
        name: "secret",
        shape: Leaf(Secret),
        default: Unset("none: not signed"),
        meaning: "The secret that signs what is posted (HMAC-SHA256): at least 16 characters.",
    },
    Row {
        name: "secret_file",
        shape: Leaf(File),
        default: Unset("none"),
        meaning: "A file that holds that secret; white space around it does not count.",
    },
];

/// What may be said of one election.
pub(super) const ELECTION: &[Row] = &[
    Row {
        name: "key",
        shape: Leaf(Text),
        default: Unset("`prefix` and the name"),
        meaning: "The whole key in the store, for example to share it with other programs.",
    },
    Row {
        name: "enabled",
        shape: Leaf(Switch),
        default: Value("true"),
        meaning: "Off: this instance leads at once, without the store.",
    },
    Row {
        name: "ttl",
        shape: Leaf(Duration),
        default: Value("10s"),
        meaning: "How long a lease lasts without renewal: 300 ms to 24 h.",
    },
    Row {
        name: "renew_every",
        shape: Leaf(Duration),
        default: Unset("a third of `ttl`"),
        meaning: "How often the lease is renewed.",
    },
    Row {
        name: "stop_grace",
        shape: Leaf(Duration),
        default: Unset("30 % of `ttl`"),
        meaning: "How long work gets to stop before the lease ends.",
    },
    Row {
        name: "priority",
        shape: Leaf(Whole { min: i32::MIN as i64, max: i32::MAX as i64 }),
        default: Value("0"),
        meaning: "Instances with a higher priority are preferred.",
    },
    Row {
        name: "failback",
        shape: Table { rows: FAILBACK, shorthand: Some("enabled") },
        default: Preset::None,
        meaning: "Handing over to a higher priority. A plain `true` or `false` is its `enabled`.",
    },
    Row {
        name: "require_beat",
        shape: Leaf(Duration),
        default: Unset("no beat needed"),
        meaning: "The work must beat at least this often, else the leader steps down. Without \
                  effect where nobody can beat: in `once`, in `run` without `--health-cmd`, in \
                  `sidecar`.",
    },
    Row {
        name: "lock_delay",
        shape: Leaf(Duration),
        default: Value("0s"),
        meaning: "How long nobody leads after a crash, for resources that cannot check tokens.",
    },
    Row {
        name: "fleet_min_ttl",
        shape: Leaf(Duration),
        default: Unset("`ttl`"),
        meaning: "The shortest lease that any other program writes at this key.",
    },
    Row {
        name: "fleet_max_ttl",
        shape: Leaf(Duration),
        default: Unset("`ttl`"),
        meaning: "The longest lease that any other instance may still believe in.",
    },
    Row {
        name: "heartbeat_prefix",
        shape: Leaf(Text),
        default: Unset("no such key"),
        meaning: "While leading, a heartbeat is kept at this and the id, for Sovereign's \
                  instances.",
    },
    Row {
        name: "fresh_store",
        shape: Leaf(Switch),
        default: Value("false"),
        meaning: "Says that nobody led before: skips the wait on an empty store.",
    },
    Row {
        name: "on_loss",
        shape: Leaf(OneOf(&["recontend", "exit"])),
        default: Value("recontend"),
        meaning: "After losing a term: contend again, or exit with code 1.",
    },
    Row {
        name: "abort_on_overrun",
        shape: Leaf(Switch),
        default: Value("false"),
        meaning: "Aborts the process when work is still running at the end of its grace.",
    },
    Row {
        name: "version",
        shape: Leaf(Text),
        default: Unset("none"),
        meaning: "The application's version: a hand-over never chooses an older one.",
    },
    Row {
        name: "metadata",
        shape: Map { placeholder: "LABEL", each: &Leaf(Text) },
        default: Preset::None,
        meaning: "Free text shown beside this instance in the list of members.",
    },
    Row {
        name: "hooks",
        shape: Table { rows: HOOKS, shorthand: None },
        default: Preset::None,
        meaning: "What `tenure sidecar` calls when this instance starts or stops leading.",
    },
];

/// As [`ELECTION`] but for `key`: two elections at one key would be one.
const DEFAULTS: &[Row] = match ELECTION {
    [_key, rest @ ..] => rest,
    [] => &[],
};

/// Calls `visit` with the names and the row of each leaf below `rows`, placeholders included.
pub(super) fn each_leaf(
    rows: &'static [Row],
    above: &[&'static str],
    visit: &mut impl FnMut(&[&'static str], &'static Row, Kind),
) {
    for row in rows {
        let mut names = above.to_vec();
        names.push(row.name);
        each_leaf_of(row, &row.shape, names, visit);
    }
}

fn each_leaf_of(
    row: &'static Row,
    shape: &'static Shape,
    mut names: Vec<&'static str>,
    visit: &mut impl FnMut(&[&'static str], &'static Row, Kind),
) {
    match shape {
        Leaf(kind) => visit(&names, row, *kind),
        Table { rows, .. } => each_leaf(rows, &names, visit),
        Map { placeholder, each } => {
            names.push(placeholder);
            each_leaf_of(row, each, names, visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_election_can_have_a_key() {
        assert_eq!(ELECTION[0].name, "key");
        assert!(DEFAULTS.iter().all(|row| row.name != "key"));
    }

    #[test]
    fn every_name_can_be_written_as_a_variable() {
        each_leaf(ROOT, &[], &mut |names, row, _| {
            assert!(row.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{names:?}");
            assert!(!row.name.contains("__") && !row.name.starts_with('_'), "{names:?}");
            assert!(row.meaning.ends_with('.'), "{names:?} needs a sentence");
        });
    }
}
