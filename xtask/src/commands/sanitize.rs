//! `cargo xtask sanitize`: hostile scripts under AddressSanitizer, the C of Lua included.

use std::path::Path;
use std::process::Command as Program;

use crate::command::{Command, Failure};
use crate::repository::{cargo, root};

pub(crate) const COMMAND: Command = Command {
    name: "sanitize",
    summary: "runs hostile scripts under AddressSanitizer",
    details: "\
Builds the script engine and the Lua that it carries with AddressSanitizer, in target/sanitize, and
runs its hostile tests, among them the published reproducers of Lua's memory errors. Fails when one
touches memory that it must not.

  --filter TEXT   other tests of store-script than those of `hostile` and `kill`

It needs Linux and a C compiler that knows -fsanitize=address. The flag of rustc is unstable: a
nightly toolchain takes it as it is, and a stable one is told to (RUSTC_BOOTSTRAP). Where neither is
possible, a line says so, and that is no failure.",
    run,
};

/// The tests that run unless others are asked for.
const FILTERS: &[&str] = &["hostile::", "kill::"];
/// Measures how much stack nesting takes, which a sanitizer multiplies.
const SKIPPED: &str = "the_deepest_nesting_fits_a_thread_of_the_usual_size";
/// Bytes of a test's thread, for frames that a sanitizer makes several times as large.
const STACK: &str = "67108864";
const FLAGS: &str = "-Zsanitizer=address";
/// Everything stays on the stack that must: a use after return is found, too. Lua's own allocator
/// of the tests counts every byte, so leaks are its business; and a test that makes an allocation
/// fail on purpose must see it fail.
const OPTIONS: &str = "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1";

fn run(words: &[String]) -> Result<(), Failure> {
    let filters: Vec<&str> = match words {
        [] => FILTERS.to_vec(),
        [option, filter] if option == "--filter" => vec![filter],
        _ => return Err(Failure::Usage("sanitize: write sanitize [--filter TEXT]".to_owned())),
    };
    let Some(host) = host() else {
        println!("sanitize: rustc does not say what it builds for; nothing was run");
        return Ok(());
    };
    let folder = root().join("target/sanitize");
    if let Err(reason) = probe(&folder) {
        println!("sanitize: not possible with this toolchain: {reason}");
        println!("sanitize: nothing was run; try `cargo +nightly xtask sanitize`");
        return Ok(());
    }
    let mut command = cargo();
    command
        .args(["test", "--package", "store-script", "--test", "it", "--target", &host])
        .arg("--")
        .args(filters)
        .args(["--skip", SKIPPED])
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUST_MIN_STACK", STACK)
        .env("RUSTFLAGS", FLAGS)
        .env("CFLAGS", "-fsanitize=address -fno-omit-frame-pointer -g")
        .env("ASAN_OPTIONS", OPTIONS);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::Failed("sanitize: see above".to_owned())),
        Err(error) => Err(Failure::Failed(format!("sanitize: cannot start cargo: {error}"))),
    }
}

/// What rustc builds for: a sanitizer wants it named, so that build scripts go without.
fn host() -> Option<String> {
    let output = Program::new("rustc").arg("-vV").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

/// Builds the smallest program, to tell a missing tool from a finding.
fn probe(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let source = folder.join("probe.rs");
    std::fs::write(&source, "fn main() {}\n").map_err(|error| error.to_string())?;
    let program = folder.join("probe");
    let mut rustc = Program::new("rustc");
    rustc.arg(FLAGS).arg(&source).arg("-o").arg(&program).env("RUSTC_BOOTSTRAP", "1");
    succeed(rustc)?;
    succeed(Program::new(&program))?;
    let source = folder.join("probe.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").map_err(|error| error.to_string())?;
    let mut compiler = Program::new("cc");
    compiler.arg("-fsanitize=address").arg(&source).arg("-o").arg(&program);
    succeed(compiler)
}

fn succeed(mut program: Program) -> Result<(), String> {
    let name = program.get_program().to_string_lossy().into_owned();
    match program.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(format!("{name}: {}", text.lines().next().unwrap_or("it fails")))
        }
        Err(error) => Err(format!("{name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_and_a_failing_one_are_told_by_name() {
        assert!(succeed(Program::new("true")).is_ok());
        assert_eq!(succeed(Program::new("false")).unwrap_err(), "false: it fails");
        assert!(succeed(Program::new("no-such-program")).unwrap_err().contains("no-such-program"));
    }

    #[test]
    fn wrong_words_are_refused() {
        let failure = run(&["--frobnicate".to_owned()]).unwrap_err();
        assert_eq!(failure.exit_code(), 64);
    }
}
