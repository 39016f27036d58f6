//! `oom-score-adj`: how readily the kernel ends this process when memory runs out.

use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use store_engine::{Config, SettingRefused};

/// What the kernel takes.
const SCORE_MAX: i32 = 1000;
const FILE: &str = "/proc/self/oom_score_adj";

/// The score that the process had before a setting changed it, once one did.
#[derive(Clone, Debug, Default)]
pub(crate) struct OomScore {
    before: Arc<Mutex<Option<i32>>>,
}

impl OomScore {
    /// Follows changed settings.
    pub(crate) fn follow(&self, before: &Config, after: &Config) -> Result<(), SettingRefused> {
        if !before.differs_in("oom-score-adj", after) {
            return Ok(());
        }
        self.apply(after).map_err(|error| SettingRefused {
            setting: "oom-score-adj",
            reason: "Failed to apply new oom_score_adj configuration, check server logs."
                .to_owned(),
            log: Some(format!("cannot write {FILE}: {error}")),
        })
    }

    /// Brings the score in line with the settings.
    pub(crate) fn apply(&self, config: &Config) -> io::Result<()> {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let mode = config.text("oom-score-adj");
        let Some(base) = *before else {
            if mode == "no" {
                return Ok(());
            }
            let base = read()?;
            write(wanted(config, base))?;
            *before = Some(base);
            return Ok(());
        };
        write(wanted(config, base))?;
        if mode == "no" {
            *before = None;
        }
        Ok(())
    }
}

/// The score that the settings ask for, when the process began with `base`.
fn wanted(config: &Config, base: i32) -> i32 {
    let scores = config.text("oom-score-adj-values");
    // The first is that of a primary, which every server of ours is.
    let score =
        scores.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let score = match config.text("oom-score-adj") {
        "no" => base,
        "absolute" => score,
        _ => base + score,
    };
    score.clamp(-SCORE_MAX, SCORE_MAX)
}

fn read() -> io::Result<i32> {
    let text = fs::read_to_string(FILE)?;
    text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

fn write(score: i32) -> io::Result<()> {
    fs::write(FILE, score.to_string())
}
