//! The tables that are printed in the end.

/// Figures that are not speeds, each beside redis-server's where it has one.
#[derive(Default)]
pub(crate) struct Figures(Vec<Figure>);

struct Figure {
    what: String,
    ours: String,
    theirs: String,
    bound: String,
}

impl Figures {
    /// A figure without a bound.
    pub(crate) fn note(&mut self, what: &str, ours: String, theirs: String) {
        self.add(what, ours, theirs, String::new());
    }

    /// A figure that must not exceed `limit`, both in the unit of `ours`.
    pub(crate) fn must(&mut self, what: &str, ours: (f64, &str), theirs: String, limit: f64) {
        let (value, unit) = ours;
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let bound = format!("{}{unit}", verdict(value, limit));
        self.add(what, format!("{value:.2}{unit}"), theirs, bound);
    }

    fn add(&mut self, what: &str, ours: String, theirs: String, bound: String) {
        eprintln!("{what}: {ours} (redis-server: {theirs}) {bound}");
        self.0.push(Figure { what: what.to_owned(), ours, theirs, bound });
    }

    pub(crate) fn print(&self) {
        if self.0.is_empty() {
            return;
        }
        println!("| figure | Tenure | redis-server | must |");
        println!("|---|---|---|---|");
        for Figure { what, ours, theirs, bound } in &self.0 {
            println!("| {what} | {ours} | {theirs} | {bound} |");
        }
    }
}

/// `≤ limit`, and whether it is so.
pub(crate) fn verdict(value: f64, limit: f64) -> String {
    format!("{} ≤ {limit}", if value <= limit { "yes:" } else { "**no**:" })
}
