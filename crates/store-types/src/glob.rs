//! Glob patterns as KEYS, SCAN and PSUBSCRIBE match them.
//!
//! In come a pattern and a text, out goes a verdict. `*` is any run, `?` any byte, `[a-z]` and
//! `[^a-z]` a class, `\` makes the next byte literal. Only the last `*` is ever taken back, so the
//! time is bounded by pattern length times text length and nothing recurses.

/// Whether letters match in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// `a` matches `a` only.
    Sensitive,
    /// `a` matches `a` and `A`; ASCII letters only.
    Insensitive,
}

/// Whether the whole of `text` matches `pattern`. As in Redis no pattern but the empty one and a
/// lone `*` matches the empty text.
///
/// ```
/// # use store_types::glob::{Case, matches};
/// assert!(matches(b"h[^e]llo*", b"hallo!", Case::Sensitive));
/// assert!(!matches(b"h[^e]llo*", b"hello!", Case::Sensitive));
/// ```
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    if text.is_empty() {
        return pattern.is_empty() || pattern == b"*";
    }
    let (mut at, mut from) = (0, 0);
    // Where to go on after a mismatch: the pattern after the last star, the text it may swallow.
    let mut retry: Option<(usize, usize)> = None;
    while from < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            if at == pattern.len() {
                return true;
            }
            retry = Some((at, from));
            continue;
        }
        if let Some(next) = match_one(&pattern[at..], text[from], case) {
            at += next;
            from += 1;
            continue;
        }
        let Some((pattern_at, text_from)) = retry else { return false };
        (at, from) = (pattern_at, text_from + 1);
        retry = Some((at, from));
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// Whether `pattern` has no special byte, and so matches only itself.
pub fn is_literal(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

/// The length of the pattern's first item when it matches `byte`.
#[inline]
fn match_one(pattern: &[u8], byte: u8, case: Case) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => match_class(pattern, byte, case),
        b'\\' if pattern.len() >= 2 => same(pattern[1], byte, case).then_some(2),
        literal => same(literal, byte, case).then_some(1),
    }
}

/// A class starts at `pattern[0]`. One that is never closed ends with the pattern.
fn match_class(pattern: &[u8], byte: u8, case: Case) -> Option<usize> {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(negated);
    let mut found = false;
    while at < pattern.len() && pattern[at] != b']' {
        match pattern[at..] {
            [b'\\', literal, ..] => {
                // An escaped byte in a class is compared as it is in either case: so Redis does.
                found |= literal == byte;
                at += 2;
            }
            [first, b'-', last, ..] => {
                found |= in_range(first, last, byte, case);
                at += 3;
            }
            [literal, ..] => {
                found |= same(literal, byte, case);
                at += 1;
            }
            [] => break,
        }
    }
    (found != negated).then_some((at + 1).min(pattern.len()))
}

fn in_range(first: u8, last: u8, byte: u8, case: Case) -> bool {
    let (low, high) = (first.min(last), first.max(last));
    match case {
        Case::Sensitive => (low..=high).contains(&byte),
        Case::Insensitive => {
            let (low, high) = (low.to_ascii_lowercase(), high.to_ascii_lowercase());
            (low..=high).contains(&byte.to_ascii_lowercase())
        }
    }
}

#[inline]
fn same(literal: u8, byte: u8, case: Case) -> bool {
    match case {
        Case::Sensitive => literal == byte,
        Case::Insensitive => literal.eq_ignore_ascii_case(&byte),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes(), Case::Sensitive)
    }

    #[test]
    fn patterns_match_as_the_manual_says() {
        for (pattern, text) in [
            ("*", ""),
            ("", ""),
            ("h?llo", "hallo"),
            ("h*llo", "hllo"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hello"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hbllo"),
            ("a\\*b", "a*b"),
            ("[\\]]", "]"),
            ("[abc", "b"),
            ("[^]", "x"),
            ("a*b*c", "a--b--b--c"),
            ("\\", "\\"),
            ("*[0-9]*", "key7x"),
            ("a**", "a"),
            ("[a-]", "_"),
        ] {
            assert!(check(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("?", ""),
            ("h[^e]llo", "hello"),
            ("[]", "a"),
            ("a*b", "abc"),
            ("a\\*b", "axb"),
            ("*a", "ab"),
            ("[a-c]", "d"),
            ("A", "a"),
            ("[", ""),
            ("*?", ""),
            ("**", ""),
        ] {
            assert!(!check(pattern, text), "{pattern} {text}");
        }
        assert!(matches(b"H[A-C]L*", b"hblx", Case::Insensitive));
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = "*a".repeat(200) + "b";
        let text = "a".repeat(20_000);
        assert!(!check(&pattern, &text));
    }

    /// The definition, exponential and obvious, for patterns of stars, marks and letters.
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some((b'*', rest)), _) => (0..=text.len()).any(|from| model(rest, &text[from..])),
            (Some((b'?', rest)), Some((_, text))) => model(rest, text),
            (Some((byte, rest)), Some((other, text))) => byte == other && model(rest, text),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_definition(pattern in "[ab*?]{0,8}", text in "[ab]{1,10}") {
            let expected = model(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(check(&pattern, &text), expected);
        }

        #[test]
        fn no_pattern_panics(pattern: Vec<u8>, text: Vec<u8>) {
            let _ = matches(&pattern, &text, Case::Insensitive);
        }
    }
}
