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

/// The longest text of a double: `-1.7976931348623157e+308`.
const DOUBLE_LEN_MAX: usize = 24;
/// Significant digits of a double.
const PRECISION: i32 = 17;

/// A double with up to 17 significant digits, as C's `%.17g` writes it, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct DoubleText {
    bytes: [u8; DOUBLE_LEN_MAX],
    len: usize,
}

impl DoubleText {
    /// Writes `value`.
    pub fn new(value: f64) -> Self {
        let mut text = Self { bytes: [0; DOUBLE_LEN_MAX], len: 0 };
        if value.is_nan() {
            text.push(b"nan");
        } else if value.is_infinite() {
            text.push(if value > 0.0 { b"inf" } else { b"-inf" });
        } else if value == 0.0 {
            text.push(if value.is_sign_negative() { b"-0" } else { b"0" });
        } else if !text.push_short(value) {
            text.push_digits(value);
        }
        text
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Integers, and fractions of a few binary digits: all their digits are few, so no rounding
    /// is needed. False, writing nothing, for any other number.
    fn push_short(&mut self, value: f64) -> bool {
        /// From here on `%.17g` writes an exponent.
        const INTEGER_MAX: f64 = 1e17;
        /// Seven digits and ten behind the point are seventeen.
        const WHOLE_MAX: f64 = 1e7;
        const FRACTIONS: f64 = 1024.0;
        const FRACTION_DIGITS: usize = 10;
        if value.trunc() == value && value.abs() < INTEGER_MAX {
            self.push(format_integer(value as i64, &mut [0; 20]));
            return true;
        }
        // Multiplying by a power of two is exact.
        let scaled = value.abs() * FRACTIONS;
        if value.abs() >= WHOLE_MAX || scaled.trunc() != scaled {
            return false;
        }
        let scaled = scaled as u64;
        if value < 0.0 {
            self.push(b"-");
        }
        self.push(format_integer((scaled >> 10) as i64, &mut [0; 20]));
        self.push(b".");
        // One 1024th is 9765625 in units of the tenth digit behind the point.
        let mut fraction = (scaled & 1023) * 9_765_625;
        let mut digits = [b'0'; FRACTION_DIGITS];
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (fraction % 10) as u8;
            fraction /= 10;
        }
        self.push(without_trailing_zeros(&digits));
        true
    }

    /// Any other number, by the rules of `%g`.
    fn push_digits(&mut self, value: f64) {
        let mut scientific = Self { bytes: [0; DOUBLE_LEN_MAX], len: 0 };
        std::fmt::Write::write_fmt(&mut scientific, format_args!("{:.16e}", value.abs()))
            .expect("the longest double fits");
        let text = scientific.as_bytes();
        let split = text.iter().position(|byte| *byte == b'e').unwrap_or(text.len());
        let exponent = parse_integer(&text[split + 1..]).expect("an exponent is an integer") as i32;
        let mut digits = [0; PRECISION as usize];
        digits[0] = text[0];
        digits[1..].copy_from_slice(&text[2..split]);
        if value < 0.0 {
            self.push(b"-");
        }
        self.place_point(without_trailing_zeros(&digits), exponent);
    }

    /// Digits `d₁d₂…` standing for `d₁.d₂… × 10^exponent`.
    fn place_point(&mut self, digits: &[u8], exponent: i32) {
        const ZEROS: &[u8] = &[b'0'; PRECISION as usize];
        match exponent {
            -4..0 => {
                self.push(b"0.");
                self.push(&ZEROS[..(-exponent - 1) as usize]);
                self.push(digits);
            }
            0..PRECISION => {
                let whole = exponent as usize + 1;
                self.push(&digits[..whole.min(digits.len())]);
                if digits.len() > whole {
                    self.push(b".");
                    self.push(&digits[whole..]);
                } else {
                    self.push(&ZEROS[..whole - digits.len()]);
                }
            }
            _ => {
                self.push(&digits[..1]);
                if digits.len() > 1 {
                    self.push(b".");
                    self.push(&digits[1..]);
                }
                self.push(if exponent < 0 { b"e-" } else { b"e+" });
                if exponent.abs() < 10 {
                    self.push(b"0");
                }
                self.push(format_integer(i64::from(exponent.abs()), &mut [0; 20]));
            }
        }
    }
}

impl std::fmt::Write for DoubleText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if text.len() > DOUBLE_LEN_MAX - self.len {
            return Err(std::fmt::Error);
        }
        self.push(text.as_bytes());
        Ok(())
    }
}

fn without_trailing_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
    &digits[..digits.len() - zeros]
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
            (f64::NAN, "nan"),
            (0.5, "0.5"),
            (-1234567.0009765625, "-1234567.0009765625"),
            (9999999.5, "9999999.5"),
            (12345678.0 + 1.0 / 1024.0, "12345678.000976562"),
            (99999999999999984.0, "99999999999999984"),
            (-f64::MAX, "-1.7976931348623157e+308"),
            (5e-324, "4.9406564584124654e-324"),
            (123456789012345678.0, "1.2345678901234568e+17"),
            (1.1e16, "11000000000000000"),
        ] {
            assert_eq!(DoubleText::new(value).as_bytes(), text.as_bytes());
        }
    }
}
