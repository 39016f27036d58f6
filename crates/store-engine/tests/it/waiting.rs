//! WAIT: an answer belongs to the wait that it was given for.

use store_engine::{ReplicationRequest, ServerRequest};
use store_resp::Reply;

use crate::world::World;

/// The number of the wait that was just begun.
fn begun(world: &mut World) -> u64 {
    let requests = std::mem::take(&mut world.engine.effects().requests);
    let wait = requests.into_iter().find_map(|request| match request {
        ServerRequest::Replication(_, ReplicationRequest::Wait { wait, .. }) => Some(wait),
        _ => None,
    });
    wait.expect("WAIT asks the driver")
}

/// A replica may confirm a write just when the time of its WAIT is up and the session is in the
/// next one, for more replicas.
#[test]
fn a_late_answer_to_an_earlier_wait_does_not_end_the_next_one() {
    let mut world = World::seeded(5);
    let session = world.session("main");
    world.send("main", "WAIT 1 100");
    let first = begun(&mut world);
    world.pass(200);
    assert_eq!(world.take_reply("main"), Some(Reply::Integer(0)));

    world.send("main", "WAIT 2 30000");
    let second = begun(&mut world);
    world.engine.finish_wait(session, first, 1);
    assert_eq!(world.take_reply("main"), None, "one replica is not two");
    world.engine.finish_wait(session, second, 2);
    assert_eq!(world.take_reply("main"), Some(Reply::Integer(2)));
}
