//! The patterns of Lua 5.1.
//!
//! Lua's own matcher runs in C, where no hook fires and a pattern of a few bytes can hold the
//! server for hours. This one gives the same answers, pays for each step from the run's work, so
//! that the host is asked in between, and keeps its choices on a stack of its own, so that no
//! pattern overflows the thread's.

use crate::context::Context;
use crate::lua::Raise;

/// As many captures as Lua has.
const CAPTURES_MAX: usize = 32;
/// Choices that wait to be tried. Lua would need a frame of C's stack for each.
const CHOICES_MAX: usize = 100_000;
/// Steps that are paid for together.
const STEPS_TOGETHER: u64 = 256;
/// Bytes that are copied or compared for the price of a step.
pub(super) const BYTES_PER_STEP: usize = 16;

/// Why there is no answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// The script ends.
    Raise(Raise),
    /// The pattern is wrong, and this is Lua's text for it.
    Malformed(&'static str),
}

impl From<Raise> for Stop {
    fn from(raise: Raise) -> Self {
        Stop::Raise(raise)
    }
}

/// What a capture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    /// Its end is not there yet.
    Open { start: usize },
    /// These bytes of the subject.
    Text { start: usize, end: usize },
    /// A place in the subject.
    Position(usize),
}

/// What to try when the way taken leads nowhere.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// Go on at this item from this place.
    Go { at: usize, item: usize },
    /// `*` and `+`: one repetition less, down to `least`.
    Fewer { at: usize, least: usize, next: usize },
    /// `-`: one repetition more.
    More { at: usize, item: usize, end: usize },
    /// A capture was begun.
    Forget,
    /// A capture was ended that began at this index.
    Reopen(usize),
}

/// One subject, one pattern, and the captures of the last match.
pub(super) struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Capture>,
    choices: Vec<Choice>,
    context: &'a Context,
    unpaid: u64,
}

impl<'a> Matcher<'a> {
    /// `pattern` is without the `^` of an anchor.
    pub(super) fn new(context: &'a Context, subject: &'a [u8], pattern: &'a [u8]) -> Self {
        // Patterns of Lua 5.1 end at a zero.
        let end = pattern.iter().position(|byte| *byte == 0).unwrap_or(pattern.len());
        let pattern = &pattern[..end];
        Self { subject, pattern, captures: Vec::new(), choices: Vec::new(), context, unpaid: 0 }
    }

    /// The captures of the last match.
    pub(super) fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// The first match that begins at `from` or later: where it begins and ends.
    pub(super) fn search(&mut self, from: usize) -> Result<Option<(usize, usize)>, Stop> {
        for start in from..=self.subject.len() {
            if let Some(end) = self.match_at(start)? {
                return Ok(Some((start, end)));
            }
        }
        Ok(None)
    }

    /// Where the match that begins at `start` ends, if there is one.
    pub(super) fn match_at(&mut self, start: usize) -> Result<Option<usize>, Stop> {
        self.captures.clear();
        self.choices.clear();
        let mut here = Some((start, 0));
        loop {
            let (at, item) = match here {
                Some(here) => here,
                None => match self.next_choice()? {
                    Some(here) => here,
                    None => return Ok(None),
                },
            };
            if item >= self.pattern.len() {
                return Ok(Some(at));
            }
            here = self.step(at, item)?;
        }
    }

    /// Matches one item. Answers where to go on, unless it does not match.
    fn step(&mut self, at: usize, item: usize) -> Result<Option<(usize, usize)>, Stop> {
        self.pay(1)?;
        match (self.pattern[item], self.sign(item + 1)) {
            (b'(', b')') => self.open(Capture::Position(at), at, item + 2),
            (b'(', _) => self.open(Capture::Open { start: at }, at, item + 1),
            (b')', _) => self.close(at, item + 1),
            (b'$', 0) => Ok((at == self.subject.len()).then_some((at, item + 1))),
            (b'%', b'b') => Ok(self.balanced(at, item + 2)?.map(|end| (end, item + 4))),
            (b'%', b'f') => Ok(self.frontier(at, item + 2)?.map(|next| (at, next))),
            (b'%', digit @ b'0'..=b'9') => {
                Ok(self.back_reference(at, digit)?.map(|end| (end, item + 2)))
            }
            _ => self.single(at, item),
        }
    }

    /// A class of bytes, and how often.
    fn single(&mut self, at: usize, item: usize) -> Result<Option<(usize, usize)>, Stop> {
        let end = self.class_end(item)?;
        match self.sign(end) {
            b'?' => {
                if self.fits(at, item, end)? {
                    self.choose(Choice::Go { at, item: end + 1 })?;
                    return Ok(Some((at + 1, end + 1)));
                }
                Ok(Some((at, end + 1)))
            }
            b'*' => self.most(at, at, item, end),
            b'+' => match self.fits(at, item, end)? {
                true => self.most(at + 1, at + 1, item, end),
                false => Ok(None),
            },
            b'-' => {
                self.choose(Choice::More { at, item, end })?;
                Ok(Some((at, end + 1)))
            }
            _ => Ok(self.fits(at, item, end)?.then_some((at + 1, end))),
        }
    }

    fn most(
        &mut self,
        least: usize,
        mut at: usize,
        item: usize,
        end: usize,
    ) -> Result<Option<(usize, usize)>, Stop> {
        if self.pattern[item] == b'.' {
            self.pay_bytes(self.subject.len() - at)?;
            at = self.subject.len();
        } else {
            while self.fits(at, item, end)? {
                at += 1;
            }
        }
        let next = end + 1;
        if at > least {
            self.choose(Choice::Fewer { at: at - 1, least, next })?;
        }
        Ok(Some((at, next)))
    }

    fn choose(&mut self, choice: Choice) -> Result<(), Stop> {
        if self.choices.len() >= CHOICES_MAX {
            return Err(Stop::Malformed("pattern too complex"));
        }
        self.choices.push(choice);
        Ok(())
    }

    /// Takes the last choice back and the other way instead.
    fn next_choice(&mut self) -> Result<Option<(usize, usize)>, Stop> {
        while let Some(choice) = self.choices.pop() {
            self.pay(1)?;
            match choice {
                Choice::Go { at, item } => return Ok(Some((at, item))),
                Choice::Fewer { at, least, next } => {
                    if at > least {
                        self.choices.push(Choice::Fewer { at: at - 1, least, next });
                    }
                    return Ok(Some((at, next)));
                }
                Choice::More { at, item, end } => {
                    if self.fits(at, item, end)? {
                        self.choices.push(Choice::More { at: at + 1, item, end });
                        return Ok(Some((at + 1, end + 1)));
                    }
                }
                Choice::Forget => {
                    self.captures.pop();
                }
                Choice::Reopen(index) => {
                    if let Capture::Text { start, .. } = self.captures[index] {
                        self.captures[index] = Capture::Open { start };
                    }
                }
            }
        }
        Ok(None)
    }

    fn open(
        &mut self,
        capture: Capture,
        at: usize,
        next: usize,
    ) -> Result<Option<(usize, usize)>, Stop> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(Stop::Malformed("too many captures"));
        }
        self.captures.push(capture);
        self.choose(Choice::Forget)?;
        Ok(Some((at, next)))
    }

    fn close(&mut self, at: usize, next: usize) -> Result<Option<(usize, usize)>, Stop> {
        let is_open = |capture: &Capture| matches!(capture, Capture::Open { .. });
        let Some(index) = self.captures.iter().rposition(is_open) else {
            return Err(Stop::Malformed("invalid pattern capture"));
        };
        if let Capture::Open { start } = self.captures[index] {
            self.captures[index] = Capture::Text { start, end: at };
        }
        self.choose(Choice::Reopen(index))?;
        Ok(Some((at, next)))
    }

    /// `%bxy`: where the balanced part ends.
    fn balanced(&mut self, at: usize, item: usize) -> Result<Option<usize>, Stop> {
        let (begin, end) = (self.sign(item), self.sign(item + 1));
        if begin == 0 || end == 0 {
            return Err(Stop::Malformed("unbalanced pattern"));
        }
        if self.subject.get(at) != Some(&begin) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for place in at + 1..self.subject.len() {
            self.pay(1)?;
            let byte = self.subject[place];
            if byte == end {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(place + 1));
                }
            } else if byte == begin {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: where the pattern goes on, if the set begins to hold here.
    fn frontier(&mut self, at: usize, item: usize) -> Result<Option<usize>, Stop> {
        if self.sign(item) != b'[' {
            return Err(Stop::Malformed("missing '[' after '%f' in pattern"));
        }
        let end = self.class_end(item)?;
        let before = at.checked_sub(1).map_or(0, |before| self.subject[before]);
        let here = self.subject.get(at).copied().unwrap_or(0);
        let begins = !self.in_set(before, item, end - 1)? && self.in_set(here, item, end - 1)?;
        Ok(begins.then_some(end))
    }

    /// `%1`: where the same text as in the capture ends.
    fn back_reference(&mut self, at: usize, digit: u8) -> Result<Option<usize>, Stop> {
        let capture = usize::from(digit).checked_sub(usize::from(b'1'));
        match capture.and_then(|index| self.captures.get(index)) {
            None | Some(Capture::Open { .. }) => Err(Stop::Malformed("invalid capture index")),
            Some(Capture::Position(_)) => Ok(None),
            Some(Capture::Text { start, end }) => {
                let text = &self.subject[*start..*end];
                self.pay_bytes(text.len())?;
                Ok(self.subject[at..].starts_with(text).then_some(at + text.len()))
            }
        }
    }

    /// The byte of the pattern there, and zero behind its end.
    fn sign(&self, item: usize) -> u8 {
        self.pattern.get(item).copied().unwrap_or(0)
    }

    /// Where the class that begins at `item` ends.
    fn class_end(&mut self, item: usize) -> Result<usize, Stop> {
        match self.pattern[item] {
            b'%' if item + 1 >= self.pattern.len() => {
                Err(Stop::Malformed("malformed pattern (ends with '%')"))
            }
            b'%' => Ok(item + 2),
            b'[' => self.set_end(item + 1),
            _ => Ok(item + 1),
        }
    }

    fn set_end(&mut self, mut item: usize) -> Result<usize, Stop> {
        item += usize::from(self.sign(item) == b'^');
        loop {
            self.pay(1)?;
            // The first sign of a set is not its end.
            let sign = self.sign(item);
            if sign == 0 {
                return Err(Stop::Malformed("malformed pattern (missing ']')"));
            }
            item += 1;
            if sign == b'%' && self.sign(item) != 0 {
                item += 1;
            }
            if self.sign(item) == b']' {
                return Ok(item + 1);
            }
        }
    }

    /// Whether the byte at `at` is of the class.
    fn fits(&mut self, at: usize, item: usize, end: usize) -> Result<bool, Stop> {
        let Some(byte) = self.subject.get(at).copied() else { return Ok(false) };
        self.pay(1)?;
        match self.pattern[item] {
            b'.' => Ok(true),
            b'%' => Ok(in_class(byte, self.pattern[item + 1])),
            b'[' => self.in_set(byte, item, end - 1),
            literal => Ok(literal == byte),
        }
    }

    /// Whether the byte is in the set from `[` at `item` to `]` at `last`.
    fn in_set(&mut self, byte: u8, mut item: usize, last: usize) -> Result<bool, Stop> {
        let is_inverted = self.sign(item + 1) == b'^';
        item += usize::from(is_inverted) + 1;
        let mut found = false;
        while item < last && !found {
            self.pay(1)?;
            if self.pattern[item] == b'%' {
                item += 1;
                found = in_class(byte, self.pattern[item]);
            } else if self.sign(item + 1) == b'-' && item + 2 < last {
                item += 2;
                found = (self.pattern[item - 2]..=self.pattern[item]).contains(&byte);
            } else {
                found = self.pattern[item] == byte;
            }
            item += 1;
        }
        Ok(found != is_inverted)
    }

    /// Pays for bytes that are compared or passed over.
    fn pay_bytes(&mut self, count: usize) -> Result<(), Raise> {
        self.pay((count / BYTES_PER_STEP) as u64)
    }

    fn pay(&mut self, steps: u64) -> Result<(), Raise> {
        self.unpaid += steps;
        if self.unpaid < STEPS_TOGETHER {
            return Ok(());
        }
        self.context.spend(std::mem::take(&mut self.unpaid))
    }

    /// Pays for the last steps.
    pub(super) fn settle(&mut self) -> Result<(), Raise> {
        self.context.spend(std::mem::take(&mut self.unpaid))
    }
}

/// `%a` and its like, as in the locale "C".
fn in_class(byte: u8, class: u8) -> bool {
    let holds = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    holds != class.is_ascii_uppercase()
}
