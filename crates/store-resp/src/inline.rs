//! Words with quotes, as in inline requests and in configuration files.

/// Splits a line into words. `"…"` takes the escapes `\n \r \t \b \a \xHH \\ \"`, `'…'` only
/// `\'`; a closing quote must be followed by white space or the end.
///
/// `None` when quotes do not balance.
/// ```
/// assert_eq!(store_resp::split_quoted(br#"set "a b" 'c'"#).unwrap().len(), 3);
/// assert_eq!(store_resp::split_quoted(br#"set "a"b"#), None);
/// ```
pub fn split_quoted(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest
            && is_space(*first)
        {
            rest = tail;
        }
        if rest.is_empty() || rest[0] == 0 {
            return Some(words);
        }
        let (word, tail) = split_word(rest)?;
        words.push(word);
        rest = tail;
    }
}

/// White space as C's `isspace` has it.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// One word, whose quoted part may begin in its middle, and what follows it.
fn split_word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut rest = text;
    loop {
        match rest {
            [] | [0, ..] => return Some((word, &[])),
            [b'"', tail @ ..] => {
                let tail = unquote_double(tail, &mut word)?;
                return Some((word, tail));
            }
            [b'\'', tail @ ..] => {
                let tail = unquote_single(tail, &mut word)?;
                return Some((word, tail));
            }
            [byte, tail @ ..] if is_space(*byte) => return Some((word, tail)),
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn unquote_double<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        match rest {
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex_value(*high) * 16 + hex_value(*low));
                rest = tail;
            }
            [b'\\', escaped, tail @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = tail;
            }
            [b'"', tail @ ..] => return ends_word(tail).then_some(tail),
            [] => return None,
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn unquote_single<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        match rest {
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                rest = tail;
            }
            [b'\'', tail @ ..] => return ends_word(tail).then_some(tail),
            [] => return None,
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn ends_word(rest: &[u8]) -> bool {
    rest.first().is_none_or(|byte| is_space(*byte))
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split_quoted(line.as_bytes())?;
        Some(words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect())
    }

    #[test]
    fn quotes_group_and_escape() {
        assert_eq!(words("  a  b\t").unwrap(), ["a", "b"]);
        assert_eq!(words(r#"a"b c" d"#).unwrap(), ["ab c", "d"]);
        assert_eq!(words(r#""\x41\n\"" '\'x\n'"#).unwrap(), ["A\n\"", "'x\\n"]);
        assert_eq!(words(r#""" ''"#).unwrap(), ["", ""]);
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [r#"""#, "'", r#""a"b"#, "'a'b", r#""abc\"#] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
