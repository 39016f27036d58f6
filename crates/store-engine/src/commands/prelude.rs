//! What nearly every family needs.

pub(crate) use store_resp::Request;

pub(crate) use crate::command::Arity::{AtLeast, Exactly};
pub(crate) use crate::command::access::*;
pub(crate) use crate::command::flag::*;
pub(crate) use crate::command::{Command, Group, HistoryEntry, KeySpec, category};
#[allow(unused_imports, reason = "not every family is there yet")]
pub(crate) use crate::context::{Context, integer, integer_within, integer32, is_word};
pub(crate) use crate::error::{CommandError, CommandResult};
pub(crate) use crate::keyspace::changes::event_class;
