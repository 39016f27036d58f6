//! The list of commands. A new one is a file beside the others, and its lines here.

mod bench;
mod compat;
mod conform;
mod crash;
mod fuzz;
mod image;
mod package;
mod pictures;
mod sanitize;
mod simulate;
mod test;
mod torture;
mod trial;
mod verify;

use crate::command::Command;

pub(crate) const COMMANDS: &[&Command] = &[
    &bench::COMMAND,
    &compat::COMMAND,
    &conform::COMMAND,
    &crash::COMMAND,
    &fuzz::COMMAND,
    &image::COMMAND,
    &package::COMMAND,
    &pictures::COMMAND,
    &sanitize::COMMAND,
    &simulate::COMMAND,
    &test::COMMAND,
    &torture::COMMAND,
    &trial::COMMAND,
    &verify::COMMAND,
];
