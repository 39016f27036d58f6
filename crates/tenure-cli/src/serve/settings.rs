//! Settings from a file, the files it includes, and the command line.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use store_engine::{Config, ConfigError, SETTINGS, parse_arguments, parse_file_including};

/// Files that include files that include files: beyond this it is a circle.
const DEPTH_MAX: usize = 16;

/// What `file` and `words` say; the words win. `-` reads the file from stdin.
pub(super) fn read(file: Option<&Path>, words: &[String]) -> anyhow::Result<Config> {
    let mut config = Config::default();
    if let Some(path) = file {
        let text = match path.to_str() {
            Some("-") => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).map(|_| text)
            }
            _ => fs::read_to_string(path),
        };
        let name = path.display();
        let text = text.with_context(|| format!("cannot read the configuration file {name}"))?;
        let include = &mut |config: &mut Config, pattern: &str| include(config, pattern, 1);
        let read = parse_file_including(&mut config, &text, include);
        read.map_err(with_suggestion).with_context(|| name.to_string())?;
    }
    parse_arguments(&mut config, words).map_err(with_suggestion)?;
    Ok(config)
}

/// The farthest that a word may be from a setting to be taken for it.
const EDITS_MAX: usize = 3;

/// Adds the setting that was probably meant to the refusal of one that is not there.
fn with_suggestion(error: ConfigError) -> ConfigError {
    let word = error.text.split_whitespace().next().unwrap_or_default();
    let name = word.trim_start_matches("--").to_ascii_lowercase();
    if Config::find(&name).is_some() {
        return error;
    }
    let far = |known: &str| strsim::damerau_levenshtein(known, &name);
    let near = SETTINGS.iter().map(|setting| setting.name).min_by_key(|known| far(known));
    match near.filter(|known| far(known) <= EDITS_MAX.min(name.len() / 2)) {
        Some(near) => {
            let dashes = if error.line.is_none() { "--" } else { "" };
            let reason = format!("{}; did you mean {dashes}{near}?", error.reason);
            ConfigError { reason, ..error }
        }
        None => error,
    }
}

/// Applies the file of an `include` line, or all that match it, in order of their names.
fn include(config: &mut Config, pattern: &str, depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("more than {DEPTH_MAX} files include one another"));
    }
    for path in matching(Path::new(pattern))? {
        let name = path.display();
        let text = fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let further = &mut |config: &mut Config, pattern: &str| include(config, pattern, depth + 1);
        parse_file_including(config, &text, further).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// The files that a path names; its last part may be a pattern, which may match none.
fn matching(path: &Path) -> Result<Vec<PathBuf>, String> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let pattern = match name {
        Some(name) if name.contains(['*', '?', '[']) => name,
        _ => return Ok(vec![path.to_owned()]),
    };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let fail = |error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if store_engine::name_matches(&pattern, &entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
