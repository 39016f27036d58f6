//! A restricted user gets at no key by options that look like others.

use store_resp::Reply;

use crate::world::World;

#[test]
fn a_key_hidden_behind_another_option_is_denied() {
    let mut world = World::seeded(1);
    world.run("GEOADD mine 13 38 here");
    world.run("RPUSH mine:list 1");
    world.run("XADD victim:stream 1-1 f v");
    world.run("XGROUP CREATE victim:stream g 0");
    world.run("ACL SETUSER guest on nopass ~mine* ~S* ~GET +@all");
    world.run_as("guest", "AUTH guest any");
    let lines = [
        "GEORADIUS mine 13 38 200 km STORE mine:a STORE victim:x",
        "GEORADIUSBYMEMBER mine here 200 km STOREDIST mine:a STOREDIST victim:x",
        "XREADGROUP COUNT 5 GROUP g STREAMS STREAMS victim:stream >",
        "SORT mine:list STORE GET STORE victim:x",
    ];
    for line in lines {
        let reply = world.run_as("guest", line);
        let Reply::Error(text) = &reply else { panic!("{line}: {reply:?}") };
        assert!(text.starts_with("NOPERM"), "{line}: {text}");
    }
    assert_eq!(world.run("EXISTS victim:x"), Reply::Integer(0));
}
