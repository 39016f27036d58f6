//! What replicas are sent: writes as RESP requests, byte by byte the same for everybody.

use store_resp::format_integer;

/// One request of the stream: its whole RESP bytes, and the database that it runs in.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// Database.
    pub db: usize,
    /// The request, encoded.
    pub bytes: &'a [u8],
}

/// Memory that is kept for the next unit. What a large one took goes with it.
pub(crate) const KEPT_MAX: usize = 1024 * 1024;

/// In lower case, as Redis sends it: offsets count, not letters, but captures are compared.
pub(crate) const PING: &[u8] = b"*1\r\n$4\r\nping\r\n";
/// Asks replicas how far they are.
pub(crate) const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";
const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// Turns units into bytes. Remembers which database the readers will have selected by then.
#[derive(Debug, Default)]
pub struct Stream {
    selected: Option<usize>,
}

impl Stream {
    /// The next request is preceded by SELECT: a reader began that has selected nothing.
    pub fn forget_selected(&mut self) {
        self.selected = None;
    }

    /// The database of the last request, if there is one that readers know of.
    pub fn selected(&self) -> Option<usize> {
        self.selected
    }

    /// Appends one unit, which replicas apply as a whole or not at all: more than one request is
    /// wrapped in MULTI and EXEC.
    pub fn encode<'a>(
        &mut self,
        unit: impl ExactSizeIterator<Item = Command<'a>>,
        bytes: &mut Vec<u8>,
    ) {
        let is_wrapped = unit.len() > 1;
        for (index, command) in unit.enumerate() {
            if self.selected != Some(command.db) {
                self.selected = Some(command.db);
                write_select(bytes, command.db);
            }
            if is_wrapped && index == 0 {
                bytes.extend_from_slice(MULTI);
            }
            bytes.extend_from_slice(command.bytes);
        }
        if is_wrapped {
            bytes.extend_from_slice(EXEC);
        }
    }
}

fn write_select(bytes: &mut Vec<u8>, db: usize) {
    let mut digits = [0; 20];
    let number = db.to_string();
    bytes.extend_from_slice(b"*2\r\n$6\r\nSELECT\r\n$");
    bytes.extend_from_slice(format_integer(number.len() as i64, &mut digits));
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(number.as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(stream: &mut Stream, unit: &[(usize, &str)]) -> String {
        let commands: Vec<Command<'_>> =
            unit.iter().map(|(db, text)| Command { db: *db, bytes: text.as_bytes() }).collect();
        let mut bytes = Vec::new();
        stream.encode(commands.into_iter(), &mut bytes);
        String::from_utf8(bytes).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn select_stands_before_a_transaction_and_before_what_changes_the_database() {
        let mut stream = Stream::default();
        assert_eq!(
            encoded(&mut stream, &[(12, "<a>"), (12, "<b>")]),
            "*2 $6 SELECT $2 12 *1 $5 MULTI <a><b>*1 $4 EXEC "
        );
        assert_eq!(encoded(&mut stream, &[(12, "<c>")]), "<c>");
        stream.forget_selected();
        assert_eq!(encoded(&mut stream, &[(12, "<d>")]), "*2 $6 SELECT $2 12 <d>");
    }

    #[test]
    fn a_question_for_acks_is_as_long_as_redis_counts_it() {
        assert_eq!(GETACK.len(), 37);
    }
}
