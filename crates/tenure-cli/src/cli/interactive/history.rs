//! Where the history of lines is kept.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The variable that names another file; empty for none.
const VARIABLE: &str = "TENURE_CLI_HISTORY";
/// Lines kept.
pub(super) const LINES_MAX: usize = 1000;

/// The file of the history, in a folder that exists. `None` when none is wanted or possible.
pub(super) fn file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name);
    let path = path(variable(VARIABLE), variable("XDG_STATE_HOME"), variable("HOME"))?;
    let folder = path.parent()?;
    // Only the owner may read what was typed.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.ok().map(|()| path)
}

fn path(
    told: Option<OsString>,
    state_folder: Option<OsString>,
    home: Option<OsString>,
) -> Option<PathBuf> {
    if let Some(told) = told {
        return (!told.is_empty()).then(|| PathBuf::from(told));
    }
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state_folder
        .and_then(absolute)
        .or_else(|| home.and_then(absolute).map(|home| home.join(Path::new(".local/state"))))?;
    Some(state.join("tenure").join("cli_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_lies_in_the_state_folder_of_the_user() {
        let some = |text: &str| Some(OsString::from(text));
        let of = |told, state, home| path(told, state, home).map(|p| p.display().to_string());
        assert_eq!(of(some("/x/h"), some("/s"), some("/home/a")).unwrap(), "/x/h");
        assert_eq!(of(some(""), some("/s"), some("/home/a")), None);
        assert_eq!(of(None, some("/s"), some("/home/a")).unwrap(), "/s/tenure/cli_history");
        let home = "/home/a/.local/state/tenure/cli_history";
        assert_eq!(of(None, None, some("/home/a")).unwrap(), home);
        assert_eq!(of(None, some("relative"), some("/home/a")).unwrap(), home);
        assert_eq!(of(None, None, None), None);
    }
}
