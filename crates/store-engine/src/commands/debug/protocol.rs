//! DEBUG PROTOCOL: one value of each type of RESP, for tests of clients.

use super::super::prelude::*;

/// What Redis answers with, and not meant to be anything rounder.
#[expect(clippy::approx_constant, reason = "clients compare it")]
const DOUBLE: f64 = 3.141;

pub(super) fn protocol(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let kind = String::from_utf8_lossy(request.arg(2)).to_lowercase();
    let is_resp3 = cx.reply.is_resp3();
    let reply = &mut cx.reply;
    match kind.as_str() {
        "string" => reply.bulk(b"Hello World"),
        "integer" => reply.integer(12345),
        "double" => reply.double(DOUBLE),
        "null" => reply.null(),
        "bignum" => reply.big_number("1234567999999999999999999999999999999"),
        "array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        "set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        "map" => {
            reply.map(3);
            for number in 0..3 {
                reply.integer(number);
                reply.boolean(number == 1);
            }
        }
        "attrib" => {
            if is_resp3 {
                reply.raw(b"|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n");
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        "push" if !is_resp3 => {
            return Err(CommandError::text("ERR RESP2 is not supported by this command"));
        }
        "push" => {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
            // A push is no reply, so one follows.
            reply.bulk(b"Some real reply following the push reply");
        }
        "true" => reply.boolean(true),
        "false" => reply.boolean(false),
        "verbatim" => reply.verbatim("txt", b"This is a verbatim\nstring"),
        _ => {
            return Err(CommandError::text(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}
