//! Text from outside, made safe to show.
//!
//! Names, reasons and error texts come from a store into which anybody may have written. Some
//! characters act on a terminal, change the direction of writing, or are invisible, so that one
//! name looks like another.

use std::fmt::{self, Write};

/// Characters that are formats, line separators, or ignorable by default (the Unicode properties
/// `Cf`, `Zl`, `Zp` and `Default_Ignorable_Code_Point`, version 16), as sorted ranges.
const UNSEEN: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether a character may deceive a reader: a control character, one that changes the direction of
/// writing, or an invisible one.
pub fn is_deceptive(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let place = UNSEEN.partition_point(|(_, last)| *last < c);
    c.is_control() || UNSEEN.get(place).is_some_and(|(first, _)| *first <= c)
}

/// The first `len_max` characters of a text, with `substitute` for each that is deceptive.
pub fn plain(text: &str, len_max: usize, substitute: char) -> String {
    let shown = text.chars().take(len_max);
    shown.map(|c| if is_deceptive(c) { substitute } else { c }).collect()
}

/// A text with each deceptive character written as an escape (`\u{202e}`), cut with `…` after
/// `len_max` characters.
pub fn escaped(text: &str, len_max: usize) -> impl fmt::Display + '_ {
    Escaped { text, len_max }
}

struct Escaped<'a> {
    text: &'a str,
    len_max: usize,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, c) in self.text.chars().enumerate() {
            if index == self.len_max {
                return f.write_str("…");
            }
            match is_deceptive(c) {
                true => write!(f, "{}", c.escape_default())?,
                false => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Bytes as text, with `\xNN` for each byte that is not UTF-8 and for the bytes of each character
/// that `is_escaped` asks to have escaped, such as [`is_deceptive`].
pub fn escaped_bytes(bytes: &[u8], is_escaped: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_escaped(c) {
                true => push_hex(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
                false => text.push(c),
            }
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

/// The same JSON with every deceptive character escaped. Programs read the same values as before; a
/// terminal shows what is there.
pub fn escaped_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        // Line breaks between values are the writer's own; inside of texts they are escaped.
        if c == '\n' || !is_deceptive(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            escaped.push_str("\\u");
            for place in (0..4).rev() {
                let digit = u32::from(*unit >> (4 * place)) & 15;
                escaped.push(char::from_digit(digit, 16).expect("four bits are a digit"));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_what_it_seems_is_found() {
        let bad = [
            '\0',
            '\u{1b}',
            '\n',
            '\u{7f}',
            '\u{85}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{2028}',
            '\u{2029}',
            '\u{202e}',
            '\u{2060}',
            '\u{2064}',
            '\u{2069}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{e0041}',
            '\u{e007f}',
            '\u{e01ef}',
        ];
        for c in bad {
            assert!(is_deceptive(c), "{c:?}");
        }
        for c in "web-1 ä 漢 я ש ع 🙂 – … \u{fffd} \u{2010}".chars() {
            assert!(!is_deceptive(c), "{c:?}");
        }
    }

    #[test]
    fn the_ranges_are_in_order() {
        let all: Vec<char> = UNSEEN.iter().flat_map(|(first, last)| [*first, *last]).collect();
        assert!(all.is_sorted(), "a range is out of order");
        assert!(UNSEEN.windows(2).all(|pair| pair[0].1 < pair[1].0), "two ranges overlap");
    }

    #[test]
    fn json_stays_the_same_to_programs() {
        assert_eq!(escaped_json("{\"a\":\"\u{202e}b\"}\n"), "{\"a\":\"\\u202eb\"}\n");
        assert_eq!(escaped_json("\u{e0041}"), "\\udb40\\udc41");
        assert_eq!(plain("a\u{202e}bc", 3, '?'), "a?b");
        assert_eq!(escaped("a\u{202e}bc", 3).to_string(), "a\\u{202e}b…");
        assert_eq!(escaped("abc", 3).to_string(), "abc");
    }

    #[test]
    fn bytes_become_text_that_shows_what_is_there() {
        assert_eq!(escaped_bytes(b"a\x1b\xff", is_deceptive), "a\\x1b\\xff");
        assert_eq!(escaped_bytes("ü\u{202e}\n".as_bytes(), |c| c == '\n'), "ü\u{202e}\\x0a");
    }
}
