//! What scripts convert from bytes: JSON, MessagePack, packed structures, and source text.

use store_script::{
    AclAnswer, Host, Interpreter, Invocation, Limits, LogLevel, Origin, Protocol, Replication, Tick,
};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "script",
    about: "cjson, cmsgpack, struct and source text in Lua; the first byte chooses",
    run,
    words: &[
        b"[",
        b"]",
        b"{",
        b"}",
        b"\"",
        b"\\u0000",
        b"null",
        b"1e999",
        b"-0",
        b"\x81",
        b"\x91",
        b"\xc4",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xca",
        b">I8",
        b"<i3",
        b"!16",
        b"s",
        b"c0",
        b"x",
        b"return ",
        b"function",
        b"(",
        b"..",
        b"\x1bLua",
    ],
};

/// `ARGV[1]` is the input, `ARGV[2]` its first line and `ARGV[3]` what follows that.
const SCRIPTS: &[&str] = &[
    "return cjson.encode(cjson.decode(ARGV[1]))",
    "local v = cjson.decode(ARGV[1]) return cmsgpack.pack(v)",
    "return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))",
    "local ok, v = pcall(cmsgpack.unpack_limit, ARGV[1], 3, 0) return cjson.encode({v})",
    "return {struct.unpack(ARGV[2], ARGV[3])}",
    "return struct.pack(ARGV[2], ARGV[3], 1, 2, 3, 4.5, 'x')",
    "return struct.size(ARGV[2])",
    "return {string.find(ARGV[3], ARGV[2])}",
    "return string.format(ARGV[2], ARGV[3], 1, 2.5)",
    "return redis.sha1hex(ARGV[1]) .. tostring(tonumber(ARGV[2]))",
];
/// Ticks of about a millisecond that one input may take.
const TICKS_MAX: u32 = 200;

fn run(bytes: &[u8]) {
    let Some((choice, data)) = bytes.split_first() else { return };
    let line_end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (line, rest) = (&data[..line_end], data.get(line_end + 1..).unwrap_or_default());
    // The last choice is the input itself as a script.
    let choice = usize::from(*choice) % (SCRIPTS.len() + 1);
    let code = SCRIPTS.get(choice).map_or(data, |script| script.as_bytes());
    let mut limits = Limits::default();
    limits.memory_max = 16 << 20;
    let mut interpreter = Interpreter::new(limits);
    let Ok(digest) = interpreter.load_script(code, Origin::Evaluated) else { return };
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let invocation = Invocation { keys: &[], arguments: &[data, line, rest], protocol };
        let mut reply = Vec::new();
        interpreter.run_script(&digest, invocation, &mut Refusing::default(), &mut reply);
        assert_is_reply(&reply);
    }
}

/// Whatever a script returns reaches a client as exactly one reply.
fn assert_is_reply(reply: &[u8]) {
    match store_resp::ReplyParser.parse(reply) {
        Ok(Some((_, used))) => assert_eq!(used, reply.len(), "more than one reply"),
        // Deeper than our own reader goes, but sound.
        Err(store_resp::ReplyError::TooDeep) => {}
        other => panic!("what a script answered is no reply: {other:?}"),
    }
}

/// A server that refuses every command, and ends what takes long.
#[derive(Default)]
struct Refusing {
    ticks: u32,
}

impl Host for Refusing {
    fn call(&mut self, _: &[&[u8]], _: Protocol, reply: &mut Vec<u8>) {
        reply.extend_from_slice(b"-ERR refused\r\n");
    }

    fn acl_check(&mut self, _: &[&[u8]]) -> AclAnswer {
        AclAnswer::Denied
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn set_replication(&mut self, _: Replication) {}

    fn tick(&mut self) -> Tick {
        self.ticks += 1;
        if self.ticks > TICKS_MAX { Tick::Kill } else { Tick::Continue }
    }
}
