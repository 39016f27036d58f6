//! Numbers as text, the way C's `printf("%.14g")` and `strtod` do it.

/// Digits of `tostring` and of `cjson`.
pub(crate) const LUA_DIGITS: usize = 14;
/// Digits that tell every double apart.
pub(crate) const ALL_DIGITS: usize = 17;

/// `printf("%.{digits}g")`.
pub(crate) fn format_general(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if value.is_nan() { "nan" } else { "inf" });
    }
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("`e` always writes an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent of a double is a small integer");
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    without_trailing_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// `strtod`: the number at the front of `text` and how many bytes it takes, or none.
///
/// Knows decimal and hexadecimal notation, `inf`, `infinity`, `nan` and `nan(…)`; skips no space.
pub(crate) fn parse_prefix(text: &[u8]) -> Option<(f64, usize)> {
    let (negative, sign_length) = match text.first() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let body = &text[sign_length..];
    let (value, length) = words(body).or_else(|| hexadecimal(body)).or_else(|| decimal(body))?;
    Some((if negative { -value } else { value }, sign_length + length))
}

fn words(text: &[u8]) -> Option<(f64, usize)> {
    let starts = |word: &str| {
        text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
    };
    if starts("infinity") {
        return Some((f64::INFINITY, 8));
    }
    if starts("inf") {
        return Some((f64::INFINITY, 3));
    }
    if !starts("nan") {
        return None;
    }
    let is_tag = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let tag =
        text[3..].strip_prefix(b"(").map(|rest| rest.iter().take_while(|b| is_tag(b)).count());
    match tag {
        Some(length) if text.get(4 + length) == Some(&b')') => Some((f64::NAN, length + 5)),
        _ => Some((f64::NAN, 3)),
    }
}

fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let count = |from: usize| text[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = count(0);
    let mut end = whole;
    if text.get(end) == Some(&b'.') {
        let fraction = count(end + 1);
        if whole + fraction == 0 {
            return None;
        }
        end += 1 + fraction;
    }
    if end == 0 {
        return None;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let digits = text.get(end + 1 + sign..).map_or(0, |_| count(end + 1 + sign));
        if digits > 0 {
            end += 1 + sign + digits;
        }
    }
    let text = std::str::from_utf8(&text[..end]).expect("digits are ASCII");
    Some((text.parse().ok()?, end))
}

/// Hexadecimal with optional fraction and binary exponent. Digits beyond the precision of a
/// double are cut instead of rounded.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let digits = match text {
        [b'0', b'x' | b'X', digits @ ..] => digits,
        _ => return None,
    };
    let mut mantissa = 0_u64;
    let mut exponent = 0_i32;
    let mut seen = false;
    let mut in_fraction = false;
    let mut end = 0;
    for byte in digits {
        match char::from(*byte).to_digit(16) {
            Some(digit) if mantissa >> 58 == 0 => {
                mantissa = mantissa * 16 + u64::from(digit);
                exponent -= if in_fraction { 4 } else { 0 };
                seen = true;
            }
            Some(_) => exponent = exponent.saturating_add(if in_fraction { 0 } else { 4 }),
            None if *byte == b'.' && !in_fraction => in_fraction = true,
            None => break,
        }
        end += 1;
    }
    if !seen {
        // "0x" alone is the number 0 followed by an x.
        return Some((0.0, 1));
    }
    let (power, power_length) = binary_exponent(&digits[end..]);
    let value = scale(mantissa as f64, exponent.saturating_add(power));
    Some((value, 2 + end + power_length))
}

fn binary_exponent(text: &[u8]) -> (i32, usize) {
    if !matches!(text.first(), Some(b'p' | b'P')) {
        return (0, 0);
    }
    let sign = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    let digits: Vec<u8> = text[1 + sign..].iter().copied().take_while(u8::is_ascii_digit).collect();
    if digits.is_empty() {
        return (0, 0);
    }
    let size = digits.iter().fold(0_i32, |size, digit| {
        size.saturating_mul(10).saturating_add(i32::from(digit - b'0')).min(100_000)
    });
    let power = if text.get(1) == Some(&b'-') { -size } else { size };
    (power, 1 + sign + digits.len())
}

fn scale(value: f64, exponent: i32) -> f64 {
    // In two steps, so that 2^-1074 does not pass through zero.
    let half = exponent / 2;
    value * 2_f64.powi(half) * 2_f64.powi(exponent - half)
}

/// What `(long) number` gives in C on the machines that Redis runs on: out of range, the least.
pub(crate) fn to_c_integer(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// What `(unsigned long) number` gives.
pub(crate) fn to_c_unsigned(number: f64) -> u64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match number >= LIMIT {
        true => to_c_integer(number - LIMIT) as u64 ^ (1 << 63),
        false => to_c_integer(number) as u64,
    }
}

/// What `(int) number` gives.
pub(crate) fn to_c_int(number: f64) -> i32 {
    let is_in_range = number > -2_147_483_649.0 && number < 2_147_483_648.0;
    if is_in_range { number as i32 } else { i32::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_c_prints_them() {
        let cases = [
            (0.1, "0.1"),
            (-0.0, "-0"),
            (1e15, "1e+15"),
            (123456789012345.0, "1.2345678901234e+14"),
            (99999999999999.0, "99999999999999"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e100, "1e+100"),
            (f64::NEG_INFINITY, "-inf"),
            (1.0 / 3.0, "0.33333333333333"),
        ];
        for (value, text) in cases {
            assert_eq!(format_general(value, LUA_DIGITS), text);
        }
        assert_eq!(format_general(3.2, ALL_DIGITS), "3.2000000000000002");
        assert_eq!(format_general(5.0, 1), "5");
        assert_eq!(format_general(55.0, 1), "6e+01");
    }

    #[test]
    fn the_longest_number_in_front_is_read() {
        let cases = [
            (&b"12"[..], Some((12.0, 2))),
            (b"-1.5e3x", Some((-1500.0, 6))),
            (b"1e", Some((1.0, 1))),
            (b"1e+", Some((1.0, 1))),
            (b"1.", Some((1.0, 2))),
            (b".5", Some((0.5, 2))),
            (b".", None),
            (b"", None),
            (b"-", None),
            (b"0x10", Some((16.0, 4))),
            (b"0x.8p1", Some((1.0, 6))),
            (b"0x", Some((0.0, 1))),
            (b"Infinityx", Some((f64::INFINITY, 8))),
            (b"-inf", Some((f64::NEG_INFINITY, 4))),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_prefix(text), expected, "{:?}", String::from_utf8_lossy(text));
        }
        assert_eq!(parse_prefix(b"nan(a1)").map(|(_, length)| length), Some(7));
        assert_eq!(parse_prefix(b"nan(").map(|(_, length)| length), Some(3));
    }
}
