//! Where packages come from is the business of whoever builds: no file names a host of theirs.

use super::tree::File;
use super::{Check, Finding};

/// Parts of host names, each cut in two, so that this file does not find itself.
const HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("rsproxy", ".cn"),
    concat!("npmjs", "."),
    concat!("yarnpkg", ".com"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("rubygems", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("jfrog", ".io"),
    concat!("artifactory", "."),
    concat!("deb.debian", ".org"),
    concat!("docker", ".io"),
    concat!("ghcr", ".io"),
];

/// What cargo writes into its lock file for the public registry, wherever it really fetched from.
const LOCKED: &str =
    concat!("source = \"registry+https://github.com/rust-lang/crates", ".io-index\"");

pub(super) const NAMES: Check =
    Check { name: "registry hosts", run: |tree| tree.files().flat_map(named_hosts).collect() };

fn named_hosts(file: &File) -> Vec<Finding> {
    let is_lock = file.path.rsplit('/').next() == Some("Cargo.lock");
    let mut findings = Vec::new();
    for (number, line) in file.lines() {
        let what = if is_lock {
            (line.starts_with("source = ") && line != LOCKED).then(|| "a package source".to_owned())
        } else {
            let host = HOSTS.iter().find(|host| line.contains(**host));
            host.map(|host| format!("`{host}` is a host"))
        };
        if let Some(what) = what {
            let what = format!("{what} of one build environment");
            findings.push(Finding::new(&file.path, number, what, "take it out"));
        }
    }
    findings
}
