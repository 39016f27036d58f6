//! Which elections a store has: found by SCAN on each of its servers, a bounded part at a time. A
//! database is asked by one statement.

use std::collections::BTreeMap;
use std::time::Duration;

use store_resp::Reply;
use tenure::Resource;
use tenure::backend::redis::RedisUrl;
use tenure::config::Config;
use tenure_redis::{SurveyError, Topology};

use crate::cli::LoggedInConnection;
use crate::clock;
use crate::exit::{self, Failure};
use crate::output::plain;
use crate::postgres;
use crate::run::block_on;
use crate::store_options::blame_on;

/// How many keys a server looks at per SCAN: a small part of a millisecond.
const KEYS_PER_SCAN: &str = "1000";
/// How many elections are kept. Nobody reads a list of more.
const ELECTIONS_MAX: usize = 10_000;
/// How long connecting and each answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How far to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How many SCANs a server is asked for.
    pub(super) scans_max: usize,
    /// How long all of them may take.
    pub(super) lasts_max: Duration,
    /// Whether to tell jobs from elections: a round trip for each of them.
    pub(super) with_kinds: bool,
}

/// What is kept under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Election,
    /// The store has ticks of it.
    Job,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Election => "election",
            Kind::Job => "job",
        }
    }
}

/// The elections of a store.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) kinds: BTreeMap<String, Kind>,
    /// Why there may be more of them: a limit, or a server that did not answer.
    pub(super) missing: Vec<String>,
    /// Whether so many servers did not answer that elections may be missing for it.
    pub(super) is_cut_off: bool,
}

/// Looks for elections under the prefix of the configuration.
pub(super) fn scan(config: &Config, limits: Limits) -> Result<Found, Failure> {
    let Some(url) = config.store.url() else { return Ok(Found::default()) };
    if postgres::is_meant(url.reveal()) {
        let resources = postgres::resources(url.reveal(), &config.prefix)?;
        let kinds = resources.into_iter().filter_map(|(key, is_job)| {
            let name = key.strip_prefix(&config.prefix)?.to_owned();
            Some((name, if is_job { Kind::Job } else { Kind::Election }))
        });
        return Ok(Found { kinds: kinds.collect(), ..Found::default() });
    }
    let about = config.store.to_string();
    let topology = block_on(async { Ok(Topology::survey(url.reveal()).await) })?;
    let (servers, needed, gaps) = match topology {
        Ok(Topology::One(url)) => (vec![url], 1, None),
        Ok(Topology::Sentinels(survey)) => match survey.master {
            Ok(url) => (vec![url], 1, None),
            Err(error) => return Err(blame_on(&about, error.into())),
        },
        Ok(Topology::Cluster(survey)) => {
            let owners: Vec<_> = survey.shards().into_iter().map(|shard| shard.owner).collect();
            let count = owners.len();
            (owners, count, survey.missing_slots())
        }
        Ok(Topology::Quorum(nodes)) => {
            let majority = nodes.len() / 2 + 1;
            (nodes, majority, None)
        }
        Ok(_) => return Ok(Found::default()),
        Err(SurveyError::Connect(error)) => return Err(tenure::Error::from(error).into()),
        Err(SurveyError::Store(error)) => return Err(blame_on(&about, error.into())),
    };
    let mut found = join(scan_all(&servers, &config.prefix, limits), &servers, needed, &about)?;
    if let Some(gaps) = gaps {
        found.missing.push(format!("no node serves the slots {gaps}"));
        found.is_cut_off = true;
    }
    Ok(found)
}

type Scanned = Result<Part, String>;

/// What one server has.
#[derive(Debug, Default)]
struct Part {
    kinds: BTreeMap<String, Kind>,
    is_cut_short: bool,
}

/// All at once: the slowest decides how long it takes.
fn scan_all(servers: &[RedisUrl], prefix: &str, limits: Limits) -> Vec<Scanned> {
    std::thread::scope(|scope| {
        let begin = |url: &RedisUrl| {
            let url = url.clone();
            scope.spawn(move || Server::open(url)?.scan(prefix, limits))
        };
        let scanning: Vec<_> = servers.iter().map(begin).collect();
        let gone = |_| Err("it could not be looked at".to_owned());
        scanning.into_iter().map(|scanning| scanning.join().unwrap_or_else(gone)).collect()
    })
}

/// What all of them have. Fails where no server answered.
fn join(
    scanned: Vec<Scanned>,
    servers: &[RedisUrl],
    needed: usize,
    about: &str,
) -> Result<Found, Failure> {
    let mut found = Found::default();
    let answered = scanned.iter().filter(|part| part.is_ok()).count();
    for (part, url) in scanned.into_iter().zip(servers) {
        match part {
            Ok(part) => {
                for (name, kind) in part.kinds {
                    let known = found.kinds.entry(name).or_insert(kind);
                    if kind == Kind::Job {
                        *known = Kind::Job;
                    }
                }
                if part.is_cut_short {
                    let why = "has more keys than were looked at";
                    found.missing.push(format!("{url} {why}: name elections to see others"));
                }
            }
            Err(why) if answered == 0 => return Err(refused(about, &why)),
            Err(why) => found.missing.push(format!("{url} was not looked at: {why}")),
        }
    }
    found.is_cut_off = answered < needed;
    Ok(found)
}

fn refused(about: &str, why: &str) -> Failure {
    if why.contains("NOPERM") {
        let next = "grant +scan to list elections (docs/acl.md); `tenure status NAME` does without";
        return Failure::new(exit::CONFIGURATION, format!("{about}: {why}: {next}"));
    }
    let is_login = ["WRONGPASS", "NOAUTH"].iter().any(|word| why.contains(word));
    match is_login {
        true => {
            Failure::new(exit::CONFIGURATION, format!("{about}: {why}: check user and password"))
        }
        false => {
            let next = "start it, or name another with --store";
            Failure::new(exit::UNREACHABLE, format!("{about}: {why}: {next}"))
        }
    }
}

struct Server(LoggedInConnection);

impl Server {
    fn open(url: RedisUrl) -> Result<Self, String> {
        LoggedInConnection::open(url, ANSWER_TIMEOUT).map(Server)
    }

    fn scan(mut self, prefix: &str, limits: Limits) -> Scanned {
        let began_at = clock::now();
        let pattern = format!("*{}*:meta", escaped(prefix));
        let mut part = Part::default();
        let mut cursor = "0".to_owned();
        for _ in 0..limits.scans_max {
            let words = ["SCAN", &cursor, "MATCH", &pattern, "COUNT", KEYS_PER_SCAN];
            let (next, keys) = scanned(self.0.ask(&words)?)?;
            let names = keys.iter().filter_map(|key| name_of(prefix, key));
            for name in names.collect::<Vec<_>>() {
                let kind =
                    if limits.with_kinds { self.kind(prefix, &name) } else { Kind::Election };
                part.kinds.insert(name, kind);
            }
            if next == "0" {
                return Ok(part);
            }
            let is_long = clock::now().duration_since(began_at) > limits.lasts_max;
            if is_long || part.kinds.len() >= ELECTIONS_MAX {
                break;
            }
            cursor = next;
        }
        part.is_cut_short = true;
        Ok(part)
    }

    /// A key that cannot be read, or is of another type, says nothing of jobs.
    fn kind(&mut self, prefix: &str, name: &str) -> Kind {
        let ticks = Resource::with_prefix(prefix, name).map(|resource| resource.side_key("ticks"));
        let reply = ticks.ok().and_then(|key| self.0.ask(&["HLEN", &key]).ok());
        match reply {
            Some(Reply::Integer(fields)) if fields > 0 => Kind::Job,
            _ => Kind::Election,
        }
    }
}

/// The next cursor, and the keys as far as they are text: names of elections are.
fn scanned(reply: Reply) -> Result<(String, Vec<String>), String> {
    match reply {
        Reply::Array(parts) => match <[Reply; 2]>::try_from(parts) {
            Ok([Reply::Bulk(next), Reply::Array(keys)]) => {
                let text = |key| match key {
                    Reply::Bulk(key) => String::from_utf8(key).ok(),
                    _ => None,
                };
                let next = String::from_utf8_lossy(&next).into_owned();
                Ok((next, keys.into_iter().filter_map(text).collect()))
            }
            _ => Err("it does not answer SCAN as Redis does".to_owned()),
        },
        Reply::Error(why) => Err(plain(&why)),
        _ => Err("it does not answer SCAN as Redis does".to_owned()),
    }
}

/// The election whose side record is at `key`. Keys of others are not taken for one: the election's
/// own name for that record decides.
fn name_of(prefix: &str, key: &str) -> Option<String> {
    let place = key.strip_suffix(":meta")?;
    let in_braces = place.strip_prefix('{').and_then(|place| place.strip_suffix('}'));
    let names = [in_braces, Some(place)].into_iter().flatten();
    names.filter_map(|place| place.strip_prefix(prefix)).find_map(|name| {
        let resource = Resource::with_prefix(prefix, name).ok()?;
        (resource.side_key("meta") == key).then(|| name.to_owned())
    })
}

/// A text that stands for itself in a pattern.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if "*?[]^-\\".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_from_the_key_that_an_election_would_use_and_from_no_other() {
        let of = |key| name_of("tenure:", key);
        assert_eq!(of("{tenure:nightly}:meta").as_deref(), Some("nightly"));
        assert_eq!(of("tenure:{team}x:meta").as_deref(), Some("{team}x"));
        assert_eq!(of("{tenure:a:meta}:meta").as_deref(), Some("a:meta"));
        for other in
            ["tenure:nightly:meta", "{tenure:}:meta", "{other:a}:meta", "{tenure:a b}:meta"]
        {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(name_of("{app}:", "{app}:job:meta").as_deref(), Some("job"));
        assert_eq!(name_of("", "{job}:meta").as_deref(), Some("job"));
    }

    #[test]
    fn a_prefix_stands_for_itself() {
        assert_eq!(escaped("app*[x]?:"), "app\\*\\[x\\]\\?:");
    }
}
