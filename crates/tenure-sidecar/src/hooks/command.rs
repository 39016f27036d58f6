//! A hook that is a shell command.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use super::Happening;

/// Runs a command to its end. Dropping the future ends it with all it started.
pub(super) async fn run(command: &str, happening: &Happening) -> Result<(), String> {
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .env("TENURE_EVENT", happening.turn.as_str())
        .env("TENURE_NAME", &happening.name)
        .env("TENURE_ID", &happening.id)
        .env("TENURE_TOKEN", happening.token.to_string())
        .env("TENURE_REASON", happening.reason)
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot start /bin/sh: {error}"))?;
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut whole = Group(group);
    let status = child.wait().await.map_err(|error| format!("cannot wait for it: {error}"))?;
    whole.0 = None;
    if status.success() { Ok(()) } else { Err(format!("ended with {status}")) }
}

/// Kills a process group unless it ended in order.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended by itself meanwhile.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
