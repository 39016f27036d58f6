//! Thousands of elections in one process: what they cost.

use std::process::{Command, Stdio};
use std::time::Duration;

use tenure::{Election, Tenure};
use testkit::RedisServer;
use tokio::runtime::Runtime;
use trials::clock;

use crate::polling::Poller;
use crate::report::Report;
use crate::{Result, Scale};

const TTL: Duration = Duration::from_secs(10);
const WATCHED: Duration = Duration::from_secs(15);

pub(crate) fn measure(scale: &Scale, report: &mut Report) -> Result {
    let ours = in_a_process("ours", scale.elections)?;
    let theirs = in_a_process("polling", scale.elections)?;
    eprintln!("with {} elections in one process:", scale.elections);
    report.aim(
        "memory per election",
        (ours.bytes_each, format!("{:.0} B", ours.bytes_each)),
        format!("{:.0} B", theirs.bytes_each),
        4096.0,
        "B",
    );
    let share = |cost: &Cost| format!("{:.1} % of one core", cost.cpu_share * 100.0);
    report.note("CPU of the process", share(&ours), share(&theirs));
    let rate = |cost: &Cost| format!("{:.0}/s", cost.requests_per_second);
    report.note("requests", rate(&ours), rate(&theirs));
    Ok(())
}

/// Each side in a process of its own: memory that one gave back must not serve the other.
fn in_a_process(side: &str, count: usize) -> Result<Cost> {
    let program = std::env::current_exe()?;
    let output = Command::new(program)
        .args(["many", side, &count.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let figures: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match figures[..] {
        [bytes_each, cpu_share, requests_per_second] if output.status.success() => {
            Ok(Cost { bytes_each, cpu_share, requests_per_second })
        }
        _ => Err(format!("{side}: {text:?}").into()),
    }
}

/// What the process of one side does.
pub(crate) fn run_side(runtime: &Runtime, side: &str, count: usize) -> Result {
    let cost = match side {
        "ours" => runtime.block_on(ours(count))?,
        _ => runtime.block_on(theirs(count))?,
    };
    println!("{} {} {}", cost.bytes_each, cost.cpu_share, cost.requests_per_second);
    Ok(())
}

struct Cost {
    bytes_each: f64,
    cpu_share: f64,
    requests_per_second: f64,
}

async fn ours(count: usize) -> Result<Cost> {
    let server = RedisServer::start();
    let client = Tenure::builder().store(&server.url()).ttl(TTL).fresh_store(true);
    let tenure = client.connect().await?;
    let before = resident_bytes()?;
    let mut elections = Vec::with_capacity(count);
    for index in 0..count {
        elections.push(tenure.election(&format!("many-{index}")).start().await?);
    }
    eprintln!("waiting for {count} leaders…");
    while !elections.iter().all(Election::is_leader) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(TTL).await;
    let cost = watch(&server, before, count).await?;
    let lost: u64 = elections.iter().map(|election| election.status().counts.losses).sum();
    if lost > 0 {
        eprintln!("{lost} terms were lost meanwhile: this machine is too busy to be measured on");
    }
    tenure.shutdown().await;
    Ok(cost)
}

async fn theirs(count: usize) -> Result<Cost> {
    let server = RedisServer::start();
    let poller = Poller::connect(&server.url(), "polled", "poller", TTL).await?;
    let before = resident_bytes()?;
    let until = clock::now() + WATCHED + TTL;
    let mut tasks = Vec::with_capacity(count);
    for index in 0..count {
        let poller = poller.beside(format!("polled-{index}"));
        let phase = poller.interval() * index as u32 / count as u32;
        tasks.push(tokio::spawn(async move { poller.take_part(phase, until).await.is_ok() }));
    }
    tokio::time::sleep(TTL / 2).await;
    let cost = watch(&server, before, count).await?;
    for task in tasks {
        if !task.await? {
            return Err("a poller failed".into());
        }
    }
    Ok(cost)
}

/// What the process and the server do for a while, with everything up and running.
async fn watch(server: &RedisServer, bytes_before: u64, count: usize) -> Result<Cost> {
    let bytes = resident_bytes()?.saturating_sub(bytes_before);
    let (cpu_before, began_at) = (clock::cpu_time(), clock::now());
    let commands_before = commands(server)?;
    tokio::time::sleep(WATCHED).await;
    let seconds = clock::now().since(began_at).as_secs_f64();
    Ok(Cost {
        bytes_each: bytes as f64 / count as f64,
        cpu_share: clock::cpu_time().saturating_sub(cpu_before).as_secs_f64() / seconds,
        requests_per_second: (commands(server)? - commands_before) / seconds,
    })
}

/// EVAL, EVALSHA and SET that clients sent so far; what scripts call is not counted.
fn commands(server: &RedisServer) -> Result<f64> {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = |name: &str| -> f64 {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:calls=")));
        let text = line.and_then(|line| line.split(['=', ',']).nth(1));
        text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
    };
    // Pollers set keys themselves, ours do so inside scripts only.
    let plain = if stats.contains("cmdstat_evalsha") { 0.0 } else { calls("set") };
    Ok(calls("evalsha") + calls("eval") + plain)
}

fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).ok_or("no resident size")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}
