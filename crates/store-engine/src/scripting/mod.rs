//! What the server keeps of scripts: the interpreter, and which script runs.

pub(crate) mod commands;

use std::collections::{BTreeMap, BTreeSet};

use store_resp::Protocol;
use store_script::{Digest, Interpreter, Limits};

use crate::cluster::route::ServedSlot;
use crate::error::{CommandError, CommandResult};
use crate::keyspace::changes::Audience;

/// Scripts, libraries, and the one that runs.
pub struct Scripting {
    /// Away while a script runs: it cannot be used by what the script calls.
    pub(crate) interpreter: Option<Interpreter>,
    /// The script that runs.
    pub(crate) running: Option<RunningScript>,
    /// The only scripts that may be loaded; libraries may not at all then.
    known: Option<BTreeSet<Digest>>,
}

const UNKNOWN_CODE: CommandError =
    CommandError::text("NOPERM this store runs only the scripts it was started with");

/// A running script.
#[derive(Debug)]
pub(crate) struct RunningScript {
    pub(crate) kind: ScriptKind,
    /// The function, or `eval`.
    pub(crate) name: Vec<u8>,
    /// The request that started it, for FUNCTION STATS.
    pub(crate) request: Vec<Vec<u8>>,
    /// Unix microseconds, if the driver has a clock.
    pub(crate) started_at_us: Option<u64>,
    /// Unix microseconds when it was last seen to run.
    pub(crate) seen_at_us: u64,
    /// It called a command that writes, so it cannot be undone by ending it.
    pub(crate) has_written: bool,
    /// The primary sent it, where it ran to its end.
    pub(crate) is_of_primary: bool,
    /// Somebody asked to end it.
    pub(crate) is_killed: bool,
    /// To whom what it writes is propagated: `redis.set_repl` can say to nobody. That keys ended is
    /// propagated in any case.
    pub(crate) audience: Option<Audience>,
    /// The protocol of the client that started it.
    pub(crate) protocol: Protocol,
    /// The keys it declared, if the session tracks what is read.
    pub(crate) tracked_keys: Vec<Box<[u8]>>,
    /// The slot of its keys, in a cluster, once it has used one.
    pub(crate) slot: Option<u16>,
    /// Slots that it has used, in a cluster.
    pub(crate) served: BTreeMap<u16, ServedSlot>,
    /// Whether it promised to use keys of several slots.
    pub(crate) may_cross_slots: bool,
}

/// Which commands know a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    /// EVAL and SCRIPT.
    Script,
    /// FCALL and FUNCTION.
    Function,
}

impl Default for Scripting {
    fn default() -> Self {
        Self { interpreter: Some(Interpreter::new(Limits::default())), running: None, known: None }
    }
}

/// What scripts take up, as INFO tells. Nothing is known while one runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScriptUsage {
    /// Bytes of the machine that runs scripts and functions: there is one for both.
    pub(crate) machine: usize,
    pub(crate) scripts: usize,
    pub(crate) script_bytes: usize,
    pub(crate) libraries: usize,
    pub(crate) functions: usize,
    pub(crate) library_bytes: usize,
}

impl Scripting {
    /// The interpreter, unless a script runs.
    pub fn interpreter(&self) -> Option<&Interpreter> {
        self.interpreter.as_ref()
    }

    /// From now on only scripts of these digests may be loaded, and no libraries. Digests that
    /// are none name no script.
    pub(crate) fn allow_only<'d>(&mut self, digests: impl IntoIterator<Item = &'d str>) {
        let digests = digests.into_iter().filter_map(|digest| Digest::parse(digest.as_bytes()));
        self.known = Some(digests.collect());
    }

    /// Whether a script may be loaded.
    pub(crate) fn admit_script(&self, code: &[u8]) -> CommandResult {
        match &self.known {
            Some(known) if !known.contains(&Digest::of(code)) => Err(UNKNOWN_CODE),
            _ => Ok(()),
        }
    }

    /// Whether libraries may be loaded.
    pub(crate) fn admit_libraries(&self) -> CommandResult {
        if self.known.is_some() { Err(UNKNOWN_CODE) } else { Ok(()) }
    }

    /// Bytes of all scripts and libraries that are kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        let kept = |it: &Interpreter| it.script_bytes() + it.library_bytes();
        self.interpreter().map_or(0, kept)
    }

    pub(crate) fn usage(&self) -> ScriptUsage {
        self.interpreter().map_or_else(ScriptUsage::default, |interpreter| ScriptUsage {
            machine: interpreter.memory(),
            scripts: interpreter.script_count(),
            script_bytes: interpreter.script_bytes(),
            libraries: interpreter.libraries().count(),
            functions: interpreter.function_count(),
            library_bytes: interpreter.library_bytes(),
        })
    }
}
