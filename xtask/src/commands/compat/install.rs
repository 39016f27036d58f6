//! Foreign packages, installed into folders of our own below target/compat/. Nothing of them is
//! committed, and no other part of the project needs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::repository::root;

/// Where everything foreign goes.
pub(super) fn folder_of(name: &str) -> PathBuf {
    root().join("target/compat").join(name)
}

/// Runs `install` unless it has succeeded for the same packages before. Fails with what is
/// missing.
pub(super) fn once(
    folder: &Path,
    packages: &[&str],
    install: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let mark = folder.join("installed");
    let wanted = packages.join("\n");
    if fs::read_to_string(&mark).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    eprintln!("installing {} into {}", packages.join(", "), folder.display());
    // What an older version or a failed try has left.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    install()?;
    fs::write(mark, wanted).map_err(|error| error.to_string())
}

/// A virtual environment of Python with these packages.
pub(super) fn python(folder: &Path, packages: &[&str]) -> Result<(), String> {
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(folder);
    succeed(make)?;
    let mut install = pip(folder, "install");
    install.args(packages);
    succeed(install)
}

/// Downloads the source package of `name` and unpacks it below `folder`; a virtual environment
/// with setuptools is there. Returns where it is.
pub(super) fn python_sources(folder: &Path, name: &str, version: &str) -> Result<PathBuf, String> {
    let mut download = pip(folder, "download");
    download.args(["--no-deps", "--no-binary", ":all:", "--no-build-isolation"]);
    download.arg(format!("{name}=={version}")).current_dir(folder);
    succeed(download)?;
    let mut unpack = Command::new(folder.join("bin/python"));
    let archive = format!("{name}-{version}.tar.gz");
    unpack.args(["-m", "tarfile", "-e", &archive]).current_dir(folder);
    succeed(unpack)?;
    Ok(folder.join(format!("{name}-{version}")))
}

fn pip(folder: &Path, what: &str) -> Command {
    let mut command = Command::new(folder.join("bin/python"));
    command.args(["-m", "pip", what, "--quiet", "--disable-pip-version-check"]);
    command
}

/// A folder of node with these packages.
pub(super) fn node(folder: &Path, packages: &[&str]) -> Result<(), String> {
    fs::write(folder.join("package.json"), "{\"private\":true}\n")
        .map_err(|error| error.to_string())?;
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-audit", "--no-fund"]).args(packages);
    install.current_dir(folder);
    succeed(install)
}

fn succeed(mut command: Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} cannot install it ({status}); is there a network?")),
        Err(error) => Err(format!("cannot start {program}: {error}")),
    }
}

/// Whether a program can be started.
pub(super) fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    let quiet = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_not_installed_again_but_other_versions_are() {
        let folder = std::env::temp_dir().join(format!("compat-install-{}", std::process::id()));
        let mut installed = 0;
        for (packages, expected) in [(["a==1"], 1), (["a==1"], 1), (["a==2"], 2)] {
            once(&folder, &packages, || {
                installed += 1;
                Ok(())
            })
            .unwrap();
            assert_eq!(installed, expected);
        }
        assert!(once(&folder, &["b"], || Err("no network".to_owned())).is_err());
        once(&folder, &["b"], || {
            installed += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(installed, 3, "a failed try is none");
        fs::remove_dir_all(folder).unwrap();
        assert!(!is_there("no-such-program"));
    }
}
