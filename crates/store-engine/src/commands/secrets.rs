//! Which arguments nobody may see: MONITOR and SLOWLOG leave them out.

use super::prelude::*;

/// The positions of the passwords in a request.
pub(crate) fn of(command: &Command, request: Request<'_>) -> Vec<usize> {
    command.find_secrets.map_or(Vec::new(), |find_secrets| find_secrets(request))
}

/// The positions of the `count` arguments behind each `word`.
pub(crate) fn behind(
    request: Request<'_>,
    word: &'static str,
    count: usize,
) -> impl Iterator<Item = usize> {
    let words = (1..request.len()).filter(move |at| is_word(request.arg(*at), word));
    words.flat_map(move |at| at + 1..=at + count)
}
