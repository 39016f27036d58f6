//! Scripts of operators, as processes. Nobody waits for them: they are looked at once a tick.

use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use store_sentinel::{ScriptEnd, ScriptId};

#[derive(Default)]
pub(crate) struct RunningScripts {
    children: BTreeMap<ScriptId, Child>,
    /// Those that could not be started.
    failed: Vec<ScriptId>,
}

impl RunningScripts {
    /// Starts a script. Its process, if it could be started.
    pub(crate) fn start(&mut self, id: ScriptId, words: &[String]) -> Option<u32> {
        let (path, arguments) = words.split_first()?;
        let started = Command::new(path)
            .args(arguments)
            .stdin(Stdio::null())
            // Whatever it starts ends with it.
            .process_group(0)
            .spawn();
        match started {
            Ok(child) => {
                let pid = child.id();
                self.children.insert(id, child);
                Some(pid)
            }
            Err(_) => {
                self.failed.push(id);
                None
            }
        }
    }

    /// Ends a script, and whatever it started.
    pub(crate) fn kill(&self, id: ScriptId) {
        let child = self.children.get(&id);
        let pid = child.and_then(|child| Pid::from_raw(child.id() as i32));
        if let Some(pid) = pid {
            // One that has ended meanwhile is found next.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// Those that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<(ScriptId, ScriptEnd)> {
        let not_started = std::mem::take(&mut self.failed).into_iter();
        let mut ended: Vec<_> = not_started.map(|id| (id, ScriptEnd::NotStarted)).collect();
        self.children.retain(|id, child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                let end = match (status.code(), status.signal()) {
                    (Some(code), _) => ScriptEnd::Exited(code),
                    (None, signal) => ScriptEnd::Killed(signal.unwrap_or(0)),
                };
                ended.push((*id, end));
                false
            }
            Err(_) => {
                ended.push((*id, ScriptEnd::NotStarted));
                false
            }
        });
        ended
    }
}
