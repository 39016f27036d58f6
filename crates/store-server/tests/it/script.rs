//! Lines of case files: commands, and how their replies are compared.
//!
//! ```text
//! # comment
//! == a claim            a new section: empty databases, new connections
//! SET key "a b"         words as redis-cli takes them; replies must be equal
//! @unordered KEYS *     arrays, sets and maps are compared without order
//! @type TIME            only the shape of the reply is compared
//! @kind COMMAND HELP    only the type of the reply is compared
//! @near 20 PTTL key     integers may differ by this much; inside of arrays and maps only those
//!                       that are ten times as large: moments and idle times, not counts
//! @error FOO            both must fail with the same code, texts may differ
//! @on b GET key         on a second connection called b (any name)
//! @send b BLPOP l 0     only sends, on connection b
//! @blocked 2            waits until so many clients wait on either server
//! @receive b            only receives, on connection b
//! @ours CONFIG SET …    only to us       @theirs …   only to redis-server
//! @repeat 100 CMD       the line so many times, with {i} counting
//! CLIENT KILL ID {id:b} the number of connection b on either side
//! ```

use store_resp::{Reply, split_quoted};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Unordered,
    Shape,
    Kind,
    Near(i64),
    ErrorCode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Ask,
    Send,
    Receive,
    OnlyOurs,
    OnlyTheirs,
    Blocked(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) comparison: Comparison,
    pub(crate) step: Step,
    pub(crate) connection: String,
    pub(crate) times: usize,
}

impl Line {
    pub(crate) fn parse(text: &str) -> Self {
        let mut line = Self {
            text: text.to_owned(),
            words: Vec::new(),
            comparison: Comparison::Equal,
            step: Step::Ask,
            connection: "main".to_owned(),
            times: 1,
        };
        let mut rest = text.trim();
        while rest.starts_with('@') {
            let (directive, behind) = word(rest);
            rest = behind;
            let mut argument = || {
                let (argument, behind) = word(rest);
                rest = behind;
                argument.to_owned()
            };
            match directive {
                "@unordered" => line.comparison = Comparison::Unordered,
                "@type" => line.comparison = Comparison::Shape,
                "@kind" => line.comparison = Comparison::Kind,
                "@error" => line.comparison = Comparison::ErrorCode,
                "@near" => line.comparison = Comparison::Near(argument().parse().unwrap()),
                "@on" => line.connection = argument(),
                "@send" => (line.step, line.connection) = (Step::Send, argument()),
                "@receive" => (line.step, line.connection) = (Step::Receive, argument()),
                "@blocked" => line.step = Step::Blocked(argument().parse().unwrap()),
                "@ours" => line.step = Step::OnlyOurs,
                "@theirs" => line.step = Step::OnlyTheirs,
                "@repeat" => line.times = argument().parse().unwrap(),
                other => panic!("unknown directive {other} in {text:?}"),
            }
        }
        line.words = split_quoted(rest.as_bytes()).expect("balanced quotes");
        line
    }

    /// The words of the `index`-th repetition.
    pub(crate) fn words(&self, index: usize) -> Vec<Vec<u8>> {
        if self.times == 1 {
            return self.words.clone();
        }
        let number = |word: &Vec<u8>| match std::str::from_utf8(word) {
            Ok(text) => text.replace("{i}", &index.to_string()).into_bytes(),
            Err(_) => word.clone(),
        };
        self.words.iter().map(number).collect()
    }
}

fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// Whether two replies are the same for this comparison.
pub(crate) fn agree(comparison: Comparison, ours: &Option<Reply>, theirs: &Option<Reply>) -> bool {
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        return ours.is_none() == theirs.is_none();
    };
    match comparison {
        Comparison::Equal => ours == theirs,
        Comparison::Unordered => sorted(ours) == sorted(theirs),
        Comparison::Shape => shape(ours) == shape(theirs),
        Comparison::Kind => std::mem::discriminant(ours) == std::mem::discriminant(theirs),
        Comparison::Near(distance) => match (ours, theirs) {
            (Reply::Integer(ours), Reply::Integer(theirs)) => {
                ours.abs_diff(*theirs) <= distance as u64
            }
            _ => near(ours, theirs, distance),
        },
        Comparison::ErrorCode => match (ours, theirs) {
            (Reply::Error(ours), Reply::Error(theirs)) => {
                ours.split(' ').next() == theirs.split(' ').next()
            }
            _ => false,
        },
    }
}

fn near(ours: &Reply, theirs: &Reply, distance: i64) -> bool {
    match (ours, theirs) {
        (Reply::Integer(ours), Reply::Integer(theirs)) if ours.min(theirs) / 10 >= distance => {
            ours.abs_diff(*theirs) <= distance as u64
        }
        (Reply::Array(ours), Reply::Array(theirs)) => {
            let mut pairs = ours.iter().zip(theirs);
            ours.len() == theirs.len() && pairs.all(|(ours, theirs)| near(ours, theirs, distance))
        }
        (Reply::Map(ours), Reply::Map(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|((name, ours), (other_name, theirs))| {
                    name == other_name && near(ours, theirs, distance)
                })
        }
        _ => ours == theirs,
    }
}

pub(crate) fn sorted(reply: &Reply) -> String {
    let all = |replies: &[Reply]| {
        let mut texts: Vec<String> = replies.iter().map(sorted).collect();
        texts.sort();
        texts.join(",")
    };
    match reply {
        Reply::Array(items) => format!("array {}", all(items)),
        Reply::Set(items) => format!("set {}", all(items)),
        Reply::Map(pairs) => {
            let mut texts: Vec<String> =
                pairs.iter().map(|(key, value)| sorted(key) + "=" + &sorted(value)).collect();
            texts.sort();
            format!("map {}", texts.join(","))
        }
        other => format!("{other:?}"),
    }
}

fn shape(reply: &Reply) -> String {
    match reply {
        Reply::Array(items) => format!("array of {}", items.len()),
        Reply::Set(items) => format!("set of {}", items.len()),
        Reply::Map(pairs) => format!("map of {}", pairs.len()),
        other => format!("{:?}", std::mem::discriminant(other)),
    }
}
