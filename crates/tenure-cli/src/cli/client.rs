//! One person's or script's dialogue with a store: a command goes out, its replies are printed.

use std::io::{self, Write};

use store_client::cluster::{Attempts, Redirect};
use store_resp::{Protocol, Reply};
use tenure::Secret;

use super::connection::Connection;
use super::error::ClientError;
use super::format::Form;
use super::target::Target;
use super::terminal::Interrupt;

/// A dialogue, connected or not.
pub(super) struct Client {
    pub(super) target: Target,
    pub(super) form: Form,
    /// Hears Ctrl-C where it must not end the program.
    pub(super) interrupt: Option<Interrupt>,
    /// What to do when a node of a cluster says that another one has the key.
    pub(super) redirections: Redirections,
    connection: Option<Connection>,
    /// Between MULTI and EXEC.
    pub(super) in_transaction: bool,
}

/// What happens to MOVED and ASK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redirections {
    /// They are errors like all others.
    Shown,
    Followed,
    /// Followed, and a line says so, as in redis-cli for all but a single command.
    FollowedAndTold,
}

/// How one attempt at a command ended.
enum Attempt {
    Over(RequestOutcome),
    Redirected(Redirect),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    Fine,
    /// The store answered with an error.
    ErrorReply,
}

/// What comes back for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    One,
    /// Confirmations, which are pushes in RESP3.
    Confirmations(usize),
    /// Messages without end.
    Stream,
    /// Nothing: the store was told to be silent.
    Nothing,
    /// The end of the connection, or an error.
    Shutdown,
}

impl Client {
    pub(super) fn new(target: Target, form: Form) -> Self {
        let redirections = Redirections::Shown;
        let (interrupt, connection) = (None, None);
        Self { target, form, interrupt, redirections, connection, in_transaction: false }
    }

    /// The connection, made when there is none.
    pub(super) fn connection(&mut self) -> Result<&mut Connection, ClientError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.target)?,
        };
        Ok(self.connection.insert(connection))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Drops a connection that the other side has closed; true when there was one.
    pub(super) fn notice_loss(&mut self) -> bool {
        let is_lost = self.connection.as_mut().is_some_and(|connection| !connection.is_alive());
        if is_lost {
            self.disconnect();
        }
        is_lost
    }

    /// The next command connects again.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
        self.in_transaction = false;
    }

    /// Runs one command and prints what comes back.
    pub(super) fn run(&mut self, words: &[Vec<u8>]) -> Result<RequestOutcome, ClientError> {
        let outcome = self.exchange(words);
        if let Err(error) = &outcome
            && !matches!(error, ClientError::Local(_) | ClientError::Usage(_))
        {
            self.disconnect();
        }
        outcome
    }

    fn exchange(&mut self, words: &[Vec<u8>]) -> Result<RequestOutcome, ClientError> {
        let mut attempts = Attempts::default();
        let mut is_asking = false;
        loop {
            // A node that is asked once too often has its words shown.
            let follows = self.redirections != Redirections::Shown && attempts.may_hop();
            match self.attempt(words, is_asking, follows)? {
                Attempt::Over(outcome) => return Ok(outcome),
                Attempt::Redirected(redirect) => is_asking = self.follow_to(redirect)?,
            }
        }
    }

    /// Connects to the node that was named, and stays there. True if it must hear ASKING first.
    fn follow_to(&mut self, redirect: Redirect) -> Result<bool, ClientError> {
        let is_ask = matches!(redirect, Redirect::Ask { .. });
        if let Redirect::Moved { slot, to } | Redirect::Ask { slot, to } = redirect {
            if self.redirections == Redirections::FollowedAndTold {
                let line = format!("-> Redirected to slot [{slot}] located at {to}\n");
                print(line.as_bytes())?;
            }
            self.target.move_to(to);
            self.disconnect();
        }
        Ok(is_ask)
    }

    /// The redirection in a reply. A transaction cannot be followed: what was queued stays behind.
    fn redirection(&self, reply: &Reply) -> Option<Redirect> {
        let Reply::Error(text) = reply else { return None };
        let redirect = Redirect::from_text(text, &self.target.node())?;
        let names_a_node = matches!(redirect, Redirect::Moved { .. } | Redirect::Ask { .. });
        (names_a_node && !self.in_transaction).then_some(redirect)
    }

    fn attempt(
        &mut self,
        words: &[Vec<u8>],
        is_asking: bool,
        follows: bool,
    ) -> Result<Attempt, ClientError> {
        if is_asking {
            self.connection()?.ask(&["ASKING"])?;
        }
        self.connection()?.send(words)?;
        let document = is_document(words);
        let expected = expected(words);
        let mut left = match expected {
            Expected::Nothing => return Ok(Attempt::Over(RequestOutcome::Fine)),
            Expected::Confirmations(count) => count,
            _ => 1,
        };
        loop {
            let reply = match self.receive() {
                Err(ClientError::Lost(_)) if expected == Expected::Shutdown => {
                    self.disconnect();
                    return Ok(Attempt::Over(RequestOutcome::Fine));
                }
                other => other?,
            };
            if follows && let Some(redirect) = self.redirection(&reply) {
                return Ok(Attempt::Redirected(redirect));
            }
            self.show(&reply, document)?;
            let is_push = matches!(reply, Reply::Push(_));
            if is_push && !matches!(expected, Expected::Stream | Expected::Confirmations(_)) {
                continue;
            }
            if let Reply::Error(_) = reply {
                self.note(words, &reply);
                return Ok(Attempt::Over(RequestOutcome::ErrorReply));
            }
            if expected == Expected::Stream && reply != Reply::Simple("QUEUED".into()) {
                return self.follow().map(Attempt::Over);
            }
            left -= 1;
            if left == 0 {
                self.note(words, &reply);
                return Ok(Attempt::Over(RequestOutcome::Fine));
            }
        }
    }

    /// Prints messages until Ctrl-C or the end of the connection.
    fn follow(&mut self) -> Result<RequestOutcome, ClientError> {
        if self.interrupt.is_some() && self.form == Form::Readable {
            eprintln!("Reading messages... (press Ctrl-C to quit)");
        }
        loop {
            let message = self.receive()?;
            self.show(&message, false)?;
        }
    }

    fn receive(&mut self) -> Result<Reply, ClientError> {
        let interrupt = self.interrupt.as_ref();
        let connection = self.connection.as_mut().expect("it was opened to send the request");
        connection.receive(interrupt)
    }

    fn show(&self, reply: &Reply, document: bool) -> Result<(), ClientError> {
        print(&self.form.print(reply, document))
    }

    /// Remembers what a reconnection must restore and what the prompt shows.
    fn note(&mut self, words: &[Vec<u8>], reply: &Reply) {
        let name = words[0].to_ascii_lowercase();
        let is_fine = !matches!(reply, Reply::Error(_));
        match name.as_slice() {
            b"exec" | b"discard" => self.in_transaction = false,
            _ if !is_fine || *reply == Reply::Simple("QUEUED".into()) => {}
            b"multi" => self.in_transaction = true,
            b"select" => {
                let number = words.get(1).and_then(|word| std::str::from_utf8(word).ok());
                self.target.login.database = number.and_then(|n| n.parse().ok()).unwrap_or(0);
            }
            b"auth" => self.note_login(&words[1..]),
            b"hello" => self.note_hello(&words[1..]),
            b"reset" => {
                self.in_transaction = false;
                self.target.login.database = 0;
                self.target.protocol = Protocol::Resp2;
            }
            _ => {}
        }
    }

    fn note_hello(&mut self, words: &[Vec<u8>]) {
        match words.first().map(Vec::as_slice) {
            Some(b"3") => self.target.protocol = Protocol::Resp3,
            Some(b"2") => self.target.protocol = Protocol::Resp2,
            _ => {}
        }
        let auth = words.iter().position(|word| word.eq_ignore_ascii_case(b"auth"));
        if let Some(login) = auth.and_then(|at| words.get(at + 1..at + 3)) {
            self.note_login(login);
        }
    }

    fn note_login(&mut self, words: &[Vec<u8>]) {
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        let (user, password) = match words {
            [password] => (None, password),
            [user, password] => (Some(text(user)), password),
            _ => return,
        };
        self.target.login.user = user;
        self.target.login.password = Some(Secret::new(text(password)));
    }
}

/// Writes a result to standard output at once.
pub(super) fn print(bytes: &[u8]) -> Result<(), ClientError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(ClientError::Local)
}

fn expected(words: &[Vec<u8>]) -> Expected {
    let word = |at: usize| words.get(at).map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    match word(0).as_slice() {
        b"subscribe" | b"psubscribe" | b"ssubscribe" | b"monitor" => Expected::Stream,
        b"unsubscribe" | b"punsubscribe" | b"sunsubscribe" => {
            Expected::Confirmations((words.len() - 1).max(1))
        }
        b"client" if word(1) == b"reply" && word(2) != b"on" => Expected::Nothing,
        b"shutdown" => Expected::Shutdown,
        _ => Expected::One,
    }
}

/// Commands that answer with text made for people.
fn is_document(words: &[Vec<u8>]) -> bool {
    let word = |at: usize| words.get(at).map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    let second = word(1);
    match word(0).as_slice() {
        b"info" | b"lolwut" => true,
        b"client" => matches!(second.as_slice(), b"list" | b"info"),
        b"cluster" => matches!(second.as_slice(), b"nodes" | b"info"),
        b"memory" => matches!(second.as_slice(), b"malloc-stats" | b"doctor"),
        b"latency" => matches!(second.as_slice(), b"graph" | b"doctor"),
        b"debug" => second.starts_with(b"htstats"),
        _ => false,
    }
}
