//! redis.conf and `--name value` arguments.

use super::{Config, Kind};

/// Why settings were refused: which line or argument, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Line number in the file, or `None` for an argument of the command line.
    pub line: Option<usize>,
    /// What stands there.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "configuration line {line}: '{}': {}", self.text, self.reason),
            None => write!(f, "argument '{}': {}", self.text, self.reason),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Applies the text of a redis.conf. Fails at the first line that makes no sense, and where it
/// includes another file: see [`parse_file_including`].
pub fn parse_file(config: &mut Config, text: &str) -> Result<(), ConfigError> {
    parse_file_including(config, text, &mut |_, _| Err("no file can be included here".to_owned()))
}

/// What applies the file that an `include` line names. Fails with the reason.
pub type Include<'a> = &'a mut dyn FnMut(&mut Config, &str) -> Result<(), String>;

/// Applies the text of a redis.conf, asking `include` to apply the files that it includes at the
/// place where it does.
pub fn parse_file_including(
    config: &mut Config,
    text: &str,
    include: Include<'_>,
) -> Result<(), ConfigError> {
    let mut saves = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fail =
            |reason: String| ConfigError { line: Some(index + 1), text: shown(line), reason };
        let words = store_resp::split_quoted(line.as_bytes())
            .ok_or_else(|| fail("Unbalanced quotes in configuration line".to_owned()))?;
        let words: Option<Vec<String>> =
            words.into_iter().map(|word| String::from_utf8(word).ok()).collect();
        let words = words.ok_or_else(|| fail("not valid UTF-8".to_owned()))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [name, path] if name.eq_ignore_ascii_case("include") => include(config, path),
            _ => apply(config, &words, &mut saves),
        }
        .map_err(fail)?;
        if !config.users().is_empty() && !config.text("aclfile").is_empty() {
            return Err(fail("users stand either in this file or in an ACL file".to_owned()));
        }
    }
    Ok(())
}

/// Whether a file's name matches a pattern, for `include`.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let case = store_types::glob::Case::Sensitive;
    store_types::glob::matches(pattern.as_bytes(), name.as_bytes(), case)
}

/// A line as a message may repeat it: without a password.
fn shown(line: &str) -> String {
    let name = line.split_whitespace().next().unwrap_or_default();
    match Config::find(name) {
        Some(setting) if setting.is_secret => format!("{name} (hidden)"),
        _ => line.to_owned(),
    }
}

/// Applies arguments of the form `--name value…`. Fails at the first that makes no sense.
pub fn parse_arguments(config: &mut Config, args: &[String]) -> Result<(), ConfigError> {
    let mut saves = Vec::new();
    let mut at = 0;
    while at < args.len() {
        let fail = |reason: &str| ConfigError {
            line: None,
            text: args[at].clone(),
            reason: reason.to_owned(),
        };
        let name = args[at].strip_prefix("--").ok_or_else(|| fail("expected --name value"))?;
        let next = args[at + 1..].iter().position(|arg| arg.starts_with("--"));
        let end = next.map_or(args.len(), |offset| at + 1 + offset);
        let mut words = vec![name];
        words.extend(args[at + 1..end].iter().map(String::as_str));
        apply(config, &words, &mut saves).map_err(|reason| fail(&reason))?;
        at = end;
    }
    Ok(())
}

/// `saves` collects the pairs of several `save` lines, which add up.
fn apply(config: &mut Config, words: &[&str], saves: &mut Vec<String>) -> Result<(), String> {
    let [name, values @ ..] = words else { return Ok(()) };
    if name.eq_ignore_ascii_case("user") {
        return config.add_user(values);
    }
    if name.eq_ignore_ascii_case("rename-command") {
        return config.rename_command(values);
    }
    if name.eq_ignore_ascii_case("loadmodule") {
        return Err("modules are compiled for redis-server itself and cannot be loaded".to_owned());
    }
    let setting = Config::find(name).ok_or("Bad directive or wrong number of arguments")?;
    if values.is_empty() && !matches!(setting.kind, Kind::Words | Kind::Save) {
        return Err("wrong number of arguments".to_owned());
    }
    if setting.kind != Kind::Save {
        return config.set(setting, values);
    }
    match values {
        [] | [""] => saves.clear(),
        pairs => saves.extend(pairs.iter().map(|word| (*word).to_owned())),
    }
    let words: Vec<&str> = saves.iter().map(String::as_str).collect();
    config.set(setting, &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_line_by_line() {
        let mut config = Config::default();
        let text = "# comment\n\nport 7000\nSAVE 60 1\nsave 30 2\nmaxmemory 1gb\n\
                    requirepass \"a b\"\nhash-max-ziplist-entries 7\n";
        parse_file(&mut config, text).unwrap();
        assert_eq!(config.number("port"), 7000);
        assert_eq!(config.text("save"), "60 1 30 2");
        assert_eq!(config.number("maxmemory"), 1 << 30);
        assert_eq!(config.text("requirepass"), "a b");
        assert_eq!(config.number("hash-max-listpack-entries"), 7);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        for (text, line, reason) in [
            ("port 1\nnosuch 1", 2, "Bad directive or wrong number of arguments"),
            ("port x", 1, "argument couldn't be parsed into an integer"),
            ("port 70000", 1, "argument must be between 0 and 65535 inclusive"),
            ("port", 1, "wrong number of arguments"),
            ("include x", 1, "no file can be included here"),
            ("rename-command nosuch x", 1, "No such command in rename-command"),
            ("rename-command get x\nrename-command set X", 2, "Target command name already exists"),
            (
                "io-threads 4\nactivedefrag yes",
                2,
                "the allocator of this program cannot move what it gave out",
            ),
            (
                "loadmodule x.so",
                1,
                "modules are compiled for redis-server itself and cannot be loaded",
            ),
            ("dir \"x", 1, "Unbalanced quotes in configuration line"),
            (
                "user a +nosuch",
                1,
                "Error in rule '+nosuch': Unknown command or category name in ACL",
            ),
            ("user a on\naclfile x", 2, "users stand either in this file or in an ACL file"),
        ] {
            let error = parse_file(&mut Config::default(), text).unwrap_err();
            assert_eq!((error.line, error.reason.as_str()), (Some(line), reason));
        }
    }

    #[test]
    fn an_included_file_counts_where_it_is_included() {
        let mut config = Config::default();
        let text = "port 1\nmaxclients 1\ninclude other\nport 2";
        parse_file_including(&mut config, text, &mut |config, path| {
            assert_eq!((path, config.number("port")), ("other", 1));
            parse_file(config, "port 3\nmaxclients 3").map_err(|error| error.to_string())
        })
        .unwrap();
        assert_eq!((config.number("port"), config.number("maxclients")), (2, 3));
    }

    #[test]
    fn a_password_is_not_repeated() {
        let error = parse_file(&mut Config::default(), "requirepass canary x").unwrap_err();
        assert!(!error.to_string().contains("canary"), "{error}");
    }

    #[test]
    fn arguments_are_settings_too() {
        let mut config = Config::default();
        let args = ["--port", "0", "--save", "", "--bind", "127.0.0.1", "::1"];
        parse_arguments(&mut config, &args.map(str::to_owned)).unwrap();
        assert_eq!(config.text("bind"), "127.0.0.1 ::1");
        assert_eq!(config.text("save"), "");
        assert!(parse_arguments(&mut config, &["port".to_owned()]).is_err());
    }
}
