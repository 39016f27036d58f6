//! `cargo fuzz run library`; the target itself is in crates/fuzz-targets.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = fuzz_targets::find("library").expect("the target exists");
    (target.run)(bytes);
});
