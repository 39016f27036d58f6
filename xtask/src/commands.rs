//! The list of commands. A new one is a file beside the others, and its lines here.

mod simulate;
mod test;
mod verify;

use crate::command::Command;

pub(crate) const COMMANDS: &[&Command] = &[&simulate::COMMAND, &test::COMMAND, &verify::COMMAND];
