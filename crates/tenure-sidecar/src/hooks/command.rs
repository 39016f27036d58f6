//! A hook that is a shell command.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use super::{Happening, Interrupted};

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
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Ok(Err(format!("cannot start /bin/sh: {error}"))),
    };
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut whole = Group(group);
    let status = tokio::select! {
        status = child.wait() => status,
        why = interrupted => {
            whole.kill();
            // Killed, so this does not take long.
            let _ = child.wait().await;
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

/// Where this process is the program of a wrapper: whose, which the id above hides from the guard
/// there. See `tenure run`.
fn outer_ids() -> Option<String> {
    let ids = ["OUTER_TENURE_IDS", "TENURE_ID"].map(|name| std::env::var(name).unwrap_or_default());
    let ids: Vec<&str> = ids.iter().flat_map(|list| list.split_whitespace()).collect();
    (!ids.is_empty()).then(|| ids.join(" "))
}

/// Kills a process group unless it ended in order.
struct Group(Option<Pid>);

impl Group {
    fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // It may have ended by itself meanwhile.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
