//! From registers to a count: the improved raw estimator of Otmar Ertl, "New cardinality estimation
//! algorithms for HyperLogLog sketches" (arXiv:1702.01284), algorithm 6.

use super::{COUNT_BITS, REGISTER_COUNT};

/// 1 / (2 ln 2).
const ALPHA_INFINITY: f64 = 0.721_347_520_444_481_7;

pub(super) fn estimate(registers: &[u8]) -> u64 {
    let mut histogram = [0_u32; 64];
    for &count in registers {
        histogram[usize::from(count & 63)] += 1;
    }
    let count_bits = COUNT_BITS as usize;
    let total = REGISTER_COUNT as f64;
    let mut sum = total * tau((total - f64::from(histogram[count_bits + 1])) / total);
    for &number in histogram[1..=count_bits].iter().rev() {
        sum = (sum + f64::from(number)) * 0.5;
    }
    sum += total * sigma(f64::from(histogram[0]) / total);
    (ALPHA_INFINITY * total * total / sum).round() as u64
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let mut factor = 1.0;
    let mut sum = 1.0 - x;
    loop {
        x = x.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * factor;
        if before == sum {
            return sum / 3.0;
        }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let mut factor = 1.0;
    let mut sum = x;
    loop {
        x *= x;
        let before = sum;
        sum += x * factor;
        factor += factor;
        if before == sum {
            return sum;
        }
    }
}
