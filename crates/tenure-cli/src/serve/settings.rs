//! Settings from a file, the files it includes, and the command line.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use store_engine::{
    Config, ConfigError, SETTINGS, parse_arguments_including, parse_file_including,
};

/// Files that include files that include files: beyond this it is a circle.
const DEPTH_MAX: usize = 16;

/// Where the words of the command line say that settings are; what comes later wins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sources {
    pub(super) file: Option<PathBuf>,
    reads_stdin: bool,
    words: Vec<String>,
}

impl Sources {
    /// A first word that does not begin with a dash is a file. `-` as the first or the last word
    /// stands for stdin.
    pub(super) fn of(mut words: Vec<String>) -> Self {
        let is_file = words.first().is_some_and(|first| !first.starts_with('-'));
        let file = is_file.then(|| PathBuf::from(words.remove(0)));
        let is_stdin = |word: Option<&String>| word.is_some_and(|word| word == "-");
        let mut reads_stdin = false;
        if file.is_none() && is_stdin(words.first()) {
            (reads_stdin, _) = (true, words.remove(0));
        }
        if is_stdin(words.last()) {
            (reads_stdin, _) = (true, words.pop());
        }
        Self { file, reads_stdin, words }
    }
}

/// The settings of all sources.
pub(super) fn read(sources: &Sources) -> anyhow::Result<Config> {
    let text = sources.file.as_deref().map(read_file).transpose()?;
    read_onto(Config::default(), sources, text.as_deref())
}

/// The text of a configuration file.
pub(super) fn read_file(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration file {}", path.display()))
}

/// The settings of all sources on top of `config`; `text` is what is in the file.
pub(super) fn read_onto(
    mut config: Config,
    sources: &Sources,
    text: Option<&str>,
) -> anyhow::Result<Config> {
    let include = &mut |config: &mut Config, pattern: &str| include(config, pattern, 1);
    if let (Some(path), Some(text)) = (&sources.file, text) {
        let read = parse_file_including(&mut config, text, include);
        read.map_err(with_suggestion).with_context(|| path.display().to_string())?;
    }
    if sources.reads_stdin {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read settings from stdin")?;
        let read = parse_file_including(&mut config, &text, include);
        read.map_err(with_suggestion).context("stdin")?;
    }
    parse_arguments_including(&mut config, &sources.words, include).map_err(with_suggestion)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_first_and_stdin_first_or_last() {
        let of = |text: &str| Sources::of(text.split_whitespace().map(str::to_owned).collect());
        for (text, file, reads_stdin, words) in [
            ("", None, false, 0),
            ("a.conf --port 1", Some("a.conf"), false, 2),
            ("a.conf port 1 -", Some("a.conf"), true, 2),
            ("- --port 1", None, true, 2),
            ("--port 1 -", None, true, 2),
            ("-", None, true, 0),
            ("--requirepass - --port 1", None, false, 4),
        ] {
            let sources = of(text);
            assert_eq!(sources.file.as_deref(), file.map(Path::new), "{text}");
            assert_eq!((sources.reads_stdin, sources.words.len()), (reads_stdin, words), "{text}");
        }
    }
}
