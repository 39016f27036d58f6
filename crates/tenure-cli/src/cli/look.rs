//! Looking at a store: its keys, its round trips, its figures.

use std::thread;
use std::time::Duration;

use store_resp::Reply;

use super::args::Work;
use super::client::{Client, RequestOutcome, print};
use super::clock::Stopwatch;
use super::error::ClientError;
use super::format::{Form, quoted};
use super::one_shot::pause;
use crate::output::plain;

/// Lines of figures under one heading.
const LINES_PER_HEADING: u64 = 20;

const HEADING: &[u8] =
    b"keys       memory      clients blocked requests            connections replication\n";

/// Prints all keys, a SCAN at a time.
pub(super) fn scan(client: &mut Client, work: &Work) -> Result<RequestOutcome, ClientError> {
    let mut cursor = b"0".to_vec();
    loop {
        let count = work.count.to_string();
        let mut words: Vec<&[u8]> = vec![b"SCAN", &cursor, b"COUNT", count.as_bytes()];
        if let Some(pattern) = &work.pattern {
            words.extend([&b"MATCH"[..], pattern.as_bytes()]);
        }
        if let Some(kind) = &work.kind {
            words.extend([&b"TYPE"[..], kind.as_bytes()]);
        }
        let reply = client.connection()?.ask(&words)?;
        let Reply::Array(parts) = &reply else { return refused(client, &reply) };
        let [Reply::Bulk(next), Reply::Array(keys)] = parts.as_slice() else {
            return refused(client, &reply);
        };
        let mut lines = Vec::new();
        for key in keys {
            match key {
                Reply::Bulk(key) if client.form == Form::Readable => lines.extend(quoted(key)),
                Reply::Bulk(key) => lines.extend_from_slice(key),
                _ => return refused(client, &reply),
            }
            lines.push(b'\n');
        }
        print(&lines)?;
        if next == b"0" {
            return Ok(RequestOutcome::Fine);
        }
        cursor = next.clone();
    }
}

/// Shows a reply that should have been another one.
fn refused(client: &Client, reply: &Reply) -> Result<RequestOutcome, ClientError> {
    print(&client.form.print(reply, false))?;
    Ok(RequestOutcome::ErrorReply)
}

/// Round trips of PING: smallest, greatest and mean, on one line that is overwritten.
pub(super) fn latency(client: &mut Client, work: &Work) -> Result<RequestOutcome, ClientError> {
    /// A hundred samples a second, unless told otherwise.
    const BETWEEN: Duration = Duration::from_millis(10);
    let between = if work.interval > 0.0 { pause(work.interval) } else { BETWEEN };
    let samples_max = endless_unless_told(work);
    let (mut least, mut greatest, mut sum, mut count) = (f64::MAX, 0.0_f64, 0.0, 0_u64);
    loop {
        let watch = Stopwatch::start();
        if let reply @ Reply::Error(_) = client.connection()?.ask(&["PING"])? {
            return refused(client, &reply);
        }
        let milliseconds = watch.reading().as_secs_f64() * 1e3;
        (least, greatest) = (least.min(milliseconds), greatest.max(milliseconds));
        sum += milliseconds;
        count += 1;
        let mean = sum / count as f64;
        let line = format!("min: {least:.3}, max: {greatest:.3}, avg: {mean:.3} ms");
        let is_last = samples_max == Some(count);
        match client.form {
            Form::Readable => print(format!("\r{line} ({count} samples) ").as_bytes())?,
            _ if is_last => {
                print(format!("{least:.3} {greatest:.3} {mean:.3} {count}").as_bytes())?
            }
            _ => {}
        }
        if is_last {
            print(b"\n")?;
            return Ok(RequestOutcome::Fine);
        }
        thread::sleep(between);
    }
}

/// A line of figures from INFO at a time.
pub(super) fn stat(client: &mut Client, work: &Work) -> Result<RequestOutcome, ClientError> {
    const BETWEEN: Duration = Duration::from_secs(1);
    let between = if work.interval > 0.0 { pause(work.interval) } else { BETWEEN };
    let lines_max = endless_unless_told(work);
    let mut requests_before = None;
    for line in 0_u64.. {
        let reply = client.connection()?.ask(&["INFO"])?;
        let text = match &reply {
            Reply::Bulk(text) | Reply::Verbatim(_, text) => String::from_utf8_lossy(text),
            _ => return refused(client, &reply),
        };
        if line % LINES_PER_HEADING == 0 {
            print(HEADING)?;
        }
        let requests = number(&text, "total_commands_processed");
        let more = requests.saturating_sub(requests_before.unwrap_or(requests));
        requests_before = Some(requests);
        print(format!("{}\n", figures(&text, requests, more)).as_bytes())?;
        if lines_max == Some(line + 1) {
            break;
        }
        thread::sleep(between);
    }
    Ok(RequestOutcome::Fine)
}

fn figures(info: &str, requests: u64, more: u64) -> String {
    let keys: u64 = info.lines().filter_map(keys_of_database).sum();
    let memory = field(info, "used_memory_human").unwrap_or("?");
    let clients = number(info, "connected_clients");
    let blocked = number(info, "blocked_clients");
    let connections = number(info, "total_connections_received");
    let requests = format!("{requests} (+{more})");
    let replication = replication(info);
    format!(
        "{keys:<10} {memory:<11} {clients:<7} {blocked:<7} {requests:<19} {connections:<11} \
         {replication}"
    )
}

/// Whom the server follows, or who follows it and how many bytes the last of them is behind.
fn replication(info: &str) -> String {
    if field(info, "role") == Some("slave") {
        let host = plain(field(info, "master_host").unwrap_or("?"));
        let port = plain(field(info, "master_port").unwrap_or("?"));
        let link = match field(info, "master_link_status") {
            Some("up") => "up".to_owned(),
            _ if number(info, "master_sync_in_progress") == 1 => "syncing".to_owned(),
            _ => match field(info, "master_link_down_since_seconds") {
                None | Some("-1") => "down".to_owned(),
                Some(_) => format!("down {} s", number(info, "master_link_down_since_seconds")),
            },
        };
        return format!("replica of {host}:{port}, {link}");
    }
    let replicas = number(info, "connected_slaves");
    if replicas == 0 {
        return "no replicas".to_owned();
    }
    let offset = number(info, "master_repl_offset");
    let behind = info.lines().filter_map(offset_of_replica).min();
    let behind = offset.saturating_sub(behind.unwrap_or(0));
    let word = if replicas == 1 { "replica" } else { "replicas" };
    format!("{replicas} {word}, {behind} B behind")
}

/// `slave0:ip=127.0.0.1,port=6380,state=online,offset=42,lag=0`
fn offset_of_replica(line: &str) -> Option<u64> {
    let (number, facts) = line.strip_prefix("slave")?.split_once(":ip=")?;
    number.parse::<u32>().ok()?;
    facts.split(',').find_map(|fact| fact.strip_prefix("offset="))?.parse().ok()
}

/// `db0:keys=3,expires=0,avg_ttl=0`
fn keys_of_database(line: &str) -> Option<u64> {
    let (name, facts) = line.split_once(":keys=")?;
    let is_database = name.strip_prefix("db").is_some_and(|n| n.parse::<u32>().is_ok());
    is_database.then(|| facts.split(',').next()?.parse().ok()).flatten()
}

fn number(info: &str, name: &str) -> u64 {
    field(info, name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// `-r` bounds what goes on until Ctrl-C when it is left out.
fn endless_unless_told(work: &Work) -> Option<u64> {
    (work.repeat > 1).then_some(work.repeat.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_lines_of_info() {
        let info = "# Memory\r\nused_memory_human:1.50M\r\nconnected_clients:3\r\n\
                    db0:keys=2,expires=0,avg_ttl=0\r\ndb12:keys=40,expires=1,avg_ttl=5\r\ndbx:keys=9\r\n";
        let line = figures(info, 10, 4);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, ["42", "1.50M", "3", "0", "10", "(+4)", "0", "no", "replicas"]);
    }

    #[test]
    fn replication_is_told_from_either_side() {
        let primary = "role:master\r\nconnected_slaves:2\r\n\
                       slave0:ip=10.0.0.2,port=1,state=online,offset=90,lag=0\r\n\
                       slave1:ip=10.0.0.3,port=1,state=online,offset=100,lag=0\r\n\
                       master_repl_offset:100\r\n";
        assert_eq!(replication(primary), "2 replicas, 10 B behind");
        let replica = "role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n";
        let up = format!("{replica}master_link_status:up\r\n");
        assert_eq!(replication(&up), "replica of 10.0.0.1:6379, up");
        let down = "master_link_status:down\r\nmaster_link_down_since_seconds:7\r\n";
        assert_eq!(replication(&format!("{replica}{down}")), "replica of 10.0.0.1:6379, down 7 s");
    }
}
