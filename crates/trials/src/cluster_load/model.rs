//! What must be in the cluster: the same keys in one server, of which the DIGEST is compared.

use std::fmt;

use redis::{Cmd, Connection, RedisResult, cmd, pipe};
use store_client::ClusterClient;
use testkit::{ClusterGroup, RedisServer, ServerProgram};

/// How many elements one RPUSH to the model has.
const PUSHED_AT_ONCE: u64 = 1000;
/// How many keys are told when they differ.
const SHOWN_MAX: usize = 10;

/// A key, and what one writer has done to it: nobody else writes to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The key: one that begins with `list` has the numbers from 0 on in their order, any other is
    /// a counter.
    pub key: String,
    /// How many writes were acknowledged.
    pub acknowledged: u64,
    /// How many may have been carried out besides.
    pub unknown: u64,
}

impl Tally {
    /// Of a key that does not exist yet.
    pub fn new(key: String) -> Self {
        Self { key, acknowledged: 0, unknown: 0 }
    }

    fn is_list(&self) -> bool {
        self.key.starts_with("list")
    }

    /// The next write. Its answer is how many there have been.
    pub fn next_write(&self) -> Cmd {
        match self.is_list() {
            true => Cmd::rpush(&self.key, self.acknowledged),
            false => Cmd::incr(&self.key, 1),
        }
    }

    /// The same in one step, on an empty server.
    fn write_all(&self, model: &mut Connection) -> RedisResult<()> {
        if !self.is_list() {
            return Cmd::set(&self.key, self.acknowledged).exec(model);
        }
        let mut first = 0;
        while first < self.acknowledged {
            let end = self.acknowledged.min(first + PUSHED_AT_ONCE);
            Cmd::rpush(&self.key, (first..end).collect::<Vec<_>>()).exec(model)?;
            first = end;
        }
        Ok(())
    }

    fn read(&self) -> Cmd {
        match self.is_list() {
            true => Cmd::llen(&self.key),
            false => Cmd::get(&self.key),
        }
    }
}

/// All that was written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// By key.
    pub keys: Vec<Tally>,
}

impl Written {
    /// How many writes were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.keys.iter().map(|tally| tally.acknowledged).sum()
    }

    /// How many have an unknown outcome.
    pub fn unknown(&self) -> u64 {
        self.keys.iter().map(|tally| tally.unknown).sum()
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, acknowledged) = (self.keys.len(), self.acknowledged());
        write!(f, "{acknowledged} writes to {keys} keys, {} unknown", self.unknown())
    }
}

/// What lies in the cluster before anything else: values of all types, some with an end.
fn still_life() -> Vec<Cmd> {
    let text = "SET text:# #\nSET ends:# # EX 90000\nHSET hash:# a # b # c #\nSADD set:# a b #\n\
                SADD numbers:# 1 2 #\nZADD sorted:# 1 a # b\nXADD stream:# 1-# a #\n\
                RPUSH line:# a b #\nSETRANGE long:# 3000 #\nPFADD seen:# a b #";
    let command = |line: &str, number: usize| {
        let line = line.replace('#', &number.to_string());
        let mut words = line.split(' ');
        let mut command = cmd(words.next().unwrap_or_default());
        words.for_each(|word| {
            command.arg(word);
        });
        command
    };
    // A stream's entry has a number above 0.
    (1..40).flat_map(|number| text.lines().map(move |line| command(line, number))).collect()
}

/// Writes what all keys are compared with besides those of the writers.
pub(super) fn fill(group: &ClusterGroup) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = ClusterClient::connect(&group.url()).await?;
        for outcome in client.query_all(still_life()).await {
            outcome?;
        }
        Ok(())
    })
}

/// Compares all keys of all masters with what must be there, and those of each master with its
/// replicas'.
///
/// # Errors
/// What is lost or was done twice.
pub fn judge(group: &ClusterGroup, written: &Written) -> Result<(), String> {
    if written.unknown() > 0 {
        return Err(format!("{written}: nothing broke, so all outcomes are known"));
    }
    let model = RedisServer::builder()
        .program(ServerProgram::redis())
        .args(["--enable-debug-command", "yes"])
        .start();
    fill_model(&model, written).map_err(|error| format!("the model: {error}"))?;
    let (masters, expected) = (group.masters(), digest(&model)?);
    // The digest of a server is that of its keys in any order, all by exclusive or, and one of the
    // database, which stays if there is an odd number of servers.
    if masters.len() % 2 == 0 {
        return Err(format!("{} masters: the digest of all needs an odd number", masters.len()));
    }
    let mut found = 0;
    for master in &masters {
        found ^= digest(group.server(*master))?;
    }
    if found != expected {
        return Err(differences(group, written));
    }
    masters.iter().try_for_each(|master| same_everywhere(group, *master))
}

/// A master and its replicas have the same keys.
///
/// # Errors
/// That they do not.
pub(super) fn same_everywhere(group: &ClusterGroup, master: usize) -> Result<(), String> {
    if !group.server(master).has_replicas_in_step(1) {
        return Err(format!("no replica of node {master} is in step"));
    }
    let expected = digest(group.server(master))?;
    for replica in group.replicas_of(master) {
        let found = digest(group.server(replica))?;
        if found != expected {
            return Err(format!("nodes {master} and {replica} of one shard have other keys"));
        }
    }
    Ok(())
}

fn fill_model(model: &RedisServer, written: &Written) -> RedisResult<()> {
    let mut connection = redis::Client::open(model.url())?.get_connection()?;
    let mut still = pipe();
    still_life().into_iter().for_each(|command| {
        still.add_command(command).ignore();
    });
    still.exec(&mut connection)?;
    let written = written.keys.iter().filter(|tally| tally.acknowledged > 0);
    written.into_iter().try_for_each(|tally| tally.write_all(&mut connection))
}

/// DEBUG DIGEST, of which the first 128 bits do.
fn digest(server: &RedisServer) -> Result<u128, String> {
    let said = server.cli(&["DEBUG", "DIGEST"]);
    let first = said.get(..32).unwrap_or_default();
    u128::from_str_radix(first, 16).map_err(|_| format!("DEBUG DIGEST said {said:?}"))
}

/// Key by key, for people.
fn differences(group: &ClusterGroup, written: &Written) -> String {
    let mut told = vec!["all keys together are not what was acknowledged".to_owned()];
    let entry = group.masters()[0];
    for tally in &written.keys {
        let command = tally.read();
        let words: Vec<String> = command.args_iter().map(word).collect();
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.insert(0, "-c");
        let found = group.server(entry).cli(&words);
        if found != tally.acknowledged.to_string() && told.len() <= SHOWN_MAX {
            told.push(format!("{} is {found}, not {}", tally.key, tally.acknowledged));
        }
    }
    told.join("\n")
}

fn word(argument: redis::Arg<&[u8]>) -> String {
    match argument {
        redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}
