//! Whole requests through the engine: any command with any arguments.

use store_resp::{Limits, Parsed, RequestParser};

use super::Target;
use super::world::World;

pub(super) const TARGET: Target = Target {
    name: "commands",
    about: "any commands with any arguments, on an engine without sockets",
    run,
    words: &[
        b"SET k v\n",
        b"LPUSH l a b c\n",
        b"ZADD z 1 a 2 b\n",
        b"XADD s * f v\n",
        b"HSET h f v\n",
        b"SADD t 1 2 3\n",
        b"MULTI\n",
        b"EXEC\n",
        b"-1",
        b"0",
        b"inf",
        b"nan",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"WITHSCORES",
        b"COUNT",
        b"LIMIT",
        b"BY",
        b"GET",
        b"STORE",
        b"*",
        b"$",
        b"k",
        b"EX",
        b"PX",
        b"NX",
        b"GT",
        b"SETRANGE k 1048575 x\n",
        b"BITFIELD k SET u8 #1 255\n",
        b"GEOADD g 1 2 m\n",
        b"SORT l BY nosort GET # DESC\n",
        b"OBJECT ENCODING k\n",
    ],
};

/// Commands of one input, at most.
const COMMANDS_MAX: usize = 200;
/// Commands that stop, sleep or run programs: not what is looked for here.
const LEFT_OUT: &[&[u8]] = &[
    b"debug",
    b"shutdown",
    b"eval",
    b"evalsha",
    b"eval_ro",
    b"evalsha_ro",
    b"fcall",
    b"fcall_ro",
    b"function",
    b"script",
    b"failover",
    b"restart",
];

fn run(bytes: &[u8]) {
    let mut world = World::new();
    let mut parser = RequestParser::default();
    let mut rest = bytes;
    for _ in 0..COMMANDS_MAX {
        match parser.parse(rest, &Limits::default()) {
            Ok(Parsed::Request { consumed }) => {
                let request = parser.request(rest).to_owned();
                let name = request.as_request().arg(0).to_ascii_lowercase();
                if !LEFT_OUT.contains(&name.as_slice()) {
                    world.execute(request.as_request());
                }
                rest = &rest[consumed..];
                parser.clear();
            }
            Ok(Parsed::Empty { consumed }) => rest = &rest[consumed..],
            Ok(Parsed::Incomplete) | Err(_) => return,
        }
        if !world.is_open() {
            world = World::new();
        }
    }
}
