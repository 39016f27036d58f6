//! The driver finds what is wrong, and the targets hold on the whole corpus.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::process::{Command, Output};

use fuzz_targets::{TARGETS, find};
use testkit::TempFolder;

fn fuzz(words: &[&str], kept: &TempFolder) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fuzz"));
    command.args(words).env("FUZZ_KEPT", kept.path()).output().unwrap()
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn every_target_survives_its_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz");
    for target in TARGETS {
        let mut count = 0;
        for part in ["corpus", "kept"] {
            let Ok(entries) = std::fs::read_dir(format!("{folder}/{part}/{}", target.name)) else {
                continue;
            };
            for entry in entries {
                let path = entry.unwrap().path();
                eprintln!("{}", path.display());
                (target.run)(&std::fs::read(path).unwrap());
                count += 1;
            }
        }
        assert!(count > 0, "{} has no corpus", target.name);
    }
}

#[test]
fn a_run_says_what_it_did() {
    let kept = TempFolder::create();
    let output = fuzz(&["--target", "request", "--seconds", "1", "--seed", "3"], &kept);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("seed 3: fine"), "{}", text(&output));
}

#[test]
fn what_was_trouble_is_replayed_by_name() {
    let kept = TempFolder::create();
    std::fs::create_dir(kept.path().join("request")).unwrap();
    std::fs::write(kept.path().join("request/one"), b"*1\r\n$4\r\nPING\r\n").unwrap();
    let output = fuzz(&["--replay", "request/one"], &kept);
    assert!(text(&output).contains("request survives one (14 bytes)"), "{}", text(&output));
    let output = fuzz(&["--replay", "request/nosuch"], &kept);
    assert_eq!(output.status.code(), Some(64));
}

#[test]
fn wrong_words_are_named() {
    let kept = TempFolder::create();
    for words in [&["--target", "nosuch"][..], &["--seconds", "many"], &["--frobnicate"]] {
        let output = fuzz(words, &kept);
        assert_eq!(output.status.code(), Some(64));
        assert!(text(&output).contains(words.last().unwrap()), "{}", text(&output));
    }
    assert!(find("nosuch").is_none());
}

#[test]
fn an_input_that_ends_the_process_is_kept_and_named() {
    let kept = TempFolder::create();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fuzz"));
    command.args(["--target", "request", "--seconds", "5"]).env("FUZZ_KEPT", kept.path());
    // As if input 3 had been too much.
    let output = command.env("FUZZ_DIE_AT", "3").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("DIED") && said.contains("--replay request/"), "{said}");
    let names: Vec<_> = std::fs::read_dir(kept.path().join("request")).unwrap().collect();
    assert_eq!(names.len(), 1);
}
