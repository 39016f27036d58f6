//! A member's record as one line of text that a person can read with redis-cli:
//! `p=5;r=1;d=0;s=0;t=10000;v=1.4.2;m.address=10.0.0.7:80` (docs/protocol.md §4.2).

use std::time::Duration;

use crate::protocol::MemberRecord;

/// The longest application version that is kept, in bytes.
const VERSION_LEN_MAX: usize = 128;

/// Writes a record, leaving out what exceeds its bounds.
pub fn encode(record: &MemberRecord) -> String {
    let flag = |value: bool| u8::from(value);
    let mut text = format!(
        "p={};r={};d={};s={};t={};v={}",
        record.priority,
        flag(record.ready),
        flag(record.departing),
        flag(record.stalled),
        record.ttl.as_millis(),
        quoted(shortened(&record.version, VERSION_LEN_MAX)),
    );
    let mut size = 0;
    for (name, value) in &record.metadata {
        size += name.len() + value.len();
        if size > MemberRecord::METADATA_MAX {
            break;
        }
        text.push_str(&format!(";m.{}={}", quoted(name), quoted(value)));
    }
    text
}

/// Reads a record. What is unknown or unreadable is left at its default: others may write anything.
pub fn decode(text: &str) -> MemberRecord {
    let mut record = MemberRecord::default();
    let mut size = 0;
    for (name, value) in text.split(';').filter_map(|field| field.split_once('=')) {
        match name {
            "p" => record.priority = value.parse().unwrap_or_default(),
            "r" => record.ready = value == "1",
            "d" => record.departing = value == "1",
            "s" => record.stalled = value == "1",
            "t" => record.ttl = Duration::from_millis(value.parse().unwrap_or_default()),
            "v" => record.version = shortened(&unquoted(value), VERSION_LEN_MAX).to_owned(),
            _ => {
                let Some(name) = name.strip_prefix("m.") else { continue };
                let (name, value) = (unquoted(name), unquoted(value));
                size += name.len() + value.len();
                if size <= MemberRecord::METADATA_MAX {
                    record.metadata.insert(name, value);
                }
            }
        }
    }
    record
}

fn shortened(text: &str, len_max: usize) -> &str {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Percent-encodes what would end a field, and what cannot be shown.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() || ";=%".contains(character) {
            true => {
                let mut buffer = [0; 4];
                for byte in character.encode_utf8(&mut buffer).bytes() {
                    quoted.push_str(&format!("%{byte:02x}"));
                }
            }
            false => quoted.push(character),
        }
    }
    quoted
}

fn unquoted(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after
            .get(..2)
            .filter(|_| first == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_went() {
        let mut record = MemberRecord {
            priority: -7,
            ready: true,
            departing: false,
            stalled: true,
            version: "1.4.2;=%".into(),
            ttl: Duration::from_millis(1500),
            ..MemberRecord::default()
        };
        record.metadata.insert("address".into(), "[::1]:80;x=y\n%41 ü".into());
        assert_eq!(decode(&encode(&record)), record);
    }

    #[test]
    fn forged_records_neither_break_nor_fill_anything() {
        for text in ["", ";;;", "=", "p=99999999999999999999;r=yes", "%", "m.=;v=%ff%", "t=-1"] {
            let record = decode(text);
            assert!(!record.ready && record.priority == 0, "{text}: {record:?}");
        }
        let huge = format!("v={};m.a={}", "x".repeat(10_000), "y".repeat(10_000));
        let record = decode(&huge);
        assert!(record.version.len() <= VERSION_LEN_MAX && record.metadata.is_empty());
    }
}
