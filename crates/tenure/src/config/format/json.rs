//! JSON. Its parser keeps no spans, but it asks for one byte at a time: a reader that counts
//! lines as it hands them out knows where each value stands.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};

use serde_core::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{DEPTH_MAX, SyntaxError};
use crate::config::value::{Node, Value};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let line = Cell::new(1);
    let bytes = CountingBytes { left: text.as_bytes(), line: &line, at_line_end: false };
    let mut parser = serde_json::Deserializer::from_reader(bytes);
    let parsed = Cursor { line: &line, depth: 0 }.deserialize(&mut parser);
    parsed.and_then(|node| parser.end().map(|()| node)).map_err(|error| SyntaxError {
        line: if error.line() == 0 { line.get() } else { error.line() },
        message: message_of(&error),
    })
}

/// What the parser says, without the position that it appends.
fn message_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    text[..end].to_owned()
}

struct CountingBytes<'a> {
    left: &'a [u8],
    line: &'a Cell<usize>,
    at_line_end: bool,
}

impl Read for CountingBytes<'_> {
    /// Gives one byte. `line` is the line of the byte given last, so that a look at the line break
    /// behind a number does not count.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (Some((&byte, rest)), Some(slot)) = (self.left.split_first(), buffer.first_mut())
        else {
            return Ok(0);
        };
        if self.at_line_end {
            self.line.set(self.line.get() + 1);
        }
        self.at_line_end = byte == b'\n';
        self.left = rest;
        *slot = byte;
        Ok(1)
    }
}

#[derive(Clone, Copy)]
struct Cursor<'a> {
    line: &'a Cell<usize>,
    depth: usize,
}

impl Cursor<'_> {
    fn here(self, value: Value) -> Node {
        Node { line: self.line.get(), value }
    }

    fn deeper<E: Error>(self) -> Result<Self, E> {
        match self.depth < DEPTH_MAX {
            true => Ok(Cursor { depth: self.depth + 1, ..self }),
            false => Err(E::custom("nested too deep")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Cursor<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Cursor<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(self.here(Value::Null))
    }

    fn visit_bool<E: Error>(self, on: bool) -> Result<Node, E> {
        Ok(self.here(Value::Switch(on)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        Ok(self.here(Value::Whole(number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        let number = i64::try_from(number);
        Ok(self.here(number.map_or(Value::Other("a number beyond 64 bits"), Value::Whole)))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Node, E> {
        Ok(self.here(Value::Other("a number with a fraction")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        Ok(self.here(Value::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let line = self.line.get();
        let inner = self.deeper()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(Node { line, value: Value::Other("a list") })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let line = self.line.get();
        let inner = self.deeper()?;
        let mut table: Vec<(String, Node)> = Vec::new();
        while let Some(name) = members.next_key::<String>()? {
            if table.iter().any(|(known, _)| *known == name) {
                return Err(Error::custom(format!("{name:?} is given twice")));
            }
            let line = self.line.get();
            let node = members.next_value_seed(inner)?;
            table.push((name, Node { line, ..node }));
        }
        Ok(Node { line, value: Value::Table(table) })
    }
}
