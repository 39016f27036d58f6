//! YAML, from the parser's events. One document of plain mappings: no anchors (a few of them can
//! unfold into gigabytes) and no tags (they ask for types that no setting has).

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::{DEPTH_MAX, SyntaxError};
use crate::config::value::{Node, Value};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut reader = Reader { events: Parser::new_from_str(text) };
    let mut root = Node { line: 1, value: Value::Table(Vec::new()) };
    let mut documents = 0;
    loop {
        let (event, line) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(root),
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::DocumentStart(_) if documents == 0 => documents = 1,
            Event::DocumentStart(_) => return refuse(line, "a second document begins here"),
            first => root = reader.node(first, line, 0)?,
        }
    }
}

struct Reader<'a, I: Iterator<Item = Result<(Event<'a>, Span), ScanError>>> {
    events: I,
}

impl<'a, I: Iterator<Item = Result<(Event<'a>, Span), ScanError>>> Reader<'a, I> {
    fn next(&mut self) -> Result<(Event<'a>, usize), SyntaxError> {
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(error)) => refuse(error.marker().line(), error.info()),
            None => refuse(1, "the file ends too early"),
        }
    }

    fn node(&mut self, first: Event<'a>, line: usize, depth: usize) -> Result<Node, SyntaxError> {
        if depth > DEPTH_MAX {
            return refuse(line, "nested too deep");
        }
        let value = match first {
            Event::Alias(_) => return refuse(line, "aliases are not supported: write it out"),
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return refuse(line, "tags are not supported: write a plain value");
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) => plain(&text),
            Event::Scalar(text, ..) => Value::Text(text.into_owned()),
            Event::SequenceStart(..) => self.list(depth + 1)?,
            Event::MappingStart(..) => Value::Table(self.table(depth + 1)?),
            _ => return refuse(line, "a value is missing here"),
        };
        Ok(Node { line, value })
    }

    fn list(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::Other("a list")),
                (first, line) => drop(self.node(first, line, depth)?),
            }
        }
    }

    fn table(&mut self, depth: usize) -> Result<Vec<(String, Node)>, SyntaxError> {
        let mut members: Vec<(String, Node)> = Vec::new();
        loop {
            let (name, line) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(members),
                (Event::Scalar(name, ..), line) => (name.into_owned(), line),
                (_, line) => return refuse(line, "a name must be plain text"),
            };
            if members.iter().any(|(known, _)| *known == name) {
                return refuse(line, &format!("{name:?} is given twice"));
            }
            let (first, value_line) = self.next()?;
            let node = self.node(first, value_line, depth)?;
            members.push((name, Node { line, ..node }));
        }
    }
}

/// Settings read numbers and switches from text, so only nothing at all needs telling apart:
/// `version: 1.10` stays what it is.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        _ => Value::Text(text.to_owned()),
    }
}

fn refuse<T>(line: usize, message: &str) -> Result<T, SyntaxError> {
    Err(SyntaxError { line, message: message.to_owned() })
}
