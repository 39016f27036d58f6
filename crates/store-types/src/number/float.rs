//! Doubles: `strtod`'s reading and `printf`'s seventeen digits.

use super::integer::push_i64;

/// The longest text that can be a double here; longer ones are refused unread.
const TEXT_MAX: usize = 5 * 1024;

/// Reads a double as Redis does: what C's `strtod` reads (decimal, hexadecimal, `inf`, `infinity`),
/// without spaces. Refused are `nan`, trailing bytes, and numbers too large or too small to hold.
///
/// ```
/// # use store_types::number::parse_f64;
/// assert_eq!(parse_f64(b"0x1.8p1"), Some(3.0));
/// assert_eq!(parse_f64(b"-inf"), Some(f64::NEG_INFINITY));
/// assert_eq!(parse_f64(b"nan"), None);
/// ```
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned.starts_with("0x") || unsigned.starts_with("0X") {
        let magnitude = parse_hex(&unsigned.as_bytes()[2..])?;
        return Some(if text.starts_with('-') { -magnitude } else { magnitude });
    }
    let value = text.parse::<f64>().ok()?;
    let named = unsigned.starts_with(['i', 'I']);
    let overflowed = value.is_infinite() && !named;
    let vanished = value == 0.0 && has_nonzero_digit(unsigned);
    (!value.is_nan() && !overflowed && !vanished).then_some(value)
}

/// Whether the significand of a decimal text has a digit other than zero: only then can zero be
/// the result of underflow.
fn has_nonzero_digit(text: &str) -> bool {
    text.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).any(|b| matches!(b, b'1'..=b'9'))
}

/// A hexadecimal significand with an optional binary exponent, after the `0x`.
fn parse_hex(text: &[u8]) -> Option<f64> {
    let (significand, exponent) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let mut mantissa = 0_u64;
    let mut dropped_bits = false;
    let mut shift = exponent;
    let mut seen_digit = false;
    let mut seen_point = false;
    for &byte in significand {
        if byte == b'.' && !seen_point {
            seen_point = true;
            continue;
        }
        let digit = u64::from(char::from(byte).to_digit(16)?);
        seen_digit = true;
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            shift -= 4 * i64::from(seen_point);
        } else {
            dropped_bits |= digit != 0;
            shift += 4 * i64::from(!seen_point);
        }
    }
    let value = scale_to_f64(mantissa | u64::from(dropped_bits), shift);
    let refused = value.is_infinite() || (value == 0.0 && mantissa != 0);
    (seen_digit && !refused).then_some(value)
}

/// The exponent's digits; one beyond any double's range is as good as any other beyond it.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let mut value = 0_i64;
    for &byte in digits {
        let digit = char::from(byte).to_digit(10)?;
        value = (value * 10 + i64::from(digit)).min(1_000_000);
    }
    (!digits.is_empty()).then_some(if negative { -value } else { value })
}

/// `mantissa · 2^shift`, rounded once, to the nearest double with ties to even.
fn scale_to_f64(mantissa: u64, shift: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let bits = 64 - i64::from(mantissa.leading_zeros());
    let exponent = bits - 1 + shift;
    if exponent > 1023 {
        return f64::INFINITY;
    }
    // A subnormal keeps fewer than 53 bits; rounding to its width here keeps rounding single.
    let width = if exponent >= -1022 { 53 } else { (exponent + 1075).max(0) };
    let dropped = bits - width;
    let (kept, shift) = if dropped > 0 {
        (round_shift(mantissa, dropped), shift + dropped)
    } else {
        (mantissa, shift)
    };
    let mut value = kept as f64;
    let mut left = shift;
    while left != 0 {
        let step = left.clamp(-1000, 1000);
        value *= 2.0_f64.powi(step as i32);
        left -= step;
    }
    value
}

/// `value / 2^dropped`, ties to even.
fn round_shift(value: u64, dropped: i64) -> u64 {
    if dropped > 64 {
        return 0;
    }
    let wide = u128::from(value);
    let half = 1_u128 << (dropped - 1);
    let rest = wide & ((half << 1) - 1);
    let kept = wide >> dropped;
    let up = rest > half || (rest == half && kept & 1 == 1);
    (kept + u128::from(up)) as u64
}

/// The integer that a score is stored as: one within ±2^62 without a fraction. Zero loses its sign.
#[inline]
pub fn exact_integer(value: f64) -> Option<i64> {
    const RANGE: f64 = (i64::MAX / 2) as f64;
    let integer = value as i64;
    (value.abs() <= RANGE && integer as f64 == value).then_some(integer)
}

/// Appends `value` as Redis 7.0 replies with it: seventeen significant digits without trailing
/// zeros (`%.17g`), `inf`, `-inf`, `nan`.
///
/// ```
/// # use store_types::number::format_f64;
/// let mut text = Vec::new();
/// format_f64(&mut text, 0.1);
/// assert_eq!(text, b"0.10000000000000001");
/// ```
pub fn format_f64(out: &mut Vec<u8>, value: f64) {
    const EXACT_INTEGER_MAX: f64 = 1e17;
    if !value.is_finite() {
        let name: &[u8] = match (value.is_nan(), value > 0.0) {
            (true, _) if value.is_sign_negative() => b"-nan",
            (true, _) => b"nan",
            (_, true) => b"inf",
            (_, false) => b"-inf",
        };
        return out.extend_from_slice(name);
    }
    if value == value.trunc() && value.abs() < EXACT_INTEGER_MAX && value != 0.0 {
        return push_i64(out, value as i64);
    }
    format_significant(out, value);
}

/// The `%.17g` of a finite number.
fn format_significant(out: &mut Vec<u8>, value: f64) {
    let text = format!("{:.16e}", value.abs());
    let (mantissa, exponent) = text.split_once('e').expect("this format always has an exponent");
    let exponent: i32 = exponent.parse().expect("this format writes a decimal exponent");
    let mut digits: Vec<u8> = mantissa.bytes().filter(|&byte| byte != b'.').collect();
    while digits.len() > 1 && digits.last() == Some(&b'0') {
        digits.pop();
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    match exponent {
        -4..0 => {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
            out.extend_from_slice(&digits);
        }
        0..17 => {
            let whole = exponent as usize + 1;
            for place in 0..whole.max(digits.len()) {
                if place == whole {
                    out.push(b'.');
                }
                out.push(digits.get(place).copied().unwrap_or(b'0'));
            }
        }
        _ => {
            out.push(digits[0]);
            if digits.len() > 1 {
                out.push(b'.');
                out.extend_from_slice(&digits[1..]);
            }
            out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
            if exponent.abs() < 10 {
                out.push(b'0');
            }
            push_i64(out, i64::from(exponent.abs()));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: f64) -> String {
        let mut out = Vec::new();
        format_f64(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn doubles_read_as_strtod_reads_them() {
        assert_eq!(parse_f64(b"3.5"), Some(3.5));
        assert_eq!(parse_f64(b"+.5e1"), Some(5.0));
        assert_eq!(parse_f64(b"5."), Some(5.0));
        assert_eq!(parse_f64(b"Infinity"), Some(f64::INFINITY));
        assert_eq!(parse_f64(b"0x10"), Some(16.0));
        assert_eq!(parse_f64(b"-0x.8P-1"), Some(-0.25));
        assert_eq!(parse_f64(b"0x0p9"), Some(0.0));
        assert_eq!(parse_f64(b"0x1p-1074"), Some(f64::from_bits(1)));
        assert_eq!(parse_f64(b"0x1.fffffffffffff8p0"), Some(2.0));
        assert_eq!(parse_f64(b"5e-324"), Some(f64::from_bits(1)));
        assert_eq!(parse_f64(b"0e999"), Some(0.0));
        for refused in [
            "",
            " 1",
            "1 ",
            "1a",
            "nan",
            "-nan",
            "1e999",
            "1e-999",
            "0x",
            "0x1p",
            "0x1p9999",
            "0x1p-9999",
            "e5",
            ".",
            "1e",
            "--1",
            "0xg",
            "1_0",
        ] {
            assert_eq!(parse_f64(refused.as_bytes()), None, "{refused:?}");
        }
    }

    #[test]
    fn doubles_print_with_seventeen_digits_and_no_tail() {
        assert_eq!(text(0.1), "0.10000000000000001");
        assert_eq!(text(3.5), "3.5");
        assert_eq!(text(0.0), "0");
        assert_eq!(text(-0.0), "-0");
        assert_eq!(text(1e16), "10000000000000000");
        assert_eq!(text(1e17), "1e+17");
        assert_eq!(text(1e300), "1.0000000000000001e+300");
        assert_eq!(text(0.00001), "1.0000000000000001e-05");
        assert_eq!(text(0.0001), "0.0001");
        assert_eq!(text(123456.789), "123456.789");
        assert_eq!(text(f64::NEG_INFINITY), "-inf");
    }

    proptest! {
        #[test]
        fn every_finite_double_survives_its_text(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            prop_assert_eq!(parse_f64(text(value).as_bytes()), Some(value));
            if let Some(integer) = exact_integer(value) {
                prop_assert_eq!(integer as f64, value);
            }
        }

        #[test]
        fn any_bytes_are_a_number_or_are_not(bytes: Vec<u8>) {
            let _ = parse_f64(&bytes);
        }

        #[test]
        fn hexadecimal_integers_read_exactly(value in 0_u64..1 << 53) {
            prop_assert_eq!(parse_f64(format!("0x{value:x}").as_bytes()), Some(value as f64));
        }
    }
}
