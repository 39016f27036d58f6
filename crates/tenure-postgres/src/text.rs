//! Text from a server that users are shown: shortened, and without control characters.

/// How much of a server's words an error or warning carries, in characters.
const MESSAGE_LEN_MAX: usize = 240;

/// A server's words, fit for a log line or a terminal: one line, bounded, nothing invisible.
pub(crate) fn cleaned(text: &str) -> String {
    tenure_core::text::escaped(text.trim(), MESSAGE_LEN_MAX).to_string()
}

/// A name as it is written in SQL.
pub(crate) fn quoted_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    let begins_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    match begins_well && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("\"{}\"", cleaned(name).replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_sql_cannot_end_early() {
        assert_eq!(quoted_name("app_1"), "app_1");
        assert_eq!(quoted_name("App; drop"), "\"App; drop\"");
        assert_eq!(quoted_name("a\"b"), "\"a\"\"b\"");
    }
}
