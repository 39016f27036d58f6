//! TOML, with the spans that its parser keeps.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{SyntaxError, line_of};
use crate::config::value::{Node, Value};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    // Only the message: the error's own Display quotes the line.
    let root = DeTable::parse(text).map_err(|error| SyntaxError {
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    Ok(Node { line: 1, value: table(text, root.into_inner()) })
}

/// Depth is bounded by the parser.
fn node(text: &str, value: Spanned<DeValue<'_>>) -> Node {
    let line = line_of(text, value.span().start);
    let value = match value.into_inner() {
        DeValue::String(value) => Value::Text(value.into_owned()),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            parsed.map_or(Value::Other("a number beyond 64 bits"), Value::Whole)
        }
        DeValue::Float(_) => Value::Other("a number with a fraction"),
        DeValue::Boolean(on) => Value::Switch(on),
        DeValue::Datetime(_) => Value::Other("a date or time"),
        DeValue::Array(_) => Value::Other("a list"),
        DeValue::Table(members) => table(text, members),
    };
    Node { line, value }
}

/// The line of a member is that of its name: a table's value may begin elsewhere.
fn table(text: &str, members: DeTable<'_>) -> Value {
    let mut named: Vec<(String, Node)> = Vec::new();
    for (name, value) in members {
        let line = line_of(text, name.span().start);
        let node = Node { line, ..node(text, value) };
        named.push((name.into_inner().into_owned(), node));
    }
    named.sort_by_key(|(_, node)| node.line);
    Value::Table(named)
}
