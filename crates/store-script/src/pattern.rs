//! What matching a pattern would cost.
//!
//! The matcher of Lua runs in C, where no hook fires: `("a"):rep(1e6):find(".-.-b")` would hold the
//! server for hours, deaf to SCRIPT KILL. So before a search that might take long, it is tried here
//! within a budget of steps. What Lua then does takes no more of them.

/// Repeated or captured items that a pattern may have: for each, Lua's matcher recurses, and so
/// does this one.
const ITEMS_MAX: usize = 400;
/// As many captures as Lua has.
const CAPTURES_MAX: usize = 32;

/// How often a function searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// For the text itself, once.
    Plain,
    /// For the first match.
    First,
    /// For all matches.
    All,
    /// For all matches, with `^` standing for itself: `gmatch` knows no anchor.
    Iterate,
}

/// Whether the search ends within this many steps (and some for each byte), and within bounds of
/// the stack.
pub(crate) fn is_affordable(
    subject: &[u8],
    pattern: &[u8],
    search: Search,
    steps_max: u64,
) -> bool {
    // However long the subject: a look or sixteen at each byte of it is no attack.
    let steps_max = steps_max.saturating_add(16 * subject.len() as u64);
    if search == Search::Plain {
        return is_plain_affordable(subject, pattern, steps_max);
    }
    // Patterns of Lua 5.1 end at a zero.
    let pattern = pattern.split(|byte| *byte == 0).next().unwrap_or_default();
    let items = pattern.iter().filter(|byte| b"?*+-()".contains(byte)).count();
    if items > ITEMS_MAX {
        return false;
    }
    if worst_case(subject.len(), pattern) <= steps_max as f64 {
        return true;
    }
    let captures = Vec::with_capacity(CAPTURES_MAX);
    let mut matcher = Matcher { subject, pattern, steps: steps_max, captures };
    matcher.search(search) != Err(Stop::TooLong)
}

/// Lua compares at every place where the first byte fits.
fn is_plain_affordable(subject: &[u8], text: &[u8], steps_max: u64) -> bool {
    if (subject.len() as f64) * (text.len() as f64) <= steps_max as f64 {
        return true;
    }
    let mut steps = 0;
    for start in 0..=subject.len().saturating_sub(text.len()) {
        let rest = &subject[start..];
        let same = rest.iter().zip(text).take_while(|(a, b)| a == b).count();
        if same == text.len() {
            return true;
        }
        steps += 1 + same as u64;
        if steps > steps_max {
            return false;
        }
    }
    true
}

/// More steps than any subject of this length can take.
fn worst_case(length: usize, pattern: &[u8]) -> f64 {
    let endless = pattern.iter().filter(|byte| b"*+-b".contains(byte)).count();
    let optional = pattern.iter().filter(|byte| **byte == b'?').count();
    let starts_and_ends = (length as f64 + 1.0).powi(1 + endless as i32);
    (pattern.len() as f64 + 1.0) * starts_and_ends * 2_f64.powi(optional as i32)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    TooLong,
    /// Lua will say what is wrong.
    Malformed,
}

struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    steps: u64,
    /// Start and end; no end while open.
    captures: Vec<(usize, Option<usize>)>,
}

/// Where the match ends, if there is one.
type Match = Result<Option<usize>, Stop>;

impl Matcher<'_> {
    fn search(&mut self, search: Search) -> Result<(), Stop> {
        let is_anchored = search != Search::Iterate && self.pattern.first() == Some(&b'^');
        let first = usize::from(is_anchored);
        let mut at = 0;
        while at <= self.subject.len() {
            self.captures.clear();
            let found = self.matches(at, first)?;
            if is_anchored || (found.is_some() && search == Search::First) {
                break;
            }
            at = found.filter(|end| *end > at).unwrap_or(at + 1);
        }
        Ok(())
    }

    fn matches(&mut self, mut at: usize, mut item: usize) -> Match {
        loop {
            self.step()?;
            let Some(byte) = self.pattern.get(item).copied() else { return Ok(Some(at)) };
            let next = self.pattern.get(item + 1).copied();
            match (byte, next) {
                (b'(', Some(b')')) => return self.open_capture(at, item + 2, Some(at)),
                (b'(', _) => return self.open_capture(at, item + 1, None),
                (b')', _) => return self.close_capture(at, item + 1),
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                (b'%', Some(b'b')) => match self.balanced(at, item + 2)? {
                    Some(end) => (at, item) = (end, item + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(at, item + 2)? {
                    Some(end) => item = end,
                    None => return Ok(None),
                },
                (b'%', Some(b'0'..=b'9')) => match self.back_reference(at, next)? {
                    Some(end) => (at, item) = (end, item + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.item_end(item)?;
                    let fits = self.fits(at, item, end);
                    match self.pattern.get(end) {
                        Some(b'*') => return self.most(at, item, end),
                        Some(b'+') if fits => return self.most(at + 1, item, end),
                        Some(b'-') => return self.least(at, item, end),
                        Some(b'?') => {
                            if fits && let Some(found) = self.matches(at + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            item = end + 1;
                        }
                        _ if fits => (at, item) = (at + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn step(&mut self) -> Result<(), Stop> {
        self.steps = self.steps.checked_sub(1).ok_or(Stop::TooLong)?;
        Ok(())
    }

    fn most(&mut self, at: usize, item: usize, end: usize) -> Match {
        let mut count = 0;
        while self.fits(at + count, item, end) {
            self.step()?;
            count += 1;
        }
        for count in (0..=count).rev() {
            if let Some(found) = self.matches(at + count, end + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn least(&mut self, mut at: usize, item: usize, end: usize) -> Match {
        loop {
            if let Some(found) = self.matches(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.fits(at, item, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open_capture(&mut self, at: usize, item: usize, end: Option<usize>) -> Match {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(Stop::Malformed);
        }
        self.captures.push((at, end));
        let found = self.matches(at, item)?;
        if found.is_none() {
            self.captures.pop();
        }
        Ok(found)
    }

    fn close_capture(&mut self, at: usize, item: usize) -> Match {
        let open = self.captures.iter().rposition(|(_, end)| end.is_none());
        let open = open.ok_or(Stop::Malformed)?;
        self.captures[open].1 = Some(at);
        let found = self.matches(at, item)?;
        if found.is_none() {
            self.captures[open].1 = None;
        }
        Ok(found)
    }

    fn balanced(&mut self, at: usize, item: usize) -> Match {
        let &[open, close, ..] = &self.pattern[item..] else { return Err(Stop::Malformed) };
        if self.subject.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for (ahead, byte) in self.subject[at + 1..].iter().enumerate() {
            self.steps = self.steps.checked_sub(1).ok_or(Stop::TooLong)?;
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + ahead + 2));
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// The item after a frontier that holds here.
    fn frontier(&mut self, at: usize, item: usize) -> Match {
        if self.pattern.get(item) != Some(&b'[') {
            return Err(Stop::Malformed);
        }
        let end = self.item_end(item)?;
        let before = at.checked_sub(1).map_or(0, |before| self.subject[before]);
        let here = self.subject.get(at).copied().unwrap_or(0);
        let holds = !self.fits_set(before, item, end) && self.fits_set(here, item, end);
        Ok(holds.then_some(end))
    }

    fn back_reference(&mut self, at: usize, digit: Option<u8>) -> Match {
        let index = usize::from(digit.unwrap_or(b'0')).wrapping_sub(usize::from(b'1'));
        let Some((start, Some(end))) = self.captures.get(index).copied() else {
            return Err(Stop::Malformed);
        };
        let text = self.subject.get(start..end).unwrap_or_default();
        self.steps = self.steps.checked_sub(text.len() as u64).ok_or(Stop::TooLong)?;
        Ok(self.subject[at..].starts_with(text).then_some(at + text.len()))
    }

    /// Behind the class that starts at `item`.
    fn item_end(&self, item: usize) -> Result<usize, Stop> {
        match self.pattern[item] {
            b'%' if item + 1 < self.pattern.len() => Ok(item + 2),
            b'%' => Err(Stop::Malformed),
            b'[' => {
                let mut at = item + 1;
                at += usize::from(self.pattern.get(at) == Some(&b'^'));
                // A bracket that comes first stands for itself.
                loop {
                    let byte = *self.pattern.get(at).ok_or(Stop::Malformed)?;
                    at += if byte == b'%' { 2 } else { 1 };
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(item + 1),
        }
    }

    fn fits(&self, at: usize, item: usize, end: usize) -> bool {
        let Some(byte) = self.subject.get(at).copied() else { return false };
        match self.pattern[item] {
            b'.' => true,
            b'%' => fits_class(byte, self.pattern[item + 1]),
            b'[' => self.fits_set(byte, item, end),
            literal => literal == byte,
        }
    }

    fn fits_set(&self, byte: u8, item: usize, end: usize) -> bool {
        let mut set = &self.pattern[item + 1..end - 1];
        let is_negated = set.first() == Some(&b'^');
        if is_negated {
            set = &set[1..];
        }
        let mut fits = false;
        while let Some(first) = set.first().copied() {
            let used = match set {
                [b'%', class, ..] => {
                    fits |= fits_class(byte, *class);
                    2
                }
                [low, b'-', high, ..] => {
                    fits |= (*low..=*high).contains(&byte);
                    3
                }
                _ => {
                    fits |= first == byte;
                    1
                }
            };
            set = &set[used..];
        }
        fits != is_negated
    }
}

fn fits_class(byte: u8, class: u8) -> bool {
    let fits = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    fits != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: u64 = 1_000_000;

    fn found(subject: &str, pattern: &str) -> Match {
        let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
        let captures = Vec::new();
        let mut matcher = Matcher { subject, pattern, steps: STEPS, captures };
        matcher.matches(0, 0)
    }

    #[test]
    fn the_trial_matches_as_lua_does() {
        let cases = [
            ("hello", "h.-l", Some(3)),
            ("hello", "h.*l", Some(4)),
            ("hello", "x", None),
            ("hello", "", Some(0)),
            ("abab", "(ab)%1", Some(4)),
            ("f(a(b)c)d", "f%b()", Some(8)),
            ("  trim ", "%s*(.-)%s*$", Some(7)),
            ("]x", "[]]x", Some(2)),
            ("a-z", "[a%-]+z", Some(3)),
            ("THE end", "%f[%a]%u+%f[%A]", Some(3)),
            ("aaa", "a?a?a?a", Some(3)),
            ("x5", "%a%d", Some(2)),
            ("x5", "%A", None),
            ("xyz", "()x()y", Some(2)),
        ];
        for (subject, pattern, end) in cases {
            assert_eq!(found(subject, pattern), Ok(end), "{subject} {pattern}");
        }
        for malformed in ["%", "[a", "[^", "%f", "%b", "%ba", "%1", "a)"] {
            assert_eq!(found("a", malformed), Err(Stop::Malformed), "{malformed}");
        }
    }

    #[test]
    fn only_what_takes_too_long_is_refused() {
        let long = vec![b'a'; 1 << 17];
        for pattern in ["b", "a*b", "a+", "(a*)", ".*", "^(.-)b$", "%s*$", "^%s*(.-)%s*$"] {
            let search = if pattern == "a*b" { Search::First } else { Search::All };
            let expected = pattern != "a*b";
            let affordable = is_affordable(&long, pattern.as_bytes(), search, STEPS);
            assert_eq!(affordable, expected, "{pattern}");
        }
        for pattern in [".-.-b", "(a*)*b.-c", "a-a-a-b", "%b()", "a?"] {
            let affordable = is_affordable(&long, pattern.as_bytes(), Search::First, STEPS);
            assert_eq!(affordable, ["%b()", "a?"].contains(&pattern), "{pattern}");
        }
        assert!(!is_affordable(b"aaaa", "a?".repeat(500).as_bytes(), Search::First, STEPS));
        let needle = [&vec![b'a'; 1 << 16][..], b"b"].concat();
        assert!(!is_affordable(&long, &needle, Search::Plain, STEPS));
        assert!(is_affordable(&long, &long[..1 << 16], Search::Plain, STEPS));
    }
}
