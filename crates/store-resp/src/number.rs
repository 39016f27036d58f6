//! Numbers as RESP spells them. In: bytes or numbers; out: numbers or digits.

/// Digits of `i64::MIN` with its sign.
const INTEGER_DIGITS_MAX: usize = 20;

/// Reads a whole decimal integer the strict way Redis does: an optional minus, no plus, no
/// spaces, no leading zeros, nothing behind it, within `i64`.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < INTEGER_DIGITS_MAX => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Nineteen digits cannot overflow u64.
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Writes `value` in decimal into `scratch` and returns the written part.
pub fn format_integer(value: i64, scratch: &mut [u8; INTEGER_DIGITS_MAX]) -> &[u8] {
    let mut at = INTEGER_DIGITS_MAX;
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        // The remainder of a division by ten fits a byte.
        scratch[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        scratch[at] = b'-';
    }
    &scratch[at..]
}

/// `value` with up to 17 significant digits, as C's `%.17g` writes it.
pub fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) =
        scientific.split_once('e').expect("the exponent format always has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent format writes an integer exponent");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let digits = digits.trim_end_matches('0');
    place_point(sign, digits, exponent)
}

/// Digits `d₁d₂…` standing for `d₁.d₂… × 10^exponent`, laid out by the rules of `%g`.
fn place_point(sign: &str, digits: &str, exponent: i32) -> String {
    const PRECISION: i32 = 17;
    if !(-4..PRECISION).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let direction = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{direction}{:02}", exponent.abs());
    }
    if exponent < 0 {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("{sign}0.{zeros}{digits}");
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        return format!("{sign}{digits}{}", "0".repeat(whole - digits.len()));
    }
    let (before, after) = digits.split_at(whole);
    format!("{sign}{before}.{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_integers_are_read() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+5", None),
            (" 5", None),
            ("05", None),
            ("1e3", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn integers_are_written_as_they_are_read() {
        for value in [0, 1, -1, 42, i64::MAX, i64::MIN] {
            assert_eq!(parse_integer(format_integer(value, &mut [0; 20])), Some(value));
        }
    }

    #[test]
    fn doubles_look_as_c_writes_them_with_17_digits() {
        for (value, text) in [
            (3.1, "3.1000000000000001"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (1.5e300, "1.5000000000000001e+300"),
            (f64::INFINITY, "inf"),
            (-0.0, "-0"),
        ] {
            assert_eq!(format_double(value), text);
        }
    }
}
