//! YAML as Kubernetes and compose read it: several documents, anchors, merge keys.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser};
use serde_json::{Map, Value};

/// Every document of a file.
pub(super) fn documents(text: &str) -> Vec<Value> {
    let events = Parser::new_from_str(text).map(|event| event.expect("it is YAML").0);
    let mut reader =
        Reader { events: events.collect::<Vec<_>>().into_iter(), anchors: BTreeMap::new() };
    let mut documents = Vec::new();
    while let Some(event) = reader.events.next() {
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Nothing => {}
            Event::DocumentStart(_) => {
                let first = reader.events.next().unwrap();
                documents.push(reader.node(first));
            }
            other => panic!("{other:?} stands outside of a document"),
        }
    }
    documents
}

struct Reader<'a, I: Iterator<Item = Event<'a>>> {
    events: I,
    anchors: BTreeMap<usize, Value>,
}

impl<'a, I: Iterator<Item = Event<'a>>> Reader<'a, I> {
    fn node(&mut self, first: Event<'a>) -> Value {
        let (value, anchor) = match first {
            Event::Alias(anchor) => return self.anchors[&anchor].clone(),
            Event::Scalar(text, _, anchor, _) => (Value::String(text.into_owned()), anchor),
            Event::SequenceStart(anchor, _) => (self.list(), anchor),
            Event::MappingStart(anchor, _) => (self.table(), anchor),
            other => panic!("{other:?} is no value"),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        value
    }

    fn list(&mut self) -> Value {
        let mut items = Vec::new();
        loop {
            match self.events.next().unwrap() {
                Event::SequenceEnd => return Value::Array(items),
                first => items.push(self.node(first)),
            }
        }
    }

    fn table(&mut self) -> Value {
        let mut members = Map::new();
        loop {
            let name = match self.events.next().unwrap() {
                Event::MappingEnd => return Value::Object(members),
                Event::Scalar(name, ..) => name.into_owned(),
                other => panic!("{other:?} is no name"),
            };
            let first = self.events.next().unwrap();
            let value = self.node(first);
            match (name.as_str(), value) {
                ("<<", Value::Object(merged)) => {
                    merged.into_iter().for_each(|(name, value)| {
                        members.entry(name).or_insert(value);
                    });
                }
                (_, value) => {
                    assert!(members.insert(name.clone(), value).is_none(), "{name} stands twice");
                }
            }
        }
    }
}
