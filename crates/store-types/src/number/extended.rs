//! The x87 long double, in software.
//!
//! INCRBYFLOAT and HINCRBYFLOAT compute in `long double`: 0.1 + 0.2 is 0.3 there and
//! 0.30000000000000004 in a double. Rust has no such type, so this module keeps the 64-bit
//! significand itself and rounds once per operation, to nearest with ties to even.

use super::bignum::Bignum;

/// Texts longer than this are refused unread, as Redis refuses them.
const TEXT_MAX: usize = 5 * 1024;
/// The value of the highest significand bit lies within 2^±this; beyond is infinity or zero.
const EXPONENT_MAX: i32 = 16_383;
/// The smallest positive (subnormal) long double is 2^-16445.
const EXPONENT_MIN: i32 = -16_445;
/// Decimal places written before trailing zeros are cut.
const PLACES: usize = 17;

/// A finite long double: `±significand · 2^exponent`, the significand's top bit set unless zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    negative: bool,
    significand: u64,
    exponent: i32,
}

impl Extended {
    /// Zero.
    pub const ZERO: Self = Self { negative: false, significand: 0, exponent: 0 };

    /// Reads decimal text as C's `strtold` does. Refused are spaces, trailing bytes, `nan`,
    /// infinities (no sum with them is finite) and numbers out of range.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= TEXT_MAX {
            return None;
        }
        let (negative, unsigned) = match text.first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if unsigned.len() > 2 && unsigned[0] == b'0' && matches!(unsigned[1], b'x' | b'X') {
            return Self::parse_hex(negative, &unsigned[2..]);
        }
        let decimal = Decimal::parse(unsigned)?;
        decimal.round(negative)
    }

    /// The exact value of an integer.
    pub fn from_i64(value: i64) -> Self {
        Self::rounded(value < 0, u128::from(value.unsigned_abs()), 0, false)
            .expect("every i64 is far from the limits")
    }

    /// The exact value of a double, `None` for infinities and NaN.
    pub fn from_f64(value: f64) -> Option<Self> {
        let bits = value.to_bits();
        let fraction = bits & ((1 << 52) - 1);
        let (significand, exponent) = match (bits >> 52 & 0x7ff) as i32 {
            0x7ff => return None,
            0 => (fraction, -1074),
            biased => (fraction | 1 << 52, biased - 1075),
        };
        Self::rounded(value.is_sign_negative(), u128::from(significand), exponent, false)
    }

    /// The sum, rounded once; `None` when it is too large to hold.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        if self.significand == 0 {
            return Some(other);
        }
        if other.significand == 0 {
            return Some(self);
        }
        let (big, small) =
            if (self.exponent, self.significand) >= (other.exponent, other.significand) {
                (self, other)
            } else {
                (other, self)
            };
        // Sixty-two spare bits below the significand leave room for the carry above it; whatever
        // of the smaller operand falls below them only matters as "not exactly".
        const SPARE: i32 = 62;
        let distance = big.exponent - small.exponent;
        let wide = u128::from(big.significand) << SPARE;
        let aligned = u128::from(small.significand) << SPARE;
        let (shifted, sticky) = match distance {
            0..128 => (aligned >> distance, distance > 0 && aligned << (128 - distance) != 0),
            _ => (0, true),
        };
        let exponent = big.exponent - SPARE;
        if big.negative == small.negative {
            Self::rounded(big.negative, wide + shifted, exponent, sticky)
        } else {
            // The true difference lies just under the truncated one when bits were dropped.
            let difference = wide - shifted - u128::from(sticky);
            Self::rounded(big.negative && difference != 0, difference, exponent, sticky)
        }
    }

    /// The text that INCRBYFLOAT stores: seventeen decimal places, trailing zeros cut.
    ///
    /// ```
    /// # use store_types::number::Extended;
    /// let sum = Extended::parse(b"0.1").unwrap().checked_add(Extended::parse(b"0.2").unwrap());
    /// assert_eq!(sum.unwrap().to_text(), "0.3");
    /// ```
    pub fn to_text(self) -> String {
        let mut text = self.scaled_decimal();
        if text.len() <= PLACES {
            text.insert_str(0, &"0".repeat(PLACES + 1 - text.len()));
        }
        text.insert(text.len() - PLACES, '.');
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
        if self.negative && text != "0" {
            text.insert(0, '-');
        }
        text
    }

    /// The digits of `|self| · 10^17`, rounded to an integer.
    fn scaled_decimal(self) -> String {
        let scaled = u128::from(self.significand) * 10_u128.pow(PLACES as u32);
        match self.exponent {
            0.. => {
                let mut number = Bignum::from_u128(scaled);
                number.shift_left(self.exponent as usize);
                number.to_decimal()
            }
            -127..0 => {
                let dropped = -self.exponent as u32;
                let half = 1_u128 << (dropped - 1);
                let rest = scaled & (half | (half - 1));
                let kept = scaled >> dropped;
                let up = rest > half || (rest == half && kept & 1 == 1);
                (kept + u128::from(up)).to_string()
            }
            _ => "0".to_owned(),
        }
    }

    /// `±value · 2^exponent`, where `sticky` says that the true value lies a little above `value`.
    fn rounded(negative: bool, value: u128, exponent: i32, sticky: bool) -> Option<Self> {
        if value == 0 {
            return (!sticky).then_some(Self { negative, ..Self::ZERO });
        }
        let bits = 128 - value.leading_zeros() as i32;
        let (mut significand, mut exponent) = if bits <= 64 {
            ((value << (64 - bits)) as u64, exponent - (64 - bits))
        } else {
            let dropped = bits - 64;
            let half = 1_u128 << (dropped - 1);
            let rest = value & ((half << 1) - 1);
            let kept = (value >> dropped) as u64;
            let up = rest > half || (rest == half && (sticky || kept & 1 == 1));
            match kept.checked_add(u64::from(up)) {
                Some(kept) => (kept, exponent + dropped),
                None => (1 << 63, exponent + dropped + 1),
            }
        };
        let top = exponent + 63;
        if !(EXPONENT_MIN..=EXPONENT_MAX).contains(&top) {
            return None;
        }
        if significand == 0 {
            (significand, exponent) = (0, 0);
        }
        Some(Self { negative, significand, exponent })
    }

    fn parse_hex(negative: bool, text: &[u8]) -> Option<Self> {
        let (significand, exponent) = match text.iter().position(|b| matches!(b, b'p' | b'P')) {
            Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let (mut value, mut exponent, mut sticky) = (0_u128, exponent, false);
        let (mut seen_digit, mut seen_point) = (false, false);
        for &byte in significand {
            if byte == b'.' && !seen_point {
                seen_point = true;
                continue;
            }
            let digit = u128::from(char::from(byte).to_digit(16)?);
            seen_digit = true;
            if value >> 120 == 0 {
                value = value << 4 | digit;
                exponent -= 4 * i32::from(seen_point);
            } else {
                sticky |= digit != 0;
                exponent += 4 * i32::from(!seen_point);
            }
        }
        if !seen_digit {
            return None;
        }
        Self::rounded(negative, value, exponent, sticky)
    }
}

/// Decimal text taken apart: `digits · 10^exponent`, where `digits` may be long.
struct Decimal {
    digits: Bignum,
    exponent: i32,
}

impl Decimal {
    fn parse(text: &[u8]) -> Option<Self> {
        let (significand, exponent) = match text.iter().position(|b| matches!(b, b'e' | b'E')) {
            Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let mut digits = Bignum::default();
        let (mut places, mut seen_digit, mut seen_point) = (0_i32, false, false);
        for &byte in significand {
            if byte == b'.' && !seen_point {
                seen_point = true;
                continue;
            }
            digits.multiply_add(10, char::from(byte).to_digit(10)?);
            seen_digit = true;
            places += i32::from(seen_point);
        }
        seen_digit.then_some(Self { digits, exponent: exponent - places })
    }

    /// The nearest long double: one rounding, from exact integers.
    fn round(mut self, negative: bool) -> Option<Extended> {
        if self.digits.is_zero() {
            return Some(Extended { negative, ..Extended::ZERO });
        }
        // Longer texts than `TEXT_MAX` do not get here, so this bounds the work below as well.
        const POWER_MAX: i32 = TEXT_MAX as i32 + 5_000;
        if self.exponent.abs() > POWER_MAX {
            return None;
        }
        let mut binary_exponent = self.exponent;
        let mut sticky = false;
        let power = self.exponent.unsigned_abs() as usize;
        if self.exponent >= 0 {
            self.digits.multiply_by_power_of_five(power);
        } else {
            // Enough bits that at least 66 remain after the division: log2(5) < 7/3.
            let spare = 66 + power * 7 / 3;
            self.digits.shift_left(spare);
            binary_exponent -= spare as i32;
            sticky = self.digits.divide_by_power_of_five(power);
        }
        // The significand and one bit for the half; the flag stands for everything under it.
        const KEPT: usize = 65;
        let dropped = self.digits.bit_len().saturating_sub(KEPT);
        let (top, below) = self.digits.top_bits(KEPT);
        Extended::rounded(negative, top, binary_exponent + dropped as i32, sticky || below)
    }
}

/// The exponent's digits, clamped far outside the range of the type.
fn parse_exponent(text: &[u8]) -> Option<i32> {
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let mut value = 0_i32;
    for &byte in digits {
        value = (value * 10 + char::from(byte).to_digit(10)? as i32).min(1_000_000);
    }
    (!digits.is_empty()).then_some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(left: &str, right: &str) -> String {
        let [left, right] = [left, right].map(|text| Extended::parse(text.as_bytes()).unwrap());
        left.checked_add(right).unwrap().to_text()
    }

    #[test]
    fn sums_are_those_of_a_long_double() {
        assert_eq!(sum("0.1", "0.2"), "0.3");
        assert_eq!(sum("0.3", "1e30"), "1000000000000000000024696061952");
        assert_eq!(sum("10.5", "0.1"), "10.6");
        assert_eq!(sum("5.0e3", "2.0e2"), "5200");
        assert_eq!(sum("-1", "1"), "0");
        assert_eq!(sum("3", "-3.5"), "-0.5");
        assert_eq!(sum("0x10", "1"), "17");
        assert_eq!(sum("0", "-1e-20"), "0");
        assert_eq!(sum("1e19", "1"), "10000000000000000001");
        assert_eq!(sum("1e20", "1"), "100000000000000000000");
        assert_eq!(sum("9007199254740993", "0.5"), "9007199254740993.5");
    }

    #[test]
    fn what_no_long_double_holds_is_refused() {
        for refused in ["", "-", ".", "1 ", " 1", "nan", "inf", "1e5000", "1e-5000", "1e", "1x"] {
            assert_eq!(Extended::parse(refused.as_bytes()), None, "{refused:?}");
        }
        let largest = Extended::parse(b"1e4932").unwrap();
        assert_eq!(largest.checked_add(largest), None);
        assert!(largest.to_text().len() > 4_900);
    }

    proptest! {
        #[test]
        fn integers_add_exactly(left in -1_i64 << 61..1 << 61, right in -1_i64 << 61..1 << 61) {
            let total = Extended::from_i64(left).checked_add(Extended::from_i64(right)).unwrap();
            prop_assert_eq!(total.to_text(), (left + right).to_string());
        }

        #[test]
        fn sums_of_halves_are_exact_and_commute(left: i32, right: i32, drop in 0_i32..20) {
            let scale = 0.5_f64.powi(drop);
            let (x, y) = (f64::from(left) * scale, f64::from(right) * scale);
            let [a, b] = [x, y].map(|value| Extended::from_f64(value).unwrap());
            let total = a.checked_add(b).unwrap();
            prop_assert_eq!(Some(total), Extended::from_f64(x + y));
            prop_assert_eq!(total, b.checked_add(a).unwrap());
        }

        #[test]
        fn short_decimals_survive_their_text(whole in 0_u32..10, places in 0_u64..10_000_000_000) {
            let text = format!("{whole}.{places:010}1");
            prop_assert_eq!(Extended::parse(text.as_bytes()).unwrap().to_text(), text);
        }

        #[test]
        fn any_bytes_are_a_number_or_are_not(bytes in "[-+0-9.eExXp]{0,40}") {
            if let Some(value) = Extended::parse(bytes.as_bytes()) {
                prop_assert!(Extended::parse(value.to_text().as_bytes()).is_some());
            }
        }
    }
}
