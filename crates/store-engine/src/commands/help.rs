//! HELP of commands with subcommands.

use super::prelude::*;

/// Answers with one line per subcommand and an indented line of what it does.
///
/// The wording is ours; only the frame is what tools know.
pub(crate) fn reply(cx: &mut Context<'_>, name: &str, lines: &[(&str, &str)]) {
    cx.reply.array(1 + 2 * lines.len() + 2);
    let intro = "<subcommand> [<arg> [value] [opt] ...]. Subcommands are:";
    cx.reply.simple(&format!("{name} {intro}"));
    for (usage, meaning) in lines.iter().chain(&[("HELP", "Print this help.")]) {
        cx.reply.simple(usage);
        cx.reply.simple(&format!("    {meaning}"));
    }
}

/// The error for a subcommand that is there, but not with these arguments.
pub(crate) fn wrong_arguments(container: &str, request: Request<'_>) -> CommandError {
    const ECHOED_MAX: usize = 128;
    let name = request.get(1).unwrap_or_default();
    let mut text = b"ERR unknown subcommand or wrong number of arguments for '".to_vec();
    text.extend_from_slice(&name[..name.len().min(ECHOED_MAX)]);
    text.extend_from_slice(format!("'. Try {container} HELP.").as_bytes());
    CommandError::new(text)
}
