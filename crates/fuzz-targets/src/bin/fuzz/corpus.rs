//! The inputs that runs begin with: examples of good ones, and those that once were trouble.

use std::io;
use std::path::{Path, PathBuf};

use fuzz_targets::Target;

/// The inputs of one target, by name, in order.
pub(crate) struct Corpus {
    pub(crate) inputs: Vec<Vec<u8>>,
}

impl Corpus {
    /// Reads all inputs. A target without any begins with nothing.
    pub(crate) fn read(target: &Target) -> io::Result<Self> {
        let mut inputs = Vec::new();
        for folder in [examples(target), kept(target)] {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            let mut paths: Vec<PathBuf> =
                entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
            paths.sort();
            for path in paths {
                inputs.push(std::fs::read(path)?);
            }
        }
        Ok(Self { inputs })
    }

    /// One input by its name.
    pub(crate) fn find(target: &Target, name: &str) -> Result<Vec<u8>, String> {
        let folders = [kept(target), examples(target)];
        let found = folders.iter().find_map(|folder| std::fs::read(folder.join(name)).ok());
        found.ok_or_else(|| {
            let [kept, examples] = folders.map(|folder| folder.display().to_string());
            format!("there is no {name:?} in {kept} or {examples}")
        })
    }

    /// Keeps an input that was trouble; returns its name.
    pub(crate) fn keep(target: &Target, input: &[u8]) -> io::Result<String> {
        let folder = kept(target);
        std::fs::create_dir_all(&folder)?;
        let name = format!("{:016x}", digest(input));
        std::fs::write(folder.join(&name), input)?;
        Ok(name)
    }
}

fn examples(target: &Target) -> PathBuf {
    root().join("corpus").join(target.name)
}

fn kept(target: &Target) -> PathBuf {
    // Tests keep what they break on purpose elsewhere.
    let root = std::env::var_os("FUZZ_KEPT").map_or_else(|| root().join("kept"), PathBuf::from);
    root.join(target.name)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// FNV-1a: a name of one's own for each input, the same everywhere.
fn digest(input: &[u8]) -> u64 {
    input.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
