//! The mark by which processes of a program are found, wherever they went.

use std::io::{self, Read};

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

/// How much of an environment is read at once.
const PIECE_LEN: usize = 4096;

/// What came of a search for a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Searched {
    Found,
    NotFound,
    /// There was nothing to search.
    Empty,
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

    /// Whether this environment belongs to a program of the instance, or to one further in. It is
    /// read in pieces: an environment may have megabytes, and the mark is mostly at its beginning.
    pub(super) fn search(&self, mut environment: impl Read) -> io::Result<Searched> {
        let mut begun = Vec::new();
        let mut piece = [0; PIECE_LEN];
        let mut is_empty = true;
        loop {
            let len = match environment.read(&mut piece) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if len == 0 {
                break;
            }
            is_empty = false;
            let last_end = piece[..len].iter().rposition(|byte| *byte == 0);
            let whole = last_end.map(|end| begun.len() + end);
            begun.extend_from_slice(&piece[..len]);
            let Some(whole) = whole else { continue };
            if self.is_in(&begun[..whole]) {
                return Ok(Searched::Found);
            }
            begun.drain(..=whole);
        }
        Ok(match self.is_in(&begun) {
            true => Searched::Found,
            false if is_empty => Searched::Empty,
            false => Searched::NotFound,
        })
    }

    fn is_in(&self, lines: &[u8]) -> bool {
        lines.split(|byte| *byte == 0).any(|line| self.is_on(line))
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
    fn a_mark_is_found_behind_megabytes_and_across_pieces() {
        let mark = Mark::of(b"ada_1".to_vec());
        let search = |environment: &[u8]| mark.search(environment).unwrap();
        let long = [b"A=".to_vec(), vec![b'x'; 5 << 20]].concat();
        assert_eq!(search(&[&long[..], b"\0TENURE_ID=ada_1\0B=2\0"].concat()), Searched::Found);
        for len in PIECE_LEN - 20..PIECE_LEN + 20 {
            let before = vec![b'x'; len];
            assert_eq!(search(&[&before[..], b"\0TENURE_ID=ada_1"].concat()), Searched::Found);
            assert_eq!(search(&[&before[..], b"\0TENURE_ID=ada_12"].concat()), Searched::NotFound);
        }
        assert_eq!(search(b""), Searched::Empty);
    }

    #[test]
    fn each_wrapper_adds_the_one_around_it() {
        let of = |outer: &str, own: &str| joined([outer.to_owned(), own.to_owned()]);
        assert_eq!(of("", ""), None);
        assert_eq!(of("", "ada_1").as_deref(), Some("ada_1"));
        assert_eq!(of("ada_1", "bob_2").as_deref(), Some("ada_1 bob_2"));
    }
}
