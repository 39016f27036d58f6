//! A hook that is a shell command.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::{Happening, Interrupted, Turn};

/// Runs a command to its end, or until it is interrupted: then it is killed with all it started,
/// and seen to be gone. Dropping the future kills it as well.
pub(super) async fn run(
    command: &str,
    happening: &Happening,
    interrupted: impl Future<Output = Interrupted>,
) -> Result<Result<(), String>, Interrupted> {
    let child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .env("TENURE_EVENT", happening.turn.as_str())
        .env("TENURE_NAME", &happening.name)
        .env("TENURE_ID", &happening.id)
        .env("TENURE_TOKEN", happening.token.to_string())
        .env("TENURE_REASON", happening.reason)
        .envs(outer_ids().map(|ids| ("OUTER_TENURE_IDS", ids)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Ok(Err(format!("cannot start /bin/sh: {error}"))),
    };
    // Whatever the hook leaves behind may go on talking, so nobody waits for the end of it.
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(pass_on(stdout, happening.turn, happening.name.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(pass_on(stderr, happening.turn, happening.name.clone()));
    }
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut whole = Group(group);
    let status = tokio::select! {
        status = child.wait() => status,
        why = interrupted => {
            whole.kill();
            see_gone(&mut child, happening).await;
            return Err(why);
        }
    };
    whole.0 = None;
    Ok(match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("ended with {status}")),
        Err(error) => Err(format!("cannot wait for it: {error}")),
    })
}

/// How long a hook that was killed may take to be gone before it is named.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Waits for the end of a hook that was killed. One that became another user, as `sudo` does, is
/// not gone, and what comes after it waits: people must hear why.
async fn see_gone(child: &mut Child, happening: &Happening) {
    if tokio::time::timeout(GONE_WITHIN, child.wait()).await.is_ok() {
        return;
    }
    let (resource, hook) = (happening.name.as_str(), happening.turn.as_str());
    let pid = child.id().unwrap_or_default();
    tracing::warn!(target: "tenure", resource, hook,
        "a hook is to end, and process {pid} cannot be killed (does it belong to another user?): \
         the hooks after it wait until it has ended");
    let _ = child.wait().await;
}

/// The longest line that is logged whole.
const LINE_LEN_MAX: usize = 4096;
/// Lines of one stream that are logged per second; those beyond are counted.
const LINES_PER_SECOND: usize = 100;
const READ_LEN: usize = 64 * 1024;

/// Logs what a hook says, line by line. It never waits for whoever reads the log of this process,
/// and so never takes longer than it needs; one that talks without end keeps nobody waiting.
async fn pass_on(mut said: impl AsyncRead + Unpin, turn: Turn, resource: String) {
    let mut log = |line: &str| {
        let (resource, hook) = (resource.as_str(), turn.as_str());
        tracing::info!(target: "tenure", resource, hook, "the hook says: {line}");
    };
    let mut lines = Lines::default();
    let mut chunk = vec![0; READ_LEN];
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            biased;
            _ = second.tick() => lines.renew(&mut log),
            read = said.read(&mut chunk) => match read {
                Ok(len @ 1..) => lines.take(&chunk[..len], &mut log),
                _ => break,
            },
        }
        tokio::task::yield_now().await;
    }
    lines.end(&mut log);
}

/// The lines of one stream.
#[derive(Default)]
struct Lines {
    /// Of the last one, which has not ended.
    begun: Vec<u8>,
    /// In this second.
    logged: usize,
    dropped: usize,
}

impl Lines {
    fn take(&mut self, mut bytes: &[u8], log: &mut impl FnMut(&str)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            match self.begun.is_empty() {
                true => self.tell(&bytes[..end], log),
                false => {
                    self.begun.extend_from_slice(&bytes[..end]);
                    self.tell_begun(log);
                }
            }
            bytes = &bytes[end + 1..];
        }
        for part in bytes.chunks(LINE_LEN_MAX) {
            self.begun.extend_from_slice(part);
            if self.begun.len() >= LINE_LEN_MAX {
                self.tell_begun(log);
            }
        }
    }

    fn tell_begun(&mut self, log: &mut impl FnMut(&str)) {
        let line = std::mem::take(&mut self.begun);
        self.tell(&line, log);
    }

    fn tell(&mut self, line: &[u8], log: &mut impl FnMut(&str)) {
        if self.logged == LINES_PER_SECOND {
            self.dropped += 1;
            return;
        }
        self.logged += 1;
        let line = String::from_utf8_lossy(&line[..line.len().min(LINE_LEN_MAX)]);
        log(line.trim_end());
    }

    /// Another second has begun.
    fn renew(&mut self, log: &mut impl FnMut(&str)) {
        self.logged = 0;
        if self.dropped > 0 {
            log(&format!("({} more lines)", std::mem::take(&mut self.dropped)));
        }
    }

    fn end(&mut self, log: &mut impl FnMut(&str)) {
        if !self.begun.is_empty() {
            self.tell_begun(log);
        }
        self.renew(log);
    }
}

/// Where this process is the program of a wrapper: whose, which the id above hides from the guard
/// there. See `tenure run`.
fn outer_ids() -> Option<String> {
    let ids = ["OUTER_TENURE_IDS", "TENURE_ID"].map(|name| std::env::var(name).unwrap_or_default());
    let ids: Vec<&str> = ids.iter().flat_map(|list| list.split_whitespace()).collect();
    (!ids.is_empty()).then(|| ids.join(" "))
}

/// The most processes below a hook that are looked for.
const BELOW_MAX: usize = 1_000;

/// What descends from a process, held so that no number can become another's.
fn below(top: Pid) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    let mut parents = vec![top];
    while let Some(parent) = parents.pop() {
        for child in children_of(parent) {
            let held = pidfd_open(child, PidfdFlags::empty());
            // Asked once it is held.
            if let (Ok(held), true) = (held, children_of(parent).contains(&child)) {
                found.push(held);
                parents.push(child);
            }
            if found.len() >= BELOW_MAX {
                return found;
            }
        }
    }
    found
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()));
    let lists = threads.into_iter().flatten().flatten();
    let lists = lists.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let text = lists.flatten().collect::<Vec<_>>().join(" ");
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Kills a process group, and what left it, unless it ended in order.
struct Group(Option<Pid>);

impl Group {
    fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // Found first: what leaves the group, as `timeout` does, is nobody's afterwards.
            let below = below(group);
            // It may have ended by itself meanwhile.
            let _ = kill_process_group(group, Signal::KILL);
            for process in below {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hook_says_is_logged_by_line_and_bounded_per_second() {
        let mut told = Vec::new();
        let mut log = |line: &str| told.push(line.to_owned());
        let mut lines = Lines::default();
        lines.take(b"one\ntw", &mut log);
        lines.take(b"o\r\n", &mut log);
        lines.take(&b"y\n".repeat(1000), &mut log);
        lines.renew(&mut log);
        lines.take(&[b'x'; LINE_LEN_MAX * 2], &mut log);
        lines.take(b"rest", &mut log);
        lines.end(&mut log);
        assert_eq!(told[..2], ["one", "two"]);
        assert_eq!(told[2..100], vec!["y"; 98]);
        assert_eq!(told[100], "(902 more lines)");
        assert!(told[101..103].iter().all(|line| line.len() == LINE_LEN_MAX));
        assert_eq!(told[103..], ["rest"]);
    }
}
