//! A small unsigned big integer: just enough to round decimal text once and to print it exactly.

/// The highest power of five in one digit is the thirteenth.
const FIVES: usize = 13;

/// An unsigned integer in base 2^32, least significant digit first, no leading zero digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bignum {
    digits: Vec<u32>,
}

impl Bignum {
    pub(super) fn from_u128(value: u128) -> Self {
        let digits = (0..4).map(|place| (value >> (32 * place)) as u32).collect();
        let mut number = Self { digits };
        number.trim();
        number
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// How many bits the number takes; zero takes none.
    pub(super) fn bit_len(&self) -> usize {
        self.digits.last().map_or(0, |top| self.digits.len() * 32 - top.leading_zeros() as usize)
    }

    /// `self · factor + addend`, in place.
    pub(super) fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for digit in &mut self.digits {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry != 0 {
            self.digits.push(carry as u32);
        }
        self.trim();
    }

    /// Divides in place and returns the remainder.
    pub(super) fn divide(&mut self, divisor: u32) -> u32 {
        let mut remainder = 0_u64;
        for digit in self.digits.iter_mut().rev() {
            let value = remainder << 32 | u64::from(*digit);
            *digit = (value / u64::from(divisor)) as u32;
            remainder = value % u64::from(divisor);
        }
        self.trim();
        remainder as u32
    }

    /// `self · 5^power`, in place.
    pub(super) fn multiply_by_power_of_five(&mut self, power: usize) {
        for _ in 0..power / FIVES {
            self.multiply_add(5_u32.pow(FIVES as u32), 0);
        }
        self.multiply_add(5_u32.pow((power % FIVES) as u32), 0);
    }

    /// Divides by `5^power` in place and says whether there was a remainder.
    pub(super) fn divide_by_power_of_five(&mut self, power: usize) -> bool {
        let mut inexact = false;
        for _ in 0..power / FIVES {
            inexact |= self.divide(5_u32.pow(FIVES as u32)) != 0;
        }
        inexact | (self.divide(5_u32.pow((power % FIVES) as u32)) != 0)
    }

    pub(super) fn shift_left(&mut self, bits: usize) {
        if self.is_zero() {
            return;
        }
        if !bits.is_multiple_of(32) {
            self.multiply_add(1 << (bits % 32), 0);
        }
        self.digits.splice(0..0, std::iter::repeat_n(0, bits / 32));
    }

    /// The `count ≤ 65` highest bits, and whether any bit below them is set.
    pub(super) fn top_bits(&self, count: usize) -> (u128, bool) {
        let from = self.bit_len().saturating_sub(count);
        let (word, offset) = (from / 32, from % 32);
        let digit = |place: usize| u128::from(self.digits.get(place).copied().unwrap_or(0));
        let window = digit(word) | digit(word + 1) << 32 | digit(word + 2) << 64;
        let below = self.digits[..word].iter().any(|&digit| digit != 0);
        let cut = offset > 0 && window & ((1 << offset) - 1) != 0;
        (window >> offset, below || cut)
    }

    /// The decimal text.
    pub(super) fn to_decimal(&self) -> String {
        let mut rest = self.clone();
        let mut groups = Vec::new();
        while !rest.is_zero() {
            groups.push(rest.divide(1_000_000_000));
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        for group in groups.iter().rev() {
            text.push_str(&format!("{group:09}"));
        }
        text
    }

    fn trim(&mut self) {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_computes_as_u128_does(value: u64, factor: u32, addend: u32, shift in 0_usize..32) {
            let mut number = Bignum::from_u128(u128::from(value));
            number.multiply_add(factor, addend);
            number.shift_left(shift);
            let mut expected =
                (u128::from(value) * u128::from(factor) + u128::from(addend)) << shift;
            prop_assert_eq!(&number, &Bignum::from_u128(expected));
            prop_assert_eq!(number.to_decimal(), expected.to_string());
            let divisor = factor | 1;
            prop_assert_eq!(u128::from(number.divide(divisor)), expected % u128::from(divisor));
            expected /= u128::from(divisor);
            prop_assert_eq!(number.bit_len(), 128 - expected.leading_zeros() as usize);
        }
    }
}
