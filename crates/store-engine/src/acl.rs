//! Who may do what.
//!
//! So far one user, `default`, who may do everything once `requirepass` is satisfied.

use store_resp::Request;

use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::session::session_flag;

/// Checks a restricted session's request against its user's rules.
pub(crate) fn check(_: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    Ok(())
}

/// Logs the session in. Fails when name and password do not match.
pub(crate) fn authenticate(cx: &mut Context<'_>, user: &[u8], password: &[u8]) -> CommandResult {
    let wanted = cx.server.config.text("requirepass");
    if user == b"default" && (wanted.is_empty() || same(wanted.as_bytes(), password)) {
        cx.session.flags &= !session_flag::NEEDS_AUTH;
        return Ok(());
    }
    cx.server.stats.auth_failures += 1;
    let text = "WRONGPASS invalid username-password pair or user is disabled.";
    Err(CommandError::text(text))
}

/// Compares in a time that tells nothing of where two passwords differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    let different = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && std::hint::black_box(different) == 0
}
