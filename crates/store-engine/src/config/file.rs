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

/// Applies the text of a redis.conf. Fails at the first line that makes no sense.
pub fn parse_file(config: &mut Config, text: &str) -> Result<(), ConfigError> {
    let mut saves = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fail =
            |reason: String| ConfigError { line: Some(index + 1), text: line.to_owned(), reason };
        let words = store_resp::split_quoted(line.as_bytes())
            .ok_or_else(|| fail("Unbalanced quotes in configuration line".to_owned()))?;
        let words: Option<Vec<String>> =
            words.into_iter().map(|word| String::from_utf8(word).ok()).collect();
        let words = words.ok_or_else(|| fail("not valid UTF-8".to_owned()))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        apply(config, &words, &mut saves).map_err(fail)?;
        if !config.users().is_empty() && !config.text("aclfile").is_empty() {
            return Err(fail("users stand either in this file or in an ACL file".to_owned()));
        }
    }
    Ok(())
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
    fn arguments_are_settings_too() {
        let mut config = Config::default();
        let args = ["--port", "0", "--save", "", "--bind", "127.0.0.1", "::1"];
        parse_arguments(&mut config, &args.map(str::to_owned)).unwrap();
        assert_eq!(config.text("bind"), "127.0.0.1 ::1");
        assert_eq!(config.text("save"), "");
        assert!(parse_arguments(&mut config, &["port".to_owned()]).is_err());
    }
}
