//! What the view on a terminal says, line by line, and how it fits.

use tenure::HistoryEntry;

use crate::exit::Failure;
use crate::history::{LASTED, NO_TERMS, PAST_HEADINGS, Past, RUNNING, past, past_rows};
use crate::list::leads_for;
use crate::members::{NO_MEMBERS, members_table};
use crate::output::{duration, plain, table};
use crate::sight::{Sight, Unknown};
use crate::status::status_text;

/// How many past terms the view shows.
pub(super) const TERMS_SHOWN: usize = 8;

/// One line, and how it looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) look: Look,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    /// Known, and as it should be.
    Good,
    /// An operator should know it.
    Warn,
    /// Something is wrong, or not known.
    Bad,
    /// Beside the point.
    Faint,
}

/// What the view knows.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    pub(super) sight: Option<Sight>,
    pub(super) entries: Vec<HistoryEntry>,
    /// Why the last look showed nothing.
    pub(super) trouble: Option<String>,
}

impl Knowledge {
    pub(super) fn take(&mut self, looked: Result<(Sight, Vec<HistoryEntry>), Failure>) {
        match looked {
            Ok((sight, entries)) => {
                (self.sight, self.entries) = (Some(sight), entries);
                self.trouble = None;
            }
            Err(failure) => self.trouble = Some(failure.message),
        }
    }

    /// The whole view, for a terminal with so many columns.
    pub(super) fn lines(&self, name: &str, place: &str, columns: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        match &self.sight {
            None => lines.push(Line::plain(format!("{}  ({})", plain(name), plain(place)))),
            Some(sight) => match sight.unknown() {
                None => self.known(sight, name, place, &mut lines),
                Some(unknown) => doubtful(&unknown, name, place, &mut lines),
            },
        }
        if let Some(trouble) = &self.trouble {
            lines.push(Line { look: Look::Bad, text: format!("store     NO ANSWER: {trouble}") });
        }
        let mut lines = wrapped(lines, columns);
        if let Some(sight) = &self.sight {
            self.tables(sight, columns, &mut lines);
        }
        lines
    }

    fn known(&self, sight: &Sight, name: &str, place: &str, lines: &mut Vec<Line>) {
        let seen = sight.now();
        let leads_for = leads_for(&seen, &self.entries);
        let text = status_text(name, place, "", &seen, leads_for);
        for (index, text) in text.lines().enumerate() {
            let look = match (index, seen.leadership.leader().is_some()) {
                (1, true) => Look::Good,
                (1, false) => Look::Bad,
                _ => Look::Plain,
            };
            lines.push(Line { look, text: text.to_owned() });
        }
    }

    fn tables(&self, sight: &Sight, columns: usize, lines: &mut Vec<Line>) {
        let is_known = sight.unknown().is_none();
        lines.push(Line::plain(String::new()));
        let seen = if is_known { sight.now() } else { sight.then().clone() };
        if !is_known {
            let text = format!("as last seen, {} ago:", duration(sight.age()));
            lines.push(Line { look: Look::Faint, text });
        }
        let (headings, rows) = members_table(&seen);
        lines.extend(fitted(&headings, &rows, NO_MEMBERS, columns));
        lines.push(Line::plain(String::new()));
        let mut terms: Vec<Past> = past(&self.entries);
        terms.truncate(TERMS_SHOWN);
        let leader = seen.leadership.leader().filter(|_| is_known).and_then(|leader| leader.token);
        lines.extend(fitted(PAST_HEADINGS, &past_rows(&terms, leader), NO_TERMS, columns));
    }
}

fn doubtful(unknown: &Unknown, name: &str, place: &str, lines: &mut Vec<Line>) {
    lines.push(Line::plain(format!("{}  ({})", plain(name), plain(place))));
    lines.push(Line { look: Look::Bad, text: format!("leader    {}", unknown.text()) });
}

impl Line {
    pub(super) fn plain(text: String) -> Self {
        Line { look: Look::Plain, text }
    }
}

/// A table where it fits, else a short list per row: no column is lost on a narrow screen.
fn fitted(headings: &[&str], rows: &[Vec<String>], none: &str, columns: usize) -> Vec<Line> {
    if rows.is_empty() {
        return wrapped(vec![Line::plain(none.to_owned())], columns);
    }
    let whole = table(headings, rows);
    if whole.lines().all(|line| line.chars().count() <= columns) {
        let look = |index| if index == 0 { Look::Faint } else { Look::Plain };
        let lines = whole.lines().enumerate();
        return lines.map(|(index, text)| Line { look: look(index), text: text.into() }).collect();
    }
    let mut lines = Vec::new();
    for row in rows {
        let mut cells = headings.iter().zip(row).filter(|(_, cell)| !cell.trim().is_empty());
        let first = cells.next().map_or(String::new(), |(_, cell)| cell.clone());
        let others = cells.map(|(heading, cell)| match (*heading, cell.as_str()) {
            (LASTED, RUNNING) => RUNNING.to_owned(),
            _ => format!("{} {cell}", heading.to_lowercase()),
        });
        let others = others.collect::<Vec<_>>().join(", ");
        lines.push(Line::plain(first));
        lines.push(Line::plain(format!("  {others}")));
    }
    wrapped(lines, columns)
}

/// Lines that are too long go on in the next, a little further in: nothing is cut off.
pub(super) fn wrapped(lines: Vec<Line>, columns: usize) -> Vec<Line> {
    const INDENT: &str = "    ";
    let mut fitting = Vec::new();
    for Line { look, text } in lines {
        let mut rest = text.as_str();
        let mut indent = "";
        loop {
            let room = columns.saturating_sub(indent.len()).max(1);
            let Some((end, next)) = rest.char_indices().nth(room) else {
                fitting.push(Line { look, text: format!("{indent}{rest}") });
                break;
            };
            // At a space, unless a single word is longer than the line.
            let cut = rest[..end + next.len_utf8()].rfind(' ');
            let cut = cut.filter(|cut| !rest[..*cut].trim().is_empty());
            let cut = cut.unwrap_or(end);
            fitting.push(Line { look, text: format!("{indent}{}", rest[..cut].trim_end()) });
            rest = rest[cut..].trim_start();
            indent = if columns > INDENT.len() * 2 { INDENT } else { "" };
        }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: Vec<Line>) -> Vec<String> {
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn long_lines_go_on_in_the_next() {
        let lines = vec![Line::plain("store  the store does not answer at all".to_owned())];
        let fitting = texts(wrapped(lines, 16));
        assert_eq!(fitting, ["store  the store", "    does not", "    answer at", "    all"]);
        let word = texts(wrapped(vec![Line::plain("abcdefghij".to_owned())], 4));
        assert_eq!(word.concat().replace(' ', ""), "abcdefghij");
        for columns in 1..20 {
            let lines = vec![Line::plain("ä b longword cc d".to_owned())];
            let fitting = texts(wrapped(lines, columns));
            assert!(fitting.iter().all(|line| line.chars().count() <= columns), "{fitting:?}");
        }
    }

    #[test]
    fn a_narrow_screen_loses_no_column() {
        let rows = vec![vec!["ada_1".to_owned(), "leader".to_owned(), "10s".to_owned()]];
        let headings = ["ID", "ROLE", "TTL"];
        assert_eq!(texts(fitted(&headings, &rows, "", 40)).len(), 2, "a table");
        let narrow = texts(fitted(&headings, &rows, "", 12)).join("\n");
        for part in ["ada_1", "role", "leader", "ttl", "10s"] {
            assert!(narrow.contains(part), "{part} is not in {narrow:?}");
        }
        let rows = vec![vec!["12:00".to_owned(), "ada_1".to_owned(), RUNNING.to_owned()]];
        let narrow = texts(fitted(&["BEGAN", "LEADER", LASTED], &rows, "", 20)).join("\n");
        assert!(!narrow.contains("lasted") && narrow.ends_with("leads"), "{narrow:?}");
    }
}
