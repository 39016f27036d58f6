//! A master is lost with writes that its replica had not heard of: which ones, and how many.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use redis::{Cmd, Connection, RedisResult, Value, cmd, pipe};
use testkit::{ClusterGroup, GENEROUS, wait_until};

use super::model::same_everywhere;

/// Connections that write to the master.
const WRITERS: usize = 8;
/// Large enough that what a replica does not read soon waits in its master.
const VALUE_LEN: usize = 64 * 1024;
/// More of them than sockets hold.
const UNREAD: u64 = 400;
/// So many before anything happens.
const WARM_UP: u64 = 100;

/// How a master is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By kill -9, with a replica that lags. The others vote for the replica.
    Killed,
    /// It lives, and a replica takes its place without asking anybody.
    TakenOver,
}

/// What became of the writes to a shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Those of them that the promoted replica does not have.
    pub lost: u64,
    /// Those without an answer.
    pub unknown: u64,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, lost, unknown } = self;
        write!(f, "{acknowledged} acknowledged, {lost} of them lost, {unknown} unknown")
    }
}

/// What one connection wrote.
struct Sent {
    key: String,
    /// Where the history of the master was after each acknowledged write.
    offsets: Vec<u64>,
    /// The last one got no answer.
    is_last_unknown: bool,
}

/// Takes the place of a master from it under load, and sorts all acknowledged writes by the
/// offset up to which the promoted replica has its history.
///
/// # Errors
/// A write behind that offset which is there, one before it which is not, or nodes of the shard
/// that differ afterwards.
///
/// # Panics
/// When no replica takes over.
pub fn lose_a_master(group: &mut ClusterGroup, master: usize, how: How) -> Result<Loss, String> {
    let keys = keys_of(group, master);
    let url = group.server(master).url();
    let done = AtomicU64::new(0);
    let (new, sent) = thread::scope(|scope| {
        let (url, done) = (&url, &done);
        let start = |key: String| scope.spawn(move || write(url, key, done));
        let writers: Vec<_> = keys.into_iter().map(start).collect();
        let new = take(group, master, how, done);
        (new, writers.into_iter().map(|one| one.join()).collect::<Vec<_>>())
    });
    if how == How::Killed {
        group.restart(master);
    }
    group.wait_until_whole();
    let mut promoted = connect(&group.server(new).url()).map_err(|error| error.to_string())?;
    let has_until = promoted_at(&mut promoted)?;
    let mut loss = Loss::default();
    for sent in sent {
        let sent = sent.map_err(|_| "a writer panicked".to_owned())?;
        let sent = sent.map_err(|error| error.to_string())?;
        sort(&sent, &mut promoted, has_until, &mut loss)?;
    }
    same_everywhere(group, new)?;
    Ok(loss)
}

/// Keys in one slot of a master.
fn keys_of(group: &ClusterGroup, master: usize) -> Vec<String> {
    let is_there = |tag: &u32| group.owner_of(group.slot_of(&tag.to_string())) == Some(master);
    let tag = (0..1000).find(is_there).unwrap_or_default();
    // A round of its own, so that nothing is there before.
    let round = group.server(master).cli(&["DBSIZE"]);
    (0..WRITERS).map(|writer| format!("{{{tag}}}:{round}:{writer}")).collect()
}

fn take(group: &mut ClusterGroup, master: usize, how: How, done: &AtomicU64) -> usize {
    let wait_for = |count: u64| {
        let enough = done.load(Ordering::Relaxed) + count;
        wait_until("acknowledged writes", GENEROUS, || done.load(Ordering::Relaxed) >= enough);
    };
    wait_for(WARM_UP);
    if how == How::TakenOver {
        return group.take_over(master);
    }
    let replica = group.replicas_of(master)[0];
    group.pause(replica);
    wait_for(UNREAD);
    group.kill(master);
    group.resume(replica);
    wait_until("the replica to take over", GENEROUS, || group.masters().contains(&replica));
    replica
}

/// Appends one number after the other, and has the master tell its offset in the same breath.
fn write(url: &str, key: String, done: &AtomicU64) -> RedisResult<Sent> {
    let mut connection = connect(url)?;
    let padding = "x".repeat(VALUE_LEN);
    let mut sent = Sent { key, offsets: Vec::new(), is_last_unknown: false };
    loop {
        let mut both = pipe();
        both.cmd("RPUSH").arg(&sent.key).arg(&padding).cmd("ROLE");
        match both.query::<(u64, Value)>(&mut connection) {
            Ok((_, Value::Array(role))) => match role[..] {
                [_, Value::Int(offset), ..] => sent.offsets.push(offset as u64),
                _ => return Ok(sent),
            },
            Ok(_) => return Ok(sent),
            Err(error) => {
                // A refusal is an answer: it is a replica now.
                sent.is_last_unknown = error.is_io_error();
                return Ok(sent);
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

fn connect(url: &str) -> RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection()?;
    connection.set_read_timeout(Some(GENEROUS))?;
    Ok(connection)
}

/// Up to where the new master has the history of the old one: what it tells is one more.
fn promoted_at(promoted: &mut Connection) -> Result<u64, String> {
    let info: String = cmd("INFO").arg("replication").query(promoted).map_err(|e| e.to_string())?;
    let told = info.lines().find_map(|line| line.strip_prefix("second_repl_offset:"));
    let told = told.and_then(|told| told.trim().parse::<u64>().ok());
    told.and_then(|told| told.checked_sub(1)).ok_or_else(|| format!("not promoted:\n{info}"))
}

fn sort(
    sent: &Sent,
    promoted: &mut Connection,
    has_until: u64,
    loss: &mut Loss,
) -> Result<(), String> {
    let there: usize = Cmd::llen(&sent.key).query(promoted).map_err(|e| e.to_string())?;
    let acknowledged = sent.offsets.len();
    let expected = sent.offsets.iter().filter(|offset| **offset <= has_until).count();
    // The one without an answer may be there, if all before it are.
    let may_be = expected + usize::from(sent.is_last_unknown && expected == acknowledged);
    if !(expected..=may_be).contains(&there) {
        return Err(format!(
            "{}: {there} of {acknowledged} writes are there, but {expected} lie before offset \
             {has_until} (the last at {:?})",
            sent.key,
            sent.offsets.last()
        ));
    }
    loss.acknowledged += acknowledged as u64;
    loss.lost += acknowledged.saturating_sub(there) as u64;
    loss.unknown += u64::from(sent.is_last_unknown);
    Ok(())
}
