//! A plain conversation with a store, for commands beside `tenure cli`.

use std::time::Duration;

use store_resp::{Protocol, Reply};
use tenure::backend::redis::RedisUrl;

use super::connection::Connection;
use super::target::Target;

/// A connection that has logged in.
pub(crate) struct Conversation(Connection);

impl Conversation {
    /// Connects and logs in; that and each answer may take `within`. Fails with a text that never
    /// repeats a password.
    pub(crate) fn open(url: RedisUrl, within: Duration) -> Result<Self, String> {
        let target = Target {
            place: url.place,
            login: url.login,
            protocol: Protocol::Resp2,
            connect_within: within,
        };
        let connection = Connection::open(&target).map_err(|error| error.to_string())?;
        connection.answers_within(Some(within)).map_err(|error| error.to_string())?;
        Ok(Conversation(connection))
    }

    /// Asks one thing; an error reply is an answer as well.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<Reply, String> {
        self.0.ask(words).map_err(|error| error.to_string())
    }
}
