//! What `help` says.

use std::fmt::Write as _;

use super::super::command_docs::{CommandDocs, Entry};

const HOW_TO: &str = "\
tenure cli
To get help about store commands type:
      \"help <command>\" for help on <command>
      \"help @<group>\" to get a list of commands in <group>
      \"help <tab>\" to get a list of possible help topics
      \"quit\" to exit

Others: \"clear\" clears the screen, \"connect <host> <port>\" connects elsewhere, \"5 PING\"
pings five times. Ctrl-C leaves SUBSCRIBE, MONITOR and commands that block. Lines with passwords
are not kept.

";

/// The help for the words behind `help`.
pub(super) fn about(docs: &CommandDocs, words: &[Vec<u8>]) -> String {
    let words: Vec<String> =
        words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    match words.as_slice() {
        [] => HOW_TO.to_owned(),
        [group] if group.starts_with('@') => about_group(docs, &group[1..]),
        _ => about_command(docs, &words.join(" ")),
    }
}

fn about_group(docs: &CommandDocs, group: &str) -> String {
    let mut text = String::from("\n");
    for (name, entry) in docs.of_group(group) {
        describe(&mut text, name, entry);
    }
    if text.len() > 1 {
        return text;
    }
    format!("There is no group {group:?}. The groups are: {}\n", docs.groups().join(", "))
}

fn about_command(docs: &CommandDocs, name: &str) -> String {
    let Some(entry) = docs.find(name) else {
        return format!("There is no command {name:?}. \"help\" says how to find one.\n");
    };
    let upper = name.to_ascii_uppercase();
    let mut text = String::from("\n");
    describe(&mut text, &upper, entry);
    let subcommands: Vec<&str> = docs.subcommands(name, "").collect();
    if !subcommands.is_empty() {
        let _ = writeln!(text, "  subcommands: {}\n", subcommands.join(", "));
    }
    text
}

fn describe(text: &mut String, name: &str, entry: &Entry) {
    let Entry { syntax, summary, since, group } = entry;
    // A string takes all text.
    let _ = write!(
        text,
        "  {name} {syntax}\n  summary: {summary}\n  since: {since}\n  group: {group}\n\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about_line(line: &str) -> String {
        about(&CommandDocs::built_in(), &store_resp::split_quoted(line.as_bytes()).unwrap())
    }

    #[test]
    fn commands_subcommands_and_groups_are_explained() {
        assert!(about_line("get").starts_with("\n  GET key\n  summary: "));
        assert!(about_line("config set").contains("CONFIG SET parameter value"));
        assert!(about_line("config").contains("subcommands: GET, HELP, RESETSTAT, REWRITE, SET"));
        assert!(about_line("@hyperloglog").contains("PFADD key"));
        assert!(about_line("@nosuch").contains("sorted-set"));
        assert!(about_line("nosuch").contains("no command \"nosuch\""));
        assert!(about_line("").contains("help <command>"));
    }
}
