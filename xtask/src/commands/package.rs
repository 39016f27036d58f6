//! `cargo xtask package`: the Debian package, built and tried.

mod machine;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};

use crate::command::{Command, Failure};
use crate::commands::image::{copy, failed, make, remove, write};
use crate::commands::test::tools::{Tool, ensure_all, is_there, succeed};
use crate::repository::{cargo, root};

pub(crate) const COMMAND: Command = Command {
    name: "package",
    summary: "builds the Debian package, and tries it",
    details: "\
Builds the program, its manual pages and completions, and the package (cargo-deb, which is installed
below target/package where it is not there). It is left in target/package.

Then it starts a machine of its own: this system's files, changed only in a layer below
target/package, in namespaces, with systemd as the first process where that is there. In it the
package is installed, and its commands, pages, completions and units are looked at; the store and
the sidecar are started as services, hang, are restarted by their watchdog and stopped; the package
is installed again, and purged, after which nothing of it may be left.

  --program FILE   a program that was built already
  --try FILE       a package that was built already

It needs dpkg, and root, to mount and to install.",
    run,
};

const TOOLS: &[Tool] = &[
    Tool::packaged(&["dpkg-deb", "--version"], "dpkg"),
    Tool::packaged(&["dpkg-shlibdeps", "--version"], "dpkg-dev"),
    Tool::packaged(&["unshare", "--version"], "util-linux"),
    Tool::packaged(&["systemctl", "--version"], "systemd"),
];
const CARGO_DEB: &str = "3.8.0";
const UNITS: &[&str] = &["tenure@", "tenure-sidecar", "tenure-store@", "tenure-sentinel"];
const SHELLS: &[&str] = &["bash", "zsh", "fish"];

fn run(words: &[String]) -> Result<(), Failure> {
    let folder = root().join("target/package");
    let make = |program: PathBuf| -> Result<PathBuf, Failure> {
        stage(&program, &folder)?;
        pack(&program, &folder)
    };
    let package = match words {
        [] => ensure_all(TOOLS).and_then(|()| build()).and_then(make)?,
        [option, file] if option == "--program" => {
            ensure_all(TOOLS).and_then(|()| make(PathBuf::from(file)))?
        }
        [option, file] if option == "--try" => {
            std::path::absolute(file).map_err(|error| failed(Path::new(file), &error))?
        }
        _ => {
            let usage = "package: write package [--program FILE | --try FILE]";
            return Err(Failure::Usage(usage.to_owned()));
        }
    };
    trial::try_all(&package, &folder.join("machine"))?;
    let size = fs::metadata(&package).map_or(0, |file| file.len());
    println!("{}: {:.1} MB", package.display(), size as f64 / 1e6);
    Ok(())
}

fn build() -> Result<PathBuf, Failure> {
    let mut command = cargo();
    command.args(["build", "--release", "--package", "tenure-cli"]);
    succeed(command)?;
    Ok(root().join("target/release/tenure"))
}

/// What the manifest takes from target/package: pages, completions, and units with the package's
/// path of the program.
fn stage(program: &Path, folder: &Path) -> Result<(), Failure> {
    for part in ["man", "completions", "units"] {
        remove(&folder.join(part))?;
    }
    let mut pages = Program::new(program);
    pages.arg("man").arg(folder.join("man"));
    succeed(pages)?;
    make(&folder.join("completions"))?;
    for shell in SHELLS {
        let path = folder.join("completions").join(format!("tenure.{shell}"));
        let file = fs::File::create(&path).map_err(|error| failed(&path, &error))?;
        let mut script = Program::new(program);
        script.args(["completions", shell]).stdout(Stdio::from(file));
        succeed(script)?;
    }
    for unit in UNITS {
        let name = format!("{unit}.service");
        let path = root().join("deploy/systemd").join(&name);
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        let text = text.replace("/usr/local/bin/tenure", "/usr/bin/tenure");
        write(&folder.join("units").join(&name), &text)?;
    }
    Ok(())
}

/// The package, from a program that is built.
fn pack(program: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    let tools = folder.join("tools");
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if !is_there(&["cargo", "deb", "--version"]) {
        if !tools.join("bin/cargo-deb").exists() {
            let mut install = cargo();
            install.args(["install", "cargo-deb", "--locked", "--version", CARGO_DEB, "--root"]);
            install.arg(&tools).env("CARGO_TARGET_DIR", tools.join("target"));
            succeed(install)?;
        }
        let mut first = tools.join("bin").into_os_string();
        first.push(":");
        first.push(path);
        path = first;
    }
    // It takes the program from where cargo would have put it.
    let built = folder.join("built");
    copy(program, &built.join("release/tenure"))?;
    let package = folder.join("tenure.deb");
    let mut deb = cargo();
    deb.args(["deb", "--package", "tenure-cli", "--no-build", "--no-strip", "--output"]);
    deb.arg(&package).env("CARGO_TARGET_DIR", &built).env("PATH", path);
    succeed(deb)?;
    Ok(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_words_are_refused() {
        assert_eq!(run(&["--frobnicate".to_owned()]).unwrap_err().exit_code(), 64);
    }

    /// A unit that is not in the list would be missing in the package.
    #[test]
    fn every_unit_is_in_the_package() {
        let files = fs::read_dir(root().join("deploy/systemd")).unwrap();
        let mut names: Vec<_> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let mut packed: Vec<_> = UNITS.iter().map(|unit| format!("{unit}.service")).collect();
        packed.sort();
        assert_eq!(names, packed);
    }
}
