//! Settings from a file, the files it includes, and the command line.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use store_engine::{Config, parse_arguments, parse_file_including};

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
        parse_file_including(&mut config, &text, include).with_context(|| name.to_string())?;
    }
    parse_arguments(&mut config, words)?;
    Ok(config)
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
