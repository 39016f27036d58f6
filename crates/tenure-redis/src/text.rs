//! Text from a store that users are shown, and back: shortened, and without control characters.

use tenure_core::text::is_deceptive;

/// How much of a server's words an error or warning carries, in characters.
const MESSAGE_LEN_MAX: usize = 240;

/// A server's words, fit for a log line or a terminal: one line, bounded, nothing invisible.
pub(super) fn cleaned(text: &str) -> String {
    tenure_core::text::escaped(text.trim(), MESSAGE_LEN_MAX).to_string()
}

/// Bytes as text that can be turned back: what is not plain text is written `\xNN`.
pub(super) fn escaped(bytes: &[u8]) -> String {
    tenure_core::text::escaped_bytes(bytes, |c| c == '\\' || is_deceptive(c))
}

/// The bytes that [`escaped`] turned into `text`.
pub(super) fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.strip_prefix(b"x").and_then(|digits| digits.get(..2));
        let code = hex
            .filter(|_| first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_the_way_to_text_and_back() {
        let samples: [&[u8]; 6] =
            [b"", b"web-1_00", b"\xff\xfe\x00", b"a\\x41", b"\\", "ü\u{202e}".as_bytes()];
        for bytes in samples {
            let text = escaped(bytes);
            assert!(!text.chars().any(is_deceptive), "{text:?}");
            assert_eq!(unescaped(&text), bytes, "{text}");
        }
    }

    #[test]
    fn a_message_stays_one_bounded_visible_line() {
        let message = cleaned(&format!("ERR a\r\n\u{1b}[31mred\u{202e}{}", "x".repeat(1000)));
        assert!(message.starts_with(r"ERR a\r\n\u{1b}[31mred\u{202e}xx"), "{message}");
        assert!(message.chars().count() < MESSAGE_LEN_MAX + 20);
    }
}
