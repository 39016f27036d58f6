//! The list of commands. A new one is a file beside the others, and its lines here.

mod bench;
mod compat;
mod fuzz;
mod sanitize;
mod simulate;
mod test;
mod trial;
mod verify;

use crate::command::Command;

pub(crate) const COMMANDS: &[&Command] = &[
    &bench::COMMAND,
    &compat::COMMAND,
    &fuzz::COMMAND,
    &sanitize::COMMAND,
    &simulate::COMMAND,
    &test::COMMAND,
    &trial::COMMAND,
    &verify::COMMAND,
];
