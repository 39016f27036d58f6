//! `cargo fuzz run sentinel`; the target itself is in crates/fuzz-targets.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = fuzz_targets::find("sentinel").expect("the target exists");
    (target.run)(bytes);
});
