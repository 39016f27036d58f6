//! What happened in a run, in lines that a file keeps and a checker reads again.

use std::fmt;
use std::str::FromStr;

use tenure_core::Moment;

/// One thing that somebody said, or that was done to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, on the one clock of the host.
    pub at: Moment,
    /// An instance, each start under a name of its own, or [`NEMESIS`].
    pub who: String,
    /// What.
    pub what: What,
}

/// Who causes the faults, and notes what they were.
pub const NEMESIS: &str = "nemesis";

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A term began, to be believed in until then.
    Granted {
        /// Its number.
        token: u64,
        /// Until when.
        until: Moment,
    },
    /// It was extended.
    Renewed {
        /// Its number.
        token: u64,
        /// Until when.
        until: Moment,
    },
    /// It is over.
    Lost {
        /// Its number.
        token: u64,
        /// Why, in one word.
        why: String,
    },
    /// `is_leader()` said yes; told of the last time it did before it said no.
    Led,
    /// An element was written to the set, and the resource confirmed it.
    Added {
        /// Into which set.
        set: Set,
        /// What.
        element: String,
    },
    /// The resource refused a write because of its token.
    Refused,
    /// What a set holds in the end.
    Holds {
        /// Which.
        set: Set,
        /// All of it.
        elements: Vec<String>,
    },
    /// The work of a tick begins.
    TickBegun(u64),
    /// It was still under way, under a valid term.
    TickUnderWay(u64),
    /// It is done, and the store has confirmed it.
    TickDone(u64),
    /// A fault began.
    Fault(String),
    /// All faults are over, and the store is whole again.
    Healed,
    /// A replica was promoted.
    Promoted,
    /// An instance was killed.
    Killed(String),
}

/// One of the sets that leaders write to: a new one every few seconds, so that none gets long.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Set {
    /// Whether the resource checks tokens.
    pub fenced: bool,
    /// Which stretch of time it is for.
    pub window: u64,
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", if self.fenced { "fenced" } else { "plain" }, self.window)
    }
}

impl FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, window) = text.split_once(':').ok_or_else(|| format!("no set: {text:?}"))?;
        let fenced = match kind {
            "fenced" => true,
            "plain" => false,
            _ => return Err(format!("no kind of set: {kind:?}")),
        };
        Ok(Set { fenced, window: number(window)? })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Granted { token, until } => write!(f, "granted {token} {}", until.as_nanos()),
            What::Renewed { token, until } => write!(f, "renewed {token} {}", until.as_nanos()),
            What::Lost { token, why } => write!(f, "lost {token} {why}"),
            What::Led => f.write_str("led"),
            What::Added { set, element } => write!(f, "added {set} {element}"),
            What::Refused => f.write_str("refused"),
            What::Holds { set, elements } => write!(f, "holds {set} {}", elements.join(",")),
            What::TickBegun(tick) => write!(f, "tick-begun {tick}"),
            What::TickUnderWay(tick) => write!(f, "tick-under-way {tick}"),
            What::TickDone(tick) => write!(f, "tick-done {tick}"),
            What::Fault(name) => write!(f, "fault {name}"),
            What::Healed => f.write_str("healed"),
            What::Promoted => f.write_str("promoted"),
            What::Killed(who) => write!(f, "killed {who}"),
        }
    }
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.splitn(3, ' ').collect();
        Ok(match words[..] {
            ["granted", token, until] => {
                What::Granted { token: number(token)?, until: moment(until)? }
            }
            ["renewed", token, until] => {
                What::Renewed { token: number(token)?, until: moment(until)? }
            }
            ["lost", token, why] => What::Lost { token: number(token)?, why: why.to_owned() },
            ["led"] => What::Led,
            ["added", set, element] => {
                What::Added { set: set.parse()?, element: element.to_owned() }
            }
            ["refused"] => What::Refused,
            ["holds", set] => What::Holds { set: set.parse()?, elements: Vec::new() },
            ["holds", set, elements] => {
                let elements = elements.split(',').filter(|one| !one.is_empty());
                What::Holds { set: set.parse()?, elements: elements.map(str::to_owned).collect() }
            }
            ["tick-begun", tick] => What::TickBegun(number(tick)?),
            ["tick-under-way", tick] => What::TickUnderWay(number(tick)?),
            ["tick-done", tick] => What::TickDone(number(tick)?),
            ["fault", ..] => What::Fault(text["fault".len()..].trim().to_owned()),
            ["healed"] => What::Healed,
            ["promoted"] => What::Promoted,
            ["killed", who] => What::Killed(who.to_owned()),
            _ => return Err(format!("nothing that can happen: {text:?}")),
        })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.at.as_nanos(), self.who, self.what)
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some(at), Some(who), Some(what)) => {
                Ok(Entry { at: moment(at)?, who: who.to_owned(), what: what.parse()? })
            }
            _ => Err(format!("not \"time who what\": {line:?}")),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text:?}: {error}"))
}

fn moment(text: &str) -> Result<Moment, String> {
    number(text).map(Moment::from_nanos)
}

/// Everything that happened, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// What the run was: lines that begin with `#` in a file.
    pub notes: Vec<String>,
    /// What happened.
    pub entries: Vec<Entry>,
}

impl History {
    /// Adds an entry.
    pub fn add(&mut self, at: Moment, who: &str, what: What) {
        self.entries.push(Entry { at, who: who.to_owned(), what });
    }

    /// Reads what [`Display`](fmt::Display) wrote. Fails with the number of the line that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut history = History::default();
        for (index, line) in text.lines().enumerate() {
            match line.strip_prefix('#') {
                Some(note) => history.notes.push(note.trim().to_owned()),
                None if line.trim().is_empty() => {}
                None => {
                    let entry = line.parse().map_err(|why| format!("line {}: {why}", index + 1))?;
                    history.entries.push(entry);
                }
            }
        }
        Ok(history)
    }
}

/// One line each, in the order of time.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "# {note}")?;
        }
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|entry| entry.at);
        entries.into_iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let set = Set { fenced: true, window: 7 };
        let whats = [
            What::Granted { token: 3, until: Moment::from_nanos(9) },
            What::Renewed { token: 3, until: Moment::from_nanos(12) },
            What::Lost { token: 3, why: "lease-ended".into() },
            What::Led,
            What::Added { set: set.clone(), element: "n0.1".into() },
            What::Refused,
            What::Holds { set: set.clone(), elements: vec!["n0.1".into(), "n1.1".into()] },
            What::Holds { set, elements: Vec::new() },
            What::TickBegun(7),
            What::TickUnderWay(7),
            What::TickDone(7),
            What::Fault("kill-master node 2".into()),
            What::Healed,
            What::Promoted,
            What::Killed("n0-1".into()),
        ];
        let mut history = History { notes: vec!["seed 7".into()], entries: Vec::new() };
        for (index, what) in whats.into_iter().enumerate() {
            history.add(Moment::from_nanos(index as u64), "n0-1", what);
        }
        assert_eq!(History::parse(&history.to_string()), Ok(history));
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for (text, expected) in [
            ("1 a led\nx a led\n", "line 2"),
            ("1 a danced\n", "nothing that can happen"),
            ("1 a\n", "time who what"),
            ("1 a added fenced:x e\n", "invalid digit"),
            ("1 a added other:1 e\n", "no kind of set"),
        ] {
            let error = History::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
