//! Integers: strict parsing and fast formatting.

/// The longest decimal text of an `i64`: a sign and nineteen digits.
const TEXT_MAX: usize = 20;

/// Reads an `i64` written in the only way the store writes it: no plus sign, no spaces, no leading
/// zeros, no `-0`. Anything else, and anything out of range, is `None`.
///
/// ```
/// # use store_types::number::parse_i64;
/// assert_eq!(parse_i64(b"-42"), Some(-42));
/// assert_eq!(parse_i64(b"042"), None);
/// ```
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > TEXT_MAX {
        return None;
    }
    let (negative, digits) = match text[0] {
        b'-' => (true, &text[1..]),
        _ => (false, text),
    };
    let magnitude = parse_digits(digits)?;
    match (negative, magnitude) {
        (false, _) => i64::try_from(magnitude).ok(),
        (true, 0) => None,
        (true, _) => 0_i64.checked_sub_unsigned(magnitude),
    }
}

/// Reads a `u64` by the rules of [`parse_i64`], without a sign.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.len() > TEXT_MAX { None } else { parse_digits(text) }
}

#[inline]
fn parse_digits(digits: &[u8]) -> Option<u64> {
    let (&first, rest) = digits.split_first()?;
    if first == b'0' {
        return rest.is_empty().then_some(0);
    }
    // Eighteen digits cannot overflow: the common case runs without checked arithmetic.
    let unchecked = digits.len().min(18);
    let mut value = 0_u64;
    for &digit in &digits[..unchecked] {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    for &digit in &digits[unchecked..] {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// The decimal text of an `i64`, on the stack.
///
/// ```
/// # use store_types::number::IntText;
/// assert_eq!(IntText::new(-7).as_bytes(), b"-7");
/// ```
#[derive(Clone, Copy)]
pub struct IntText {
    buffer: [u8; TEXT_MAX],
    start: u8,
}

impl IntText {
    /// Writes `value` in decimal.
    #[inline]
    pub fn new(value: i64) -> Self {
        let mut buffer = [0; TEXT_MAX];
        let mut start = TEXT_MAX;
        let mut rest = value.unsigned_abs();
        while rest >= 100 {
            let pair = (rest % 100) as usize * 2;
            rest /= 100;
            start -= 2;
            buffer[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
        }
        if rest >= 10 {
            let pair = rest as usize * 2;
            start -= 2;
            buffer[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
        } else {
            start -= 1;
            buffer[start] = b'0' + rest as u8;
        }
        if value < 0 {
            start -= 1;
            buffer[start] = b'-';
        }
        Self { buffer, start: start as u8 }
    }

    /// The text.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[usize::from(self.start)..]
    }
}

/// Every number from 00 to 99, so that formatting divides once per two digits.
const DIGIT_PAIRS: &[u8; 200] = b"\
00010203040506070809101112131415161718192021222324\
25262728293031323334353637383940414243444546474849\
50515253545556575859606162636465666768697071727374\
75767778798081828384858687888990919293949596979899";

/// Appends the decimal text of `value` to `out`.
#[inline]
pub fn push_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(IntText::new(value).as_bytes());
}

/// How many bytes the decimal text of `value` takes.
#[inline]
pub fn decimal_len(value: i64) -> usize {
    let digits = value.unsigned_abs().checked_ilog10().map_or(1, |power| power as usize + 1);
    digits + usize::from(value < 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_canonical_text_of_an_integer_is_one() {
        for refused in [
            "",
            "-",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "-01",
            "00",
            "1a",
            "9223372036854775808",
            "-9223372036854775809",
            "123456789012345678901",
            "0x10",
            "1.0",
        ] {
            assert_eq!(parse_i64(refused.as_bytes()), None, "{refused:?}");
        }
        assert_eq!(parse_i64(b"0"), Some(0));
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
    }

    proptest! {
        #[test]
        fn text_and_integer_are_two_forms_of_one_thing(value: i64, shift in 0_u32..64) {
            let value = value >> shift;
            let text = IntText::new(value);
            prop_assert_eq!(text.as_bytes().to_vec(), value.to_string().into_bytes());
            prop_assert_eq!(text.as_bytes().len(), decimal_len(value));
            prop_assert_eq!(parse_i64(text.as_bytes()), Some(value));
        }

        #[test]
        fn what_parses_prints_back_unchanged(text in "[-0-9+ ]{0,21}") {
            if let Some(value) = parse_i64(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }
}
