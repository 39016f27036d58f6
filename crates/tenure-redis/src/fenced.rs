//! Fenced writes: a value that earlier leaders cannot overwrite.

use std::time::Duration;

use redis::Value;
use tenure_core::{StoreError, Token};

use super::request::{Step, millis};
use super::scripts::Script;
use super::{error, reply};

/// A write to a fenced value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencedWrite<'a> {
    /// Write it.
    Set {
        /// The value.
        value: &'a [u8],
        /// How long it lasts; `None` for ever.
        ttl: Option<Duration>,
    },
    /// Delete it. The fence stays.
    Delete,
}

/// The reply to a fenced write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceReply {
    /// The write happened.
    Written,
    /// A newer leader has written before.
    Stale {
        /// Its token.
        highest: Token,
    },
}

/// The command of a fenced write, for any connection.
pub fn fence_command(
    key: &str,
    fence_key: &str,
    token: Token,
    write: &FencedWrite<'_>,
) -> redis::Cmd {
    step(key, fence_key, token, write, 0).command(false, "")
}

/// An error of the `redis` crate as a [`StoreError`].
pub fn connection_error(error: &redis::RedisError) -> StoreError {
    error::from_connection(error)
}

pub(super) fn step(
    key: &str,
    fence_key: &str,
    token: Token,
    write: &FencedWrite<'_>,
    number: u64,
) -> Step {
    let (deed, value, ttl) = match write {
        FencedWrite::Set { value, ttl } => ("set", *value, *ttl),
        FencedWrite::Delete => ("del", &[][..], None),
    };
    let ttl = ttl.map(|ttl| millis(&ttl.max(Duration::from_millis(1)))).unwrap_or_default();
    let token = token.to_string().into_bytes();
    let arguments = vec![token, deed.as_bytes().to_vec(), value.to_vec(), ttl];
    Step::anonymous(Script::Fence, number, vec![key.into(), fence_key.into()], arguments)
}

/// Reads the reply to a fenced write. Fails if it is not one.
pub fn fence_reply(value: &Value) -> Result<FenceReply, StoreError> {
    match value {
        Value::ServerError(error) => Err(error::from_reply(error)),
        value => reply::parse_fence(value)
            .map_err(|fault| StoreError::unexpected(format!("the fence answered {fault}"))),
    }
}
