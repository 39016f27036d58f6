//! A connection to a store, for commands beside `tenure cli`.

use std::time::Duration;

use store_resp::{Protocol, Reply};
use tenure::backend::redis::RedisUrl;

use super::connection::Connection;
use super::target::Target;

/// A connection that has logged in.
pub(crate) struct LoggedInConnection(Connection);

impl LoggedInConnection {
    /// Connects and logs in. Connecting and each answer may take as long as `patience`. Fails with
    /// a text that never repeats a password.
    pub(crate) fn open(url: RedisUrl, patience: Duration) -> Result<Self, String> {
        let target = Target {
            place: url.place,
            login: url.login,
            protocol: Protocol::Resp2,
            connect_within: patience,
            answer_within: Some(patience),
        };
        Connection::open(&target).map(LoggedInConnection).map_err(|error| error.to_string())
    }

    /// Asks one thing; an error reply is an answer as well.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<Reply, String> {
        self.0.ask(words).map_err(|error| error.to_string())
    }
}
