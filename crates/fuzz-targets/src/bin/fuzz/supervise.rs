//! Watches the process that runs the inputs, and keeps the input that ended it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use fuzz_targets::Target;

use crate::clock::Deadline;
use crate::corpus::Corpus;
use crate::worker;

/// An input that takes longer than this hangs, even on a busy machine.
const INPUT_TAKES_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// One target's turn.
pub(crate) struct Job {
    pub(crate) target: &'static Target,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
}

/// How it ended.
pub(crate) enum Ended {
    Fine {
        replayed: u64,
        made: u64,
    },
    /// An input ended the process; it was kept under this name.
    Died {
        how: String,
        name: String,
    },
}

pub(crate) fn run(job: &Job) -> io::Result<Ended> {
    let progress = Progress::create(job.target.name)?;
    let corpus = Corpus::read(job.target)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--work", job.target.name, &job.seconds.to_string(), &job.seed.to_string()])
        .arg(&progress.path)
        .stdin(Stdio::null())
        .spawn()?;
    let how = match watch(&mut child, &progress)? {
        Some(status) if status.success() => {
            let replayed = corpus.inputs.len() as u64;
            return Ok(Ended::Fine { replayed, made: progress.number()? - replayed });
        }
        Some(status) => status.to_string(),
        None => format!("one input took longer than {} s", INPUT_TAKES_MAX.as_secs()),
    };
    let number = progress.number()?;
    let input = worker::input(&corpus, job.target, job.seed, number);
    let name = Corpus::keep(job.target, &input)?;
    Ok(Ended::Died { how: format!("{how}, input {number} of seed {}", job.seed), name })
}

/// The status with which the process ended; `None` when it hung and was ended.
fn watch(child: &mut Child, progress: &Progress) -> io::Result<Option<ExitStatus>> {
    let mut number = progress.number()?;
    let mut patience = Deadline::after(INPUT_TAKES_MAX);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let now = progress.number()?;
        if now != number {
            (number, patience) = (now, Deadline::after(INPUT_TAKES_MAX));
        }
        if patience.has_passed() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// A file with a number in it.
struct Progress {
    path: PathBuf,
}

impl Progress {
    fn create(target: &str) -> io::Result<Self> {
        let name = format!("tenure-fuzz-{}-{target}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, 0_u64.to_le_bytes())?;
        Ok(Self { path })
    }

    fn number(&self) -> io::Result<u64> {
        number_in(&self.path)
    }
}

fn number_in(path: &Path) -> io::Result<u64> {
    let bytes = std::fs::read(path)?;
    let bytes = bytes.try_into().map_err(|_| io::Error::other("the progress file is cut off"))?;
    Ok(u64::from_le_bytes(bytes))
}

impl Drop for Progress {
    fn drop(&mut self) {
        // One file left over in the folder for temporary files does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}
