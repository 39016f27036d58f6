//! Replies as people know them from redis-cli.

use std::io::IsTerminal;

use store_resp::Reply;
use tenure_core::text::{escaped_bytes, escaped_json, is_deceptive};

use super::args::Shape;

/// What replies look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// For people: types named, elements numbered, strings quoted.
    Readable,
    /// For programs: strings as they are, elements apart by the delimiter.
    Raw { delimiter: Vec<u8> },
    /// One JSON value to a line.
    Json,
    /// One line of comma-separated values.
    Csv,
}

impl Form {
    /// Readable on a terminal and raw elsewhere, unless told otherwise.
    pub(super) fn of(shape: &Shape) -> Self {
        let delimiter = shape.delimiter.clone().unwrap_or_else(|| "\n".into()).into_bytes();
        match shape {
            Shape { json: true, .. } => Self::Json,
            Shape { csv: true, .. } => Self::Csv,
            Shape { no_raw: true, .. } => Self::Readable,
            Shape { raw: true, .. } => Self::Raw { delimiter },
            _ if std::env::var_os("FAKETTY").is_some() => Self::Readable,
            _ if std::io::stdout().is_terminal() => Self::Readable,
            _ => Self::Raw { delimiter },
        }
    }

    /// The bytes to print for `reply`, line end included. A `document` is text made for people,
    /// such as INFO: it is shown as it is in every form but JSON.
    pub(super) fn print(&self, reply: &Reply, document: bool) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Readable if document => {
                let mut text = Vec::new();
                raw(&mut text, reply, b"\n");
                out.extend_from_slice(&harmless(&text));
            }
            Self::Raw { delimiter } if document => raw(&mut out, reply, delimiter),
            Self::Csv if document => raw(&mut out, reply, b"\n"),
            Self::Readable => readable(&mut out, reply, ""),
            Self::Raw { delimiter } => {
                raw(&mut out, reply, delimiter);
                out.push(b'\n');
            }
            Self::Json => {
                json(&mut out, reply);
                out.push(b'\n');
            }
            Self::Csv => {
                csv(&mut out, reply);
                out.push(b'\n');
            }
        }
        out
    }
}

fn readable(out: &mut Vec<u8>, reply: &Reply, prefix: &str) {
    let mut line = |parts: &[&[u8]]| {
        out.extend(parts.concat());
        out.push(b'\n');
    };
    match reply {
        Reply::Simple(text) => line(&[&harmless(text.as_bytes())]),
        Reply::Error(text) => line(&[b"(error) ", &harmless(text.as_bytes())]),
        Reply::Integer(number) => line(&[b"(integer) ", number.to_string().as_bytes()]),
        Reply::Double(text) => line(&[b"(double) ", &harmless(text.as_bytes())]),
        Reply::BigNumber(text) => line(&[b"(big number) ", &harmless(text.as_bytes())]),
        Reply::Bulk(bytes) => line(&[&quoted(bytes)]),
        Reply::Verbatim(_, text) => line(&[&harmless(text)]),
        Reply::Null | Reply::NullArray => line(&[b"(nil)"]),
        Reply::Boolean(true) => line(&[b"(true)"]),
        Reply::Boolean(false) => line(&[b"(false)"]),
        Reply::Array(items) => elements(out, items, Marks::new("(empty array)", ')'), prefix),
        Reply::Push(items) => elements(out, items, Marks::new("(empty push)", ')'), prefix),
        Reply::Set(items) => elements(out, items, Marks::new("(empty set)", '~'), prefix),
        Reply::Map(pairs) => map(out, pairs, prefix),
    }
}

/// How an aggregate shows that it is empty, and what stands behind the number of an element.
struct Marks {
    empty: &'static str,
    mark: char,
}

impl Marks {
    fn new(empty: &'static str, mark: char) -> Self {
        Self { empty, mark }
    }
}

fn elements(out: &mut Vec<u8>, items: &[Reply], marks: Marks, prefix: &str) {
    if items.is_empty() {
        out.extend_from_slice(marks.empty.as_bytes());
        out.push(b'\n');
        return;
    }
    let numbering = Numbering::new(items.len(), marks.mark, prefix);
    for (index, item) in items.iter().enumerate() {
        numbering.begin(out, index);
        readable(out, item, &numbering.inner);
    }
}

fn map(out: &mut Vec<u8>, pairs: &[(Reply, Reply)], prefix: &str) {
    if pairs.is_empty() {
        return out.extend_from_slice(b"(empty hash)\n");
    }
    let numbering = Numbering::new(pairs.len(), '#', prefix);
    for (index, (key, value)) in pairs.iter().enumerate() {
        numbering.begin(out, index);
        readable(out, key, &numbering.inner);
        out.pop();
        out.extend_from_slice(b" => ");
        readable(out, value, &numbering.inner);
    }
}

/// Numbers as wide as the largest, and the indentation they give to what is nested in them.
struct Numbering<'a> {
    width: usize,
    mark: char,
    prefix: &'a str,
    inner: String,
}

impl<'a> Numbering<'a> {
    fn new(count: usize, mark: char, prefix: &'a str) -> Self {
        let width = count.to_string().len();
        Self { width, mark, prefix, inner: format!("{prefix}{}", " ".repeat(width + 2)) }
    }

    /// The first element is in the line that the aggregate began in.
    fn begin(&self, out: &mut Vec<u8>, index: usize) {
        let Self { width, mark, prefix, .. } = self;
        let prefix = if index == 0 { "" } else { prefix };
        out.extend_from_slice(format!("{prefix}{:width$}{mark} ", index + 1).as_bytes());
    }
}

fn raw(out: &mut Vec<u8>, reply: &Reply, delimiter: &[u8]) {
    match reply {
        Reply::Null | Reply::NullArray => {}
        // As redis-cli has it: an error gets an empty line behind it.
        Reply::Error(text) => {
            out.extend_from_slice(text.as_bytes());
            out.push(b'\n');
        }
        Reply::Simple(text) | Reply::Double(text) | Reply::BigNumber(text) => {
            out.extend_from_slice(text.as_bytes());
        }
        Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => out.extend_from_slice(bytes),
        Reply::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Reply::Boolean(true) => out.extend_from_slice(b"(true)"),
        Reply::Boolean(false) => out.extend_from_slice(b"(false)"),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(delimiter);
                }
                raw(out, item, delimiter);
            }
        }
        Reply::Map(pairs) => {
            for (index, (key, value)) in pairs.iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(delimiter);
                }
                raw(out, key, delimiter);
                out.push(b' ');
                raw(out, value, delimiter);
            }
        }
    }
}

/// Written by hand, because a map of replies keeps its order and may repeat a key.
fn json(out: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::Null | Reply::NullArray => out.extend_from_slice(b"null"),
        Reply::Boolean(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Reply::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Reply::Double(text) => match text.parse::<f64>().ok().filter(|value| value.is_finite()) {
            Some(value) => out.extend_from_slice(serde_json::json!(value).to_string().as_bytes()),
            None => json_text(out, text.as_bytes()),
        },
        Reply::Simple(text) | Reply::BigNumber(text) => json_text(out, text.as_bytes()),
        Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => json_text(out, bytes),
        Reply::Error(text) => {
            out.extend_from_slice(b"{\"error\":");
            json_text(out, text.as_bytes());
            out.push(b'}');
        }
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                json(out, item);
            }
            out.push(b']');
        }
        Reply::Map(pairs) => json_map(out, pairs),
    }
}

fn json_map(out: &mut Vec<u8>, pairs: &[(Reply, Reply)]) {
    out.push(b'{');
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match key {
            Reply::Simple(text) => json_text(out, text.as_bytes()),
            Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => json_text(out, bytes),
            other => {
                let mut text = Vec::new();
                json(&mut text, other);
                json_text(out, &text);
            }
        }
        out.push(b':');
        json(out, value);
    }
    out.push(b'}');
}

/// JSON has no bytes: what is no UTF-8 becomes replacement characters. `--raw` keeps it.
fn json_text(out: &mut Vec<u8>, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let json = serde_json::Value::from(text.as_ref()).to_string();
    out.extend_from_slice(escaped_json(&json).as_bytes());
}

fn csv(out: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::Null | Reply::NullArray => out.extend_from_slice(b"NULL"),
        Reply::Error(text) => {
            out.extend_from_slice(b"ERROR,");
            out.extend(quoted(text.as_bytes()));
        }
        Reply::Simple(text) => out.extend(quoted(text.as_bytes())),
        Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => out.extend(quoted(bytes)),
        Reply::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Reply::Double(text) | Reply::BigNumber(text) => out.extend_from_slice(text.as_bytes()),
        Reply::Boolean(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                csv(out, item);
            }
        }
        Reply::Map(pairs) => {
            for (index, (key, value)) in pairs.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                csv(out, key);
                out.push(b',');
                csv(out, value);
            }
        }
    }
}

/// In quotes, with everything unprintable escaped: the form that `split_quoted` reads back.
pub(super) fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x07 => out.extend(b"\\a"),
            0x08 => out.extend(b"\\b"),
            b' '..=b'~' => out.push(*byte),
            other => out.extend(format!("\\x{other:02x}").bytes()),
        }
    }
    out.push(b'"');
    out
}

/// Text that may be shown on a terminal: a server, or whoever wrote to it, must not be able to
/// move the cursor, set the title or type for us. Line ends and tabs stay.
fn harmless(text: &[u8]) -> Vec<u8> {
    let is_escaped = |c: char| !matches!(c, '\n' | '\r' | '\t') && is_deceptive(c);
    escaped_bytes(text, is_escaped).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.into())
    }

    fn shown(form: &Form, reply: &Reply) -> String {
        String::from_utf8(form.print(reply, false)).unwrap()
    }

    #[test]
    fn nested_replies_are_numbered_and_indented() {
        let inner = Reply::Array(vec![bulk("a"), Reply::Null, Reply::Set(vec![])]);
        let reply = Reply::Array(vec![Reply::Integer(7), inner]);
        let expected = "1) (integer) 7\n2) 1) \"a\"\n   2) (nil)\n   3) (empty set)\n";
        assert_eq!(shown(&Form::Readable, &reply), expected);
        let map = Reply::Map(vec![(Reply::Simple("k".into()), Reply::Array(vec![bulk("v")]))]);
        assert_eq!(shown(&Form::Readable, &map), "1# k => 1) \"v\"\n");
        let ten = Reply::Array(vec![Reply::Boolean(true); 10]);
        assert!(shown(&Form::Readable, &ten).starts_with(" 1) (true)\n 2) (true)\n"));
    }

    #[test]
    fn a_server_cannot_write_to_the_terminal() {
        for reply in [
            Reply::Simple("a\x1b[2Jb".into()),
            Reply::Error("ERR \x1b]0;x\x07".into()),
            Reply::Verbatim("txt".into(), b"\x1b[31m\x9b".to_vec()),
            Reply::Double("\x1b".into()),
            bulk("\x1b[0m\u{9b}"),
        ] {
            let out = Form::Readable.print(&reply, false);
            assert!(!out.contains(&0x1b) && !out.contains(&0x07), "{out:?}");
            let document = Form::Readable.print(&reply, true);
            assert!(!document.contains(&0x1b), "{document:?}");
        }
    }

    #[test]
    fn a_reply_cannot_look_like_another_one() {
        for reply in
            [Reply::Simple("a\u{202e}b".into()), Reply::Verbatim("txt".into(), "a\u{200b}b".into())]
        {
            for form in [Form::Readable, Form::Json] {
                for document in [false, true] {
                    let out = String::from_utf8(form.print(&reply, document)).unwrap();
                    assert!(!out.contains(['\u{202e}', '\u{200b}']), "{form:?}: {out:?}");
                }
            }
        }
    }

    #[test]
    fn json_is_valid_whatever_the_reply() {
        let reply = Reply::Map(vec![
            (bulk("a\"b"), Reply::Double("inf".into())),
            (Reply::Integer(1), Reply::Bulk(vec![0xff, 0])),
            (Reply::Array(vec![]), Reply::Error("ERR x".into())),
            (bulk("n"), Reply::Double("1.50".into())),
        ]);
        let text = shown(&Form::Json, &reply);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["a\"b"], "inf");
        assert_eq!(value["[]"]["error"], "ERR x");
        assert_eq!(value["n"], 1.5);
    }

    #[test]
    fn raw_and_csv_are_for_programs() {
        let reply = Reply::Array(vec![bulk("a b"), Reply::Integer(1), Reply::Null]);
        assert_eq!(shown(&Form::Raw { delimiter: b"\n".to_vec() }, &reply), "a b\n1\n\n");
        assert_eq!(shown(&Form::Raw { delimiter: b";".to_vec() }, &reply), "a b;1;\n");
        assert_eq!(shown(&Form::Csv, &reply), "\"a b\",1,NULL\n");
    }
}
