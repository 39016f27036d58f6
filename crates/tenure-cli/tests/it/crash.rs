//! The store is killed: the real process, round after round, with every policy.
//!
//! `CRASH_ROUNDS` asks for more rounds per policy; `cargo xtask crash` does.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::{GENEROUS, Process, Random, TempFolder, wait_for};

/// Rounds per policy in the everyday run.
const ROUNDS: u64 = 3;
/// What `everysec` may lose when the machine, and not only the process, goes down.
const LOST_MAX: Duration = Duration::from_secs(2);

fn rounds() -> u64 {
    let asked = std::env::var("CRASH_ROUNDS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(ROUNDS)
}

/// A store in a folder, reached by its unix socket.
struct Store {
    process: Process,
}

impl Store {
    fn start(folder: &Path, words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.current_dir(folder).args(["serve", "--port", "0", "--appendonly", "yes"]);
        command.args(["--unixsocket", "store.sock", "--enable-debug-command", "yes"]);
        command.args(["--save", "", "--auto-aof-rewrite-percentage", "0"]).args(words);
        let process = Process::spawn(command);
        let _ = process.next_line_with("Ready to accept connections", GENEROUS);
        Self { process }
    }
}

struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    fn connect(folder: &Path) -> Self {
        let stream = wait_for("the store listens", GENEROUS, || {
            UnixStream::connect(folder.join("store.sock")).ok()
        });
        Self { stream: BufReader::new(stream) }
    }

    /// The line that answers, `None` when the store is gone.
    fn ask(&mut self, line: &str) -> Option<String> {
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        let count = self.stream.read_line(&mut answer).ok()?;
        if answer.starts_with('$') && !answer.starts_with("$-1") {
            answer.clear();
            self.stream.read_line(&mut answer).ok()?;
        }
        (count > 0 && answer.ends_with('\n')).then(|| answer.trim_end().to_owned())
    }

    fn number(&mut self, key: &str) -> u64 {
        let answer = self.ask(&format!("GET {key}")).expect("the store answers");
        answer.parse().unwrap_or(0)
    }
}

/// What was acknowledged: the last number of all, and the last that must outlive a kill.
struct Written {
    last: u64,
    safe: u64,
}

/// Counts upwards until the store is gone.
fn write_until_killed(folder: &Path, from: u64, count: &AtomicU64) -> Written {
    let mut client = Client::connect(folder);
    let mut acknowledged = vec![(from, Instant::now())];
    let mut token = from;
    while client.ask(&format!("SET token {}", token + 1)).as_deref() == Some("+OK") {
        token += 1;
        count.fetch_add(1, Ordering::SeqCst);
        acknowledged.push((token, Instant::now()));
    }
    let killed_at = Instant::now();
    let safe = acknowledged.iter().rev().find(|(_, at)| killed_at - *at >= LOST_MAX);
    Written { last: token, safe: safe.map_or(from, |(token, _)| *token) }
}

/// Keys enough for a rewrite to take some time.
fn fill(client: &mut Client) {
    for batch in 0..200 {
        let pairs: Vec<String> =
            (0..100).map(|index| format!("key:{batch}:{index} value-{index}")).collect();
        assert_eq!(client.ask(&format!("MSET {}", pairs.join(" "))).as_deref(), Some("+OK"));
    }
}

/// What else goes on when the kill comes.
const MEANWHILE: [&str; 3] = ["PING", "BGREWRITEAOF", "BGSAVE"];

fn kill_again_and_again(policy: &str) {
    let mut random = Random::seeded(testkit::seed());
    let folder = TempFolder::create();
    let words = ["--appendfsync", policy];
    let mut store = Store::start(folder.path(), &words);
    fill(&mut Client::connect(folder.path()));
    let mut last = 0;
    for round in 0..rounds() {
        let meanwhile = MEANWHILE[round as usize % MEANWHILE.len()];
        let (count, path) = (AtomicU64::new(0), folder.path());
        let written = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_until_killed(path, last, &count));
            wait_for("some writes", GENEROUS, || (count.load(Ordering::SeqCst) > 20).then_some(()));
            Client::connect(path).ask(meanwhile);
            std::thread::sleep(Duration::from_millis(random.in_range(0..150)));
            store.process.kill();
            writer.join().unwrap()
        });
        store = Store::start(folder.path(), &words);
        let mut client = Client::connect(folder.path());
        let found = client.number("token");
        // A kill leaves what was given to the system; only what waits for a sync may be lost.
        let promised = if policy == "everysec" { written.safe } else { written.last };
        assert!(
            found >= promised,
            "{policy}, round {round}, {meanwhile}: {promised} was promised, {found} is there"
        );
        assert_eq!(client.ask("EXISTS key:0:0 key:199:99").as_deref(), Some(":2"));
        println!("{policy:8} {meanwhile:12} written {:6} found {found:6}", written.last);
        last = found.max(written.last);
    }
}

#[test]
fn killed_with_always_nothing_acknowledged_is_lost() {
    kill_again_and_again("always");
}

#[test]
fn killed_with_everysec_at_most_two_seconds_are_lost() {
    kill_again_and_again("everysec");
}

#[test]
fn killed_without_syncs_nothing_given_to_the_system_is_lost() {
    kill_again_and_again("no");
}

#[test]
fn fencing_tokens_grow_across_clean_ends_and_kills() {
    let folder = TempFolder::create();
    let address = format!("unix://{}", folder.path().join("store.sock").display());
    let words = ["--appendfsync", "always"];
    let mut last = 0;
    for ending in ["terminated", "killed", "killed", "terminated"] {
        let mut store = Store::start(folder.path(), &words);
        let tenure = tenure::blocking::Tenure::connect(&address).unwrap();
        let builder = tenure.election("fenced").ttl(Duration::from_millis(500));
        let election = tenure.start(builder).unwrap();
        // After a kill the store waits until no lease from before it can be believed in.
        let term = election.wait_for_leadership_within(GENEROUS).unwrap();
        let token = term.token().get();
        assert!(token > last, "{token} after {last}");
        last = token;
        match ending {
            "killed" => store.process.kill(),
            _ => store.process.terminate(),
        }
        let _ = store.process.wait(GENEROUS);
    }
}

#[test]
fn a_full_disk_is_told_and_nothing_acknowledged_is_lost() {
    // A file system of its own needs rights that not every machine gives.
    let folder = TempFolder::create();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
        .arg(folder.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        println!("skipped: no right to mount a small file system; see trouble.rs of the store");
        return;
    }
    let unmount = Unmount(folder.path());
    let mut store = Store::start(folder.path(), &["--appendfsync", "everysec"]);
    let mut client = Client::connect(folder.path());
    let value = "x".repeat(10_000);
    let mut token = 0;
    let refusal = loop {
        client.ask(&format!("SET filler {value}"));
        match client.ask(&format!("SET token {}", token + 1)) {
            Some(answer) if answer == "+OK" => token += 1,
            Some(answer) => break answer,
            None => panic!("the store ended"),
        }
    };
    assert!(refusal.starts_with("-MISCONF Errors writing to the AOF file: No space"), "{refusal}");
    assert_eq!(client.number("token"), token);
    store.process.kill();
    let store = Store::start(folder.path(), &["--appendfsync", "everysec"]);
    let found = Client::connect(folder.path()).number("token");
    // What was acknowledged in the turn in which the disk filled up waited in memory.
    assert!(found + 1 >= token, "{token} was acknowledged, {found} is there");
    drop(store);
    drop(unmount);
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        // Lazily: the server may still be on its way out.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
