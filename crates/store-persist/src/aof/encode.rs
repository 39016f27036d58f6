//! Units to bytes.
//!
//! Besides requests and `#TS:` the files have lines `#SUM:<16 digits>`: the checksum of all bytes
//! since the line of its kind before, so that a changed bit is noticed. `#SUM:begin` stands where
//! nothing before it is covered. In an increment behind another one it says how long that one is,
//! `#SUM:begin after <number> <bytes>`, so that bytes that are missing there are noticed. Redis
//! passes over all lines that begin with `#`.

use store_resp::{Request, write_request};
use store_types::crc64::crc64;

/// What a line with a checksum begins with.
pub(super) const SUM_MARK: &[u8] = b"#SUM:";
/// What a file has in place of its first checksum.
pub(super) const SUM_BEGIN: &[u8] = b"begin";

/// An increment that another one continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Increment {
    /// Its number in the manifest.
    pub sequence: u64,
    /// Its bytes.
    pub len: u64,
}

impl Increment {
    /// From what stands behind [`SUM_BEGIN`].
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?.strip_prefix(" after ")?;
        let (sequence, len) = text.split_once(' ')?;
        Some(Self { sequence: sequence.parse().ok()?, len: len.parse().ok()? })
    }
}

/// Writes units as requests. Remembers which database the reader will have selected by then.
#[derive(Debug, Default)]
pub struct Encoder {
    selected: Option<usize>,
    annotated_at_s: u64,
}

impl Encoder {
    /// For a file of its own: its reader has selected nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `#TS:<unix seconds>` when the second is another than that of the last one.
    pub fn annotate(&mut self, now_s: u64, bytes: &mut Vec<u8>) {
        if now_s != self.annotated_at_s {
            self.annotated_at_s = now_s;
            bytes.extend_from_slice(format!("#TS:{now_s}\r\n").as_bytes());
        }
    }

    /// Appends one unit, which is read again as a whole or not at all: more than one request is
    /// wrapped in MULTI and EXEC.
    pub fn add<'r>(
        &mut self,
        requests: impl ExactSizeIterator<Item = (usize, Request<'r>)>,
        bytes: &mut Vec<u8>,
    ) {
        let is_wrapped = requests.len() > 1;
        for (index, (db, request)) in requests.enumerate() {
            if self.selected != Some(db) {
                // Within a transaction SELECT would be queued like the rest, which Redis does
                // not do: it stands in front when it can.
                self.selected = Some(db);
                let number = db.to_string();
                write_request(bytes, [&b"SELECT"[..], number.as_bytes()].into_iter());
            }
            if is_wrapped && index == 0 {
                write_request(bytes, [&b"MULTI"[..]].into_iter());
            }
            write_request(bytes, request.args_from(0));
        }
        if is_wrapped {
            write_request(bytes, [&b"EXEC"[..]].into_iter());
        }
    }
}

impl Encoder {
    /// Appends the line with the checksum of what was added to `bytes` from `from` on: all since
    /// the last such line.
    pub fn seal(bytes: &mut Vec<u8>, from: usize) {
        let sum = crc64(0, &bytes[from..]);
        bytes.extend_from_slice(format!("#SUM:{sum:016x}\r\n").as_bytes());
    }

    /// Appends the line that a file, or what a new process adds to one, begins with.
    pub fn begin(bytes: &mut Vec<u8>) {
        Self::begin_behind(None, bytes);
    }

    /// The same for an increment behind another one.
    pub fn begin_behind(before: Option<Increment>, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(SUM_MARK);
        bytes.extend_from_slice(SUM_BEGIN);
        if let Some(Increment { sequence, len }) = before {
            bytes.extend_from_slice(format!(" after {sequence} {len}").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use store_resp::OwnedRequest;

    use super::*;

    fn encoded(units: &[&[(usize, &str)]]) -> String {
        let (mut encoder, mut bytes) = (Encoder::new(), Vec::new());
        for unit in units {
            let owned: Vec<(usize, OwnedRequest)> = unit
                .iter()
                .map(|(db, line)| {
                    (*db, OwnedRequest::from_args(line.split(' ').map(str::as_bytes)))
                })
                .collect();
            encoder.add(owned.iter().map(|(db, request)| (*db, request.as_request())), &mut bytes);
        }
        String::from_utf8(bytes).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn the_database_is_selected_when_it_changes() {
        let text = encoded(&[&[(0, "INCR a")], &[(0, "INCR a")], &[(3, "INCR b")]]);
        let incr_a = "*2 $4 INCR $1 a ";
        let select = |db| format!("*2 $6 SELECT $1 {db} ");
        assert_eq!(text, format!("{}{incr_a}{incr_a}{}*2 $4 INCR $1 b ", select(0), select(3)));
    }

    #[test]
    fn several_requests_are_one_transaction() {
        let text = encoded(&[&[(1, "INCR a"), (2, "INCR b")]]);
        assert_eq!(
            text,
            "*2 $6 SELECT $1 1 *1 $5 MULTI *2 $4 INCR $1 a *2 $6 SELECT $1 2 *2 $4 INCR $1 b \
             *1 $4 EXEC "
        );
    }

    #[test]
    fn a_second_is_annotated_once() {
        let (mut encoder, mut bytes) = (Encoder::new(), Vec::new());
        for now_s in [7, 7, 8] {
            encoder.annotate(now_s, &mut bytes);
        }
        assert_eq!(bytes, b"#TS:7\r\n#TS:8\r\n");
    }
}
