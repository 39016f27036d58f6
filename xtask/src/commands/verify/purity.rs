//! Pure crates own no clock, socket, file, thread or unseeded randomness. Clippy watches over their
//! calls, provided that it was told to; what they depend on is checked here.

use super::tree::{File, Tree};
use super::{Check, Finding};

/// The crates that must stay pure, once they exist.
const PURE: &[&str] = &[
    "tenure-core",
    "tenure-run",
    "simulator",
    "store-resp",
    "store-types",
    "store-engine",
    "store-persist",
    "store-replica",
    "store-sentinel",
    "store-cluster",
    "store-simulator",
];

/// Crates that bring what a pure crate must not have.
const IMPURE_DEPENDENCIES: &[&str] = &[
    "async-std",
    "chrono",
    "fastrand",
    "getrandom",
    "libc",
    "mio",
    "nix",
    "rand",
    "redis",
    "rustix",
    "smol",
    "socket2",
    "time",
    "tokio",
];

/// What the `clippy.toml` of a pure crate must hold. It replaces the one at the top, so it repeats
/// what stands there.
const CLIPPY_LINES: &[&str] =
    &["allow-unwrap-in-tests = true", "allow-dbg-in-tests = true", "disallowed-methods = ["];

/// What clippy must be told to forbid there, at least.
const DISALLOWED: &[&str] = &[
    "std::time::Instant::now",
    "std::time::Instant::elapsed",
    "std::time::SystemTime::now",
    "std::time::SystemTime::elapsed",
    "std::thread::spawn",
    "std::thread::scope",
    "std::thread::sleep",
    "std::thread::Builder::spawn",
    "std::env::args",
    "std::env::var",
    "std::env::var_os",
    "std::env::vars",
    "std::fs::File::create",
    "std::fs::File::open",
    "std::fs::OpenOptions::open",
    "std::fs::create_dir",
    "std::fs::create_dir_all",
    "std::fs::read",
    "std::fs::read_dir",
    "std::fs::read_to_string",
    "std::fs::remove_file",
    "std::fs::rename",
    "std::fs::write",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net::TcpListener::bind",
    "std::net::TcpStream::connect",
    "std::net::TcpStream::connect_timeout",
    "std::net::UdpSocket::bind",
    "std::os::unix::net::UnixListener::bind",
    "std::os::unix::net::UnixStream::connect",
    "std::os::unix::net::UnixStream::pair",
    "std::process::Command::new",
    "std::process::abort",
    "std::process::exit",
    "std::process::id",
    "std::hash::RandomState::new",
    "std::collections::HashMap::new",
    "std::collections::HashMap::with_capacity",
    "std::collections::HashSet::new",
    "std::collections::HashSet::with_capacity",
];

pub(super) const LINTS: Check = Check {
    name: "lints of pure crates",
    run: |tree| pure_manifests(tree).flat_map(|manifest| missing_lints(tree, manifest)).collect(),
};

pub(super) const DEPENDENCIES: Check = Check {
    name: "dependencies of pure crates",
    run: |tree| pure_manifests(tree).flat_map(impure_dependencies).collect(),
};

fn pure_manifests(tree: &Tree) -> impl Iterator<Item = &File> {
    let is_pure = |file: &&File| {
        let name = file.folder().strip_prefix("crates/");
        name.is_some_and(|name| PURE.contains(&name))
    };
    tree.manifests().filter(is_pure)
}

fn missing_lints(tree: &Tree, manifest: &File) -> Option<Finding> {
    let path = format!("{}/clippy.toml", manifest.folder());
    let next_step = "copy crates/tenure-core/clippy.toml";
    let Some(file) = tree.get(&path) else {
        return Some(Finding::new(&path, 1, "a pure crate needs this file", next_step));
    };
    let has = |text: &&&str| file.text.contains(**text);
    let quoted: Vec<String> = DISALLOWED.iter().map(|method| format!("\"{method}\"")).collect();
    let methods = quoted.iter().map(String::as_str);
    let missing: Vec<&str> =
        CLIPPY_LINES.iter().copied().chain(methods).filter(|text| !has(&text)).collect();
    (!missing.is_empty())
        .then(|| Finding::new(&path, 1, format!("lacks {}", missing.join(", ")), next_step))
}

fn impure_dependencies(manifest: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_dependencies = false;
    for (number, line) in manifest.lines() {
        let dependency = match line.strip_prefix('[') {
            Some(section) => {
                let section = section.trim_end_matches(']');
                in_dependencies = section == "dependencies" || section.ends_with(".dependencies");
                section.strip_prefix("dependencies.").unwrap_or("")
            }
            None if in_dependencies => line.split(['.', '=', ' ']).next().unwrap_or(""),
            None => "",
        };
        if IMPURE_DEPENDENCIES.contains(&dependency) {
            let what = format!("a pure crate depends on {dependency}");
            let next_step = "move what needs it into the crate that drives this one";
            findings.push(Finding::new(&manifest.path, number, what, next_step));
        }
    }
    findings
}
