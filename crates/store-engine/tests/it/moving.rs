//! Keys that leave a slot which is on its way to another node.

use store_cluster::{Cluster, NodeId, Now, Settings, SlotChange};
use store_engine::{ClusterState, MigrateRequest, ServerRequest, SessionId};
use store_resp::Reply;
use store_resp::slot::slot_of;

use crate::world::{World, ok};

const SOURCE: &str = "0000000000000000000000000000000000000001";
const TARGET: &str = "0000000000000000000000000000000000000002";

/// A node with all slots.
fn source() -> World {
    let file = format!(
        "{SOURCE} 127.0.0.1:7001@17001 myself,master - 0 0 1 connected 0-16383\n\
         {TARGET} 127.0.0.1:7002@17002 master - 0 0 2 connected\n\
         vars currentEpoch 2 lastVoteEpoch 0\n"
    );
    let mut world = World::seeded(3);
    let at = |monotonic_ms| Now { monotonic_ms, unix_ms: world.now_ms };
    let mut machine = Cluster::restore(at(0), &file, Settings::default(), 1).unwrap();
    machine.handle_tick(at(0));
    machine.handle_tick(at(10_000));
    assert!(machine.is_ok());
    let state = ClusterState::new(machine, at(10_000));
    world.engine.lay_out_by_slot();
    world.engine.join_cluster(state);
    world
}

/// The slot of the key `k` is on its way, and so is the key.
fn migrate(world: &mut World) -> (SessionId, MigrateRequest) {
    let node = world.engine.cluster_mut().unwrap();
    let change = SlotChange::Migrating(NodeId::parse(TARGET.as_bytes()).unwrap());
    node.machine.set_slot(node.now, slot_of(b"k"), change, true).unwrap();
    world.send("mover", "MIGRATE 127.0.0.1 7002 k 0 5000 REPLACE");
    let requests = std::mem::take(&mut world.engine.effects().requests);
    let Some(ServerRequest::Migrate(id, request)) = requests.into_iter().next() else {
        panic!("nothing is sent away")
    };
    (id, *request)
}

fn finish(world: &mut World, (id, request): (SessionId, MigrateRequest)) {
    let (now_us, number) = (world.now_ms * 1000, request.number);
    world.engine.finish_moved(now_us, (id, number), request.db, &request.order.keys);
    world.engine.finish_migration(id, number, b"+OK\r\n");
    assert_eq!(world.take_reply("mover"), Some(ok()));
}

/// What the source sent may arrive at the target after what a client writes there.
#[test]
fn nobody_is_sent_after_a_key_that_ends_on_its_way() {
    for is_removed in [false, true] {
        let mut world = source();
        world.run("SET k old PX 50");
        let migration = migrate(&mut world);
        match is_removed {
            false => world.now_ms += 100,
            true => world.pass(100),
        }
        assert_eq!(world.run("GET k"), Reply::Null);
        world.send("writer", "SET k new");
        assert_eq!(world.take_reply("writer"), None, "it waits");
        finish(&mut world, migration);
        let writer = world.session("writer");
        assert!(world.engine.effects().resumed_sessions.contains(&writer));
        let Reply::Error(text) = world.run("SET k new") else { panic!("the slot is open") };
        assert!(text.starts_with("ASK "), "{text}");
    }
}
