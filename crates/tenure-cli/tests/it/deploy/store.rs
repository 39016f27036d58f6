//! The files that run a replicated store: a primary and a replica by the words of each file.

use std::process::Command;

use testkit::{ClusterGroup, GENEROUS, RedisServer, ServerProgram, TempFolder, wait_until};

use super::{analyzed, read, words_of, yaml};
use crate::stage::TENURE;

const PASSWORD: &str = "PASSWORD";

/// A server that reads these settings, started with the words of a file behind its own.
fn serve(folder: &TempFolder, name: &str, settings: &str, words: &[String]) -> RedisServer {
    let file = folder.write(name, settings);
    let program = ServerProgram::new(TENURE).arg("serve").arg(file);
    // The setting is in the file; the kit gives the password to those who ask it.
    let server = RedisServer::builder().program(program).password(PASSWORD).args(words);
    server.args(["--repl-diskless-sync-delay", "0"]).start()
}

fn assert_follows(primary: &RedisServer, replica: &RedisServer) {
    wait_until("the replica to follow", GENEROUS, || {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
    });
    assert_eq!(primary.cli(&["SET", "key", "value"]), "OK");
    wait_until("the replica to have the key", GENEROUS, || replica.cli(&["GET", "key"]) == "value");
}

#[test]
fn kubernetes_runs_a_primary_and_replicas() {
    let documents = yaml::documents(&read("kubernetes/store.yaml"));
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap();
    let spec = &of_kind("StatefulSet")["spec"]["template"]["spec"];
    let [container] = &spec["containers"].as_array().unwrap()[..] else { panic!("{spec}") };
    let command = words_of(&container["command"]);
    assert_eq!(command[..2], ["tenure", "serve"]);
    let words = words_of(&container["args"]);
    for given in ["--bind", "--port", "--dir"] {
        assert!(words.iter().any(|word| word == given), "{given} is not in {words:?}");
    }
    let kept = words.iter().position(|word| word == "--appendonly").expect("it keeps its data");

    let folder = TempFolder::create();
    let secret = of_kind("Secret")["stringData"]["store.conf"].as_str().unwrap();
    let secret = folder.write("secret.conf", secret);
    let script = words_of(&spec["initContainers"][0]["args"]).concat();
    let settings_of = |pod: &str, primary: u16| {
        let data = TempFolder::create();
        let script = script
            .replace("/data", data.path().to_str().unwrap())
            .replace("$(hostname)", pod)
            .replace("/secret/store.conf", secret.to_str().unwrap())
            .replace("store-0.store 6379", &format!("127.0.0.1 {primary}"));
        // A second start changes nothing.
        for _ in 0..2 {
            let status = Command::new("sh").args(["-ec", &script]).status().unwrap();
            assert!(status.success(), "{script}");
        }
        std::fs::read_to_string(data.path().join("store.conf")).unwrap()
    };
    let first = settings_of("store-0", 1);
    assert!(!first.contains("replicaof"), "{first}");
    let primary = serve(&folder, "first.conf", &first, &words[kept..]);
    let second = settings_of("store-1", primary.port());
    let replica = serve(&folder, "second.conf", &second, &words[kept..]);
    assert_follows(&primary, &replica);
    let told = primary.cli(&["INFO", "replication"]);
    assert!(told.contains("ip=store-1.store"), "{told}");
}

#[test]
fn kubernetes_runs_the_nodes_of_a_cluster() {
    let documents = yaml::documents(&read("kubernetes/cluster.yaml"));
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap();
    let set = &of_kind("StatefulSet")["spec"];
    assert_eq!(set["replicas"], "6");
    let spec = &set["template"]["spec"];
    let words = words_of(&spec["containers"][0]["args"]);
    for given in ["--bind", "--port", "--dir", "--cluster-announce-ip", "--appendonly"] {
        assert!(words.iter().any(|word| word == given), "{given} is not in {words:?}");
    }
    let (folder, data) = (TempFolder::create(), TempFolder::create());
    let secret = of_kind("Secret")["stringData"]["store.conf"].as_str().unwrap();
    let secret = folder.write("secret.conf", secret);
    let script = words_of(&spec["initContainers"][0]["args"]).concat();
    let script = script
        .replace("/data", data.path().to_str().unwrap())
        .replace("$(hostname)", "cluster-0")
        .replace("/secret/store.conf", secret.to_str().unwrap());
    assert!(Command::new("sh").args(["-ec", &script]).status().unwrap().success(), "{script}");
    let program = ServerProgram::new(TENURE).arg("serve").arg(data.path().join("store.conf"));
    let group = ClusterGroup::start_with(|node| {
        node.program(program.clone()).password(PASSWORD).args(["--appendonly", "yes"])
    });
    let nodes = group.server(0).cli(&["CLUSTER", "NODES"]);
    assert_eq!(nodes.matches(",cluster-0.cluster ").count(), 6, "all announce a name: {nodes}");
}

#[test]
fn systemd_runs_a_primary_and_a_replica() {
    let unit = read("systemd/tenure-store@.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<&str> = start.split(' ').collect();
    assert_eq!(words[1..3], ["serve", "/etc/tenure/store-%i.conf"]);
    assert!(words.contains(&"/var/lib/tenure-store/%i"), "{words:?}");
    let lines = unit.lines().filter_map(|line| line.strip_prefix("#   "));
    let lines = lines.filter(|line| !line.starts_with("bind") && !line.starts_with("port"));
    let (follow, settings): (Vec<_>, Vec<_>) =
        lines.partition(|line| line.starts_with("replicaof"));
    assert_eq!(follow, ["replicaof 10.0.0.1 6379"]);
    let settings = settings.join("\n");

    let folder = TempFolder::create();
    let primary = serve(&folder, "primary.conf", &settings, &[]);
    let settings = format!("{settings}\nreplicaof 127.0.0.1 {}\n", primary.port());
    let replica = serve(&folder, "replica.conf", &settings, &[]);
    assert_follows(&primary, &replica);
    analyzed("tenure-store@6379.service", &unit);
}
