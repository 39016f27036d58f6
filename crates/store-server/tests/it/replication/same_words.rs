//! INFO and ROLE of ours beside those of a redis-server in the same position.

use store_resp::Reply;
use testkit::{GENEROUS, RedisServer, wait_until};

use super::support::{connect, follow, follower, primary, text, wait_for_link, wait_for_online};
use crate::connection::Connection;

/// The names of all facts of a section, in order.
fn names(connection: &mut Connection, section: &str) -> Vec<String> {
    let all = text(&connection.words(&format!("INFO {section}")));
    let names = all.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// Facts that only ours has.
fn is_own(name: &str) -> bool {
    name.starts_with("tenure_") || name.starts_with("acl_access_denied_")
}

#[track_caller]
fn assert_same_names(ours: &mut Connection, theirs: &mut Connection) {
    for section in ["replication", "persistence", "stats"] {
        let mut names = names(ours, section);
        names.retain(|name| !is_own(name));
        assert_eq!(names, self::names(theirs, section), "{section}");
    }
}

/// What kinds of replies stand where.
fn shape(reply: &Reply) -> String {
    match reply {
        Reply::Array(items) => format!("[{}]", items.iter().map(shape).collect::<String>()),
        Reply::Bulk(_) => "b".to_owned(),
        Reply::Integer(_) => "i".to_owned(),
        other => format!("{other:?}"),
    }
}

#[track_caller]
fn assert_same_role(ours: &mut Connection, theirs: &mut Connection) {
    assert_eq!(shape(&ours.words("ROLE")), shape(&theirs.words("ROLE")));
}

fn real() -> RedisServer {
    RedisServer::builder()
        .args(["--repl-diskless-sync-delay", "0", "--min-replicas-to-write", "1"])
        .start()
}

#[test]
fn info_and_role_have_the_same_facts_in_the_same_order_in_every_position() {
    let server = primary().setting("min-replicas-to-write", "1").start().unwrap();
    let (mut ours, top) = (connect(&server), real());
    let mut theirs = Connection::tcp(top.port());
    assert_same_names(&mut ours, &mut theirs);
    assert_same_role(&mut ours, &mut theirs);

    // Each is followed by one of the other kind.
    let below_ours = follower(server.port().unwrap(), &[]);
    let below_theirs = primary().start().unwrap();
    let mut below_ours = Connection::tcp(below_ours.port());
    let mut below_theirs = connect(&below_theirs);
    follow(&mut below_theirs, top.port());
    wait_for_link(&mut below_ours);
    wait_for_link(&mut below_theirs);
    wait_for_online(&mut ours, 1);
    wait_for_online(&mut theirs, 1);
    assert_same_names(&mut ours, &mut theirs);
    assert_same_role(&mut ours, &mut theirs);
    assert_same_names(&mut below_theirs, &mut below_ours);
    assert_same_role(&mut below_theirs, &mut below_ours);

    // Nobody answers any more.
    drop((server, top));
    for replica in [&mut below_ours, &mut below_theirs] {
        wait_until("the link to be down", GENEROUS, || {
            text(&replica.words("INFO replication")).contains("master_link_status:down")
        });
    }
    assert_same_names(&mut below_theirs, &mut below_ours);
    assert_same_role(&mut below_theirs, &mut below_ours);
}
