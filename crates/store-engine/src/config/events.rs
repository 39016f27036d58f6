//! Classes of keyspace events as letters.

use crate::keyspace::changes::event_class::*;

const ALL: u32 =
    GENERIC | STRING | LIST | SET | HASH | SORTED_SET | EXPIRED | EVICTED | STREAM | MODULE;

const LETTERS: &[(char, u32)] = &[
    ('g', GENERIC),
    ('$', STRING),
    ('l', LIST),
    ('s', SET),
    ('h', HASH),
    ('z', SORTED_SET),
    ('x', EXPIRED),
    ('e', EVICTED),
    ('t', STREAM),
    ('d', MODULE),
    ('n', NEW),
];
const LETTERS_BEHIND: &[(char, u32)] = &[('K', KEYSPACE), ('E', KEYEVENT), ('m', KEY_MISS)];

/// The classes that letters name, `None` when one names nothing.
pub(crate) fn parse(letters: &str) -> Option<u32> {
    let mut classes = 0;
    for letter in letters.chars() {
        let known = LETTERS.iter().chain(LETTERS_BEHIND).find(|(known, _)| *known == letter);
        classes |= if letter == 'A' { ALL } else { known?.1 };
    }
    Some(classes)
}

/// The letters of classes, in the order Redis tells them.
pub(crate) fn letters(classes: u32) -> String {
    let has = |(_, class): &&(char, u32)| classes & class != 0;
    let mut text = String::new();
    if classes & ALL == ALL {
        text.push('A');
    } else {
        text.extend(LETTERS.iter().filter(has).map(|(letter, _)| letter));
    }
    text.extend(LETTERS_BEHIND.iter().filter(has).map(|(letter, _)| letter));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_classes_agree() {
        assert_eq!(letters(parse("KEA").unwrap()), "AKE");
        assert_eq!(letters(parse("xKg").unwrap()), "gxK");
        assert_eq!(letters(parse("mKn").unwrap()), "nKm");
        assert_eq!(parse("q"), None);
    }
}
