//! C's `printf` for one value, which `string.format` is made of.

use std::ffi::{c_char, c_int, c_long};

/// A value as C gets it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CValue<'a> {
    Int(i32),
    Long(i64),
    Double(f64),
    /// Without zeros, and no longer than [`TEXT_MAX`].
    Text(&'a [u8]),
}

/// Bytes of a text.
const TEXT_MAX: usize = 100;
/// Bytes of the longest result: a double has 309 digits, and a precision two.
const RESULT_MAX: usize = 512;
/// Bytes of the longest conversion: five flags, width, precision and letters.
const CONVERSION_MAX: usize = 32;

unsafe extern "C" {
    fn snprintf(buffer: *mut c_char, size: usize, format: *const c_char, ...) -> c_int;
}

/// What `%` with these modifiers and this letter makes of the value. As in Lua 5.1, nothing
/// behind a zero counts.
///
/// `modifiers` are at most five flags, a width of two digits, and a precision of two.
pub(crate) fn format_value(modifiers: &[u8], letter: u8, value: CValue<'_>) -> Vec<u8> {
    let long: &[u8] = if matches!(value, CValue::Long(_)) { b"l" } else { b"" };
    let conversion = [b"%", modifiers, long, &[letter, 0]].concat();
    let is_known = |byte: &u8| b"-+ #0123456789.".contains(byte);
    assert!(
        conversion.len() <= CONVERSION_MAX && modifiers.iter().all(is_known),
        "the conversion was checked"
    );
    let mut buffer = [0_u8; RESULT_MAX];
    let format = conversion.as_ptr().cast::<c_char>();
    let target = buffer.as_mut_ptr().cast::<c_char>();
    // SAFETY: the format ends with a zero and holds one conversion, for a value of the kind that
    // is passed; the buffer is as long as is said.
    unsafe {
        match value {
            CValue::Int(number) => snprintf(target, RESULT_MAX, format, number as c_int),
            CValue::Long(number) => snprintf(target, RESULT_MAX, format, number as c_long),
            CValue::Double(number) => snprintf(target, RESULT_MAX, format, number),
            CValue::Text(text) => {
                assert!(text.len() <= TEXT_MAX && !text.contains(&0), "the text was cut");
                let text = [text, &[0]].concat();
                snprintf(target, RESULT_MAX, format, text.as_ptr().cast::<c_char>())
            }
        };
    }
    let length = buffer.iter().position(|byte| *byte == 0).unwrap_or(RESULT_MAX);
    buffer[..length].to_vec()
}
