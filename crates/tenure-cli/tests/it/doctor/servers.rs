//! What can be wrong between the servers of a store.

use testkit::{
    ClusterGroup, GENEROUS, RedisServer, Sentinel, SentinelGroup, ServerProgram, wait_for,
    wait_until,
};

use super::{codes_at, codes_of, finding, json_at, planted};
use crate::stage::{CommandOutput, NAME, TENURE, plain_command};

const KEY: &str = "tenure:job";

planted! {
    "cluster-node": fn a_node_of_a_cluster_that_is_named_as_if_it_stood_alone() {
        let group = ClusterGroup::start().steady();
        codes_at(&group.server(0).url())
    }

    "missing-slots": fn a_cluster_with_a_gap() {
        let group = ClusterGroup::start().steady();
        let slot = group.slot_of(KEY);
        group.uncover(slot);
        let json = json_at(&group.url());
        let what = finding(&json, "missing-slots")["what"].as_str().unwrap();
        assert!(what.contains(&format!("slots {slot} (slot {slot} with {KEY})")), "{what}");
        codes_of(&json)
    }

    "node-down": fn a_quorum_without_one_of_its_nodes() {
        let mut nodes: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
        let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let quorum = format!("redis+quorum://{}", hosts.join(","));
        let whole = codes_at(&quorum);
        assert!(!whole.iter().any(|code| ["node-down", "single-node"].contains(&code.as_str())));
        nodes[1].kill();
        codes_at(&quorum)
    }

    "quorum-lost": fn a_quorum_without_a_majority_of_its_nodes() {
        let mut nodes: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
        let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        nodes[0].kill();
        nodes[1].kill();
        codes_at(&format!("redis+quorum://{}", hosts.join(",")))
    }

    "no-master": fn sentinels_of_which_no_two_agree() {
        let groups = [SentinelGroup::start(0), SentinelGroup::start(0)];
        let firsts = groups.each_ref().map(|group| first_of(&group.hosts()));
        let json = json_at(&format!("redis+sentinel://{}/main", firsts.join(",")));
        let what = finding(&json, "no-master")["what"].as_str().unwrap();
        assert!(firsts.iter().all(|sentinel| what.contains(sentinel)), "{what}");
        assert!(json["problems"].as_u64().unwrap() > 0);
        codes_of(&json)
    }

    "sentinel-down": fn a_sentinel_that_has_died() {
        let mut group = SentinelGroup::start(1);
        let whole = json_at(&group.url());
        let master = &whole["servers"][0];
        assert_eq!(master["part"], "master", "{whole}");
        assert_eq!(master["why"], "named by 3 of 3 sentinels", "{whole}");
        assert_eq!(master["place"], format!("{}/0", group.servers[0].url()), "{whole}");
        assert!(!codes_of(&whole).iter().any(|code| code.starts_with("sentinel")), "{whole}");

        group.sentinels[2].kill();
        let json = json_at(&group.url());
        let dead = group.hosts().rsplit(',').next().unwrap().to_owned();
        assert_eq!(finding(&json, "sentinel-down")["about"], dead);
        assert_eq!(json["servers"][0]["why"], "named by 2 of 3 sentinels", "{json}");
        codes_of(&json)
    }

    "sentinel-stray": fn a_sentinel_that_watches_others() {
        let group = SentinelGroup::start(0);
        let other = SentinelGroup::start(0);
        let strays_at = |hosts: &str| {
            let json = json_at(&format!("redis+sentinel://{hosts}/main"));
            let strays = json["findings"].as_array().unwrap();
            let strays = strays.iter().filter(|finding| finding["code"] == "sentinel-stray");
            let about = strays.map(|stray| stray["about"].as_str().unwrap().to_owned());
            (about.collect::<Vec<_>>(), json)
        };
        let foreign = first_of(&other.hosts());
        let (strays, json) = strays_at(&format!("{},{foreign}", group.hosts()));
        assert_eq!(strays, [foreign], "{json}");
        assert_eq!(json["servers"][0]["why"], "named by 3 of 4 sentinels", "{json}");

        assert_eq!(group.sentinels[2].cli(&["SENTINEL", "REMOVE", SentinelGroup::MASTER]), "OK");
        let ignorant = group.hosts().rsplit(',').next().unwrap().to_owned();
        let (strays, json) = strays_at(&group.hosts());
        assert_eq!(strays, [ignorant], "{json}");
        assert_eq!(json["servers"][0]["why"], "named by 2 of 3 sentinels", "{json}");
        codes_of(&json)
    }

    "sentinel-quorum": fn a_quorum_that_cannot_be_reached() {
        let group = SentinelGroup::start_mixed(
            &[ServerProgram::redis()],
            &[ServerProgram::own(), ServerProgram::own(), ServerProgram::redis()],
        );
        let whole = json_at(&group.url());
        assert!(!codes_of(&whole).iter().any(|code| code.contains("sentinel")), "{whole}");
        let words = ["SENTINEL", "SET", SentinelGroup::MASTER, "quorum", "4"];
        assert_eq!(group.sentinels[0].cli(&words), "OK");
        let json = json_at(&group.url());
        let what = finding(&json, "sentinel-quorum")["what"].as_str().unwrap();
        assert!(what.contains("3 usable Sentinels"), "{what}");
        codes_of(&json)
    }

    "sentinel-copies": fn sentinels_with_one_id_as_after_a_disk_was_copied() {
        let primary = RedisServer::start();
        let lines = format!(
            "sentinel myid {}\nsentinel monitor main 127.0.0.1 {} 2\n",
            "c0ffee".repeat(7).split_at(40).0,
            primary.port()
        );
        let own = ServerProgram::own();
        let copies = [0, 1].map(|_| Sentinel::start_alone(&own, &lines, None));
        let hosts = copies.each_ref().map(|it| format!("127.0.0.1:{}", it.port()));
        let url = format!("redis+sentinel://{}/main", hosts.join(","));
        // They find each other by their hellos, and then neither says that it could vote.
        let words = ["SENTINEL", "CKQUORUM", "main"];
        wait_until("both to know of each other", GENEROUS, || {
            copies.iter().all(|copy| copy.cli(&words).contains("has its id"))
        });
        let json = json_at(&url);
        let what = finding(&json, "sentinel-copies")["what"].as_str().unwrap();
        assert!(hosts.iter().all(|host| what.contains(host)), "{what}");
        assert!(codes_of(&json).contains(&"sentinel-quorum".to_owned()), "{json}");
        codes_of(&json)
    }

    "few-sentinels": fn one_sentinel_alone() {
        let primary = RedisServer::start();
        let lines = format!("sentinel monitor main 127.0.0.1 {} 1\n", primary.port());
        let sentinel = Sentinel::start_alone(&ServerProgram::own(), &lines, None);
        codes_at(&format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port()))
    }

    "few-replicas": fn a_strict_store_without_its_replicas() {
        let server = RedisServer::builder().program(ServerProgram::new("redis-server")).start();
        codes_at(&format!("{}?mode=strict&replicas=1", server.url()))
    }

    "replica-lagging": fn a_replica_that_waits_for_its_data() {
        let late = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "600"];
        let primary = RedisServer::builder().args(late).start();
        let replica = replica_of(&primary);
        let json = json_with(&primary.url(), "replica-lagging");
        let what = finding(&json, "replica-lagging")["what"].as_str().unwrap();
        assert!(what.contains(&place_of(&replica)) && what.contains("wait_bgsave"), "{what}");
        codes_of(&json)
    }

    "link-down": fn a_replica_whose_primary_is_gone() {
        let replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", "1"]).start();
        let json = json_at(&replica.url());
        let what = finding(&json, "link-down")["what"].as_str().unwrap();
        assert!(what.contains("127.0.0.1:1 is down"), "{what}");
        codes_of(&json)
    }

    "one-host": fn a_replica_beside_its_primary() {
        let own = RedisServer::builder().program(ServerProgram::new(TENURE).arg("serve"));
        let primary = own.args(["--repl-diskless-sync-delay", "0"]).start();
        let alone = codes_at(&primary.url());
        assert!(!alone.iter().any(|code| code == "one-host"), "{alone:?}");
        let _replica = replica_of(&primary);
        codes_of(&json_with(&primary.url(), "one-host"))
    }

    "nodes-disagree": fn a_node_that_was_told_another_owner() {
        let group = ClusterGroup::start().steady();
        // The third has a greater epoch than the first, so what that one says changes nothing.
        let id = group.server(2).cli(&["CLUSTER", "MYID"]);
        assert_eq!(group.server(1).cli(&["CLUSTER", "SETSLOT", "7", "NODE", &id]), "OK");
        let json = json_at(&group.url());
        let what = finding(&json, "nodes-disagree")["what"].as_str().unwrap().to_owned();
        assert!(what.contains("for slot 7, which"), "{what}");
        codes_of(&json)
    }

    "no-replica": fn a_primary_whose_replica_died() {
        let mut group = ClusterGroup::start();
        group.kill(ClusterGroup::MASTERS + 1);
        let about = group.server(1).url();
        wait_for("the loss to be told", GENEROUS, || {
            let json = json_at(&group.url_of(&[0, 1, 2]));
            let all = json["findings"].as_array().unwrap();
            let of_it = |found: &&serde_json::Value| {
                let about = found["about"].as_str().unwrap().starts_with(&about);
                about && found["code"] == "no-replica"
            };
            all.iter().find(of_it)?;
            Some(codes_of(&json))
        })
    }

    "no-shards": fn a_cluster_of_old_servers() {
        let group = ClusterGroup::start_with(|node| {
            node.args(["--rename-command", "SPUBLISH", "", "--rename-command", "SSUBSCRIBE", ""])
        });
        codes_at(&group.url())
    }
}

fn replica_of(primary: &RedisServer) -> RedisServer {
    let port = primary.port().to_string();
    RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start()
}

/// What is found once `code` is.
fn json_with(store: &str, code: &str) -> serde_json::Value {
    wait_for(&format!("{code} to be found"), GENEROUS, || {
        let json = json_at(store);
        codes_of(&json).iter().any(|found| found == code).then_some(json)
    })
}

fn first_of(hosts: &str) -> String {
    hosts.split(',').next().unwrap().to_owned()
}

fn place_of(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// What docs/acl.md grants an instance in a cluster.
fn documented() -> String {
    let page = include_str!("../../../../../docs/acl.md");
    let part = |begin: &str| page.lines().find_map(|line| line.strip_prefix(begin)).unwrap();
    let more = part("| `redis+cluster://` | `").split('`').next().unwrap().replace('\\', "");
    format!("{} {more}", part("user app on >PASSWORD "))
}

#[test]
fn a_cluster_is_looked_at_where_the_election_lives() {
    let group = ClusterGroup::start().steady();
    let slot = group.slot_of(KEY);
    let owner = group.owner_of(slot).unwrap();
    let replica = group.server(group.replicas_of(owner)[0]);
    let url = |rights: &str, options: &str| {
        for place in 0..group.len() {
            let node = group.server(place);
            let rules = format!("ACL SETUSER app reset on >c4nary {rights}");
            assert_eq!(node.cli(&rules.split(' ').collect::<Vec<_>>()), "OK");
        }
        group.url().replace("://", "://app:c4nary@") + options
    };
    // Nodes tell of a replica once they have heard from it.
    let (app, told) = (url(&documented(), ""), serde_json::json!([place_of(replica)]));
    let json = testkit::wait_for("the replica to be told of", GENEROUS, || {
        Some(json_at(&app)).filter(|json| json["servers"][0]["replicas"] == told)
    });
    let seen = &json["servers"].as_array().unwrap()[..];
    assert_eq!(seen.len(), 1, "{json}");
    assert_eq!(seen[0]["part"], "owner");
    assert_eq!(seen[0]["place"], format!("{}/0", group.server(owner).url()));
    assert_eq!(seen[0]["why"], format!("of slot {slot} with {KEY}"));
    assert!(!codes_of(&json).contains(&"acl".to_owned()), "the page's user is enough: {json}");

    let denied = |rights: &str, options: &str| {
        let json = json_at(&url(rights, options));
        finding(&json, "acl")["what"].as_str().unwrap().to_owned()
    };
    let less = |rule: &str| documented().replace(rule, "");
    assert!(denied(&less(" +ssubscribe"), "").ends_with("may not use ssubscribe"));
    assert!(denied(&less(" &{tenure:*"), "").contains("channels such as {tenure:job}:events"));
    assert!(denied(&less(" ~{tenure:*"), "").contains("keys such as {tenure:job}:meta"));
    assert!(denied(&documented(), "?mode=strict&replicas=1").ends_with("may not use wait"));

    // An election elsewhere does not care.
    let other = (owner + 1) % ClusterGroup::MASTERS;
    group.server(other).cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert!(!codes_at(&group.url()).contains(&"eviction".to_owned()));
    group.server(owner).cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert!(codes_at(&group.url()).contains(&"eviction".to_owned()));
}

#[test]
fn strict_counts_the_replicas_of_the_owner() {
    let mut group = ClusterGroup::start().steady();
    let owner = group.owner_of(group.slot_of(KEY)).unwrap();
    let strict = |count: u32| format!("{}?mode=strict&replicas={count}", group.url());
    let (one, two) = (strict(1), strict(2));
    assert!(!codes_at(&one).contains(&"few-replicas".to_owned()));
    assert!(codes_at(&two).contains(&"few-replicas".to_owned()));
    let replica = group.replicas_of(owner)[0];
    group.kill(replica);
    wait_until("the replica to be missed", GENEROUS, || {
        codes_at(&one).contains(&"few-replicas".to_owned())
    });
}

#[test]
fn a_node_that_died_is_told_and_the_others_are_looked_at() {
    let mut group = ClusterGroup::start().steady();
    let owner = group.owner_of(group.slot_of(KEY)).unwrap();
    let json = json_at(&format!("{},127.0.0.1:1", group.url()));
    assert_eq!(finding(&json, "node-down")["about"], "127.0.0.1:1");
    assert_eq!(json["servers"][0]["part"], "owner", "{json}");
    // The nodes bear with a silent one for long, so nobody takes over.
    group.kill(owner);
    let alive: Vec<_> = (0..group.len()).filter(|place| *place != owner).collect();
    let json = json_at(&group.url_of(&alive));
    let dead = format!("{}/0", group.server(owner).url());
    assert_eq!(finding(&json, "node-down")["about"], dead, "{json}");
    assert_eq!(finding(&json, "no-answer")["about"], NAME, "{json}");
}

#[test]
fn a_store_of_which_nobody_answers_is_unreachable_whatever_its_kind() {
    let cases = [
        ("redis://127.0.0.1:1", 69, "127.0.0.1:1"),
        ("redis+cluster://127.0.0.1:1,127.0.0.1:2", 69, "none of 2 nodes answers"),
        ("redis+sentinel://127.0.0.1:1,127.0.0.1:2/main", 69, "none of 2 sentinels answers"),
        ("redis+quorum://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", 69, "of 3 nodes"),
    ];
    for (store, code, named) in cases {
        for command in ["doctor", "who"] {
            let said = CommandOutput::of(plain_command(&[command, NAME, "--store", store]));
            assert_eq!(said.code, code, "{store}: {said:?}");
            let text = said.out.clone() + &said.err;
            assert!(text.contains(named) && text.contains("--store"), "{said:?}");
        }
    }
}

#[test]
fn a_server_that_has_stopped_does_not_stop_the_doctor() {
    let mut server = RedisServer::start();
    server.pause();
    let said = CommandOutput::of(plain_command(&["doctor", NAME, "--store", &server.url()]));
    assert_eq!(said.code, 69, "{said:?}");
    assert!(said.err.contains("no answer within"), "{said:?}");

    let mut group = SentinelGroup::start(0);
    group.servers[0].pause();
    for command in ["doctor", "who"] {
        let said = CommandOutput::of(plain_command(&[command, NAME, "--store", &group.url()]));
        assert_eq!(said.code, 69, "{said:?}");
        let master = format!("127.0.0.1:{}", group.servers[0].port());
        assert!(said.err.contains(&master), "the master is not named: {said:?}");
    }
}

#[test]
fn an_address_that_leads_to_something_else_has_to_be_changed() {
    let group = SentinelGroup::start(0);
    let server = RedisServer::start();
    let port = server.port();
    let cases = [
        (format!("redis+sentinel://{}/mian", group.hosts()), "\"mian\"", "SENTINEL MASTERS"),
        (format!("redis+sentinel://127.0.0.1:{port}/main"), "is not a sentinel", "write redis://"),
        (
            format!("redis+cluster://127.0.0.1:{port}"),
            "is not a node of a cluster",
            "write redis://",
        ),
        (format!("redis://{}", first_of(&group.hosts())), "is a sentinel", "redis+sentinel://"),
    ];
    for (store, named, next) in cases {
        for command in ["doctor", "who"] {
            let said = CommandOutput::of(plain_command(&[command, NAME, "--store", &store]));
            if command == "doctor" && store.starts_with("redis://") {
                // It answers, so it is looked at.
                assert_eq!(said.code, 1, "{said:?}");
                continue;
            }
            assert_eq!(said.code, 78, "{command} {store}: {said:?}");
            assert!(said.err.contains(named) && said.err.contains(next), "{said:?}");
            assert!(!said.err.contains("start it"), "that would not help: {said:?}");
        }
    }
}

/// The same code and words as from every other command.
#[test]
fn an_address_at_which_something_else_listens_is_told_as_by_who() {
    let server = RedisServer::start();
    let page = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = page.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in page.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let addresses = [
        format!("rediss://127.0.0.1:{}", server.port()),
        format!("redis://127.0.0.1:{port}"),
        "redis://no-such-host.invalid".to_owned(),
        "redis://127.0.0.1:1".to_owned(),
    ];
    let command = |word: &str, address: &str| {
        let mut command = plain_command(&[word, NAME]);
        command.env("TENURE_STORE", address);
        command
    };
    let told = ["who", "doctor"]
        .map(|word| CommandOutput::of_all(addresses.each_ref().map(|it| command(word, it))));
    let [who, doctor] = told;
    for ((address, who), doctor) in addresses.iter().zip(&who).zip(&doctor) {
        assert_eq!(doctor.code, who.code, "{doctor:?} {who:?}");
        assert_eq!(doctor.err.lines().last(), who.err.lines().last(), "{address}");
    }
}
