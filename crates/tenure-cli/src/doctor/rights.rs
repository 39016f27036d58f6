//! What the login may do, asked of the server itself: a script can tell without doing anything.

use std::fmt::Write;

use store_resp::Reply;
use tenure::Resource;

use crate::cli::LoggedInConnection;

/// What elections call, as docs/acl.md lists it, each with words that fit: `K` stands for the key
/// of the leader, `S` for one beside it, `C` for the channel.
const ALWAYS: &[&str] = &[
    "eval x 0",
    "evalsha x 0",
    "time",
    "info",
    "type K",
    "get K",
    "getrange K 0 1",
    "set K x",
    "del K",
    "pttl K",
    "pexpire K 1",
    "hget S f",
    "hmget S f",
    "hset S f v",
    "hdel S f",
    "hlen S",
    "hgetall S",
    "zadd S 1 m",
    "zscore S m",
    "zcard S",
    "zrem S m",
    "zrange S 0 1",
    "zrangebyscore S 0 1",
    "zrevrangebyscore S 1 0",
    "zremrangebyscore S 0 1",
    "xadd S * f v",
    "xrevrange S + -",
    "publish C x",
    "subscribe C",
    "unsubscribe C",
];
/// What a cluster needs as well.
const IN_A_CLUSTER: &[&str] =
    &["cluster slots", "asking", "spublish C x", "ssubscribe C", "sunsubscribe C"];
/// What `mode=strict` needs as well.
const WHEN_STRICT: &[&str] = &["wait 1 1"];

/// What is asked for beside what every election needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extras {
    pub(super) in_a_cluster: bool,
    pub(super) is_strict: bool,
}

impl Extras {
    fn needed(self) -> Vec<&'static str> {
        let cluster = if self.in_a_cluster { IN_A_CLUSTER } else { &[] };
        let strict = if self.is_strict { WHEN_STRICT } else { &[] };
        [ALWAYS, cluster, strict].concat()
    }
}

/// What was found about a login.
#[derive(Clone, Debug, Default)]
pub(super) struct Rights {
    /// What it may not use: commands, or keys or channels as a whole.
    pub(super) denied: Vec<String>,
    /// Commands that the server does not know.
    pub(super) unknown: Vec<String>,
}

impl Rights {
    /// Asks about one election. Tells nothing where the server cannot tell: the election will.
    pub(super) fn ask(store: &mut LoggedInConnection, election: &Resource, extras: Extras) -> Self {
        let needed = extras.needed();
        match store.ask(&["EVAL", &script(&needed, election), "0"]) {
            Ok(Reply::Array(lists)) => match lists.as_slice() {
                [denied, unknown] => Rights {
                    denied: summary(&needed, &words(denied), election),
                    unknown: words(unknown),
                },
                _ => Rights::default(),
            },
            Ok(Reply::Error(text)) if text.starts_with("NOPERM") => {
                Rights { denied: vec!["eval".to_owned()], unknown: Vec::new() }
            }
            _ => Rights::default(),
        }
    }

    /// What to say to the server so that the login may, if commands are all that is missing.
    pub(super) fn remedy(&self, user: &str) -> String {
        let is_command = |word: &String| !word.contains(' ');
        match self.denied.iter().all(is_command) {
            true => {
                let grants: Vec<_> = self.denied.iter().map(|word| format!("+{word}")).collect();
                format!("ACL SETUSER {user} {}; docs/acl.md lists all", grants.join(" "))
            }
            false => "grant what docs/acl.md lists".to_owned(),
        }
    }
}

/// A script that tells which of `needed` are denied, and which are unknown.
fn script(needed: &[&str], election: &Resource) -> String {
    let mut script = String::from(
        "local denied, unknown = {}, {}\n\
         local function check(name, ...)\n\
         local known, allowed = pcall(redis.acl_check_cmd, ...)\n\
         if not known then unknown[#unknown + 1] = name\n\
         elseif not allowed then denied[#denied + 1] = name end\n\
         end\n",
    );
    for line in needed {
        let words = line.split(' ').map(|word| match word {
            "K" => election.key().to_owned(),
            "S" => election.side_key("meta"),
            "C" => election.side_key("events"),
            word => word.to_owned(),
        });
        let quoted: Vec<String> = words.map(|word| quoted(&word)).collect();
        let _ = writeln!(script, "check({}, {})", quoted_name(line), quoted.join(", "));
    }
    script + "return { denied, unknown }"
}

/// A Lua string of any bytes.
fn quoted(word: &str) -> String {
    let bytes = word.bytes().map(|byte| match byte {
        b'"' | b'\\' | 0..=31 | 127.. => format!("\\{byte:03}"),
        _ => char::from(byte).to_string(),
    });
    format!("\"{}\"", bytes.collect::<String>())
}

fn quoted_name(line: &str) -> String {
    quoted(&name(line))
}

/// A command as an ACL names it.
fn name(line: &str) -> String {
    let mut words = line.split(' ');
    match (words.next(), words.next()) {
        (Some("cluster"), Some(second)) => format!("cluster|{second}"),
        (first, _) => first.unwrap_or_default().to_owned(),
    }
}

/// The denied commands; where all that need a kind of key or channel are, that is what is missing.
fn summary(needed: &[&str], denied: &[String], election: &Resource) -> Vec<String> {
    let mut denied = denied.to_vec();
    let mut missing = Vec::new();
    let kinds = [
        ("K", format!("keys such as {}", election.key())),
        ("S", format!("keys such as {}", election.side_key("meta"))),
        ("C", format!("channels such as {}", election.side_key("events"))),
    ];
    for (mark, what) in kinds {
        // Nobody needs a right to a channel in order to leave it.
        let of_kind: Vec<String> = needed
            .iter()
            .filter(|line| line.split(' ').any(|word| word == mark))
            .map(|line| name(line))
            .filter(|name| !["unsubscribe", "sunsubscribe"].contains(&name.as_str()))
            .collect();
        if of_kind.iter().all(|name| denied.contains(name)) {
            missing.push(what);
            denied.retain(|name| !of_kind.contains(name));
        }
    }
    denied.extend(missing);
    denied
}

fn words(list: &Reply) -> Vec<String> {
    let Reply::Array(items) = list else { return Vec::new() };
    let text = |item: &Reply| match item {
        Reply::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    items.iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn granted(rules: &str) -> BTreeSet<String> {
        let rules = rules.replace('\\', "");
        rules.split([' ', '`']).filter_map(|rule| rule.strip_prefix('+')).map(Into::into).collect()
    }

    fn asked(needed: &[&str]) -> BTreeSet<String> {
        needed.iter().map(|line| name(line)).collect()
    }

    #[test]
    fn what_the_page_grants_is_what_is_asked_for() {
        let page = include_str!("../../../../docs/acl.md");
        let line = |begin: &str| page.lines().find(|line| line.starts_with(begin)).unwrap();
        assert_eq!(granted(line("user app on")), asked(ALWAYS));
        assert_eq!(granted(line("| `redis+cluster://`")), asked(IN_A_CLUSTER));
        assert_eq!(granted(line("| `mode=strict`")), asked(WHEN_STRICT));
    }

    #[test]
    fn a_pattern_that_is_missing_is_told_instead_of_every_command() {
        let election = Resource::named("job").unwrap();
        let summary = |denied: &[&str]| {
            let denied: Vec<_> = denied.iter().map(|word| (*word).to_owned()).collect();
            summary(ALWAYS, &denied, &election)
        };
        assert_eq!(summary(&["xadd", "publish"]), ["xadd", "publish"]);
        assert_eq!(
            summary(&["time", "publish", "subscribe"]),
            ["time", "channels such as {tenure:job}:events"]
        );
        let keys = ["type", "get", "getrange", "set", "del", "pttl", "pexpire"];
        assert_eq!(summary(&keys), ["keys such as tenure:job"]);
        let rights = |denied: &[&str]| Rights { denied: summary(denied), unknown: Vec::new() };
        assert_eq!(rights(&["xadd"]).remedy("app"), "ACL SETUSER app +xadd; docs/acl.md lists all");
        assert_eq!(rights(&keys).remedy("app"), "grant what docs/acl.md lists");
    }

    #[test]
    fn any_key_is_a_lua_string() {
        assert_eq!(quoted("a\"b\\c\nd\u{e9}"), "\"a\\034b\\092c\\010d\\195\\169\"");
    }
}
