//! Black-box tests of the program `tenure`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod cli;
