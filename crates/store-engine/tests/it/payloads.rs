//! The payload of a large RESTORE: nobody copies it, and whoever decoded it is the last to hold it.

use store_engine::ServerRequest;
use store_resp::{Limits, OwnedRequest, Parsed, Reply, RequestParser, write_request};

use crate::world::{World, ok};

/// What comes in pieces has large arguments in buffers of their own.
fn execute_in_two_pieces(world: &mut World, bytes: &[u8]) {
    let (mut parser, limits) = (RequestParser::taking_large(), Limits::default());
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut input = first.to_vec();
    assert!(matches!(parser.parse(&input, &limits), Ok(Parsed::Incomplete)));
    input.truncate(input.len() - parser.take_taken());
    input.extend_from_slice(second);
    assert!(matches!(parser.parse(&input, &limits), Ok(Parsed::Request { .. })));
    world.execute("restorer", parser.request(&input));
}

#[test]
fn a_payload_is_let_go_before_whoever_decoded_it_gives_its_memory_back() {
    let mut world = World::seeded(6);
    world.engine.set_feeding_file(true);
    world.run("CONFIG SET rdbcompression no");
    let request = OwnedRequest::from_args([&b"SET"[..], b"big", &vec![b'x'; 2_000_000]]);
    world.execute("main", request.as_request());
    let Reply::Bulk(payload) = world.run_as("reader", "DUMP big") else { panic!("no payload") };
    // With an expiry, so that what is propagated is another request.
    let mut bytes = Vec::new();
    let words = [b"RESTORE".as_slice(), b"copy", b"100000", &payload];
    write_request(&mut bytes, words.into_iter());
    execute_in_two_pieces(&mut world, &bytes);
    let requests = std::mem::take(&mut world.engine.effects().requests);
    let Some(ServerRequest::Decode(id, request)) = requests.into_iter().last() else {
        panic!("nothing is decoded elsewhere")
    };
    world.take_units();
    let (now_us, number) = (world.now_ms * 1000, request.number);
    let rest = world.engine.finish_restore(now_us, id, number, request.decode());
    world.engine.finish(None, 1);
    assert!(rest.is_none(), "it is in its place");
    assert_eq!(world.take_reply("restorer"), Some(ok()));

    let units = world.take_units();
    let (_, propagated) = &units[0].requests[0];
    assert!(propagated.as_request().has_shared(), "it was copied");
    assert!(request.is_shared(), "files and replicas do not have it yet");
    drop(units);
    assert!(!request.is_shared());
    let unwanted = world.engine.finish_restore(now_us, id, number, request.decode());
    assert!(unwanted.is_some(), "nobody waits for it any more");
}
