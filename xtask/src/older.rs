//! Programs of an older version, built beside those of this one.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::command::Failure;
use crate::repository::{cargo, root};

/// The repository as git knows it as `revision`, in a folder of its own that later calls find
/// again.
pub(crate) fn checked_out(revision: &str) -> Result<PathBuf, Failure> {
    let failed = |what: &str| Failure::Failed(format!("{what} {revision} failed: see above"));
    let known = Command::new("git").args(["rev-parse", "--verify", revision]).output();
    let known = known.ok().filter(|output| output.status.success());
    let known = known.ok_or_else(|| failed("git rev-parse"))?;
    let commit = String::from_utf8_lossy(&known.stdout).trim().to_owned();
    let folder = root().join("target").join(format!("older-{commit}"));
    if !folder.exists() {
        let mut add = Command::new("git");
        add.args(["worktree", "add", "--detach"]).arg(&folder).arg(&commit);
        if !add.status().is_ok_and(|status| status.success()) {
            return Err(failed("git worktree add"));
        }
    }
    // Versions from before it was kept are built with the dependencies of today.
    let lock = folder.join("Cargo.lock");
    if !lock.exists() {
        fs::copy(root().join("Cargo.lock"), lock).map_err(|_| failed("copying Cargo.lock to"))?;
    }
    Ok(folder)
}

/// Builds the program `name` of `package` as git knows it as `revision`.
pub(crate) fn older_program(revision: &str, package: &str, name: &str) -> Result<PathBuf, Failure> {
    build_older(revision, &["--package", package, "--bin", name])?;
    Ok(checked_out(revision)?.join("target/debug").join(name))
}

/// The same, built for speed.
pub(crate) fn older_release(revision: &str, package: &str, name: &str) -> Result<PathBuf, Failure> {
    build_older(revision, &["--release", "--package", package, "--bin", name])?;
    Ok(checked_out(revision)?.join("target/release").join(name))
}

fn build_older(revision: &str, what: &[&str]) -> Result<(), Failure> {
    let folder = checked_out(revision)?;
    let mut build = cargo();
    build.args(["build", "--quiet"]).args(what);
    build.current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target"));
    if !build.status().is_ok_and(|status| status.success()) {
        return Err(Failure::Failed(format!("building {revision} failed: see above")));
    }
    Ok(())
}
