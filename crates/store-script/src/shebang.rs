//! The first line of a script: `#!lua flags=no-writes`, or of a library: `#!lua name=mine`.

use crate::error::{LibraryError, LoadError};
use crate::flags::Flags;

/// Whatever stands behind `#!` on the first line, and the text from that line's end on. The line
/// end stays, so that line numbers in messages are those of the whole text.
struct Split<'a> {
    words: Vec<Vec<u8>>,
    body: &'a [u8],
}

enum Shebang<'a> {
    Absent,
    /// There is nothing behind it.
    Unended,
    /// A quote stays open.
    Unquoted,
    Present(Split<'a>),
}

fn split(code: &[u8]) -> Shebang<'_> {
    if !code.starts_with(b"#!") {
        return Shebang::Absent;
    }
    let Some(end) = code.iter().position(|byte| *byte == b'\n') else { return Shebang::Unended };
    match words(&code[..end]) {
        Some(words) => Shebang::Present(Split { words, body: &code[end..] }),
        None => Shebang::Unquoted,
    }
}

/// The words of a line; quotes hold a word together. `None` when a quote stays open.
fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let is_space = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0b;
    let mut words = Vec::new();
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(|byte| is_space(*byte)).is_some() {}
        if rest.peek().is_none() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = rest.next_if(|byte| !is_space(*byte)) {
            if !matches!(byte, b'"' | b'\'') {
                word.push(byte);
                continue;
            }
            loop {
                match rest.next()? {
                    b'\\' => word.push(rest.next()?),
                    end if end == byte => break,
                    inner => word.push(inner),
                }
            }
        }
        words.push(word);
    }
}

/// The flags and the body of an EVAL script.
pub(crate) fn of_script(code: &[u8]) -> Result<(Flags, &[u8]), LoadError> {
    let split = match split(code) {
        Shebang::Absent => return Ok((Flags::COMPATIBILITY, code)),
        Shebang::Unended => return Err(LoadError::ShebangInvalid),
        Shebang::Unquoted => return Err(LoadError::ShebangQuote),
        Shebang::Present(split) => split,
    };
    let (engine, options) = split.words.split_first().ok_or(LoadError::ShebangInvalid)?;
    if engine != b"#!lua" {
        return Err(LoadError::ShebangEngine(lossy(engine)));
    }
    let mut flags = Flags::default();
    for option in options {
        let list = option
            .strip_prefix(b"flags=")
            .ok_or_else(|| LoadError::ShebangOption(lossy(option)))?;
        if list.is_empty() {
            continue;
        }
        for name in list.split(|byte| *byte == b',') {
            let flag = Flags::from_name(name).ok_or_else(|| LoadError::ShebangFlag(lossy(name)))?;
            flags = flags.with(flag);
        }
    }
    Ok((flags, split.body))
}

/// The name and the body of a library.
pub(crate) fn of_library(code: &[u8]) -> Result<(String, &[u8]), LibraryError> {
    let split = match split(code) {
        Shebang::Absent => return Err(LibraryError::MetadataMissing),
        Shebang::Unended | Shebang::Unquoted => return Err(LibraryError::MetadataInvalid),
        Shebang::Present(split) => split,
    };
    let (engine, options) = split.words.split_first().ok_or(LibraryError::MetadataInvalid)?;
    let engine = &engine[b"#!".len()..];
    let mut name = None;
    for option in options {
        let value = match option.as_slice() {
            [b'n' | b'N', b'a' | b'A', b'm' | b'M', b'e' | b'E', b'=', value @ ..] => value,
            _ => return Err(LibraryError::MetadataValue(lossy(option))),
        };
        if name.replace(value).is_some() {
            return Err(LibraryError::NameTwice);
        }
    }
    let name = name.ok_or(LibraryError::NameMissing)?;
    if !is_name(name) {
        return Err(LibraryError::NameInvalid);
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(LibraryError::EngineUnknown(lossy(engine)));
    }
    Ok((lossy(name), split.body))
}

/// Whether libraries and functions may be called so.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_keeps_the_line_end_so_that_lines_count_from_the_shebang() {
        let (flags, body) = of_script(b"#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert_eq!(flags, Flags::NO_WRITES.with(Flags::ALLOW_OOM));
        assert_eq!(body, b"\nreturn 1");
        assert_eq!(of_script(b"return 1").unwrap(), (Flags::COMPATIBILITY, &b"return 1"[..]));
    }

    #[test]
    fn a_library_needs_one_name_of_letters() {
        assert_eq!(of_library(b"#!lua name=a_1\nx").unwrap().0, "a_1");
        assert_eq!(of_library(b"#!lua name='a_1'\nx").unwrap().0, "a_1");
        assert!(matches!(of_library(b"#!lua name='a_1\nx"), Err(LibraryError::MetadataInvalid)));
        assert!(matches!(of_library(b"#!lua name=a-1\nx"), Err(LibraryError::NameInvalid)));
        assert!(matches!(of_library(b"#!\nx"), Err(LibraryError::NameMissing)));
    }
}
