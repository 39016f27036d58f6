//! `oom-score-adj`: how readily the kernel ends this process when memory runs out.

use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use store_engine::{Config, OomMode, OomSettings, SettingRefused};

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
        if before.settings().process.oom == after.settings().process.oom {
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
        let mode = config.settings().process.oom.mode;
        let Some(base) = *before else {
            if mode == OomMode::Off {
                return Ok(());
            }
            let base = read()?;
            write(wanted(config, base))?;
            *before = Some(base);
            return Ok(());
        };
        write(wanted(config, base))?;
        if mode == OomMode::Off {
            *before = None;
        }
        Ok(())
    }
}

/// The score that the settings ask for, when the process began with `base`.
fn wanted(config: &Config, base: i32) -> i32 {
    // Every server of ours is a primary.
    let OomSettings { mode, primary_score } = config.settings().process.oom;
    let score = match mode {
        OomMode::Off => base,
        OomMode::Absolute => primary_score,
        OomMode::Relative => base + primary_score,
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
