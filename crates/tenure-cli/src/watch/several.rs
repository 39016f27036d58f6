//! Several elections on a terminal: a line each, trouble first.

use std::collections::{BTreeMap, BTreeSet};

use tenure::{HistoryEntry, Token};
use tokio::sync::mpsc;

use super::screen::Screen;
use super::view::{Line, Look, wrapped};
use super::{LOOK_EVERY, REDRAW_EVERY, Several};
use crate::exit::{self, Failure};
use crate::list::{HEADINGS, Kind, NONE, Summary, Urgency, leads_for, naturally, unseen_row};
use crate::output::{plain, table};
use crate::sight::Sight;
use crate::store_options::{StoreObserver, blame};

/// How many different reasons are shown why the store does not answer.
const REASONS_MAX: usize = 3;
/// How many looks may wait to be shown.
const LOOKS_MAX: usize = 64;

/// Shows them until somebody wants to leave. Drawing never waits for the store.
pub(super) async fn follow(several: &Several, first: Vec<(String, Kind)>) -> Result<(), Failure> {
    let screen = Screen::enter();
    let mut screen = screen
        .map_err(|error| Failure::new(exit::NO, format!("cannot use the terminal: {error}")))?;
    let (send, mut looks) = mpsc::channel(LOOKS_MAX);
    let mut board = Board::default();
    let mut followed = BTreeSet::new();
    let place = several.tenure.store();
    let mut names = first;
    loop {
        for (store_observer, kind) in several.unfollowed(names, &mut followed)? {
            board.rows.insert(store_observer.observer.resource().name().to_owned(), Row::of(kind));
            tokio::spawn(keep_looking(store_observer, send.clone()));
        }
        let finding = several.find_more();
        tokio::pin!(finding);
        names = loop {
            screen.draw(|columns| board.lines(&place, columns));
            tokio::select! {
                () = screen.until_left() => return Ok(()),
                Some(looked) = looks.recv() => {
                    board.take(looked);
                    // Many come at once: they are drawn together.
                    while let Ok(looked) = looks.try_recv() {
                        board.take(looked);
                    }
                }
                found = &mut finding => break found,
                () = tokio::time::sleep(REDRAW_EVERY) => {}
            }
        };
    }
}

/// What one look at one election came to.
pub(super) struct Looked {
    name: String,
    seen: Result<Sight, String>,
    /// The latest entries of its history, read when the leader changed.
    history: Option<Vec<HistoryEntry>>,
}

/// Looks again and again, and at each hint, for as long as somebody shows it.
async fn keep_looking(store_observer: StoreObserver, send: mpsc::Sender<Looked>) {
    /// The beginning of the latest term is among them.
    const ENTRIES: usize = 2;
    let StoreObserver { tenure, observer, .. } = &store_observer;
    let mut changes = observer.changes().await.ok();
    let mut known: Option<Token> = None;
    loop {
        let seen = Sight::of(observer).await;
        let mut history = None;
        if let Ok(sight) = &seen {
            let token = sight.then().leadership.leader().and_then(|leader| leader.token);
            if token != known
                && let Ok(entries) = observer.history(ENTRIES).await
            {
                (known, history) = (token, Some(entries));
            }
        }
        let name = observer.resource().name().to_owned();
        let seen = seen.map_err(|error| blame(tenure, error).message);
        if send.send(Looked { name, seen, history }).await.is_err() {
            return;
        }
        let changed = async {
            // One that fails waits for the next look.
            let is_hint = match &mut changes {
                Some(changes) => changes.next().await.is_ok(),
                None => false,
            };
            if !is_hint {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = changed => {}
        }
    }
}

/// What is known of all of them.
#[derive(Debug, Default)]
pub(super) struct Board {
    rows: BTreeMap<String, Row>,
}

#[derive(Debug)]
struct Row {
    kind: Kind,
    sight: Option<Sight>,
    history: Vec<HistoryEntry>,
    /// Why the last look showed nothing.
    trouble: Option<String>,
}

impl Row {
    fn of(kind: Kind) -> Self {
        Row { kind, sight: None, history: Vec::new(), trouble: None }
    }

    /// A cell for each of the headings, and how soon somebody should look.
    fn cells(&self, name: &str) -> (Urgency, Vec<String>) {
        let Some(sight) = &self.sight else {
            return match self.trouble {
                Some(_) => (Urgency::Trouble, unseen_row(name, "unknown", "")),
                None => (Urgency::Fine, unseen_row(name, "connecting", "")),
            };
        };
        if let Some(unknown) = sight.unknown() {
            let text = unknown.text();
            let since = text.strip_prefix("unknown ").unwrap_or(&text);
            return (Urgency::Trouble, unseen_row(name, "unknown", since));
        }
        let seen = sight.now();
        let leads_for = leads_for(&seen, &self.history);
        let summary = Summary { name, kind: self.kind, seen: &seen, leads_for };
        (summary.urgency(), summary.row())
    }
}

impl Board {
    fn take(&mut self, looked: Looked) {
        let Some(row) = self.rows.get_mut(&looked.name) else { return };
        if let Some(history) = looked.history {
            row.history = history;
        }
        match looked.seen {
            Ok(sight) => (row.sight, row.trouble) = (Some(sight), None),
            Err(why) => row.trouble = Some(why),
        }
    }

    /// The whole view, for a terminal with so many columns.
    fn lines(&self, place: &str, columns: usize) -> Vec<Line> {
        let mut rows: Vec<_> = self.rows.iter().map(|(name, row)| row.cells(name)).collect();
        rows.sort_by(|(a, row_a), (b, row_b)| {
            a.cmp(b).then_with(|| naturally(&row_a[0], &row_b[0]))
        });
        let mut lines = vec![Line::plain(self.title(&rows, place))];
        let reasons: BTreeSet<_> =
            self.rows.values().filter_map(|row| row.trouble.as_deref()).collect();
        for reason in reasons.into_iter().take(REASONS_MAX) {
            lines.push(Line { look: Look::Bad, text: format!("store     NO ANSWER: {reason}") });
        }
        let mut lines = wrapped(lines, columns);
        lines.push(Line::plain(String::new()));
        lines.extend(fitted(&rows, columns));
        lines
    }

    fn title(&self, rows: &[(Urgency, Vec<String>)], place: &str) -> String {
        let count = match rows.len() {
            0 => "no elections yet".to_owned(),
            1 => "1 election".to_owned(),
            count => format!("{count} elections"),
        };
        let trouble = rows.iter().filter(|(urgency, _)| *urgency == Urgency::Trouble).count();
        let trouble = if trouble > 0 { format!(", {trouble} in trouble") } else { String::new() };
        format!("{count}{trouble}  ({})", plain(place))
    }
}

fn look_of(urgency: Urgency) -> Look {
    match urgency {
        Urgency::Trouble => Look::Bad,
        Urgency::Noteworthy => Look::Warn,
        Urgency::Fine => Look::Plain,
    }
}

/// A table where it fits, with notes below their lines; else a short list per election: no column
/// is lost on a narrow screen.
fn fitted(rows: &[(Urgency, Vec<String>)], columns: usize) -> Vec<Line> {
    if rows.is_empty() {
        return Vec::new();
    }
    let (_, headings) = HEADINGS.split_last().expect("there are headings");
    let cells = rows.iter().map(|(_, row)| row[..headings.len()].to_vec());
    let whole = table(headings, &cells.collect::<Vec<_>>());
    let fits = whole.lines().all(|line| line.chars().count() <= columns);
    let mut texts = whole.lines();
    let mut lines = Vec::new();
    if let Some(text) = texts.next().filter(|_| fits) {
        lines.push(Line { look: Look::Faint, text: text.to_owned() });
    }
    for ((urgency, row), text) in rows.iter().zip(texts) {
        let look = look_of(*urgency);
        if fits {
            lines.push(Line { look, text: text.to_owned() });
        } else {
            lines.push(Line { look, text: format!("{}  {}", row[0], row[1]) });
            let cells = headings.iter().zip(row).skip(2).filter(|(_, cell)| *cell != NONE);
            let cells = cells.map(|(heading, cell)| format!("{} {cell}", heading.to_lowercase()));
            let cells: Vec<_> = cells.collect();
            if !cells.is_empty() {
                let text = format!("  {}", cells.join(", "));
                lines.push(Line { look: Look::Plain, text });
            }
        }
        if let Some(note) = row.last().filter(|note| !note.is_empty()) {
            lines.push(Line { look, text: format!("  {note}") });
        }
    }
    wrapped(lines, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<(Urgency, Vec<String>)> {
        let row = |words: [&str; 8]| words.map(str::to_owned).to_vec();
        vec![
            (Urgency::Trouble, unseen_row("job-10", "unknown", "since 12:00, last seen: ada_1")),
            (Urgency::Fine, row(["job-2", "led", "ada_1", "5m", "8s", "1795123", "2", ""])),
        ]
    }

    #[test]
    fn a_wide_screen_gets_a_line_each_with_notes_below() {
        let lines = fitted(&rows(), 80);
        let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
        assert!(texts[0].starts_with("NAME") && lines[0].look == Look::Faint, "{texts:#?}");
        assert!(texts[1].starts_with("job-10  unknown") && lines[1].look == Look::Bad);
        assert_eq!(texts[2], "  since 12:00, last seen: ada_1");
        assert!(texts[3].starts_with("job-2   led") && lines[3].look == Look::Plain);
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn a_narrow_screen_loses_no_column() {
        for columns in [20, 40, 50] {
            let lines = fitted(&rows(), columns);
            assert!(lines.iter().all(|line| line.text.chars().count() <= columns), "{lines:#?}");
            let text = lines.iter().map(|line| line.text.trim()).collect::<Vec<_>>().join(" ");
            for part in
                ["job-2 led", "leader ada_1", "for 5m", "lease 8s", "token 1795123", "alive 2"]
            {
                assert!(text.replace("  ", " ").contains(part), "{part}: {text}");
            }
            assert!(text.contains("last seen: ada_1"), "{text}");
        }
    }
}
