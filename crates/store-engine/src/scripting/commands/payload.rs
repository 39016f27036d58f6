//! Libraries as FUNCTION DUMP carries them: as RDB files of version 10 do.
//!
//! ```text
//! payload    (FUNCTION code)* | version (u16) | CRC-64 of all before
//! ```

use store_types::crc64::crc64;
use store_types::dump::{Reader, VERSION, Writer};
use store_types::lzf::Compressor;

use crate::error::CommandError;

/// The byte before the text of a library.
const FUNCTION: u8 = 245;
/// Version and checksum.
const FOOTER: usize = 10;

/// The payload of libraries with these texts.
pub(super) fn save<'a>(codes: impl Iterator<Item = &'a [u8]>, compresses: bool) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut compressor = compresses.then(Compressor::new);
    for code in codes {
        payload.push(FUNCTION);
        Writer::new(&mut payload, compressor.as_mut()).string(code);
    }
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// The texts of the libraries in a payload, one at a time: they may be far longer than it. Fails
/// when it is none, or damaged; the checksum counts unless `skips_checksum`.
pub(super) fn codes(
    payload: &[u8],
    skips_checksum: bool,
) -> Result<impl Iterator<Item = Result<Vec<u8>, CommandError>>, CommandError> {
    const WRONG: CommandError =
        CommandError::text("ERR DUMP payload version or checksum are wrong");
    let body_len = payload.len().checked_sub(FOOTER).ok_or(WRONG)?;
    let (body, footer) = payload.split_at(body_len);
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let is_whole =
        || skips_checksum || footer[2..] == crc64(0, &payload[..body_len + 2]).to_le_bytes();
    if version > VERSION || !is_whole() {
        return Err(WRONG);
    }
    let mut reader = Reader::new(body);
    Ok(std::iter::from_fn(move || {
        let has_more = !reader.rest().is_empty();
        has_more.then(|| next_code(&mut reader))
    }))
}

fn next_code(reader: &mut Reader<'_>) -> Result<Vec<u8>, CommandError> {
    if reader.byte() != Ok(FUNCTION) {
        return Err(CommandError::text("ERR given type is not a function"));
    }
    let code = reader.string();
    let code = code.map_err(|_| CommandError::text("ERR Failed loading library data"))?;
    Ok(code.into_owned())
}
