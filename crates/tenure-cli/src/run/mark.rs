//! The mark by which processes of a program are found, wherever they went.

/// The variable with the id of the instance that runs the program.
pub(crate) const MARK: &str = "TENURE_ID";
/// The ids of those around it, where the program is a wrapper itself: whatever its program starts
/// is found by the guards of all. Not among the variables of ours, which name settings, and which
/// earlier versions would not know.
pub(crate) const OUTER_MARKS: &str = "OUTER_TENURE_IDS";

/// The ids of the wrappers around this process, if there are any.
pub(super) fn outer_ids() -> Option<String> {
    joined([OUTER_MARKS, MARK].map(|name| std::env::var(name).unwrap_or_default()))
}

fn joined(lists: [String; 2]) -> Option<String> {
    // No id has a space in it.
    let ids: Vec<&str> = lists.iter().flat_map(|list| list.split_whitespace()).collect();
    (!ids.is_empty()).then(|| ids.join(" "))
}

/// What the environment of a program shows.
#[derive(Debug)]
pub(super) struct Mark {
    id: Vec<u8>,
}

impl Mark {
    pub(super) fn of(id: Vec<u8>) -> Self {
        Mark { id }
    }

    /// Whether this environment belongs to a program of the instance, or to one further in.
    pub(super) fn is_in(&self, environment: &[u8]) -> bool {
        environment.split(|byte| *byte == 0).any(|line| self.is_on(line))
    }

    fn is_on(&self, line: &[u8]) -> bool {
        if let Some(id) = value_of(line, MARK) {
            return id == self.id;
        }
        let outer = value_of(line, OUTER_MARKS);
        outer.is_some_and(|ids| ids.split(|byte| *byte == b' ').any(|id| id == self.id))
    }
}

fn value_of<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_at_any_depth_and_nowhere_else() {
        let mark = Mark::of(b"ada_1".to_vec());
        for shown in ["TENURE_ID=ada_1", "A=1\0OUTER_TENURE_IDS=bob_2 ada_1\0TENURE_ID=eve_3"] {
            assert!(mark.is_in(shown.as_bytes()), "{shown}");
        }
        let foreign =
            ["", "TENURE_ID=ada_12", "OUTER_TENURE_IDS=ada_12 ada", "X=ada_1", "TENURE_IDS=ada_1"];
        for shown in foreign {
            assert!(!mark.is_in(shown.as_bytes()), "{shown}");
        }
    }

    #[test]
    fn each_wrapper_adds_the_one_around_it() {
        let of = |outer: &str, own: &str| joined([outer.to_owned(), own.to_owned()]);
        assert_eq!(of("", ""), None);
        assert_eq!(of("", "ada_1").as_deref(), Some("ada_1"));
        assert_eq!(of("ada_1", "bob_2").as_deref(), Some("ada_1 bob_2"));
    }
}
