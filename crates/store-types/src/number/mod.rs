//! Numbers as text: what the store accepts as a number and how it writes one.
//!
//! In come bytes that a client sent, out go integers, doubles and long doubles; or the other way
//! round. The texts are those of Redis 7.0, down to the last digit.

mod bignum;
mod extended;
mod float;
mod integer;

pub use extended::Extended;
pub use float::{exact_integer, format_f64, parse_f64};
pub use integer::{IntText, decimal_len, parse_i64, parse_u64, push_i64};
