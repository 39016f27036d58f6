//! `cargo xtask pictures`: what the documentation shows of the page, taken in a real browser.

use crate::command::{Command, Failure};
use crate::repository::cargo;

pub(crate) const COMMAND: Command = Command {
    name: "pictures",
    summary: "takes the pictures of the page in docs/pictures",
    details: "\
  cargo xtask pictures   light, dark, phone and a list of fifty, after a minute of real elections

Needs the packages chromium and chromium-driver; fonts-inter makes the letters look as designed.",
    run,
};

fn run(words: &[String]) -> Result<(), Failure> {
    if let Some(word) = words.first() {
        return Err(Failure::Usage(format!("pictures: takes no words, found {word:?}")));
    }
    let test = ["test", "--package", "tenure-sidecar", "--test", "it", "--"];
    let status = cargo().args(test).args(["--ignored", "--exact", "page::pictures"]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::Failed("pictures: see above".to_owned())),
        Err(error) => Err(Failure::Failed(format!("cannot start cargo: {error}"))),
    }
}
