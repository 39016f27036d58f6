//! Several nodes of ours in one process.

use store_resp::Reply;
use testkit::{Certificates, GENEROUS, wait_until};

use super::{Node, wait_for_state};
use crate::connection::Connection;
use crate::replication::support::{info, text};

/// Two masters; the first has the lower half of the slots.
fn pair(settings: &[(&str, &str)]) -> [Node; 2] {
    let nodes = [Node::start(settings), Node::start(settings)];
    for (node, slots) in nodes.iter().zip(["0 8191", "8192 16383"]) {
        let said = node.connect().words(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
        assert_eq!(text(&said), "OK");
    }
    nodes[0].meet(&nodes[1]);
    for node in &nodes {
        wait_for_state(&mut node.connect(), "ok");
    }
    nodes
}

#[test]
fn who_waits_for_a_key_is_sent_on_when_its_slot_goes() {
    let nodes = pair(&[]);
    // Slot 12182 is the second node's.
    let (mut waiting, mut admin) = (nodes[1].connect(), nodes[1].connect());
    waiting.send(&["BLPOP", "foo", "0"]);
    wait_until("it to wait", GENEROUS, || info(&mut admin, "clients", "blocked_clients") == "1");
    let first = nodes[0].id();
    let mut other = nodes[0].connect();
    for (connection, words) in [
        (&mut admin, format!("CLUSTER SETSLOT 12182 NODE {first}")),
        (&mut other, format!("CLUSTER SETSLOT 12182 NODE {first}")),
    ] {
        assert_eq!(text(&connection.words(&words)), "OK");
    }
    let port = nodes[0].server.port().unwrap();
    let moved = format!("-MOVED 12182 127.0.0.1:{port}");
    assert_eq!(text(&waiting.receive().unwrap()), moved);
    // And when nobody serves it.
    wait_for_state(&mut other, "ok");
    other.send(&["BLPOP", "foo", "0"]);
    let mut admin = nodes[0].connect();
    wait_until("it to wait", GENEROUS, || info(&mut admin, "clients", "blocked_clients") == "1");
    assert_eq!(text(&admin.words("CLUSTER DELSLOTS 12182")), "OK");
    assert!(text(&other.receive().unwrap()).contains("CLUSTERDOWN"));
}

#[test]
fn who_waits_at_the_target_of_a_move_is_sent_on_when_it_is_called_off() {
    let nodes = pair(&[]);
    let mut admin = nodes[0].connect();
    let import = format!("CLUSTER SETSLOT 12182 IMPORTING {}", nodes[1].id());
    assert_eq!(text(&admin.words(&import)), "OK");
    let mut waiting = nodes[0].connect();
    waiting.words("ASKING");
    waiting.send(&["BLPOP", "foo", "0"]);
    wait_until("it to wait", GENEROUS, || info(&mut admin, "clients", "blocked_clients") == "1");
    assert_eq!(text(&admin.words("CLUSTER SETSLOT 12182 STABLE")), "OK");
    let moved = text(&waiting.receive().unwrap());
    assert!(moved.starts_with("-MOVED 12182 "), "{moved}");
}

#[test]
fn a_slot_that_moves_sends_clients_after_its_keys() {
    let nodes = pair(&[]);
    let [mut to, mut from] = [nodes[0].connect(), nodes[1].connect()];
    let (to_id, from_id) = (nodes[0].id(), nodes[1].id());
    assert_eq!(text(&from.words("SET {foo}here 1")), "OK");
    assert_eq!(text(&to.words(&format!("CLUSTER SETSLOT 12182 IMPORTING {from_id}"))), "OK");
    assert_eq!(text(&from.words(&format!("CLUSTER SETSLOT 12182 MIGRATING {to_id}"))), "OK");

    assert_eq!(text(&from.words("GET {foo}here")), "1");
    assert!(text(&from.words("GET {foo}gone")).contains("ASK 12182 127.0.0.1"));
    assert!(text(&from.words("MGET {foo}here {foo}gone")).contains("TRYAGAIN"));
    assert!(text(&to.words("SET {foo}gone 2")).contains("MOVED 12182"));
    // ASKING holds for one request, or for one transaction.
    to.words("ASKING");
    assert_eq!(text(&to.words("SET {foo}gone 2")), "OK");
    assert!(text(&to.words("GET {foo}gone")).contains("MOVED"));
    to.words("ASKING");
    assert!(text(&to.words("MGET {foo}here {foo}gone")).contains("TRYAGAIN"));
    for words in ["ASKING", "MULTI", "GET {foo}gone", "GET {foo}gone"] {
        to.words(words);
    }
    assert_eq!(format!("{:?}", to.words("EXEC")), "[\"2\", \"2\"]");
    assert!(text(&to.words("GET {foo}gone")).contains("MOVED"));
    for words in ["MULTI", "ASKING", "EXEC"] {
        to.words(words);
    }
    assert!(text(&to.words("GET {foo}gone")).contains("MOVED"));
    // An owner that has keys does not give the slot away.
    let said = text(&from.words(&format!("CLUSTER SETSLOT 12182 NODE {to_id}")));
    assert!(said.contains("while I still hold keys"), "{said}");
    from.words("DEL {foo}here");
    for connection in [&mut to, &mut from] {
        let words = format!("CLUSTER SETSLOT 12182 NODE {to_id}");
        assert_eq!(text(&connection.words(&words)), "OK");
    }
    assert_eq!(text(&to.words("GET {foo}gone")), "2");
    assert!(text(&from.words("GET {foo}gone")).contains("MOVED 12182"));
}

/// A replica of the second node that is in step.
fn replica_of_second(nodes: &[Node; 2]) -> Node {
    let replica = Node::start(&[]);
    nodes[0].meet(&replica);
    wait_until("it to know all", GENEROUS, || replica.knows(3));
    let mut follower = replica.connect();
    assert_eq!(text(&follower.words(&format!("CLUSTER REPLICATE {}", nodes[1].id()))), "OK");
    wait_until("the link", GENEROUS, || {
        info(&mut follower, "replication", "master_link_status") == "up"
    });
    wait_for_state(&mut follower, "ok");
    replica
}

/// The offset that a master tells when it pauses has all that it acknowledged: a replica that knows
/// of more would wait for it in vain, one that knows of less would take over without the rest.
#[test]
fn a_write_that_comes_together_with_an_operators_failover_does_not_stop_it() {
    let nodes = pair(&[]);
    let replica = replica_of_second(&nodes);
    let mut master = nodes[1].connect();
    assert_eq!(text(&master.words("SET foo before")), "OK");
    assert_eq!(text(&master.words("WAIT 1 20000")), "1");
    let follows = format!("slave {}", nodes[1].id());
    let knows_it = |node: &Node| text(&node.connect().words("CLUSTER NODES")).contains(&follows);
    wait_until("both masters to know the replica", GENEROUS, || nodes.iter().all(knows_it));
    // While the master sleeps, both arrive, and are found in one turn.
    let (mut sleeper, mut writer) = (nodes[1].connect(), nodes[1].connect());
    writer.words("PING");
    sleeper.send(&["DEBUG", "SLEEP", "1"]);
    std::thread::sleep(std::time::Duration::from_millis(200));
    writer.send(&["SET", "foo", "together"]);
    let mut follower = replica.connect();
    assert_eq!(text(&follower.words("CLUSTER FAILOVER")), "OK");
    let written = text(&writer.receive().unwrap());
    wait_until("the replica to take over", GENEROUS, || {
        info(&mut follower, "replication", "role") == "master"
    });
    let expected = if written == "OK" { "together" } else { "before" };
    assert_eq!(text(&follower.words("GET foo")), expected);
}

#[test]
fn a_replica_serves_reads_to_who_asks_for_them() {
    let nodes = pair(&[]);
    let replica = replica_of_second(&nodes);
    let mut follower = replica.connect();
    let mut master = nodes[1].connect();
    assert_eq!(text(&master.words("SET foo bar")), "OK");
    assert_eq!(text(&master.words("WAIT 1 20000")), "1");
    assert!(text(&follower.words("GET foo")).contains("MOVED 12182"));
    follower.words("READONLY");
    assert_eq!(text(&follower.words("GET foo")), "bar");
    assert!(text(&follower.words("SET foo x")).contains("MOVED 12182"));
    assert!(text(&follower.words("GET bar")).contains("MOVED"), "a slot of the other shard");
    assert!(text(&follower.words("CLUSTER SETSLOT 1 STABLE")).contains("only with masters"));
    follower.words("READWRITE");
    assert!(text(&follower.words("GET foo")).contains("MOVED 12182"));
    // Forgetting the cluster, it has nothing of its master's any more.
    assert!(text(&follower.words(&format!("CLUSTER FORGET {}", nodes[1].id()))).contains("master"));
    assert_eq!(text(&follower.words("CLUSTER RESET HARD")), "OK");
    assert_eq!(text(&follower.words("DBSIZE")), "0");
    wait_until("it to be a master", GENEROUS, || {
        info(&mut follower, "replication", "role") == "master"
    });
    assert!(replica.knows(1));
}

#[test]
fn links_that_are_cut_are_opened_again_and_dropped_kinds_do_not_count() {
    let nodes = pair(&[]);
    let mut admin = nodes[0].connect();
    let links = |admin: &mut Connection| format!("{:?}", admin.words("CLUSTER LINKS"));
    wait_until("both links", GENEROUS, || {
        let shown = links(&mut admin);
        shown.matches("direction").count() == 2
    });
    let before = links(&mut admin);
    let other = nodes[1].id();
    assert_eq!(text(&admin.words(&format!("DEBUG CLUSTERLINK KILL all {other}"))), "OK");
    wait_until("other links", GENEROUS, || {
        let shown = links(&mut admin);
        shown.matches("direction").count() == 2 && shown != before
    });
    // Messages for subscribers are dropped as they come, then not.
    let (mut listener, mut publisher) = (nodes[0].connect(), nodes[1].connect());
    listener.words("SUBSCRIBE ch");
    wait_until("the other side's link", GENEROUS, || nodes[1].knows(2));
    admin.words("DEBUG DROP-CLUSTER-PACKET-FILTER 4");
    publisher.words("PUBLISH ch lost");
    wait_until("the message to come", GENEROUS, || {
        text(&admin.words("CLUSTER INFO")).contains("messages_publish_received:1")
    });
    admin.words("DEBUG DROP-CLUSTER-PACKET-FILTER -1");
    publisher.words("PUBLISH ch kept");
    assert!(format!("{:?}", listener.receive().unwrap()).contains("message"));
}

#[test]
fn a_large_message_crosses_the_bus() {
    let nodes = pair(&[]);
    let mut listener = nodes[0].connect();
    listener.words("SUBSCRIBE ch");
    let large = "x".repeat(3_000_000);
    let mut publisher = nodes[1].connect();
    publisher.send(&["PUBLISH", "ch", &large]);
    publisher.receive().unwrap();
    let heard = format!("{:?}", listener.receive().unwrap());
    assert!(heard.len() >= large.len(), "{} bytes", heard.len());
}

#[test]
fn announced_addresses_are_told_to_clients_and_nodes() {
    let nodes = pair(&[("cluster-announce-ip", "127.0.0.1")]);
    let mut other = nodes[0].connect();
    let mut admin = nodes[1].connect();
    assert_eq!(text(&admin.words("CONFIG SET cluster-announce-hostname b.example")), "OK");
    assert_eq!(text(&admin.words("CONFIG SET cluster-announce-port 7777")), "OK");
    wait_until("the name to be known", GENEROUS, || {
        text(&other.words("CLUSTER NODES")).contains(":7777@")
    });
    wait_until("the name to be known", GENEROUS, || {
        text(&other.words("CLUSTER NODES")).contains(",b.example ")
    });
    assert!(text(&other.words("GET foo")).contains("MOVED 12182 127.0.0.1:7777"));
    other.words("CONFIG SET cluster-preferred-endpoint-type hostname");
    assert!(text(&other.words("GET foo")).contains("MOVED 12182 b.example:7777"));
    other.words("CONFIG SET cluster-preferred-endpoint-type unknown-endpoint");
    assert!(text(&other.words("GET foo")).contains("MOVED 12182 :7777"));
}

#[test]
fn the_bus_is_encrypted_when_the_settings_say_so() {
    let certificates = Certificates::issue();
    let settings = certificates.settings("localhost", "yes");
    let mut settings: Vec<(&str, &str)> =
        settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    settings.push(("tls-cluster", "yes"));
    let nodes = [Node::start_encrypted(&settings), Node::start_encrypted(&settings)];
    for (node, slots) in nodes.iter().zip(["0 8191", "8192 16383"]) {
        let said = node.connect().words(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
        assert_eq!(text(&said), "OK");
    }
    nodes[0].meet(&nodes[1]);
    let mut plain = nodes[0].connect();
    wait_for_state(&mut plain, "ok");
    // A client without TLS is told the port without TLS.
    let port = nodes[1].server.port().unwrap();
    let said = text(&plain.words("GET foo"));
    assert!(said.contains(&format!("MOVED 12182 127.0.0.1:{port}")), "{said}");

    // It is turned off while the nodes run: links are opened anew, without it.
    for node in &nodes {
        assert_eq!(text(&node.connect().words("CONFIG SET tls-cluster no")), "OK");
    }
    let other = nodes[1].id();
    assert_eq!(text(&plain.words(&format!("DEBUG CLUSTERLINK KILL all {other}"))), "OK");
    wait_until("new links", GENEROUS, || nodes[0].knows(2) && nodes[1].knows(2));
}

#[test]
fn a_node_that_cannot_write_its_file_serves_on_and_changes_nothing_that_counts() {
    let nodes = pair(&[("cluster-require-full-coverage", "no")]);
    let path = nodes[0].folder.path().join("nodes.conf");
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept.contains("0-8191") && kept.contains("8192-16383"), "{kept}");
    // A folder in its place cannot be replaced by a file.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let mut admin = nodes[0].connect();
    // It is noticed when the first change has been made, and what is said of that is true.
    let said = text(&admin.words("CLUSTER DELSLOTS 7"));
    assert!(said.contains("nodes.conf cannot be written: the change is in force"), "{said}");
    assert!(text(&admin.words("CLUSTER NODES")).contains(" 0-6 8-8191"));
    for words in ["CLUSTER SAVECONFIG", "CLUSTER DELSLOTS 9", "CLUSTER BUMPEPOCH"] {
        let said = text(&admin.words(words));
        assert!(said.contains("nodes.conf cannot be written"), "{words}: {said}");
        assert!(!said.contains("in force"), "{words}: {said}");
    }
    assert!(text(&admin.words("CLUSTER NODES")).contains(" 0-6 8-8191"), "nothing more");
    // Slot 5061 is its own, and the other node reaches it.
    assert_eq!(text(&admin.words("SET bar 1")), "OK");
    assert!(text(&nodes[1].connect().words("GET bar")).contains("MOVED 5061"));
    std::fs::remove_dir(&path).unwrap();
    wait_until("the file to be written again", GENEROUS, || {
        text(&admin.words("CLUSTER SAVECONFIG")) == "OK"
    });
    assert!(std::fs::read_to_string(&path).unwrap().contains("8192-16383"));
}

#[test]
fn a_replica_that_cannot_write_its_file_takes_over_once_it_can() {
    let nodes: Vec<Node> = (0..4).map(|_| Node::start(&[])).collect();
    let mut masters: Vec<_> = nodes[..3].iter().map(Node::connect).collect();
    for (number, range) in ["0 5460", "5461 10922", "10923 16383"].iter().enumerate() {
        let words = format!("CLUSTER ADDSLOTSRANGE {range}");
        assert_eq!(text(&masters[number].words(&words)), "OK");
    }
    nodes[1..].iter().for_each(|node| nodes[0].meet(node));
    wait_until("all nodes to know each other", GENEROUS, || nodes.iter().all(|n| n.knows(4)));
    let mut replica = nodes[3].connect();
    let order = format!("CLUSTER REPLICATE {}", nodes[0].id());
    wait_until("it to be a replica", GENEROUS, || text(&replica.words(&order)) == "OK");
    wait_until("it to be in step, and known", GENEROUS, || {
        text(&replica.words("INFO replication")).contains("master_link_status:up")
            && text(&masters[1].words("CLUSTER NODES")).contains("slave")
            && text(&masters[1].words("CLUSTER INFO")).contains("cluster_state:ok")
    });
    let path = nodes[3].folder.path().join("nodes.conf");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    drop(masters.remove(0));
    let mut nodes = nodes.into_iter();
    drop(nodes.next());
    let nodes: Vec<Node> = nodes.collect();
    wait_until("the master to be given up", GENEROUS, || {
        text(&masters[0].words("CLUSTER NODES")).contains("master,fail ")
    });
    // Twice as long as the election would take.
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(text(&replica.words("ROLE")).contains("slave"), "it cannot keep that it won");
    assert!(text(&replica.words("CLUSTER FAILOVER TAKEOVER")).contains("cannot be written"));
    std::fs::remove_dir(&path).unwrap();
    wait_until("it to take over", GENEROUS, || {
        text(&masters[0].words("CLUSTER INFO")).contains("cluster_state:ok")
            && text(&replica.words("ROLE")).contains("master")
    });
    assert!(std::fs::read_to_string(&path).unwrap().contains("0-5460"));
    drop(nodes);
}

#[test]
fn a_node_whose_script_runs_for_long_is_not_given_up() {
    let nodes = pair(&[("busy-reply-threshold", "50")]);
    let mut other = nodes[1].connect();
    for node in &nodes {
        node.connect().words("CONFIG SET cluster-node-timeout 2500");
    }
    let mut busy = nodes[0].connect();
    busy.send(&["EVAL", "while true do end", "0"]);
    let began_at = std::time::Instant::now();
    let all = text(&other.words("CLUSTER NODES"));
    let id = all.lines().find(|line| !line.contains("myself")).unwrap()[..40].to_owned();
    while began_at.elapsed() < std::time::Duration::from_secs(6) {
        let line = text(&other.words("CLUSTER NODES"));
        let line = line.lines().find(|line| line.starts_with(&id)).unwrap();
        assert!(!line.contains("fail"), "after {:?}: {line}", began_at.elapsed());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(text(&nodes[0].connect().words("SCRIPT KILL")), "OK");
    assert!(text(&busy.receive().unwrap()).contains("killed by user"));
    assert_eq!(text(&nodes[0].connect().words("SET bar 1")), "OK", "and it serves on at once");
}

/// What it gave up stays where it was, and may have come by another connection with a later value.
#[test]
fn a_key_whose_sender_does_not_wait_any_more_is_not_taken() {
    let node = Node::alone(&[]);
    let mut admin = node.connect();
    assert_eq!(text(&admin.words("SET foo old")), "OK");
    let Reply::Bulk(payload) = admin.words("DUMP foo") else { panic!("no payload") };
    for (word, expected) in [("RESTORE-ASKING", "new"), ("RESTORE", "old")] {
        assert_eq!(text(&admin.words("SET foo new")), "OK");
        let (mut sleeper, mut sender) = (node.connect(), node.connect());
        sender.words("PING");
        sleeper.send(&["DEBUG", "SLEEP", "1"]);
        std::thread::sleep(std::time::Duration::from_millis(200));
        sender.send(&[word.as_bytes(), b"foo", b"0", &payload, b"REPLACE"]);
        drop(sender);
        assert_eq!(text(&sleeper.receive().unwrap()), "OK");
        let served = format!("cmdstat_{}:", word.to_lowercase());
        wait_until("it to be looked at", GENEROUS, || {
            text(&admin.words("INFO commandstats")).contains(&served)
        });
        assert_eq!(text(&admin.words("GET foo")), expected, "{word}");
    }
}

/// Its replica may have been promoted meanwhile, and what it answered with OK would be lost.
#[test]
fn a_node_that_was_busy_for_too_long_serves_nobody_before_it_heard_others() {
    let nodes = pair(&[]);
    let (mut pipeline, mut other) = (nodes[1].connect(), nodes[1].connect());
    other.words("PING");
    assert_eq!(text(&other.words("CONFIG SET cluster-node-timeout 1000")), "OK");
    let sleep = "*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n$1\r\n4\r\n";
    let set = "*3\r\n$3\r\nSET\r\n$3\r\nfoo\r\n$4\r\nlate\r\n";
    pipeline.send_raw(format!("{sleep}{set}").as_bytes());
    std::thread::sleep(std::time::Duration::from_millis(500));
    // Found in the same turn, or in the next one.
    other.send(&["SET", "foo", "late"]);
    assert_eq!(text(&pipeline.receive().unwrap()), "OK");
    for connection in [&mut pipeline, &mut other] {
        let said = text(&connection.receive().unwrap());
        assert!(said.contains("CLUSTERDOWN"), "{said}");
    }
    wait_for_state(&mut other, "ok");
}

#[test]
fn a_script_is_executed_as_a_whole_whatever_other_nodes_say_meanwhile() {
    const SCRIPT: &str = "redis.call('set', KEYS[1], 1) \
        local began = redis.call('time')[1] \
        while redis.call('time')[1] - began < 4 do end \
        redis.call('set', KEYS[2], 1) return 'done'";
    let nodes = pair(&[("busy-reply-threshold", "50")]);
    let (mut here, mut other) = (nodes[0].connect(), nodes[1].connect());
    // The other one is not heard for longer than that: the cluster is down meanwhile.
    here.words("CONFIG SET cluster-node-timeout 1000");
    other.send(&["DEBUG", "SLEEP", "3"]);
    assert_eq!(text(&here.ask(&["EVAL", SCRIPT, "2", "{bar}a", "{bar}b"]).unwrap()), "done");
    other.receive();
    here.words("CONFIG SET cluster-node-timeout 60000");
    wait_for_state(&mut here, "ok");
    assert_eq!(text(&here.words("EXISTS {bar}a {bar}b")), "2");
    // It takes the slot.
    here.send(&["EVAL", SCRIPT, "2", "{bar}c", "{bar}d"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    for words in
        ["CLUSTER BUMPEPOCH".to_owned(), format!("CLUSTER SETSLOT 5061 NODE {}", nodes[1].id())]
    {
        other.words(&words);
    }
    assert_eq!(text(&here.receive().unwrap()), "done");
}
