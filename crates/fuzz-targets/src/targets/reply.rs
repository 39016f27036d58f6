//! Replies as a client reads them, from a server that may be anybody.

use store_resp::{Reply, ReplyParser};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "reply",
    about: "replies of servers, in RESP2 and RESP3",
    run,
    words: &[
        b"+OK\r\n",
        b"-ERR x\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*1\r\n",
        b"%1\r\n",
        b"~1\r\n",
        b">1\r\n",
        b"|1\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(1\r\n",
        b"=6\r\ntxt:hi\r\n",
        b"!3\r\nERR\r\n",
        b"%4611686018427387904\r\n",
        b"*2147483647\r\n",
    ],
};

fn run(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((reply, used))) = ReplyParser.parse(rest) {
        assert!(used > 0 && used <= rest.len(), "used {used}");
        // A reply is whole only with its last byte.
        assert!(
            matches!(ReplyParser.parse(&rest[..used - 1]), Ok(None)),
            "{reply:?} is complete without its last byte"
        );
        assert!(depth(&reply) <= 64, "nested too deep");
        rest = &rest[used..];
    }
}

fn depth(reply: &Reply) -> usize {
    let deepest = |items: &[Reply]| items.iter().map(depth).max().unwrap_or(0);
    1 + match reply {
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => deepest(items),
        Reply::Map(pairs) => {
            pairs.iter().map(|(key, value)| depth(key).max(depth(value))).max().unwrap_or(0)
        }
        _ => 0,
    }
}
