//! What children write while they run, and what it proves.
//!
//! All children append to one file. The system orders appends, so the order of the lines is the
//! order in which things happened: no clock takes part in the proof.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// One line: `TOKEN WRITER PID UPTIME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) token: u64,
    /// `child`, or `grandchild`: a process that the child started.
    pub(crate) writer: String,
    pub(crate) pid: u32,
}

/// The lines in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Diary {
    pub(crate) lines: Vec<Line>,
}

impl Diary {
    pub(crate) const FILE: &str = "diary";
    /// A child and a grandchild that write until they are killed. A grandchild does not know its
    /// own number in a plain shell, so `exec` gives it one that it does.
    pub(crate) const SCRIPT: &str = r#"
        write() {
            while :; do
                read up idle < /proc/uptime
                echo "$TENURE_TOKEN $1 $2 $up"
                sleep 0.01
            done >> diary
        }
        write grandchild 0 &
        echo "$TENURE_TOKEN grandchild $! 0" >> diary
        write child $$
    "#;

    /// Writers in sessions of their own that ignore the stop signal; one has no parent.
    pub(crate) const DAEMON: &str = r#"
        writer='trap "" TERM
            while :; do echo "$TENURE_TOKEN grandchild $$ 0"; sleep 0.01; done >> diary'
        setsid sh -c "$writer" &
        setsid sh -c "setsid sh -c '$writer' &" &
        trap "" TERM
        while :; do echo "$TENURE_TOKEN child $$ 0" >> diary; sleep 0.01; done
    "#;
    /// A child that starts short-lived sessions for ever and leaves them alone.
    pub(crate) const FORKS_FOR_EVER: &str = r#"
        while :; do
            echo "$TENURE_TOKEN child $$ 0" >> diary
            setsid sh -c 'trap "" TERM; sleep 0.1; echo "$TENURE_TOKEN grandchild $$ 0" >> diary' &
            sleep 0.03
        done
    "#;

    /// Each process starts the next in a session of its own and ends. It ends with its folder.
    pub(crate) const CHAIN: &str = r#"
        export LINK='[ -e diary ] && echo "$TENURE_TOKEN grandchild $$ 0" >> diary &&
            sleep 0.02; [ -e diary ] && setsid sh -c "$LINK" &'
        echo "$TENURE_TOKEN child $$ 0" >> diary
        sh -c "$LINK"
        while :; do echo "$TENURE_TOKEN child $$ 0" >> diary; sleep 0.05; done
    "#;
    /// The same as fast as it can; the leader ends as soon as it is told to.
    pub(crate) const FAST_CHAIN: &str = r#"
        export LINK='[ -e diary ] && echo "$TENURE_TOKEN grandchild $$ 0" >> diary
            [ -e diary ] && setsid sh -c "$LINK" &'
        echo "$TENURE_TOKEN child $$ 0" >> diary
        sh -c "$LINK"
        exec sleep 600
    "#;

    pub(crate) fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        // The last line may be half there only where a write was cut short, which pipes of one
        // line are not; a line that does not parse is a finding.
        Diary { lines: text.lines().map(parse).collect() }
    }

    pub(crate) fn last_token(&self) -> Option<u64> {
        self.lines.iter().map(|line| line.token).max()
    }

    /// The processes that wrote under `token`.
    pub(crate) fn writers(&self, token: u64) -> Vec<u32> {
        let of_term = self.lines.iter().filter(|line| line.token == token && line.pid != 0);
        let mut pids: Vec<u32> = of_term.map(|line| line.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    pub(crate) fn terms(&self) -> usize {
        let mut tokens: Vec<u64> = self.lines.iter().map(|line| line.token).collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens.len()
    }

    /// What is wrong, if anything: a child that wrote after one of a newer term did, or two
    /// children of one term.
    pub(crate) fn check(&self) -> Result<(), Overlap> {
        let mut judge = Judge::default();
        self.lines.iter().try_for_each(|line| judge.take(line))
    }
}

/// A line that should not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) what: String,
    /// The child of the term that was over, which is also the number of its group.
    pub(crate) late_child: Option<u32>,
}

/// Reads line after line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judge {
    pub(crate) newest: u64,
    pub(crate) terms: usize,
    pub(crate) lines: usize,
    /// The child of the newest term.
    child: Option<u32>,
    /// The children of earlier terms.
    children: BTreeMap<u64, u32>,
}

impl Judge {
    fn take(&mut self, line: &Line) -> Result<(), Overlap> {
        let (index, newest) = (self.lines, self.newest);
        self.lines += 1;
        if line.token < newest {
            let what = format!("line {index}: {line:?} after a child of term {newest}");
            let late_child = self.children.get(&line.token).copied();
            return Err(Overlap { what, late_child });
        }
        if line.token > newest {
            self.children.extend(self.child.map(|child| (newest, child)));
            (self.newest, self.child) = (line.token, None);
            self.terms += 1;
        }
        if line.writer == "child" {
            let first = *self.child.get_or_insert(line.pid);
            if first != line.pid {
                let what = format!("line {index}: {line:?}, but {first} had that term");
                return Err(Overlap { what, late_child: None });
            }
        }
        Ok(())
    }
}

/// Judges a diary while it grows, each line once.
#[derive(Debug)]
pub(crate) struct Follower {
    file: PathBuf,
    offset: u64,
    pub(crate) judge: Judge,
}

impl Follower {
    pub(crate) fn of(file: PathBuf) -> Self {
        Follower { file, offset: 0, judge: Judge::default() }
    }

    /// Judges what was written since the last time, and returns the newest term. Fails at the
    /// first overlap for which there is no `excuse`.
    pub(crate) fn follow(
        &mut self,
        mut excuse: impl FnMut(&Overlap) -> bool,
    ) -> Result<u64, Overlap> {
        let mut text = String::new();
        if let Ok(mut file) = File::open(&self.file) {
            file.seek(SeekFrom::Start(self.offset)).unwrap();
            file.read_to_string(&mut text).unwrap();
        }
        // A line that is being written is read the next time.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.offset += whole as u64;
        for line in text[..whole].lines() {
            match self.judge.take(&parse(line)) {
                Err(overlap) if !excuse(&overlap) => return Err(overlap),
                _ => {}
            }
        }
        Ok(self.judge.newest)
    }
}

fn parse(line: &str) -> Line {
    let words: Vec<&str> = line.split(' ').collect();
    let [token, writer, pid, _uptime] = words.as_slice() else {
        panic!("{line:?} is no line of a diary");
    };
    Line { token: token.parse().unwrap(), writer: (*writer).into(), pid: pid.parse().unwrap() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diary(lines: &[&str]) -> Diary {
        Diary { lines: lines.iter().map(|line| parse(line)).collect() }
    }

    #[test]
    fn one_after_the_other_is_fine() {
        let fine =
            diary(&["1 child 10 0.1", "1 grandchild 0 0.1", "1 child 10 0.2", "2 child 11 0"]);
        assert_eq!(fine.check(), Ok(()));
        assert_eq!(fine.terms(), 2);
    }

    #[test]
    fn a_planted_overlap_is_caught() {
        let late = diary(&["1 child 10 0.1", "2 child 11 0.2", "1 child 10 0.3"]);
        let overlap = late.check().unwrap_err();
        assert!(overlap.what.contains("after a child of term 2"), "{overlap:?}");
        assert_eq!(overlap.late_child, Some(10));
        let grandchild = diary(&["1 child 10 0.1", "2 child 11 0.2", "1 grandchild 0 0.3"]);
        assert!(grandchild.check().is_err());
    }

    #[test]
    fn two_children_of_one_term_are_caught() {
        let twins = diary(&["1 child 10 0.1", "1 child 11 0.2"]);
        assert!(twins.check().unwrap_err().what.contains("had that term"));
    }
}
