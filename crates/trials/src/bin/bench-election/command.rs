//! What the command adds: how soon the next program runs, what `tenure who` takes, and the memory
//! of a wrapper with its guard.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{GENEROUS, Process, RedisServer, wait_until};
use trials::clock;
use trials::stats::Samples;

use crate::report::Report;
use crate::{Result, Scale};

/// Where the wrappers' members are listed.
const MEMBERS: &str = "{tenure:command}:members";
/// So many looks, of which the best counts: the others were disturbed.
const LOOKS: usize = 10;
/// A standby that was just listed gets this long to listen for the call.
const SETTLES_WITHIN: Duration = Duration::from_millis(50);

pub(crate) fn measure(scale: &Scale, report: &mut Report) -> Result {
    let server = RedisServer::start();
    let stage = Stage { program: program()?, server };
    let taken_over = stage.take_overs(scale.take_overs);
    let ours = (taken_over.percentile(99.0).as_secs_f64() * 1e3, taken_over.to_string());
    report.aim("SIGTERM of the leader → next program started", ours, "–".into(), 50.0, "ms");
    let looked = stage.looks()?.percentile(0.0).as_secs_f64() * 1e3;
    let ours = (looked, format!("{looked:.1} ms"));
    report.aim("`tenure who`, best of ten", ours, "–".into(), 30.0, "ms");
    let added = stage.memory_added()?;
    let ours = (added, format!("{added:.1} MB (PSS)"));
    report.aim("memory of a wrapper and its guard", ours, "–".into(), 10.0, "MB");
    Ok(())
}

/// The command beside this program, built for speed as this one is.
fn program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("tenure");
    match program.exists() {
        true => Ok(program),
        false => {
            Err(format!("{} is not built: run this by cargo xtask bench", program.display()).into())
        }
    }
}

struct Stage {
    program: PathBuf,
    server: RedisServer,
}

impl Stage {
    fn tenure(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).env("TENURE_STORE", self.server.url());
        command.env("TENURE_DEFAULTS__FRESH_STORE", "true");
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn wrap(&self, id: &str) -> Process {
        let words = ["run", "command", "--id", id, "--ttl", "10s", "--"];
        let mut command = self.tenure(&words);
        command.args(["sh", "-c", "echo started; exec sleep 600"]);
        Process::spawn(command)
    }

    fn lead(&self, id: &str) -> Process {
        let leader = self.wrap(id);
        assert_eq!(leader.next_line(GENEROUS), "started");
        leader
    }

    fn take_overs(&self, rounds: usize) -> Samples {
        let mut samples = Samples::default();
        let mut leader = self.lead("a");
        for round in 0..rounds {
            let standby = self.wrap(if round % 2 == 0 { "b" } else { "a" });
            wait_until("the standby to be listed", GENEROUS, || {
                self.server.cli(&["HLEN", MEMBERS]) == "2"
            });
            std::thread::sleep(SETTLES_WITHIN);
            let asked_at = clock::now();
            leader.terminate();
            assert_eq!(standby.next_line(GENEROUS), "started");
            samples.add(clock::now().since(asked_at));
            leader.wait(GENEROUS);
            leader = standby;
        }
        end(leader);
        samples
    }

    fn looks(&self) -> Result<Samples> {
        let leader = self.lead("a");
        let mut samples = Samples::default();
        for _ in 0..LOOKS {
            let asked_at = clock::now();
            let output = self.tenure(&["who", "command"]).output()?;
            samples.add(clock::now().since(asked_at));
            if !output.status.success() {
                return Err(format!("tenure who: {}", output.status).into());
            }
        }
        end(leader);
        Ok(samples)
    }

    /// In MB. The proportional share, because the two have the program's pages in common.
    fn memory_added(&self) -> Result<f64> {
        let leader = self.lead("a");
        let guard = children_of(leader.pid())?.into_iter().find(|pid| is_guard(*pid));
        let guard = guard.ok_or("the wrapper has no guard")?;
        let added = (proportional_kb(leader.pid())? + proportional_kb(guard)?) / 1e3;
        end(leader);
        Ok(added)
    }
}

/// By a signal, so that the next one need not wait for the lease to end.
fn end(mut leader: Process) {
    leader.terminate();
    leader.wait(GENEROUS);
}

fn children_of(pid: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let listed = std::fs::read_to_string(thread?.path().join("children"))?;
        children.extend(listed.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(children)
}

fn is_guard(pid: u32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).contains("__guard")
}

fn proportional_kb(pid: u32) -> Result<f64> {
    let map = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = map.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kb =
        line.and_then(|line| line.trim().strip_suffix("kB")).ok_or("no Pss in smaps_rollup")?;
    Ok(kb.trim().parse::<f64>()? * 1.024)
}
