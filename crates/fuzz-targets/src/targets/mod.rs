//! The list of targets. A new one is a file beside the others, and its line here.

mod acl;
mod append_log;
mod bus;
mod commands;
mod library;
mod replication;
mod reply;
mod request;
mod restore;
mod script;
mod settings;
mod snapshot;
mod world;

/// Something that reads bytes from outside.
#[derive(Debug)]
pub struct Target {
    /// As on the command line, and the name of its folder in the corpus.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Reads it. Panics when something does not hold that must.
    pub run: fn(&[u8]),
    /// Words that mean something to it: mutations insert them.
    pub words: &'static [&'static [u8]],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    request::TARGET,
    reply::TARGET,
    restore::TARGET,
    snapshot::TARGET,
    append_log::TARGET,
    replication::TARGET,
    bus::TARGET,
    script::TARGET,
    library::TARGET,
    settings::TARGET,
    acl::TARGET,
    commands::TARGET,
];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
