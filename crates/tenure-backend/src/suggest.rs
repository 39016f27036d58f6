//! "Did you mean": the known name nearest to a mistyped one.

/// The name in `known` that `given` was probably meant to be.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = plain(given);
    let allowed = (given.chars().count() / 3).max(1);
    let ranked = known.into_iter().map(|name| (distance(&given, &plain(name)), name));
    ranked.filter(|(distance, _)| *distance <= allowed).min().map(|(_, name)| name)
}

/// `renewEvery`, `renew-every` and `RENEW_EVERY` all mean `renew_every`.
fn plain(name: &str) -> String {
    const COMPARED_MAX: usize = 64;
    let letters = name.chars().filter(|c| c.is_alphanumeric()).take(COMPARED_MAX);
    letters.flat_map(char::to_lowercase).collect()
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                let swapped: usize = before[j - 2];
                least = least.min(swapped + 1);
            }
            row.push(least);
        }
        before = above;
        above = row;
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["ttl", "renew_every", "stop_grace", "priority", "password"];

    #[test]
    fn a_slip_of_the_finger_finds_its_name() {
        let slips = [
            ("tll", "ttl"),
            ("renewEvery", "renew_every"),
            ("renew-evry", "renew_every"),
            ("pirority", "priority"),
            ("stopgrace", "stop_grace"),
            ("passwrod", "password"),
        ];
        for (given, meant) in slips {
            assert_eq!(nearest(given, KNOWN), Some(meant), "{given}");
        }
    }

    #[test]
    fn something_else_altogether_gets_no_suggestion() {
        for given in ["colour", "xyz", "", "timeout"] {
            assert_eq!(nearest(given, KNOWN), None, "{given}");
        }
    }

    #[test]
    fn distances_count_single_edits() {
        for (a, b, edits) in
            [("", "", 0), ("", "abc", 3), ("abc", "acb", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }
}
