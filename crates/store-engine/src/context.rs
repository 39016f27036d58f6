//! What a command works with.

use store_resp::{OwnedRequest, ReplyWriter, Request};

use crate::busy::BusyHandler;
use crate::error::{CommandError, CommandResult};
use crate::keyspace::Keyspace;
use crate::registry::RowId;
use crate::session::{Blocked, Session, TimeoutReply, session_flag};
use crate::state::ServerState;

/// Who asked for the command to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A client, with a request of its own.
    Client,
    /// EXEC: nothing may block.
    Transaction,
    /// A script: nothing may block.
    Script,
    /// A blocked session whose key may be ready: the same request, once more.
    Resumed,
}

/// What is propagated for a command that changed data.
#[derive(Debug, Default)]
pub enum Propagate {
    /// The request as it came.
    #[default]
    Verbatim,
    /// The request as it came, even if nothing changed here.
    Always,
    /// These requests instead, chosen so that replaying them gives the same data.
    Instead(Vec<OwnedRequest>),
}

/// Everything a command may touch, in parts that can be borrowed apart.
pub struct Context<'a> {
    /// The keys, with the session's database selected.
    pub db: &'a mut Keyspace,
    /// The rest of the server.
    pub server: &'a mut ServerState,
    /// Who asks.
    pub session: &'a mut Session,
    /// The driver, to serve others while a script runs.
    pub(crate) busy_handler: &'a mut (dyn BusyHandler + 'a),
    /// Where the reply goes.
    pub reply: ReplyWriter,
    /// Which row runs.
    pub row: RowId,
    /// Who asked for it.
    pub caller: Caller,
    /// With [`Caller::Resumed`], the key that was signalled: the only one to look at, as in
    /// Redis 7.0.
    pub ready_key: Option<&'a [u8]>,
    /// What to propagate when data changed.
    pub propagate: Propagate,
    /// A command ran: no gate refused it, and it was not queued.
    pub(crate) ran: bool,
    /// Set by [`block`](Self::block): the engine will keep the session waiting.
    pub(crate) blocked: Option<Box<Blocked>>,
}

impl<'a> Context<'a> {
    /// For one request of a session, whose database the keyspace has selected. The reply follows
    /// what the session has yet to read: [`ReplyWriter::into_output`] goes back to it.
    #[inline]
    pub(crate) fn new(
        db: &'a mut Keyspace,
        server: &'a mut ServerState,
        session: &'a mut Session,
        busy_handler: &'a mut (dyn BusyHandler + 'a),
    ) -> Self {
        let output = std::mem::take(&mut session.output);
        Self {
            reply: ReplyWriter::onto_output(output, session.protocol),
            db,
            server,
            session,
            busy_handler,
            row: RowId::FIRST,
            caller: Caller::Client,
            ready_key: None,
            propagate: Propagate::Verbatim,
            ran: false,
            blocked: None,
        }
    }
}

impl Context<'_> {
    /// Propagates `args` instead of the request; more than one call adds more requests.
    ///
    /// For what does not give the same data when replayed: relative times, random choices.
    pub fn propagate_instead(&mut self, args: &[&[u8]]) {
        if !self.db.changes.propagating {
            return;
        }
        self.propagate_owned(OwnedRequest::from_args(args.iter().copied()));
    }

    /// The same with a request that shares its large arguments.
    pub fn propagate_owned(&mut self, request: OwnedRequest) {
        match &mut self.propagate {
            Propagate::Instead(requests) => requests.push(request),
            Propagate::Verbatim | Propagate::Always => {
                self.propagate = Propagate::Instead(vec![request]);
            }
        }
    }

    /// Suspends the session until the driver answers. CLIENT UNBLOCK does not end that.
    pub fn wait_for_driver(&mut self, request: Request<'_>) -> CommandResult {
        let number = self.server.migrations.next_number();
        self.block(request, std::iter::empty(), 0, TimeoutReply::Driver(number))
    }

    /// Nothing for the caller yet: waits until one of `keys` gets something, then `request`
    /// runs again; when `timeout_ms` has passed (0: never), answers `on_timeout`. Where nothing
    /// may block, answers that at once.
    pub fn block<'k>(
        &mut self,
        request: Request<'_>,
        keys: impl Iterator<Item = &'k [u8]>,
        timeout_ms: u64,
        on_timeout: TimeoutReply,
    ) -> CommandResult {
        let is_link = self.session.has(session_flag::PRIMARY_LINK);
        if matches!(self.caller, Caller::Transaction | Caller::Script) || is_link {
            on_timeout.write(&mut self.reply);
            return Ok(());
        }
        let deadline_ms = (timeout_ms > 0).then(|| self.db.now_ms().saturating_add(timeout_ms));
        let keys: Vec<Box<[u8]>> = keys.map(Box::from).collect();
        self.blocked = Some(Box::new(Blocked {
            request: request.to_owned(),
            asked: None,
            row: self.row,
            key_bytes: Blocked::key_bytes(&keys),
            keys,
            db: self.db.selected(),
            deadline_ms,
            on_timeout,
            needs_key: false,
        }));
        Ok(())
    }

    /// Parses the number of a database.
    pub fn database(&self, arg: &[u8]) -> Result<usize, CommandError> {
        let number = usize::try_from(integer32(arg)?).map_err(|_| CommandError::DB_INDEX)?;
        if number < self.db.database_count() { Ok(number) } else { Err(CommandError::DB_INDEX) }
    }

    /// Fails with `text` where this server is a node of a cluster, which has one database.
    pub fn refuse_in_cluster(&self, text: &'static str) -> CommandResult {
        match self.server.cluster {
            Some(_) => Err(CommandError::text(text)),
            None => Ok(()),
        }
    }

    /// Selects a database for the session.
    pub fn select(&mut self, db: usize) {
        self.session.db = db;
        self.db.select(db);
    }

    /// Whether the session is between MULTI and EXEC.
    pub fn in_multi(&self) -> bool {
        self.session.has(session_flag::IN_MULTI)
    }
}

impl TimeoutReply {
    pub(crate) fn write(self, reply: &mut ReplyWriter) {
        match self {
            TimeoutReply::Null | TimeoutReply::Driver(_) => reply.null(),
            TimeoutReply::NullArray => reply.null_array(),
            TimeoutReply::Replicas(_) => reply.integer(0),
        }
    }
}

/// Parses an integer argument as all commands do.
#[inline]
pub fn integer(arg: &[u8]) -> Result<i64, CommandError> {
    store_resp::parse_integer(arg).ok_or(CommandError::NOT_INTEGER)
}

/// Parses an integer argument that must lie within bounds.
pub fn integer_within(arg: &[u8], min: i64, max: i64) -> Result<i64, CommandError> {
    let number = integer(arg)?;
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    // The missing word is missing in Redis, and clients compare.
    let text = format!("ERR value is out of range, value must between {min} and {max}");
    Err(CommandError::new(text))
}

/// Parses an integer argument that C's `int` must hold.
pub fn integer32(arg: &[u8]) -> Result<i32, CommandError> {
    integer_within(arg, i32::MIN.into(), i32::MAX.into()).map(|number| number as i32)
}

/// Whether an argument is a word, in any case.
#[inline]
pub fn is_word(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
