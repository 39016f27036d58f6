//! What a running script asks of the server around it.

/// The server, as a running script sees it.
///
/// Every method is called on the thread that runs the script, while nothing else of the
/// interpreter runs. The implementation holds the *caller's* identity: permissions are checked
/// anew in every [`call`](Self::call), never once for the whole script.
pub trait Host {
    /// Runs one command and appends its one reply to `reply`, as RESP of the given `protocol`.
    ///
    /// `arguments` has at least one element. Refusals (unknown command, wrong number of
    /// arguments, not allowed from scripts, no permission, a write from a read-only script) are
    /// error replies with the texts that Redis has for scripts.
    fn call(&mut self, arguments: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>);

    /// Whether the caller may run this command, which is not run.
    fn acl_check(&mut self, arguments: &[&[u8]]) -> AclAnswer;

    /// A line of `redis.log`. The text is the script's: any bytes.
    fn log(&mut self, level: LogLevel, text: &[u8]);

    /// `redis.set_repl`: where the writes that follow are propagated to.
    fn set_replication(&mut self, replication: Replication);

    /// The script returns an error, alone or inside of a list or map. `is_counted`: a command of
    /// the script answered with it, so the server has counted it already.
    fn returned_error(&mut self, text: &[u8], is_counted: bool) {
        let _ = (text, is_counted);
    }

    /// Called every [`tick_instructions`](crate::Limits::tick_instructions): the moment to serve
    /// other clients and to look for SCRIPT KILL.
    fn tick(&mut self) -> Tick;
}

/// Which generation of RESP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What every client and every script starts with.
    #[default]
    Resp2,
    /// With maps, sets, doubles and booleans of their own.
    Resp3,
}

/// What [`Host::acl_check`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclAnswer {
    /// The caller may run it.
    Allowed,
    /// The caller may not.
    Denied,
    /// There is no such command.
    UnknownCommand,
}

/// How much a line of the log matters: the levels of `redis.log`, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// What only those who look for a fault want to see.
    Debug,
    /// What is rarely worth a look.
    Verbose,
    /// What operators expect to see.
    Notice,
    /// What they should look into.
    Warning,
}

/// Where the writes of a script go besides the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// To the append-only file.
    pub to_file: bool,
    /// To the replicas.
    pub to_replicas: bool,
}

/// Whether a script goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// It does.
    Continue,
    /// It ends with an error now, whatever `pcall` it sits in.
    Kill,
}
