//! Which commands carry a password: their lines are kept nowhere.

/// Settings whose value is a password or leads to one.
const SECRET_SETTINGS: &[&[u8]] = &[
    b"requirepass",
    b"masterauth",
    b"masteruser",
    b"tls-key-file-pass",
    b"tls-client-key-file-pass",
    b"sentinel-pass",
    b"auth-pass",
];

/// Whether a line must not be remembered. `words` is `None` where the line cannot be split; then
/// its text decides.
pub(super) fn is_secret(line: &str, words: Option<&[Vec<u8>]>) -> bool {
    match words {
        Some(words) => command_is_secret(words),
        None => {
            let text = line.to_ascii_lowercase();
            ["auth", "pass", "acl", "hello", "migrate"].iter().any(|word| text.contains(word))
        }
    }
}

fn command_is_secret(words: &[Vec<u8>]) -> bool {
    let lower: Vec<Vec<u8>> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let word = |at: usize| lower.get(at).map_or(&[][..], Vec::as_slice);
    let has = |names: &[&[u8]]| lower.iter().skip(1).any(|word| names.contains(&word.as_slice()));
    match word(0) {
        b"auth" => true,
        b"hello" => has(&[b"auth"]),
        b"migrate" => has(&[b"auth", b"auth2"]),
        b"acl" => matches!(word(1), b"setuser" | b"dryrun"),
        b"config" => word(1) == b"set" && has(SECRET_SETTINGS),
        b"sentinel" => has(SECRET_SETTINGS),
        // A number before a command repeats it; a wrong one is still a try at a secret command.
        first if first.iter().all(u8::is_ascii_digit) && words.len() > 1 => {
            command_is_secret(&words[1..])
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use store_resp::split_quoted;

    use super::*;

    fn is_kept(line: &str) -> bool {
        !is_secret(line, split_quoted(line.as_bytes()).as_deref())
    }

    #[test]
    fn lines_with_passwords_are_not_kept() {
        for line in [
            "AUTH secret",
            "auth ada secret",
            "HELLO 3 AUTH ada secret",
            "config set maxmemory 1 requirepass secret",
            "ACL SETUSER ada >secret",
            "MIGRATE h 1 k 0 10 AUTH secret",
            "0 AUTH secret",
            "AUTH \"secret",
            "sentinel set main auth-pass secret",
        ] {
            assert!(!is_kept(line), "{line}");
        }
        for line in ["SET a 1", "HELLO 3", "CONFIG GET requirepass", "ACL LIST", "GET auth"] {
            assert!(is_kept(line), "{line}");
        }
    }
}
