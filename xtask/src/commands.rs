//! The list of commands. A new one is a file beside the others, and its lines here.

mod test;
mod verify;

use crate::command::Command;

pub(crate) const COMMANDS: &[&Command] = &[&test::COMMAND, &verify::COMMAND];
