//! The table that is printed in the end.

/// Rows of figures, each with the aim it is held against.
#[derive(Default)]
pub(crate) struct Report(Vec<Row>);

struct Row {
    what: &'static str,
    ours: String,
    polling: String,
    aim: Option<Aim>,
}

struct Aim {
    words: String,
    reached: bool,
}

impl Report {
    /// A figure without an aim.
    pub(crate) fn note(&mut self, what: &'static str, ours: String, polling: String) {
        eprintln!("{what}: {ours}");
        self.0.push(Row { what, ours, polling, aim: None });
    }

    /// A figure that should not exceed `limit`.
    pub(crate) fn aim(
        &mut self,
        what: &'static str,
        ours: (f64, String),
        polling: String,
        limit: f64,
        unit: &str,
    ) {
        let (value, ours) = ours;
        eprintln!("{what}: {ours}");
        let aim = Aim { words: format!("≤ {limit} {unit}"), reached: value <= limit };
        self.0.push(Row { what, ours, polling, aim: Some(aim) });
    }

    pub(crate) fn print(&self) {
        println!("| figure | Tenure | polling every ttl/3 | aim |");
        println!("|---|---|---|---|");
        for Row { what, ours, polling, aim } in &self.0 {
            let aim = aim.as_ref().map(|aim| {
                format!("{} {}", aim.words, if aim.reached { "reached" } else { "**missed**" })
            });
            println!("| {what} | {ours} | {polling} | {} |", aim.unwrap_or_default());
        }
    }
}
