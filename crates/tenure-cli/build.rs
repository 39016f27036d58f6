//! How the program is linked.

use std::process::Command;

/// The first glibc whose loader understands packed relocations.
const PACKED_SINCE: (u32, u32) = (2, 36);

/// A hundred thousand pointers in constants are moved to where the program is loaded. As a list
/// they are 24 bytes each, which every start reads; packed they are a bit each, so that a wrapper
/// and its guard take less memory. A program linked so does not start with an older glibc: it is
/// done only where the one that is here understands it, and the program is for this very system.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name| std::env::var(name).unwrap_or_default();
    let is_for_here = variable("HOST") == variable("TARGET");
    let is_glibc =
        variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    if is_for_here && is_glibc && glibc().is_some_and(|version| version >= PACKED_SINCE) {
        // A linker that does not know the option warns and goes on.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of the C library here.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    // `glibc 2.36`
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.split_whitespace().nth(1)?.split_once('.')?;
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
