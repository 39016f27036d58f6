//! HCL: attributes and blocks are tables, labels are names, and the only expressions are plain
//! values, `env("NAME")`, `env("NAME", "default")` and text with `${NAME}` in it.

use hcl_edit::Span;
use hcl_edit::expr::{Expression, FuncCall, Object, ObjectKey};
use hcl_edit::structure::{Block, Body, Structure};
use hcl_edit::template::{Element, Template};

use super::{SyntaxError, line_of};
use crate::config::value::{Node, Value};
use crate::config::variables::{Piece, variable};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let body = hcl_edit::parser::parse_body(text).map_err(|error| {
        // Only the message: the error's own Display quotes the line.
        let mut message = error.message().to_owned();
        if error.line().contains("${") {
            message.push_str("; a default is written env(\"NAME\", \"default\")");
        }
        SyntaxError { line: error.location().line(), message }
    })?;
    Reader { text }.body(&body)
}

struct Reader<'a> {
    text: &'a str,
}

type Members = Vec<(String, Node)>;

impl Reader<'_> {
    fn line(&self, spanned: &impl Span) -> usize {
        line_of(self.text, spanned.span().map_or(0, |span| span.start))
    }

    /// Depth is bounded by the parser.
    fn body(&self, body: &Body) -> Result<Node, SyntaxError> {
        let mut members = Members::new();
        for structure in body {
            match structure {
                Structure::Attribute(attribute) => {
                    let line = self.line(attribute);
                    let value = self.value(&attribute.value)?;
                    insert(&mut members, attribute.key.as_str(), Node { line, value })?;
                }
                Structure::Block(block) => self.block(&mut members, block)?,
            }
        }
        Ok(Node { line: 1, value: Value::Table(members) })
    }

    /// `elections "nightly" { … }` is a table in a table.
    fn block(&self, members: &mut Members, block: &Block) -> Result<(), SyntaxError> {
        let line = self.line(block);
        let mut node = Node { line, ..self.body(&block.body)? };
        for label in block.labels.iter().rev() {
            node = Node { line, value: Value::Table(vec![(label.as_str().to_owned(), node)]) };
        }
        insert(members, block.ident.as_str(), node)
    }

    fn value(&self, expression: &Expression) -> Result<Value, SyntaxError> {
        let pieces = match expression {
            Expression::Null(_) => return Ok(Value::Null),
            Expression::Bool(on) => return Ok(Value::Switch(*on.value())),
            Expression::Number(number) => {
                let whole = number.value().as_i64();
                return Ok(whole.map_or(Value::Other("a number with a fraction"), Value::Whole));
            }
            Expression::Array(_) => return Ok(Value::Other("a list")),
            Expression::Object(object) => return self.object(object),
            Expression::String(text) => vec![Piece::Literal(text.value().clone())],
            Expression::StringTemplate(template) => self.template(template)?,
            Expression::HeredocTemplate(heredoc) => self.template(&heredoc.template)?,
            Expression::FuncCall(_) => vec![self.variable(expression)?],
            // A bare word above all: it may be a password without its quotes, so it is not taken
            // for a variable, whose name an error would show.
            _ => return Err(refusal(self.line(expression), EXPECTED)),
        };
        Ok(Value::Template(pieces))
    }

    fn object(&self, object: &Object) -> Result<Value, SyntaxError> {
        let mut members = Members::new();
        for (key, value) in object.iter() {
            let line = self.line(key);
            let value = self.value(value.expr())?;
            insert(&mut members, &self.name(key)?, Node { line, value })?;
        }
        Ok(Value::Table(members))
    }

    fn name(&self, key: &ObjectKey) -> Result<String, SyntaxError> {
        let name = match key {
            ObjectKey::Ident(name) => Some(name.as_str()),
            ObjectKey::Expression(expression) => expression.as_str(),
        };
        name.map(str::to_owned).ok_or_else(|| refusal(self.line(key), "a name must be plain text"))
    }

    fn template(&self, template: &Template) -> Result<Vec<Piece>, SyntaxError> {
        let piece = |element: &Element| match element {
            Element::Literal(text) => Ok(Piece::Literal(text.value().clone())),
            Element::Interpolation(inner) => self.variable(&inner.expr),
            Element::Directive(_) => Err(refusal(self.line(element), EXPECTED)),
        };
        template.iter().map(piece).collect()
    }

    fn variable(&self, expression: &Expression) -> Result<Piece, SyntaxError> {
        let found = match expression {
            Expression::Variable(name) => variable(name.as_str(), None),
            Expression::FuncCall(call) => env_call(call),
            _ => Err(EXPECTED.to_owned()),
        };
        found.map_err(|message| refusal(self.line(expression), &message))
    }
}

const EXPECTED: &str = "write a plain value, \"…${NAME}…\", env(\"NAME\") \
                        or env(\"NAME\", \"default\")";

fn env_call(call: &FuncCall) -> Result<Piece, String> {
    let arguments: Option<Vec<&str>> = call.args.iter().map(Expression::as_str).collect();
    let is_env = !call.name.is_namespaced() && call.name.name.as_str() == "env";
    match arguments.as_deref() {
        Some([name]) if is_env => variable(name, None),
        Some([name, default]) if is_env => variable(name, Some((*default).to_owned())),
        _ => Err(EXPECTED.to_owned()),
    }
}

/// Blocks of one name are parts of one table; anything else may stand only once.
fn insert(members: &mut Members, name: &str, node: Node) -> Result<(), SyntaxError> {
    let known = members.iter_mut().find(|(known, _)| known == name);
    match (known, node) {
        (None, node) => members.push((name.to_owned(), node)),
        (
            Some((_, Node { value: Value::Table(known), .. })),
            Node { value: Value::Table(added), .. },
        ) => {
            for (name, node) in added {
                insert(known, &name, node)?;
            }
        }
        (Some(_), node) => return Err(refusal(node.line, &format!("{name:?} is given twice"))),
    }
    Ok(())
}

fn refusal(line: usize, message: &str) -> SyntaxError {
    SyntaxError { line, message: message.to_owned() }
}
