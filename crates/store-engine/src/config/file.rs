//! redis.conf and `--name value` arguments.

use super::rewrite::quoted;
use super::{Config, Kind};

/// Why settings were refused: which line or argument, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Line number in the file, or `None` for an argument of the command line.
    pub line: Option<usize>,
    /// What it says, without passwords.
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
    for (index, line) in text.lines().enumerate() {
        let fail =
            |reason| ConfigError { line: Some(index + 1), text: shown(line.trim_ascii()), reason };
        apply_line(config, line, include).map_err(fail)?;
    }
    Ok(())
}

fn apply_line(config: &mut Config, line: &str, include: Include<'_>) -> Result<(), String> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let words = store_resp::split_quoted(line.as_bytes())
        .ok_or("Unbalanced quotes in configuration line")?;
    let words: Option<Vec<String>> =
        words.into_iter().map(|word| String::from_utf8(word).ok()).collect();
    let words = words.ok_or("not valid UTF-8")?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [name, path] if name.eq_ignore_ascii_case("include") => include(config, path)?,
        _ => apply(config, &words)?,
    }
    if !config.users().is_empty() && !config.settings().clients.acl_file.is_empty() {
        return Err("users stand either in this file or in an ACL file".to_owned());
    }
    Ok(())
}

/// Whether a file's name matches a pattern, for `include`.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let case = store_types::glob::Case::Sensitive;
    store_types::glob::matches(pattern.as_bytes(), name.as_bytes(), case)
}

/// A line as a message may repeat it: without what follows the name of a secret setting, wherever
/// that stands. A line that makes no sense may be two, or have its name in quotes.
fn shown(line: &str) -> String {
    let is_secret = |word: &str| {
        let name = word.trim_matches(['"', '\'']).split('=').next().unwrap_or_default();
        let found = Config::find(name);
        name.eq_ignore_ascii_case("user") || found.is_some_and(|setting| setting.is_secret)
    };
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let Some(at) = words.iter().position(|word| is_secret(word)) else { return line.to_owned() };
    let name = words[at].split('=').next().unwrap_or_default();
    [&words[..at], &[name, "(hidden)"]].concat().join(" ")
}

/// Applies the arguments of a command line as lines of a configuration file: see
/// [`argument_lines`]. Fails at the first that makes no sense, and where one includes a file: see
/// [`parse_arguments_including`].
pub fn parse_arguments(config: &mut Config, args: &[String]) -> Result<(), ConfigError> {
    let include = &mut |_: &mut Config, _: &str| Err("no file can be included here".to_owned());
    parse_arguments_including(config, args, include)
}

/// Applies the arguments of a command line, asking `include` to apply the files that they include.
pub fn parse_arguments_including(
    config: &mut Config,
    args: &[String],
    include: Include<'_>,
) -> Result<(), ConfigError> {
    let begins_bare = args.first().is_some_and(|arg| !arg.starts_with("--"));
    for (index, line) in argument_lines(args).lines().enumerate() {
        let dashes = if index == 0 && begins_bare { "" } else { "--" };
        let text = || format!("{dashes}{}", shown(line.trim_ascii()));
        let fail = |reason| ConfigError { line: None, text: text(), reason };
        apply_line(config, line, include).map_err(fail)?;
    }
    Ok(())
}

/// The configuration lines that arguments stand for, as redis-server reads them.
///
/// `--name` begins a line, and what follows are its values. The argument behind a bare `--name`
/// is a value whatever it looks like, so that a value may begin with dashes. `"--name value"` in
/// one argument is a line, too. Words before the first `--name` are a line of their own.
pub fn argument_lines(args: &[String]) -> String {
    let mut text = String::new();
    let mut may_begin = true;
    for (at, arg) in args.iter().enumerate() {
        let Some(option) = arg.strip_prefix("--").filter(|_| may_begin) else {
            text.push_str(&quoted(arg));
            text.push(' ');
            may_begin = true;
            continue;
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(option);
        text.push(' ');
        let is_bare = store_resp::split_quoted(arg.as_bytes()).is_some_and(|it| it.len() == 1);
        // Whoever makes the command line from a list writes nothing behind it for an empty one.
        let is_empty_save = arg.eq_ignore_ascii_case("--save")
            && args.get(at + 1).is_none_or(|next| next.starts_with("--"));
        if is_empty_save {
            text.push_str("\"\"");
        }
        may_begin = !is_bare || is_empty_save;
    }
    text
}

fn apply(config: &mut Config, words: &[&str]) -> Result<(), String> {
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
    match setting.kind {
        Kind::Save => config.add_save_points(setting, values),
        _ => config.set(setting, values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of<'a>(config: &'a Config, name: &str) -> &'a str {
        config.text_of(Config::find(name).unwrap())
    }

    #[test]
    fn a_file_is_read_line_by_line() {
        let mut config = Config::default();
        let text = "# comment\n\nport 7000\nSAVE 60 1\nsave 30 2\nmaxmemory 1gb\n\
                    requirepass \"a b\"\nhash-max-ziplist-entries 7\n";
        parse_file(&mut config, text).unwrap();
        assert_eq!(config.settings().listen.port, 7000);
        assert_eq!(text_of(&config, "save"), "60 1 30 2");
        assert_eq!(config.settings().memory.max, 1 << 30);
        assert_eq!(config.settings().clients.password, "a b");
        assert_eq!(config.settings().keys.limits.hash_listpack_entries_max, 7);
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
                "the allocator of this program cannot move memory in use",
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
    fn users_of_a_sentinel_have_rights_to_its_own_commands() {
        let text = "user limited on >secret +sentinel|masters";
        assert!(parse_file(&mut Config::of_sentinel(), text).is_ok());
        assert!(parse_file(&mut Config::default(), text).is_err());
        assert!(parse_file(&mut Config::of_sentinel(), "user a +set").is_err());
    }

    #[test]
    fn an_included_file_counts_where_it_is_included() {
        let mut config = Config::default();
        let text = "port 1\nmaxclients 1\ninclude other\nport 2";
        parse_file_including(&mut config, text, &mut |config, path| {
            assert_eq!((path, config.settings().listen.port), ("other", 1));
            parse_file(config, "port 3\nmaxclients 3").map_err(|error| error.to_string())
        })
        .unwrap();
        assert_eq!((config.settings().listen.port, config.settings().clients.count_max), (2, 3));
    }

    #[test]
    fn a_password_is_not_repeated() {
        let error = parse_file(&mut Config::default(), "requirepass canary x").unwrap_err();
        assert!(!error.to_string().contains("canary"), "{error}");
        for args in [
            &["--user", "ada", ">canary", "+nosuch"][..],
            &["requirepass", "canary", "x"],
            &["--requirepass canary x"],
            &["--requirepass=canary"],
            &["--port", "0", "requirepass", "canary"],
            &["--'masterauth' canary x"],
        ] {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            let error = parse_arguments(&mut Config::default(), &args).unwrap_err();
            assert!(!error.to_string().contains("canary"), "{error}");
            assert!(error.to_string().contains("(hidden)"), "{error}");
        }
    }

    #[test]
    fn arguments_are_read_as_redis_server_reads_them() {
        for (args, lines) in [
            (&["--maxmemory 700mb"][..], "maxmemory 700mb "),
            (&["maxmemory", "5mb", "--port", "0"], "\"maxmemory\" \"5mb\" \nport \"0\" "),
            (&["--requirepass", "--x", "--port", "0"], "requirepass \"--x\" \nport \"0\" "),
            (&["--save", "--port", "0"], "save \"\"\nport \"0\" "),
            (&["--port", "0", "--save"], "port \"0\" \nsave \"\""),
            (&["--save 1 2", "--save", "3 4"], "save 1 2 \nsave \"3 4\" "),
        ] {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            assert_eq!(argument_lines(&args), lines);
        }
    }

    #[test]
    fn save_points_of_arguments_add_to_those_of_the_file() {
        let mut config = Config::default();
        let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        parse_file(&mut config, "save 5 6").unwrap();
        parse_arguments(&mut config, &words("--save,7,8,--save,9 10")).unwrap();
        assert_eq!(text_of(&config, "save"), "5 6 7 8 9 10");
        parse_arguments(&mut config, &words("--save,,--save,1 2")).unwrap();
        assert_eq!(text_of(&config, "save"), "1 2");
        for wrong in ["--save,1 2,3 4", "--save,1,2,"] {
            let error = parse_arguments(&mut config, &words(wrong)).unwrap_err();
            assert_eq!(error.reason, "Invalid save parameters", "{wrong}");
        }
    }

    #[test]
    fn arguments_are_settings_too() {
        let mut config = Config::default();
        let args = ["--port", "0", "--save", "", "--bind", "127.0.0.1", "::1"];
        parse_arguments(&mut config, &args.map(str::to_owned)).unwrap();
        assert_eq!(text_of(&config, "bind"), "127.0.0.1 ::1");
        assert_eq!(text_of(&config, "save"), "");
        assert!(parse_arguments(&mut config, &["port".to_owned()]).is_err());
    }
}
