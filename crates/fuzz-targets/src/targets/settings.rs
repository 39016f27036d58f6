//! redis.conf: a file that a person or a tool wrote.

use store_engine::{Config, parse_arguments, parse_file, rewrite_file};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "settings",
    about: "configuration files in the syntax of redis.conf",
    run,
    words: &[
        b"port ",
        b"bind ",
        b"save ",
        b"maxmemory ",
        b"1gb",
        b"-1",
        b"99999999999999999999",
        b"\"",
        b"\n",
        b"#",
        b"user default on >x ~* +@all",
        b"client-output-buffer-limit ",
        b"include ",
        b"rename-command ",
        b"notify-keyspace-events ",
        b"requirepass ",
        b"yes",
        b"no",
        b"\r\n",
    ],
};

fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // The same words as a command line, where any outcome will do.
    let words: Vec<String> = text.split([' ', '\0']).map(str::to_owned).collect();
    let _ = parse_arguments(&mut Config::default(), &words);
    let mut config = Config::default();
    if parse_file(&mut config, &text).is_err() {
        return;
    }
    // What was taken can be written and is taken again.
    let written = rewrite_file(&config, &text);
    let mut again = Config::default();
    if let Err(error) = parse_file(&mut again, &written) {
        panic!("what CONFIG REWRITE wrote is refused: {error}\n{written}");
    }
}
