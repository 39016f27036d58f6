//! What natives share with the interpreter: the host, the limits, and the state of the run.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mlua::Lua;

use crate::flags::Flags;
use crate::host::{Host, Protocol, Tick};
use crate::library::cjson::Settings;
use crate::limits::Limits;
use crate::lua::{Function, HostSlot, Place};
use crate::random::Random;

/// Shared by all natives of one virtual machine. Scripts run one at a time, so cells suffice.
pub(crate) struct Context {
    lua: Lua,
    limits: Limits,
    /// Bytes at which the run has used up its memory.
    memory_limit: Cell<usize>,
    host: HostSlot,
    /// What the host panicked with, on its way around Lua's frames.
    host_panic: RefCell<Option<Box<dyn Any + Send>>>,
    killed: Cell<bool>,
    ticks: Cell<u32>,
    error_place: RefCell<Option<Place>>,
    /// The protocol of `redis.setresp`.
    pub(crate) protocol: Cell<Protocol>,
    /// Present while a library loads.
    pub(crate) loading: RefCell<Option<Vec<Registered>>>,
    pub(crate) random: Cell<Random>,
    /// What `cjson.encode_max_depth` and its like set, for this run.
    pub(crate) json: Cell<Settings>,
    /// The buffer of command replies, kept for its room.
    pub(crate) reply: RefCell<Vec<u8>>,
    /// The globals of EVAL scripts and of functions, for `loadstring`.
    pub(crate) environments: RefCell<Option<Environments>>,
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
    pub(crate) fn new(lua: Lua, limits: Limits) -> Self {
        Self {
            lua,
            limits,
            memory_limit: Cell::new(usize::MAX),
            host: HostSlot::default(),
            host_panic: RefCell::new(None),
            killed: Cell::new(false),
            ticks: Cell::new(0),
            error_place: RefCell::new(None),
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
        if self.is_loading() && self.ticks.get() >= self.limits.library_ticks_max {
            return Tick::Kill;
        }
        self.with_host(|host| host.tick()).unwrap_or(Tick::Kill)
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
        let place = Place { source: source.to_vec(), line };
        // Called while natives may be on the stack; none of them holds this borrow.
        self.error_place.replace(Some(place));
    }

    pub(crate) fn forget_error_place(&self) {
        self.error_place.replace(None);
    }

    pub(crate) fn take_error_place(&self) -> Option<Place> {
        self.error_place.take()
    }
}

// Memory. Lua's allocator knows the limit only while Lua itself runs: there a failed allocation
// raises an error. In natives it must not, so there the limit is lifted and asked for instead.
impl Context {
    /// Bytes in use.
    pub(crate) fn memory(&self) -> usize {
        self.lua.used_memory()
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
        self.change_limit(UNLIMITED)
    }

    /// Until the answer is dropped, the allocator fails at the limit.
    pub(crate) fn restore_limit(&self) -> LimitChange<'_> {
        self.change_limit(self.memory_limit.get().min(isize::MAX as usize))
    }

    fn change_limit(&self, limit: usize) -> LimitChange<'_> {
        let before = self.lua.set_memory_limit(limit).unwrap_or(UNLIMITED);
        LimitChange { context: self, before }
    }
}

/// mlua's word for no limit.
const UNLIMITED: usize = 0;

/// Puts the limit of before back when dropped.
pub(crate) struct LimitChange<'a> {
    context: &'a Context,
    before: usize,
}

impl Drop for LimitChange<'_> {
    fn drop(&mut self) {
        // Fails only for states with an allocator other than mlua's.
        let _ = self.context.lua.set_memory_limit(self.before);
    }
}
