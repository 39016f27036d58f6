//! What natives share with the interpreter: the host, the limits, and the state of the run.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mlua::Lua;

use crate::flags::Flags;
use crate::host::{Host, Protocol, Tick};
use crate::library::cjson::Settings;
use crate::limits::Limits;
use crate::lua::{Function, HostSlot, Memory, Raise, SourceLine};
use crate::random::Random;

/// Shared by all natives of one virtual machine. Scripts run one at a time, so cells suffice.
pub(crate) struct Context {
    // Before the state: it gives the state its own allocator back.
    memory: Memory,
    _lua: Lua,
    limits: Limits,
    /// Bytes at which the run has used up its memory.
    memory_limit: Cell<usize>,
    /// Units of work since the last tick.
    work: Cell<u64>,
    /// The most units between two ticks, of all runs.
    work_max: Cell<u64>,
    /// Instructions after which the hook fires.
    instructions: Cell<usize>,
    host: HostSlot,
    /// What the host panicked with, on its way around Lua's frames.
    host_panic: RefCell<Option<Box<dyn Any + Send>>>,
    killed: Cell<bool>,
    ticks: Cell<u32>,
    error_place: RefCell<Option<SourceLine>>,
    /// The error that is raised next was noted where it came from.
    keeps_error_place: Cell<bool>,
    /// The protocol of `redis.setresp`.
    pub(crate) protocol: Cell<Protocol>,
    /// Present while a library loads.
    pub(crate) loading: RefCell<Option<Loading>>,
    pub(crate) random: Cell<Random>,
    /// What `cjson.encode_max_depth` and its like set, for this run.
    pub(crate) json: Cell<Settings>,
    /// The buffer of command replies, kept for its room.
    pub(crate) reply: RefCell<Vec<u8>>,
    /// The globals of EVAL scripts and of functions, for `loadstring`.
    pub(crate) environments: RefCell<Option<Environments>>,
}

/// What a library has registered so far.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    pub(crate) functions: Vec<Registered>,
    /// Their names.
    pub(crate) names: BTreeSet<String>,
}

/// A function that a library registered.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) flags: Flags,
    pub(crate) callback: Function,
}

/// The two sets of globals.
#[derive(Debug)]
pub(crate) struct Environments {
    pub(crate) script: Function,
    pub(crate) function: Function,
}

impl Context {
    pub(crate) fn new(lua: Lua, memory: Memory, limits: Limits) -> Self {
        Self {
            memory,
            _lua: lua,
            limits,
            memory_limit: Cell::new(usize::MAX),
            work: Cell::new(0),
            work_max: Cell::new(0),
            instructions: Cell::new(0),
            host: HostSlot::default(),
            host_panic: RefCell::new(None),
            killed: Cell::new(false),
            ticks: Cell::new(0),
            error_place: RefCell::new(None),
            keeps_error_place: Cell::new(false),
            protocol: Cell::new(Protocol::Resp2),
            loading: RefCell::new(None),
            random: Cell::new(Random::default()),
            json: Cell::new(Settings::default()),
            reply: RefCell::new(Vec::new()),
            environments: RefCell::new(None),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Runs `work` with the host for natives to call, and with nothing left of the last run.
    pub(crate) fn run<R>(&self, host: &mut dyn Host, work: impl FnOnce() -> R) -> R {
        self.killed.set(false);
        self.ticks.set(0);
        self.work.set(0);
        self.keeps_error_place.set(false);
        self.protocol.set(Protocol::Resp2);
        self.json.set(Settings::default());
        let random = self.random.get();
        let result = self.host.lend(host, work);
        if let Some(panic) = self.host_panic.take() {
            resume_unwind(panic);
        }
        // A script that seeds the generator does so for itself alone.
        self.random.set(self.random.get().after_run(random));
        result
    }

    /// Runs `work` with the host, if there is one.
    ///
    /// A panic of the host must not unwind through Lua's frames: it ends the script, and unwinds
    /// on from where the script was started.
    pub(crate) fn with_host<R>(&self, work: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(|| self.host.with(work))) {
            Ok(result) => result,
            Err(panic) => {
                self.host_panic.replace(Some(panic));
                self.kill();
                None
            }
        }
    }

    /// One tick of the running script.
    pub(crate) fn tick(&self) -> Tick {
        self.ticks.set(self.ticks.get().saturating_add(1));
        self.work_max.set(self.work_max.get().max(self.work.replace(0)));
        self.memory.note_tick();
        if self.is_loading() && self.ticks.get() >= self.limits.library_ticks_max {
            return Tick::Kill;
        }
        self.with_host(|host| host.tick()).unwrap_or(Tick::Kill)
    }

    /// Pays for work that a library function does, and ticks when it was enough.
    ///
    /// Fails when the host ends the script.
    #[inline]
    pub(crate) fn spend(&self, units: u64) -> Result<(), Raise> {
        let units = units.saturating_mul(self.memory.slowness() as u64);
        let work = self.work.get().saturating_add(units);
        self.work.set(work);
        if work < self.limits.tick_work { Ok(()) } else { self.tick_or_kill() }
    }

    /// Pays for bytes that are copied or passed over.
    pub(crate) fn spend_bytes(&self, count: usize) -> Result<(), Raise> {
        self.spend((count / 16) as u64)
    }

    /// As [`tick`](Self::tick). Fails when the script ends.
    #[cold]
    pub(crate) fn tick_or_kill(&self) -> Result<(), Raise> {
        if !self.is_killed() && self.tick() == Tick::Kill {
            self.kill();
        }
        if self.is_killed() { Err(Raise::Killed) } else { Ok(()) }
    }

    /// Whether strings are so long that ticks come after fewer instructions.
    pub(crate) fn has_long_strings(&self) -> bool {
        self.memory.instructions_max() < self.limits.tick_instructions as usize
            || self.memory.slowness() > 1
    }

    /// Instructions until the next tick.
    pub(crate) fn instructions_max(&self) -> usize {
        let most = (self.limits.tick_instructions as usize).min(self.memory.instructions_max());
        let most = (most / self.memory.slowness()).max(1);
        self.instructions.set(most);
        most
    }

    /// What the last hook was set to.
    pub(crate) fn instructions(&self) -> usize {
        self.instructions.get()
    }

    /// The most units of work that there were between two ticks.
    pub(crate) fn work_max(&self) -> u64 {
        self.work_max.get().max(self.work.get())
    }

    pub(crate) fn kill(&self) {
        self.killed.set(true);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.get()
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.loading.borrow().is_some()
    }

    pub(crate) fn note_error_place(&self, source: &[u8], line: i32) {
        let place = SourceLine { source: source.to_vec(), line };
        // Called while natives may be on the stack; none of them holds this borrow.
        self.error_place.replace(Some(place));
    }

    /// Whether the error that is raised was noted where it came from. Asked once.
    pub(crate) fn takes_kept_place(&self) -> bool {
        self.keeps_error_place.replace(false)
    }

    /// The error that is raised next is one that came from within.
    pub(crate) fn keep_error_place(&self) {
        self.keeps_error_place.set(true);
    }

    pub(crate) fn forget_error_place(&self) {
        self.keeps_error_place.set(false);
        self.error_place.replace(None);
    }

    pub(crate) fn take_error_place(&self) -> Option<SourceLine> {
        self.error_place.take()
    }
}

// Memory. Lua's allocator knows the limit only while Lua itself runs: there a failed allocation
// raises an error. In natives it must not, so there the limit is lifted and asked for instead.
impl Context {
    /// Bytes in use.
    pub(crate) fn memory(&self) -> usize {
        self.memory.used()
    }

    pub(crate) fn allocator(&self) -> &Memory {
        &self.memory
    }

    /// Grants a new run its memory.
    pub(crate) fn start_limit(&self) {
        self.memory_limit.set(self.memory().saturating_add(self.limits.memory_max));
    }

    /// Between runs nothing is limited: what lies there was granted by other limits.
    pub(crate) fn end_limit(&self) {
        self.memory_limit.set(usize::MAX);
    }

    pub(crate) fn is_over_limit(&self) -> bool {
        self.memory() > self.memory_limit.get()
    }

    pub(crate) fn has_memory_for(&self, more: usize) -> bool {
        self.memory().saturating_add(more) <= self.memory_limit.get()
    }

    /// Until the answer is dropped, the allocator does not fail.
    pub(crate) fn lift_limit(&self) -> LimitChange<'_> {
        self.change_limit(usize::MAX)
    }

    /// Until the answer is dropped, the allocator fails at the limit.
    pub(crate) fn restore_limit(&self) -> LimitChange<'_> {
        self.change_limit(self.memory_limit.get())
    }

    fn change_limit(&self, limit: usize) -> LimitChange<'_> {
        LimitChange { context: self, before: self.memory.set_limit(limit) }
    }
}

/// Puts the limit of before back when dropped.
pub(crate) struct LimitChange<'a> {
    context: &'a Context,
    before: usize,
}

impl Drop for LimitChange<'_> {
    fn drop(&mut self) {
        self.context.memory.set_limit(self.before);
    }
}
