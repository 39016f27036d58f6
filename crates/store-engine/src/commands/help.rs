//! HELP of commands with subcommands.

use super::prelude::*;

/// Answers with one line per subcommand and an indented line of what it does.
///
/// The wording is ours; only the frame is what tools know.
pub(super) fn reply(cx: &mut Context<'_>, name: &str, lines: &[(&str, &str)]) {
    cx.reply.array(1 + 2 * lines.len() + 2);
    let intro = "<subcommand> [<arg> [value] [opt] ...]. Subcommands are:";
    cx.reply.simple(&format!("{name} {intro}"));
    for (usage, meaning) in lines.iter().chain(&[("HELP", "Print this help.")]) {
        cx.reply.simple(usage);
        cx.reply.simple(&format!("    {meaning}"));
    }
}
