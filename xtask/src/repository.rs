//! Where the repository is, and how its tools are called.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::Failure;

/// The folder with the workspace's `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The cargo that runs us, in the repository's folder.
///
/// It hears nothing of the package that we are: a build script that looks at such variables (that
/// of `ring` does) would run again whenever a build by this program follows one without it, and
/// whatever depends on it would be compiled again.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(tells_of_a_package) {
            command.env_remove(name);
        }
    }
    command
}

/// A program of the workspace that was built: it is beside this one, wherever cargo puts programs
/// here.
pub(crate) fn built_program(name: &str) -> Result<PathBuf, Failure> {
    let lost = |error| Failure::Failed(format!("this program does not know where it is: {error}"));
    Ok(std::env::current_exe().map_err(lost)?.with_file_name(name))
}

/// Whether `cargo run` sets a variable of this name for the program that it runs.
fn tells_of_a_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_hears_nothing_of_the_package_that_runs_it() {
        let told: Vec<_> = std::env::vars_os()
            .filter_map(|(name, _)| name.into_string().ok())
            .filter(|name| tells_of_a_package(name))
            .collect();
        assert!(told.iter().any(|name| name == "CARGO_MANIFEST_DIR"), "tests run under cargo");
        let command = cargo();
        let removed: Vec<_> =
            command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        assert!(told.iter().all(|name| removed.iter().any(|one| *one == name.as_str())));
    }
}
