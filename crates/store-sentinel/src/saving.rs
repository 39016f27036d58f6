//! What the file has, and what must wait for it.

use std::collections::VecDeque;

use store_replica::Moment;

use crate::output::{DownAnswer, Output, Question};

/// What became of the text of the last [`Output::Persist`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOutcome {
    /// It is on disk.
    Written,
    /// It cannot be written for now. The driver tries again, with the newest text.
    Failed,
}

/// ```text
/// Saved ─ change ─► Writing ─ written ─► Saved, or Writing again when more has changed
///                      └─ failed ─► Failing ─ written ─► Saved
/// ```
/// While it is written, votes and whatever tells of epochs and addresses wait; pings, questions to
/// servers and answers that change nothing do not, so that a disk that hangs makes nobody look
/// dead. While it fails nothing waits, and what cannot be kept is refused: no vote is given or
/// asked for, and nobody is promoted.
#[derive(Debug, Default)]
pub(crate) struct Saving {
    /// Changes so far, those that the last text holds, and those that are on disk.
    changes: u64,
    given: u64,
    saved: u64,
    is_writing: bool,
    is_failing: bool,
    /// What waits, in order.
    held: VecDeque<Held>,
}

#[derive(Debug)]
pub(crate) struct Held {
    /// The changes that it may tell of.
    changes: u64,
    /// When it was decided.
    pub(crate) since: Moment,
    output: Output,
}

impl Held {
    /// The same without what cannot be kept.
    fn unsaved(self) -> Self {
        Self { output: unsaved(self.output), ..self }
    }

    /// As it leaves now. `is_stale` is whether what was seen then says nothing about now.
    pub(crate) fn release(self, is_stale: bool) -> Output {
        match self.output {
            Output::Answer { session, answer } if is_stale => {
                Output::Answer { session, answer: DownAnswer { is_down: false, ..answer } }
            }
            output => output,
        }
    }
}

impl Saving {
    pub(crate) fn mark_changed(&mut self) {
        self.changes += 1;
    }

    /// How many changes there have been.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether the file lacks something.
    pub(crate) fn is_behind(&self) -> bool {
        self.changes > self.saved
    }

    /// Whether a text is to be written now.
    pub(crate) fn wants_text(&self) -> bool {
        self.changes > self.given && (!self.is_writing || self.is_failing)
    }

    /// The newest text goes to the file.
    pub(crate) fn begin(&mut self) {
        self.given = self.changes;
        self.is_writing = true;
    }

    /// What became of it. Returns what need not wait any more, in order.
    pub(crate) fn finish(&mut self, outcome: FileOutcome) -> Vec<Held> {
        self.is_writing = false;
        self.is_failing = outcome == FileOutcome::Failed;
        match outcome {
            FileOutcome::Written => {
                self.saved = self.given;
                let is_saved = |held: &&Held| held.changes <= self.saved;
                let count = self.held.iter().take_while(is_saved).count();
                self.held.drain(..count).collect()
            }
            FileOutcome::Failed => self.held.drain(..).map(Held::unsaved).collect(),
        }
    }

    /// Keeps an output back that the file must precede. Returns what need not wait.
    pub(crate) fn hold(&mut self, now: Moment, output: Output) -> Option<Output> {
        /// Whoever asks for a vote asks again and again, over new connections. Behind a disk that
        /// hangs for ever, the oldest hears that it gets none.
        const HELD_MAX: usize = 1_000;
        match (self.is_behind(), self.is_failing) {
            (false, _) => Some(output),
            (true, true) => Some(unsaved(output)),
            (true, false) => {
                self.held.push_back(Held { changes: self.changes, since: now, output });
                let is_full = self.held.len() > HELD_MAX;
                let oldest = if is_full { self.held.pop_front() } else { None };
                oldest.map(|oldest| oldest.unsaved().release(true))
            }
        }
    }

    /// A question as it may be asked now, if it may.
    pub(crate) fn admit(&self, question: Question) -> Option<Question> {
        match (self.is_behind(), self.is_failing, question) {
            (true, false, Question::Hello(_) | Question::IsDown(_) | Question::Follow(_)) => None,
            (true, true, Question::Follow(None)) => None,
            (true, true, Question::IsDown(mut question)) => {
                // It would forget its own vote.
                question.candidate = None;
                Some(Question::IsDown(question))
            }
            (_, _, question) => Some(question),
        }
    }
}

/// What is said in place of something that cannot be kept.
fn unsaved(output: Output) -> Output {
    match output {
        Output::Answer { session, answer } => {
            // A vote that is not kept might be given twice.
            let answer = DownAnswer { vote: None, ..answer };
            Output::Answer { session, answer }
        }
        Output::Reply { session, .. } => {
            let bytes = b"-ERR Failed to save config file. Check server logs.\r\n".to_vec();
            Output::Reply { session, bytes }
        }
        output => output,
    }
}
