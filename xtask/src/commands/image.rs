//! `cargo xtask image`: a container image over a static program, built and tried.

mod container;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Program;

use crate::command::{Command, Failure};
use crate::commands::test::tools::{Tool, ensure_all, succeed};
use crate::repository::{cargo, root};

pub(crate) const COMMAND: Command = Command {
    name: "image",
    summary: "builds the container image FROM scratch, and tries it",
    details: "\
Builds the program without any library that it would have to find at run time (in target/static),
lays it out with what it reads (deploy/image), builds the image with buildah, and writes it to
target/image/tenure.tar, for `docker load` and `podman load`.

Then it unpacks that file and starts what is in it as the first process of a namespace, as a user
without rights and on a root that nobody can write to: a store, a sidecar and a wrapper. Each has to
answer `tenure probe` or `tenure cli`, and to end on SIGTERM; a lease has to be released then.

  --program FILE   a static program that was built already

It needs buildah, which is installed where apt-get may be used, and root, to start processes as
another user.",
    run,
};

const TOOLS: &[Tool] = &[
    Tool::packaged(&["buildah", "--version"], "buildah"),
    Tool::packaged(&["tar", "--version"], "tar"),
    Tool::packaged(&["unshare", "--version"], "util-linux"),
];
/// Where authorities are listed whose certificates the program trusts.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

fn run(words: &[String]) -> Result<(), Failure> {
    let program = match words {
        [] => None,
        [option, file] if option == "--program" => Some(PathBuf::from(file)),
        _ => return Err(Failure::Usage("image: write image [--program FILE]".to_owned())),
    };
    ensure_all(TOOLS)?;
    let program = program.map_or_else(build, Ok)?;
    let folder = root().join("target/image");
    remove(&folder)?;
    let context = folder.join("context");
    lay_out(&program, &context)?;
    let archive = pack(&folder, &context)?;
    let unpacked = folder.join("unpacked");
    unpack(&archive, &unpacked)?;
    check_content(&unpacked)?;
    container::try_all(&unpacked)?;
    let megabytes = |path: &Path| fs::metadata(path).map_or(0, |file| file.len()) as f64 / 1e6;
    println!(
        "{}: {:.1} MB, of which the program is {:.1} MB",
        archive.display(),
        megabytes(&archive),
        megabytes(&program)
    );
    Ok(())
}

/// A program that needs no library and no loader.
fn build() -> Result<PathBuf, Failure> {
    let host = host()?;
    let folder = root().join("target/static");
    let mut command = cargo();
    command.args(["build", "--release", "--package", "tenure-cli", "--target", &host]);
    // With a target, build scripts and macros are built as usual.
    command.env("RUSTFLAGS", "-C target-feature=+crt-static").env("CARGO_TARGET_DIR", &folder);
    succeed(command)?;
    Ok(folder.join(host).join("release/tenure"))
}

/// What this machine's rustc builds for.
pub(super) fn host() -> Result<String, Failure> {
    let lost = || Failure::Failed("rustc -vV does not say what it builds for".to_owned());
    let output = Program::new("rustc").arg("-vV").output().map_err(|_| lost())?;
    let text = String::from_utf8(output.stdout).map_err(|_| lost())?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(lost)
}

/// What the Containerfile copies.
fn lay_out(program: &Path, context: &Path) -> Result<(), Failure> {
    let top = context.join("root");
    copy(&root().join("deploy/image/Containerfile"), &context.join("Containerfile"))?;
    for file in ["etc/passwd", "etc/group", "etc/nsswitch.conf"] {
        copy(&root().join("deploy/image/root").join(file), &top.join(file))?;
    }
    for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&root().join(file), &top.join("usr/share/doc/tenure").join(file))?;
    }
    copy(&Path::new("/").join(AUTHORITIES), &top.join(AUTHORITIES))?;
    copy(program, &top.join("usr/bin/tenure"))?;
    // A folder without a file would not be copied by every builder.
    write(&context.join("data/.keep"), "")
}

/// Builds the image and writes it into a file.
fn pack(folder: &Path, context: &Path) -> Result<PathBuf, Failure> {
    let policy = folder.join("policy.json");
    write(&policy, "{\"default\":[{\"type\":\"insecureAcceptAnything\"}]}\n")?;
    let buildah = || {
        let mut command = Program::new("buildah");
        // Beside whatever else is built on this machine.
        command.arg("--root").arg(folder.join("storage"));
        command.arg("--runroot").arg(folder.join("run")).args(["--storage-driver", "vfs"]);
        command
    };
    let version = env!("CARGO_PKG_VERSION");
    let mut build = buildah();
    build.args(["build", "--isolation", "chroot", "--format", "docker", "--quiet"]);
    build.arg("--signature-policy").arg(&policy);
    // The same sources give the same layers.
    build.args(["--timestamp", &committed_at()]);
    build.args(["--label", &format!("org.opencontainers.image.version={version}")]);
    build.args(["--label", "org.opencontainers.image.licenses=MIT OR Apache-2.0"]);
    build.args(["--tag", "tenure:latest"]).arg(context);
    succeed(build)?;
    let archive = folder.join("tenure.tar");
    let mut push = buildah();
    push.args(["push", "--quiet", "--signature-policy"]).arg(&policy).arg("tenure:latest");
    push.arg(format!("docker-archive:{}:tenure:latest", archive.display()));
    succeed(push)?;
    Ok(archive)
}

/// When the sources were committed, in seconds since 1970; 0 where nobody knows.
fn committed_at() -> String {
    let mut git = Program::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(root());
    let said = git.output().ok().filter(|output| output.status.success());
    let said = said.and_then(|output| String::from_utf8(output.stdout).ok());
    said.map_or("0".to_owned(), |text| text.trim().to_owned())
}

/// Its layers, one over the other, as a container engine lays them.
fn unpack(archive: &Path, unpacked: &Path) -> Result<(), Failure> {
    let layers = unpacked.with_extension("layers");
    make(&layers)?;
    make(unpacked)?;
    tar(archive, &layers)?;
    let manifest = fs::read_to_string(layers.join("manifest.json"));
    let manifest = manifest.map_err(|error| failed(&layers, &error))?;
    for layer in layers_of(&manifest) {
        tar(&layers.join(layer), unpacked)?;
    }
    Ok(())
}

/// The files that a manifest names, lowest first.
fn layers_of(manifest: &str) -> Vec<&str> {
    let list = manifest.split("\"Layers\":[").nth(1).and_then(|rest| rest.split(']').next());
    list.map_or_else(Vec::new, |list| list.split('"').skip(1).step_by(2).collect())
}

fn tar(archive: &Path, folder: &Path) -> Result<(), Failure> {
    let mut command = Program::new("tar");
    command.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(folder);
    succeed(command)
}

/// One program, and nothing that somebody could run beside it.
fn check_content(unpacked: &Path) -> Result<(), Failure> {
    let mut find = Program::new("find");
    find.arg(unpacked).args(["-type", "f", "-perm", "/111", "-printf", "/%P\\n"]);
    let output = find.output().map_err(|error| failed(unpacked, &error))?;
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    match found.as_str() {
        "/usr/bin/tenure\n" => Ok(()),
        other => Err(Failure::Failed(format!("image: it has other programs: {other}"))),
    }
}

pub(super) fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    make(to.parent().expect("a file lies in a folder"))?;
    fs::copy(from, to).map(drop).map_err(|error| failed(from, &error))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    make(path.parent().expect("a file lies in a folder"))?;
    fs::write(path, text).map_err(|error| failed(path, &error))
}

pub(super) fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))
}

/// Removes what an earlier run has left.
pub(super) fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(folder, &error)),
        _ => Ok(()),
    }
}

pub(super) fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_a_manifest_are_in_order() {
        let manifest = r#"[{"Config":"c.json","RepoTags":["a"],"Layers":["1.tar","2/layer.tar"]}]"#;
        assert_eq!(layers_of(manifest), ["1.tar", "2/layer.tar"]);
        assert!(layers_of("[]").is_empty());
    }

    #[test]
    fn wrong_words_are_refused() {
        assert_eq!(run(&["--frobnicate".to_owned()]).unwrap_err().exit_code(), 64);
    }
}
