//! Which servers stand behind an address, and what is wrong between them.

use serde_json::{Value, json};
use tenure::backend::redis::RedisUrl;
use tenure::config::Config;
use tenure::{Resource, StoreError, StoreErrorKind, Tenure, blocking};
use tenure_redis::{
    ClusterSurvey, SentinelAnswer, SentinelSurvey, Shard, SurveyError, Topology, dissenting_nodes,
    shared_ids,
};

use super::finding::{Code, Finding};
use super::store::{Part, StoreFacts};
use crate::exit::{self, Failure};
use crate::output::plain;
use crate::postgres;
use crate::run::block_on;
use crate::store_options::blame_on;

/// How many owners of slots are looked at when no election is named.
const OWNERS_MAX: usize = 16;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Examined {
    pub(super) findings: Vec<Finding>,
    pub(super) servers: Vec<Seen>,
}

/// A server that was looked at.
#[derive(Debug)]
pub(super) struct Seen {
    part: Part,
    place: String,
    version: String,
    /// Why this one, where there are several.
    why: String,
    replicas: Vec<String>,
}

impl Seen {
    /// `part` (`store`, `master`, `node` or `owner`), `place`, `version`, `why`, `replicas` (of an
    /// owner).
    pub(super) fn as_json(&self) -> Value {
        json!({
            "part": self.part.word(),
            "place": self.place,
            "version": self.version,
            "why": self.why,
            "replicas": self.replicas,
        })
    }

    /// One line, where there is more to say than the address does.
    pub(super) fn as_text(&self) -> Option<String> {
        if self.part == Part::Alone {
            return None;
        }
        let replicas = match (self.part, self.replicas.as_slice()) {
            (Part::Owner, []) => "; no replicas".to_owned(),
            (_, []) => String::new(),
            (_, replicas) => format!("; replicas {}", replicas.join(", ")),
        };
        let (part, place, version) = (self.part.word(), &self.place, plain(&self.version));
        let why = if self.why.is_empty() { String::new() } else { format!(" {}", self.why) };
        Some(format!("  {part} {place}{why} ({version}){replicas}\n"))
    }
}

/// A server to be looked at, and the elections on it.
struct Candidate {
    url: RedisUrl,
    part: Part,
    elections: Vec<Resource>,
    why: String,
    replicas: Vec<String>,
}

/// It, and what was learnt, or why nothing was.
type Looked = (Candidate, Result<StoreFacts, String>);

impl Candidate {
    fn new(url: RedisUrl, part: Part, elections: Vec<Resource>) -> Self {
        Candidate { url, part, elections, why: String::new(), replicas: Vec::new() }
    }
}

/// Looks at all servers that matter to the elections. Fails when there is none to look at.
pub(super) fn examine(config: &Config, elections: &[Resource]) -> Result<Examined, Failure> {
    let Some(url) = config.store.url() else { return Ok(Examined::default()) };
    if postgres::is_meant(url.reveal()) {
        let (findings, version) = postgres::examine(url.reveal())?;
        let (place, why) = (config.store.to_string(), String::new());
        let seen = Seen { part: Part::Alone, place, version, why, replicas: Vec::new() };
        return Ok(Examined { findings, servers: vec![seen] });
    }
    let about = config.store.to_string();
    // Where no election is named, the login should be able to hold one all the same.
    let sample = Resource::with_prefix(&config.prefix, "doctor").map_err(tenure::Error::from)?;
    let sample = std::slice::from_ref(&sample);
    let held = if elections.is_empty() { sample } else { elections };
    let topology = block_on(async { Ok(Topology::survey(url.reveal()).await) })?;
    match topology {
        Ok(Topology::One(url)) => {
            let looked = look_at_one(Candidate::new(url, Part::Alone, held.to_vec()), &about);
            looked.map_err(|failure| as_told_to_others(config, held).unwrap_or(failure))
        }
        Ok(Topology::Sentinels(survey)) => behind_sentinels(survey, held, &about),
        Ok(Topology::Cluster(survey)) => {
            let owners = match elections {
                [] => all_owners(&survey, sample),
                elections => owners_of(&survey, elections),
            };
            Ok(in_a_cluster(&survey, owners, elections, &about))
        }
        Ok(Topology::Quorum(nodes)) => Ok(nodes_of_quorum(nodes, held, &about)),
        // Stores of other kinds have their own doctors; what is wrong with an address of ours is
        // told when it is connected to.
        Ok(_) | Err(SurveyError::Connect(_)) => Ok(Examined::default()),
        Err(SurveyError::Store(error)) => Err(blame_on(&about, error.into())),
    }
}

/// What every other command says about this store; `None` where it works for them.
fn as_told_to_others(config: &Config, elections: &[Resource]) -> Option<Failure> {
    let name = elections.first()?.name();
    let tenure = blocking::wait(Tenure::from_config(config.clone())).ok()?;
    let seen = blocking::wait(tenure.observe(name).ok()?.look());
    seen.err().map(|error| blame_on(&config.store.to_string(), error))
}

fn look_at_one(server: Candidate, about: &str) -> Result<Examined, Failure> {
    let (part, place) = (server.part, server.url.to_string());
    let (server, looked) = look(vec![server]).remove(0);
    match looked {
        Ok(facts) => {
            let about = if part == Part::Alone { about } else { &place };
            let findings = facts.findings().into_iter().map(|found| found.about(about));
            Ok(Examined { findings: findings.collect(), servers: vec![seen(server, &facts)] })
        }
        Err(why) if is_refusal(&why) => {
            let why = format!("{about}: {why}: check user and password");
            Err(Failure::new(exit::CONFIGURATION, why))
        }
        Err(why) => {
            let (place, next) = match part {
                Part::Master => (
                    format!("{about}: the primary at {place}"),
                    "start it, or see why the sentinels do not replace it",
                ),
                _ => (about.to_owned(), "start it, or name another with --store"),
            };
            Err(Failure::new(exit::UNREACHABLE, format!("{place}: {why}: {next}")))
        }
    }
}

/// A quorum does without a node for a while, so that one that is down is a finding, no failure.
fn nodes_of_quorum(nodes: Vec<RedisUrl>, elections: &[Resource], about: &str) -> Examined {
    let (count, majority) = (nodes.len(), nodes.len() / 2 + 1);
    let node = |url| Candidate::new(url, Part::Node, elections.to_vec());
    let looked = look(nodes.into_iter().map(node).collect());
    let there = looked.iter().filter(|(_, looked)| looked.is_ok()).count();
    let then = match there.checked_sub(majority) {
        None => "nobody leads meanwhile".to_owned(),
        Some(0) => "one more would leave no leader".to_owned(),
        Some(spare) => format!("{spare} more may go down"),
    };
    let next = format!("start it, or find out why it is silent: {then}");
    let mut examined = examined(looked, &next);
    if there < majority {
        let what = format!("{there} of {count} nodes answer and {majority} must: nobody can lead");
        let next = match there {
            0 => "start them, or name others with --store".to_owned(),
            _ => format!("start {} or more of those that are named below", majority - there),
        };
        examined.findings.insert(0, Finding::new(Code::QuorumLost, what, &next).about(about));
    }
    examined
}

fn behind_sentinels(
    survey: SentinelSurvey,
    elections: &[Resource],
    about: &str,
) -> Result<Examined, Failure> {
    let total = survey.sentinels.len();
    let believed = survey.master.as_ref().ok().map(place_of);
    let mut findings = Vec::new();
    let mut agreeing = 0;
    for answer in &survey.sentinels {
        let (code, what, next) = match &answer.master {
            Ok(named) if named.is_some() && *named == believed => {
                agreeing += 1;
                continue;
            }
            Err(error) => (
                Code::SentinelDown,
                words(error),
                "start it: a failover needs a majority of the sentinels",
            ),
            Ok(None) => (
                Code::SentinelStray,
                "it watches no primary of that name".to_owned(),
                "run SENTINEL MONITOR there, or remove it from the address",
            ),
            Ok(Some(named)) => (
                Code::SentinelStray,
                match &believed {
                    Some(most) => format!("it names {named}, and most name {most}"),
                    None => format!("it names {named}, and others do not"),
                },
                "run SENTINEL RESET there if it was cut off; remove it from the address if it \
                 watches other servers",
            ),
        };
        findings.push(Finding::new(code, what, next).about(&answer.sentinel));
    }
    for (id, places) in shared_ids(&survey) {
        let what = format!("the sentinels {} have the same id, {}", places.join(", "), plain(id));
        let next = "stop all but one of them, remove the line `sentinel myid` from their files and \
                    start them again: they count as one, and those of ours do not vote";
        findings.push(Finding::new(Code::SentinelCopies, what, next).about(about));
    }
    findings.extend(foresee_failover(&survey.sentinels, about));
    match survey.master {
        Ok(url) => {
            let mut server = Candidate::new(url, Part::Master, elections.to_vec());
            server.why = format!("named by {agreeing} of {total} sentinels");
            let mut examined = look_at_one(server, about)?;
            examined.findings.append(&mut findings);
            Ok(examined)
        }
        // A master that nobody knows is one that a person has to name otherwise.
        Err(error) if error.is_temporary() && error.kind() != StoreErrorKind::WrongNode => {
            let next =
                "wait for the failover to end; if there is none, see which sentinels disagree";
            findings.push(Finding::new(Code::NoMaster, error.to_string(), next).about(about));
            Ok(Examined { findings, servers: Vec::new() })
        }
        // A name that none of them knows.
        Err(error) => Err(blame_on(about, error.into())),
    }
}

/// Whether the sentinels could replace a primary that is lost, as they say themselves.
fn foresee_failover(sentinels: &[SentinelAnswer], about: &str) -> Vec<Finding> {
    /// The fewest that can lose one.
    const SENTINELS_MIN: usize = 3;
    let mut findings = Vec::new();
    let forecasts = || sentinels.iter().filter_map(|it| Some((it, it.failover.as_ref()?)));
    let obstacle = forecasts().find_map(|(it, said)| Some((it, said.obstacle.as_ref()?)));
    if let Some((sentinel, obstacle)) = obstacle {
        let what = format!("{} says: {}", sentinel.sentinel, plain(obstacle));
        let next = "start the missing sentinels; forget those that are gone for good with SENTINEL \
                    RESET on each of the others; set a lower quorum with SENTINEL SET NAME quorum";
        findings.push(Finding::new(Code::SentinelQuorum, what, next).about(about));
    }
    let known = forecasts().map(|(_, said)| said.sentinels).max();
    if let Some(known) = known.filter(|known| *known < SENTINELS_MIN) {
        let what = format!("{known} watch it, so that none may be lost");
        let next = "run three or five, each on a host of its own";
        findings.push(Finding::new(Code::FewSentinels, what, next).about(about));
    }
    findings
}

fn in_a_cluster(
    survey: &ClusterSurvey,
    owners: Vec<Candidate>,
    elections: &[Resource],
    about: &str,
) -> Examined {
    let mut findings = Vec::new();
    // Owners are looked at below.
    let is_owner = |node: &str| owners.iter().any(|owner| place_of(&owner.url) == node);
    for (node, error) in survey.silent.iter().filter(|(node, _)| !is_owner(node)) {
        let next = "start it, or remove it from the cluster and the address";
        findings.push(Finding::new(Code::NodeDown, words(error), next).about(node));
    }
    if let Some(gaps) = survey.missing_slots() {
        let lost = elections.iter().filter(|one| survey.shard_of(one.key()).is_none());
        let lost: Vec<_> = lost.map(|one| slot_text(survey, one)).collect();
        let lost = if lost.is_empty() { String::new() } else { format!(" ({})", lost.join(", ")) };
        let what = format!("no node serves the slots {gaps}{lost}");
        let next = "redis-cli --cluster fix HOST:PORT gives them an owner; by default a cluster \
                    with unserved slots refuses all requests";
        findings.push(Finding::new(Code::MissingSlots, what, next).about(about));
    }
    for (node, what) in dissenting_nodes(survey) {
        let next = "if that lasts, see redis-cli --cluster check HOST:PORT; --cluster fix ends a \
                    move of slots that was not finished";
        findings.push(Finding::new(Code::NodesDisagree, what, next).about(node));
    }
    for shard in survey.shards().iter().filter(|shard| shard.replicas.is_empty()) {
        let what = "no replica in step is known: its slots are lost with it";
        let next = "add one: redis-cli --cluster add-node NEW:PORT HOST:PORT --cluster-slave";
        findings.push(Finding::new(Code::NoReplica, what, next).about(&shard.owner.to_string()));
    }
    let next = "start it; a replica takes over meanwhile, and without a replica nobody leads there";
    let mut examined = examined(look(owners), next);
    examined.findings.append(&mut findings);
    examined
}

/// The owners of the elections' slots.
fn owners_of(survey: &ClusterSurvey, elections: &[Resource]) -> Vec<Candidate> {
    let mut owners: Vec<Candidate> = Vec::new();
    for election in elections {
        let Some(shard) = survey.shard_of(election.key()) else { continue };
        let why = slot_text(survey, election);
        match owners.iter_mut().find(|known| known.url == shard.owner) {
            Some(known) => {
                known.why += &format!(", {why}");
                known.elections.push(election.clone());
            }
            None => owners.push(owner(shard, vec![election.clone()], format!("of {why}"))),
        }
    }
    owners
}

/// The owners of all slots, up to a bound.
fn all_owners(survey: &ClusterSurvey, sample: &[Resource]) -> Vec<Candidate> {
    let shards = survey.shards().into_iter().take(OWNERS_MAX);
    shards.map(|shard| owner(shard, sample.to_vec(), String::new())).collect()
}

fn owner(shard: Shard, elections: Vec<Resource>, why: String) -> Candidate {
    let replicas = shard.replicas.iter().map(place_of).collect();
    Candidate { why, replicas, ..Candidate::new(shard.owner, Part::Owner, elections) }
}

fn slot_text(survey: &ClusterSurvey, election: &Resource) -> String {
    format!("slot {} with {}", survey.slot_of(election.key()), plain(election.key()))
}

/// Why a server does not answer, without what is said of a store.
fn words(error: &StoreError) -> String {
    match error.kind() {
        StoreErrorKind::Unreachable | StoreErrorKind::TimedOut => error.detail(),
        _ => error.to_string(),
    }
}

/// `host:port`, as other servers name it.
fn place_of(url: &RedisUrl) -> String {
    let text = url.to_string();
    let text = text.split_once("://").map_or(text.as_str(), |(_, rest)| rest);
    text.split(['/', '?', '#']).next().unwrap_or_default().to_owned()
}

/// The store does without one of these for a while: one that is down is a finding, no failure, with
/// `next` as what to do.
fn examined(looked: Vec<Looked>, next: &str) -> Examined {
    let mut examined = Examined::default();
    for (server, looked) in looked {
        let about = server.url.to_string();
        match looked {
            Ok(facts) => {
                let found = facts.findings().into_iter().map(|found| found.about(&about));
                examined.findings.extend(found);
                examined.servers.push(seen(server, &facts));
            }
            Err(why) => {
                let next = if is_refusal(&why) { "check user and password" } else { next };
                let found = Finding::new(Code::NodeDown, why, next).about(&about);
                examined.findings.push(found);
            }
        }
    }
    examined
}

/// All at once: each is watched for a while.
fn look(servers: Vec<Candidate>) -> Vec<Looked> {
    let looked: Vec<_> = std::thread::scope(|scope| {
        let begin = |server: &Candidate| {
            let (url, part, held) = (server.url.clone(), server.part, server.elections.clone());
            scope.spawn(move || StoreFacts::gather(url, part, &held))
        };
        let looking: Vec<_> = servers.iter().map(begin).collect();
        let gone = |_| Err("it could not be checked".to_owned());
        looking.into_iter().map(|looking| looking.join().unwrap_or_else(gone)).collect()
    });
    servers.into_iter().zip(looked).collect()
}

fn seen(server: Candidate, facts: &StoreFacts) -> Seen {
    Seen {
        part: server.part,
        place: server.url.to_string(),
        version: facts.version(),
        why: server.why,
        replicas: server.replicas,
    }
}

fn is_refusal(why: &str) -> bool {
    ["WRONGPASS", "NOAUTH", "NOPERM"].iter().any(|word| why.contains(word))
}
