//! Base64 with padding (RFC 4648 §4), for headers.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn base64(bytes: &[u8]) -> String {
    let mut encoded = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let index = (bits >> (18 - 6 * place)) as usize & 63;
            let letter = if place <= chunk.len() { ALPHABET[index] as char } else { '=' };
            encoded.push(letter);
        }
    }
    encoded
}

/// `None` for what is not base64. Padding may be missing, as in secrets that are copied by hand.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut bytes = Vec::new();
    for chunk in text.as_bytes().chunks(4) {
        if chunk.len() == 1 {
            return None;
        }
        let mut bits = 0_u32;
        for letter in chunk {
            let value = ALPHABET.iter().position(|known| known == letter)?;
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        let bits = bits << (6 * (4 - chunk.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_as_it_must() {
        for (text, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(text.as_bytes()), encoded);
            assert_eq!(from_base64(encoded).unwrap(), text.as_bytes());
        }
        assert_eq!(from_base64("Zm8").unwrap(), b"fo", "without padding");
        for bad in ["Z", "Zm9vY", "Zm 9", "Zm=9", "Zm9-", "é"] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
    }
}
