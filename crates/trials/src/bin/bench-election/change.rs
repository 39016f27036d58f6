//! How long nobody leads when the leader changes: after a release, a hand-over, a crash.

use std::process::Command;
use std::time::Duration;

use tenure::{Election, EventKind, Events, Moment, Tenure};
use testkit::{GENEROUS, Process, RedisServer};
use tokio::runtime::Runtime;
use trials::clock;
use trials::stats::Samples;

use crate::polling::Poller;
use crate::report::Report;
use crate::{Result, Scale};

/// Pollers are measured at a shorter lease and their waits scaled up: they are proportional to it.
const POLLED_TTL: Duration = Duration::from_millis(600);
const TTL: Duration = Duration::from_secs(10);
const CRASH_TTL: Duration = Duration::from_millis(900);
const POLLED_ROUNDS: usize = 40;

pub(crate) fn measure(runtime: &Runtime, scale: &Scale, report: &mut Report) -> Result {
    let server = RedisServer::start();
    let url = server.url();
    let (released, handed_over) = runtime.block_on(ours(&url, scale.hand_overs))?;
    let (polled_release, polled_crash) = runtime.block_on(theirs(&url))?;
    let millis = |samples: &Samples| samples.percentile(99.0).as_secs_f64() * 1e3;
    let ours = (millis(&released), released.to_string());
    report.aim("release → next leader acting", ours, polled_release.to_string(), 20.0, "ms");
    let ours = (millis(&handed_over), handed_over.to_string());
    report.aim("hand-over → successor acting", ours, "–".into(), 20.0, "ms");
    let crashed = crashes(&server, scale.crashes)?;
    let ours = (millis(&crashed), crashed.to_string());
    report.aim("crash → next leader, beyond the lease", ours, polled_crash.to_string(), 50.0, "ms");
    Ok(())
}

struct Side {
    election: Election,
    events: Events,
}

impl Side {
    async fn join(url: &str, name: &str) -> Result<Self> {
        let tenure = Tenure::builder().instance(name).store(url).ttl(TTL).connect().await?;
        let mut builder = tenure.election("change").fresh_store(true);
        let events = builder.events();
        Ok(Side { election: builder.start().await?, events })
    }

    async fn moment_of(&mut self, pick: fn(&EventKind) -> bool) -> Result<Moment> {
        loop {
            let event = self.events.next().await.ok_or("the election ended")??;
            if pick(&event.kind) {
                return Ok(event.at);
            }
        }
    }
}

async fn ours(url: &str, rounds: usize) -> Result<(Samples, Samples)> {
    let mut leader = Side::join(url, "a").await?;
    leader.moment_of(|kind| matches!(kind, EventKind::Acquired { .. })).await?;
    let mut standby = Side::join(url, "b").await?;
    standby.moment_of(|kind| matches!(kind, EventKind::ElectionFailed { .. })).await?;
    let (mut released, mut handed_over) = (Samples::default(), Samples::default());
    for round in 0..rounds * 2 {
        let hands_over = round % 2 == 1;
        match hands_over {
            true => drop(leader.election.hand_over(standby.election.id().as_str()).await?),
            false => leader.election.resign().await,
        }
        let lost_at = leader.moment_of(|kind| matches!(kind, EventKind::Lost { .. })).await?;
        let led_at = standby.moment_of(|kind| matches!(kind, EventKind::Acquired { .. })).await?;
        let samples = if hands_over { &mut handed_over } else { &mut released };
        samples.add(led_at.since(lost_at));
        std::mem::swap(&mut leader, &mut standby);
    }
    Ok((released, handed_over))
}

/// Kills the leader's process and counts from the moment at which the store lets go of the key.
fn crashes(server: &RedisServer, rounds: usize) -> Result<Samples> {
    let mut samples = Samples::default();
    let mut leader = spawn(server)?;
    line_with(&leader, "work-begin");
    for _ in 0..rounds {
        let standby = spawn(server)?;
        // Until its first look is over.
        std::thread::sleep(CRASH_TTL / 3);
        leader.kill();
        let left: u64 = server.cli(&["PTTL", "tenure:job"]).parse()?;
        let free_at = clock::now() + Duration::from_millis(left);
        let led_at = line_with(&standby, "work-begin");
        samples.add(led_at.since(free_at));
        leader = standby;
    }
    Ok(samples)
}

fn spawn(server: &RedisServer) -> Result<Process> {
    let program = std::env::current_exe()?.with_file_name("trial-instance");
    let mut command = Command::new(program);
    command.args(["--store", &server.url(), "--ttl-ms", &CRASH_TTL.as_millis().to_string()]);
    let process = Process::spawn(command);
    line_with(&process, "started");
    Ok(process)
}

fn line_with(process: &Process, words: &str) -> Moment {
    let line = process.next_line_with(words, GENEROUS);
    let nanos = line.split(' ').next().and_then(|word| word.parse().ok());
    Moment::from_nanos(nanos.expect("an instance tells the time first"))
}

/// The same for two pollers, scaled to the lease of ours.
async fn theirs(url: &str) -> Result<(Samples, Samples)> {
    let scale = TTL.as_millis() as u32 / POLLED_TTL.as_millis() as u32;
    let crash_scale = CRASH_TTL.as_secs_f64() / POLLED_TTL.as_secs_f64();
    let (mut released, mut crashed) = (Samples::default(), Samples::default());
    for round in 0..POLLED_ROUNDS {
        let key = format!("polled-{round}");
        let mut leader = Poller::connect(url, &key, "a", POLLED_TTL).await?;
        let mut standby = Poller::connect(url, &key, "b", POLLED_TTL).await?;
        leader.acquire().await?;
        // Where in the standby's interval the change falls is chance; here it is spread evenly.
        let phase = standby.interval() * round as u32 / POLLED_ROUNDS as u32;
        let crashes = round % 2 == 1;
        let free_at = match crashes {
            true => clock::now() + POLLED_TTL,
            false => {
                leader.release().await?;
                clock::now()
            }
        };
        tokio::time::sleep(phase).await;
        while !standby.acquire().await? {
            tokio::time::sleep(standby.interval()).await;
        }
        let waited = clock::now().since(free_at);
        match crashes {
            true => crashed.add(waited.mul_f64(crash_scale)),
            false => released.add(waited * scale),
        }
    }
    Ok((released, crashed))
}
