//! What nearly every family needs.

pub(super) use store_resp::Request;

pub(super) use crate::command::Arity::{AtLeast, Exactly};
pub(super) use crate::command::access::*;
pub(super) use crate::command::flag::*;
pub(super) use crate::command::{Change, Command, Group, KeySpec, category};
#[allow(unused_imports, reason = "not every family is there yet")]
pub(super) use crate::context::{Context, integer, integer_within, integer32, is_word};
pub(super) use crate::effects::event_class;
pub(super) use crate::error::{CommandError, CommandResult};
