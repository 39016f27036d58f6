//! Requests as they come from a socket: in one piece and in pieces, with and without a login.

use store_resp::{Limits, Parsed, ProtocolError, RequestParser};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "request",
    about: "requests of clients, in RESP and inline",
    run,
    words: &[
        b"*1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2147483648\r\n",
        b"$4\r\nPING\r\n",
        b"$-1\r\n",
        b"$536870913\r\n",
        b"$0\r\n\r\n",
        b"\r\n",
        b"\"",
        b"'",
        b"\\x",
        b"\n",
        b"\0",
        b"*1048577\r\n",
    ],
};

fn run(bytes: &[u8]) {
    for authenticated in [true, false] {
        let limits = Limits { authenticated, ..Limits::default() };
        let whole = parse(bytes, bytes.len().max(1), &limits);
        for step in [1, 7] {
            assert_eq!(parse(bytes, step, &limits), whole, "pieces of {step} bytes");
        }
    }
}

/// Everything found in `bytes` when they come in pieces of `step`: requests as text, and how it
/// ended.
fn parse(bytes: &[u8], step: usize, limits: &Limits) -> (Vec<String>, Option<ProtocolError>) {
    let mut parser = RequestParser::default();
    let (mut start, mut end) = (0, 0);
    let mut requests = Vec::new();
    loop {
        match parser.parse(&bytes[start..end], limits) {
            Ok(Parsed::Incomplete) if end == bytes.len() => return (requests, None),
            Ok(Parsed::Incomplete) => end = (end + step).min(bytes.len()),
            Ok(Parsed::Empty { consumed }) => start += consumed,
            Ok(Parsed::Request { consumed }) => {
                assert!(consumed > 0 && consumed <= end - start, "consumed {consumed}");
                requests.push(format!("{:?}", parser.request(&bytes[start..end])));
                start += consumed;
                parser.clear();
            }
            Err(error) => return (requests, Some(error)),
        }
    }
}
