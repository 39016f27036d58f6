//! The door: scripts and libraries in, replies out.

use std::ffi::CStr;
use std::fmt::Display;

use crate::context::{Context, Loading, Registered};
use crate::error::{LibraryError, LoadError};
use crate::flags::Flags;
use crate::functions::{FunctionInfo, Libraries, Library};
use crate::host::{Host, Protocol};
use crate::limits::Limits;
use crate::lua::{CallError, Frozen, Function, KILLED, Kind, Raise, Reach, SourceLine, Stack, Vm};
use crate::number::{LUA_DIGITS, format_general};
use crate::reply::{Target, write_error, write_value};
use crate::sandbox::{self, Sandbox};
use crate::scripts::{Digest, Origin, Scripts};
use crate::shebang;

const SCRIPT_NAME: &CStr = c"@user_script";
const FUNCTION_NAME: &CStr = c"@user_function";

/// Lua 5.1 for one server: its scripts, its libraries, and the machine that runs them.
///
/// Costs nothing until the first script comes; then the machine starts, in well under a
/// millisecond.
pub struct Interpreter {
    limits: Limits,
    machine: Option<Machine>,
    scripts: Scripts,
    libraries: Libraries,
}

struct Machine {
    vm: Vm,
    sandbox: Sandbox,
}

/// What a script is called with.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    /// The keys it declared.
    pub keys: &'a [&'a [u8]],
    /// The other arguments.
    pub arguments: &'a [&'a [u8]],
    /// What the client speaks that gets the reply.
    pub protocol: Protocol,
}

/// How a run ended. Its reply is written in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptOutcome {
    /// It returned.
    Returned,
    /// It ended with an error.
    Failed {
        /// The error is one that a command of the script answered with, so the server has
        /// counted it already.
        counted: bool,
    },
    /// The host ended it.
    Killed,
}

impl Interpreter {
    /// What the first line of a script promises, if it is in order; nothing is compiled.
    pub fn promised_flags(code: &[u8]) -> Option<Flags> {
        shebang::of_script(code).ok().map(|(flags, _)| flags)
    }

    /// No machine yet, and nothing kept.
    pub fn new(limits: Limits) -> Self {
        let (scripts, libraries) = (Scripts::default(), Libraries::default());
        Self { limits, machine: None, scripts, libraries }
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes that the machine uses.
    pub fn memory(&self) -> usize {
        self.machine.as_ref().map_or(0, |machine| machine.vm.memory())
    }

    /// The most [work](Limits::tick_work) that there was between two ticks, for those who test
    /// that no library function takes long without one.
    pub fn work_between_ticks_max(&self) -> u64 {
        self.machine.as_ref().map_or(0, |machine| machine.vm.context().work_max())
    }

    /// How many instructions lay between two ticks at the end of the last run: fewer, the longer
    /// its strings are.
    pub fn instructions_between_ticks_max(&self) -> usize {
        self.machine.as_ref().map_or(0, |machine| machine.vm.context().instructions())
    }

    fn machine<'a>(limits: &Limits, machine: &'a mut Option<Machine>) -> &'a mut Machine {
        if machine.is_none() {
            let context = |lua, memory| Context::new(lua, memory, limits.clone());
            let mut vm = Vm::new(context).expect("a state with safe libraries can be made");
            let sandbox = vm.with_stack(sandbox::build).expect("no limit holds yet");
            vm.collect();
            *machine = Some(Machine { vm, sandbox });
        }
        machine.as_mut().expect("made above")
    }
}

// Scripts.
impl Interpreter {
    /// Compiles a script and keeps it, as EVAL and SCRIPT LOAD do. Scripts that are kept already
    /// are not compiled again.
    ///
    /// Fails when the text is no script or too long, or when the cache is full.
    pub fn load_script(&mut self, code: &[u8], origin: Origin) -> Result<Digest, LoadError> {
        let digest = Digest::of(code);
        let is_known = self.scripts.get(&digest).is_some();
        if origin == Origin::Loaded {
            self.scripts.check_room(&digest, code.len(), &self.limits)?;
            self.scripts.pin(&digest);
        }
        if is_known {
            return Ok(digest);
        }
        let limit = self.limits.source_max;
        if code.len() > limit {
            return Err(LoadError::TooLong { limit });
        }
        let (flags, body) = shebang::of_script(code)?;
        let machine = Self::machine(&self.limits, &mut self.machine);
        let function = machine.compile_script(body).map_err(|text: Vec<u8>| {
            LoadError::Compile(String::from_utf8_lossy(&text).into_owned())
        })?;
        self.scripts.add(digest, code, flags, function, origin);
        while let Some(evicted) = self.scripts.evict(&self.limits) {
            machine.vm.release(evicted.function);
        }
        Ok(digest)
    }

    /// What a script promises; none when it is not kept.
    pub fn script_flags(&self, digest: &Digest) -> Option<Flags> {
        self.scripts.get(digest).map(|script| script.flags)
    }

    /// The text of a script.
    pub fn script_code(&self, digest: &Digest) -> Option<&[u8]> {
        self.scripts.get(digest).map(|script| script.code.as_slice())
    }

    /// How many scripts are kept.
    pub fn script_count(&self) -> usize {
        self.scripts.len()
    }

    /// Bytes of text of the scripts kept.
    pub fn script_bytes(&self) -> usize {
        self.scripts.bytes()
    }

    /// Runs a script that is kept and appends its reply to `reply`. `None`, with nothing
    /// appended, when it is not: the answer then is [`NO_SCRIPT`](crate::NO_SCRIPT).
    pub fn run_script(
        &mut self,
        digest: &Digest,
        invocation: Invocation<'_>,
        host: &mut dyn Host,
        reply: &mut Vec<u8>,
    ) -> Option<ScriptOutcome> {
        let script = self.scripts.touch(digest)?;
        let Machine { vm, sandbox } = self.machine.as_mut()?;
        let arguments = |stack: &mut Stack<'_>| {
            stack.context().allocator().note_string(script.code.len());
            set_script_arguments(stack, sandbox, &invocation)?;
            Ok(0)
        };
        let function = (&script.function, Reach::Own);
        Some(run(vm, function, arguments, digest, invocation.protocol, host, reply))
    }

    /// Forgets all scripts.
    pub fn flush_scripts(&mut self) {
        let scripts = self.scripts.take_all();
        let Some(machine) = &mut self.machine else { return };
        for script in scripts {
            machine.vm.release(script.function);
        }
        machine.vm.collect();
    }
}

// Functions.
impl Interpreter {
    /// Loads a library, as FUNCTION LOAD does, and answers its name. `host` hears what the
    /// library logs and gets ticks; commands cannot be called.
    ///
    /// Fails, with everything as before, when the text is no library, does not fit beside the
    /// others, or is there already and not to be replaced.
    pub fn load_library(
        &mut self,
        code: &[u8],
        existing: Existing,
        host: &mut dyn Host,
    ) -> Result<String, LibraryError> {
        let (name, body) = self.name_of(code)?;
        if existing == Existing::Refuse && self.libraries.contains(&name) {
            return Err(LibraryError::Exists(name));
        }
        let machine = Self::machine(&self.limits, &mut self.machine);
        let functions = machine.load_library(body, host)?;
        let library = Library { name: name.clone(), code: code.to_vec(), functions };
        if let Err(error) = self.libraries.check_fit(&library, &self.limits) {
            machine.release_library(library);
            return Err(error);
        }
        if let Some(old) = self.libraries.replace(library) {
            machine.release_library(old);
        }
        Ok(name)
    }

    /// Loads all libraries of a payload, as FUNCTION RESTORE does: they take the place of all that
    /// are there if `existing` is `None`. `host` is as for [`load_library`](Self::load_library).
    ///
    /// Fails, with everything as before, when one of them does, or when `codes` fails.
    pub fn load_libraries<E: From<LibraryError>>(
        &mut self,
        mut codes: impl Iterator<Item = Result<Vec<u8>, E>>,
        existing: Option<Existing>,
        host: &mut dyn Host,
    ) -> Result<(), E> {
        // Aside first, as in Redis: what is there cannot be lost to one that fails.
        let mut new = Libraries::default();
        let mut loaded = codes.try_for_each(|code| Ok(self.load_aside(&mut new, code?, host)?));
        if let Some(existing) = existing.filter(|_| loaded.is_ok()) {
            let is_there = |library: &&Library| self.libraries.contains(&library.name);
            let twice = new.iter().find(is_there).filter(|_| existing == Existing::Refuse);
            loaded = match twice {
                Some(library) => Err(LibraryError::Exists(library.name.clone()).into()),
                None => self.libraries.check_join(&new, &self.limits).map_err(E::from),
            };
        }
        let gone = match (&loaded, existing) {
            (Ok(()), Some(_)) => self.libraries.join(new),
            (Ok(()), None) => std::mem::replace(&mut self.libraries, new).take_all(),
            (Err(_), _) => new.take_all(),
        };
        if let Some(machine) = self.machine.as_mut().filter(|_| !gone.is_empty()) {
            gone.into_iter().for_each(|library| machine.release_library(library));
            machine.vm.collect();
        }
        loaded
    }

    fn load_aside(
        &mut self,
        new: &mut Libraries,
        code: Vec<u8>,
        host: &mut dyn Host,
    ) -> Result<(), LibraryError> {
        let (name, body) = self.name_of(&code)?;
        if new.contains(&name) {
            return Err(LibraryError::Exists(name));
        }
        let machine = Self::machine(&self.limits, &mut self.machine);
        let functions = machine.load_library(body, host)?;
        let library = Library { name, code, functions };
        if let Err(error) = new.check_fit(&library, &self.limits) {
            machine.release_library(library);
            return Err(error);
        }
        new.replace(library);
        Ok(())
    }

    /// What the first line of a library says, and what follows it.
    fn name_of<'c>(&self, code: &'c [u8]) -> Result<(String, &'c [u8]), LibraryError> {
        let limit = self.limits.source_max;
        match code.len() > limit {
            true => Err(LibraryError::TooLong { limit }),
            false => shebang::of_library(code),
        }
    }

    /// The function of that name.
    pub fn function(&self, name: &str) -> Option<FunctionInfo<'_>> {
        self.libraries.info(name)
    }

    /// All libraries, in the order of loading.
    pub fn libraries(&self) -> impl Iterator<Item = &Library> {
        self.libraries.iter()
    }

    /// How many functions there are.
    pub fn function_count(&self) -> usize {
        self.libraries.function_count()
    }

    /// Bytes of text of all libraries.
    pub fn library_bytes(&self) -> usize {
        self.libraries.bytes()
    }

    /// Calls a function and appends its reply to `reply`. `None`, with nothing appended, when
    /// there is none of that name.
    pub fn call_function(
        &mut self,
        name: &str,
        invocation: Invocation<'_>,
        host: &mut dyn Host,
        reply: &mut Vec<u8>,
    ) -> Option<ScriptOutcome> {
        let registered = self.libraries.registered(name)?;
        let vm = &mut self.machine.as_mut()?.vm;
        let arguments = |stack: &mut Stack<'_>| {
            push_strings(stack, invocation.keys)?;
            push_strings(stack, invocation.arguments)?;
            Ok(2)
        };
        let function = (&registered.callback, Reach::Kept);
        Some(run(vm, function, arguments, &name, invocation.protocol, host, reply))
    }

    /// Forgets a library. Whether there was one.
    pub fn delete_library(&mut self, name: &str) -> bool {
        match (self.libraries.remove(name), &mut self.machine) {
            (Some(library), Some(machine)) => {
                machine.release_library(library);
                true
            }
            _ => false,
        }
    }

    /// Forgets all libraries.
    pub fn flush_libraries(&mut self) {
        let libraries = self.libraries.take_all();
        let Some(machine) = &mut self.machine else { return };
        for library in libraries {
            machine.release_library(library);
        }
        machine.vm.collect();
    }
}

/// What happens to a library of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and loading fails.
    Refuse,
    /// It gives way, once the new one has loaded.
    Replace,
}

impl Machine {
    fn compile_script(&mut self, body: &[u8]) -> Result<Function, Vec<u8>> {
        let environment = self.vm.with_stack(|stack| {
            let environments = stack.context().environments.borrow();
            stack.push_function(&environments.as_ref().expect("the sandbox stands").script);
            stack.keep()
        });
        let function = self.vm.compile(body, SCRIPT_NAME, &environment);
        self.vm.release(environment);
        function
    }

    /// Runs the text of a library in globals of its own, which show little while it loads and
    /// everything once its functions are called.
    fn load_library(
        &mut self,
        body: &[u8],
        host: &mut dyn Host,
    ) -> Result<Vec<Registered>, LibraryError> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let loading_globals = &self.sandbox.loading_globals;
        let environment = self.vm.with_stack(|stack| {
            stack.push_function(loading_globals);
            Frozen::freeze(stack);
            stack.keep()
        });
        let memory = self.vm.context().allocator();
        memory.begin_run(Reach::Kept);
        let compiled = self.vm.compile(body, FUNCTION_NAME, &environment);
        self.vm.context().allocator().keep_longest();
        let chunk = match compiled {
            Ok(chunk) => chunk,
            Err(message) => {
                self.vm.release(environment);
                return Err(LibraryError::Compile(text(message)));
            }
        };
        let outcome = self.register(&chunk, host);
        let function_globals = &self.sandbox.function_globals;
        self.vm.with_stack(|stack| {
            stack.push_function(&environment);
            stack.push_function(function_globals);
            Frozen::show_instead(stack, 1);
        });
        self.vm.release(chunk);
        self.vm.release(environment);
        let functions = self.vm.context().loading.take().unwrap_or_default().functions;
        let error = match outcome {
            Ok(()) if functions.is_empty() => LibraryError::Empty,
            Ok(()) => return Ok(functions),
            Err(message) => LibraryError::Register(text(message)),
        };
        self.release_functions(functions);
        Err(error)
    }

    /// The first run of a library. Fails with the text of its error.
    fn register(&mut self, chunk: &Function, host: &mut dyn Host) -> Result<(), Vec<u8>> {
        self.vm.context().loading.replace(Some(Loading::default()));
        let finish = |stack: &mut Stack<'_>, ended: Result<(), CallError>| {
            ended.map_err(|_| Failure::on_top(stack).text)
        };
        self.vm.call(chunk, Reach::Kept, host, |_| Ok(0), finish)
    }

    fn release_library(&mut self, library: Library) {
        self.release_functions(library.functions);
    }

    fn release_functions(&mut self, functions: Vec<Registered>) {
        for function in functions {
            self.vm.release(function.callback);
        }
    }
}

/// Runs a compiled function and writes what it returns or fails with.
fn run(
    vm: &mut Vm,
    (function, reach): (&Function, Reach),
    arguments: impl FnOnce(&mut Stack<'_>) -> Result<i32, Raise>,
    name: &dyn Display,
    client: Protocol,
    host: &mut dyn Host,
    reply: &mut Vec<u8>,
) -> ScriptOutcome {
    let finish = |stack: &mut Stack<'_>, ended: Result<(), CallError>| {
        let context = stack.context();
        let Err(ended) = ended else {
            let script = context.protocol.get();
            let room = context.limits().reply_max;
            let start = reply.len();
            write_value(stack, &mut Target { context, bytes: reply, client, script, room });
            if !context.is_killed() {
                return ScriptOutcome::Returned;
            }
            reply.truncate(start);
            write_error(reply, format!("ERR {KILLED} script: {name}").as_bytes());
            return ScriptOutcome::Killed;
        };
        let failure = Failure::on_top(stack);
        let place = context.take_error_place().filter(|_| ended == CallError::Raised);
        write_error(reply, &failure.line(name, place));
        match context.is_killed() {
            true => ScriptOutcome::Killed,
            false => ScriptOutcome::Failed { counted: failure.counted },
        }
    };
    vm.call(function, reach, host, arguments, finish)
}

/// What a script died of.
struct Failure {
    /// Code and message.
    text: Vec<u8>,
    counted: bool,
}

impl Failure {
    /// Reads the error on top of the stack.
    fn on_top(stack: &mut Stack<'_>) -> Self {
        let index = stack.top();
        if stack.kind(index) == Kind::Table {
            return Self::of_table(stack, index);
        }
        let text = match stack.kind(index) {
            Kind::String => stack.bytes(index).unwrap_or_default().to_vec(),
            Kind::Number => {
                let number = stack.number(index).unwrap_or_default();
                format_general(number, LUA_DIGITS).into_bytes()
            }
            Kind::Boolean => stack.truth(index).to_string().into_bytes(),
            Kind::Nil | Kind::None => b"nil".to_vec(),
            kind => format!("{}: {:#016x}", kind.name(), stack.address(index)).into_bytes(),
        };
        Self { text: [b"ERR ", text.as_slice()].concat(), counted: false }
    }

    fn of_table(stack: &mut Stack<'_>, index: i32) -> Self {
        stack.get_field(index, c"ignore_error_stats_update");
        let counted = stack.truth(-1);
        stack.get_field(index, c"err");
        stack.stringify(-1);
        let text = stack.bytes(-1).map_or_else(|| b"ERR unknown error".to_vec(), <[u8]>::to_vec);
        Self { text, counted }
    }

    fn line(&self, name: &dyn Display, place: Option<SourceLine>) -> Vec<u8> {
        // Texts end at a zero, as strings of C do.
        let text = self.text.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut line = text.to_vec();
        if let Some(SourceLine { source, line: number }) = place {
            line.extend_from_slice(format!(" script: {name}, on ").as_bytes());
            line.extend_from_slice(&source);
            line.extend_from_slice(format!(":{number}.").as_bytes());
        }
        line
    }
}

fn set_script_arguments(
    stack: &mut Stack<'_>,
    sandbox: &Sandbox,
    invocation: &Invocation<'_>,
) -> Result<(), Raise> {
    stack.push_function(&sandbox.script_globals);
    let globals = stack.top();
    for (name, strings) in [(c"KEYS", invocation.keys), (c"ARGV", invocation.arguments)] {
        push_strings(stack, strings)?;
        stack.set_field(globals, name);
    }
    stack.pop(1);
    Ok(())
}

fn push_strings(stack: &mut Stack<'_>, strings: &[&[u8]]) -> Result<(), Raise> {
    stack.push_table(strings.len(), 0)?;
    let table = stack.top();
    for (position, string) in (1..).zip(strings) {
        stack.push_bytes(string)?;
        stack.set_item(table, position)?;
    }
    Ok(())
}
