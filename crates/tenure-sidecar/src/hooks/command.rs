//! A hook that is a shell command.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;

use super::ending::RunningHook;
use super::proc::MARKS;
use super::{Happening, Interrupted, Turn};

/// Runs a command to its end, or until it is interrupted: then it is killed with all it started,
/// and seen to be gone. Dropping the future kills it as well.
pub(super) async fn run(
    command: &str,
    happening: &Happening,
    interrupted: impl Future<Output = Interrupted>,
) -> Result<Result<(), String>, Interrupted> {
    let mark = format!("hook_{:016x}", fastrand::u64(..));
    let child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .env("TENURE_EVENT", happening.turn.as_str())
        .env("TENURE_NAME", &happening.name)
        .env("TENURE_ID", &happening.id)
        .env("TENURE_TOKEN", happening.token.to_string())
        .env("TENURE_REASON", happening.reason)
        .env(MARKS, marks_with(&mark))
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
    let shell = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut running = KilledOnDrop(shell.map(|shell| RunningHook::new(shell, mark)));
    let watcher = shell.and_then(Watcher::start);
    let status = tokio::select! {
        status = child.wait() => status,
        why = interrupted => {
            if let Some(hook) = running.0.take() {
                see_gone(hook, happening).await;
            }
            // Before the number of the shell can become another's.
            Watcher::dismiss(watcher).await;
            reap(&mut child).await;
            return Err(why);
        }
    };
    running.0 = None;
    Watcher::dismiss(watcher).await;
    Ok(match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("ended with {status}")),
        Err(error) => Err(format!("cannot wait for it: {error}")),
    })
}

/// A small shell that kills the process group of a hook should this process be killed.
struct Watcher {
    /// Its end is that of this process.
    orders: ChildStdin,
}

impl Watcher {
    /// Waits for a word; where the input ends without one, nobody is there to end the hook.
    const SCRIPT: &str =
        "read -r word; [ \"$word\" = done ] || kill -s KILL -- \"-$1\" 2>/dev/null";

    /// `None` where no process can be started: the hook then runs without.
    fn start(shell: Pid) -> Option<Self> {
        let group = shell.as_raw_nonzero().to_string();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", Self::SCRIPT, "hook-watcher", &group]).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Whoever signals the group of the sidecar does not mean it; it ends with the hook.
        let mut child = command.process_group(0).spawn().ok()?;
        Some(Watcher { orders: child.stdin.take()? })
    }

    async fn dismiss(watcher: Option<Self>) {
        if let Some(mut watcher) = watcher {
            // One that was killed hears nothing.
            let _ = watcher.orders.write_all(b"done\n").await;
        }
    }
}

/// The pause before what could not be killed is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Kills a hook and waits for its end. What became another user, as `sudo` does, is not gone, and
/// what comes after it waits: people must hear why.
async fn see_gone(mut hook: RunningHook, happening: &Happening) {
    let mut told = Vec::new();
    loop {
        let Some((same, left)) = kill_aside(hook).await else { return };
        if left.is_empty() {
            return;
        }
        if told != left {
            warn_of_left(&left, happening);
            told = left;
        }
        hook = same;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Kills a hook on a thread of its own: it may take a while, in which this one has questions to
/// answer. Where no thread can be started, a hook that is to end matters more. `None` if the thread
/// ended early.
async fn kill_aside(hook: RunningHook) -> Option<(RunningHook, Vec<i32>)> {
    let kill = |mut hook: RunningHook| {
        let left = hook.kill();
        (hook, left)
    };
    let (tell, told) = oneshot::channel();
    let shared = Arc::new(Mutex::new(Some(hook)));
    let taken = Arc::clone(&shared);
    let take = |hook: &Mutex<Option<RunningHook>>| {
        hook.lock().unwrap_or_else(PoisonError::into_inner).take()
    };
    // What tokio offers for this panics where there is no thread.
    let started = thread::Builder::new().name("hook-killer".into()).spawn(move || {
        // Nobody hears it when the runtime ends.
        let _ = tell.send(take(&taken).map(kill));
    });
    match started {
        Ok(_) => told.await.ok().flatten(),
        Err(_) => take(&shared).map(kill),
    }
}

/// The most processes that one warning names.
const NAMED_MAX: usize = 10;

fn warn_of_left(left: &[i32], happening: &Happening) {
    let (resource, hook) = (happening.name.as_str(), happening.turn.command_name());
    let named: Vec<String> = left.iter().take(NAMED_MAX).map(i32::to_string).collect();
    let named = named.join(", ");
    let more = match left.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    tracing::warn!(target: "tenure", resource, hook,
        "a hook is to end, and process {named}{more} cannot be killed (does it belong to another \
         user?): the hooks after it wait until it has ended");
}

/// Takes note of the end of the shell, which was killed.
async fn reap(child: &mut Child) {
    // It cannot fail for a child of this process.
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
        let (resource, hook) = (resource.as_str(), turn.command_name());
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

/// The marks of a hook: its own, and, where this process is the program of a wrapper, whose: the
/// id in the environment of the hook hides that from the guard there. See `tenure run`.
fn marks_with(mark: &str) -> String {
    let outer = [MARKS, "TENURE_ID"].map(|name| std::env::var(name).unwrap_or_default());
    let outer = outer.iter().flat_map(|list| list.split_whitespace());
    outer.chain([mark]).collect::<Vec<_>>().join(" ")
}

/// Kills a hook that nobody waits for any more, with all it started, unless it ended in order.
struct KilledOnDrop(Option<RunningHook>);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        if let Some(mut hook) = self.0.take() {
            hook.kill();
        }
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
