//! The files that run sentinels: one by the words of each file, over a primary that asks for a
//! password.

use std::process::Command;

use testkit::{GENEROUS, RedisServer, Sentinel, ServerProgram, TempFolder, wait_until};

use super::{analyzed, read, words_of, yaml};

const PASSWORD: &str = "PASSWORD";

fn primary() -> RedisServer {
    RedisServer::builder().program(ServerProgram::own()).password(PASSWORD).start()
}

/// One that reads these lines, on a port of this machine, reaches its primary and asks others for
/// the password.
fn assert_watches(lines: &str) -> Sentinel {
    let own = lines.lines().filter(|line| !line.starts_with("bind") && !line.starts_with("port"));
    let lines: String = own.map(|line| format!("{line}\n")).collect();
    let sentinel = Sentinel::start_alone(&ServerProgram::own(), &lines, Some(PASSWORD));
    wait_until("the sentinel to reach the primary", GENEROUS, || {
        !sentinel.field("runid").is_empty() && sentinel.field("flags") == "master"
    });
    sentinel
}

#[test]
fn systemd_runs_a_sentinel() {
    let unit = read("systemd/tenure-sentinel.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<&str> = start.split(' ').collect();
    let file = "/var/lib/tenure-sentinel/sentinel.conf";
    assert_eq!(words[1..4], ["serve", "--sentinel", file]);
    let lines: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    let primary = primary();
    let here = format!("127.0.0.1 {}", primary.port());
    let sentinel = assert_watches(&lines.join("\n").replace("10.0.0.1 6379", &here));
    assert_eq!(sentinel.field("down-after-milliseconds"), "5000");
    analyzed("tenure-sentinel.service", &unit);
}

#[test]
fn kubernetes_runs_sentinels_that_keep_their_file() {
    let documents = yaml::documents(&read("kubernetes/sentinel.yaml"));
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap();
    let spec = &of_kind("StatefulSet")["spec"]["template"]["spec"];
    let command = words_of(&spec["containers"][0]["command"]);
    assert_eq!(command, ["tenure", "serve", "--sentinel", "/data/sentinel.conf"]);

    let (primary, folder) = (primary(), TempFolder::create());
    let secret = of_kind("Secret")["stringData"]["sentinel.conf"].as_str().unwrap();
    let secret = folder.write("secret.conf", secret);
    let script = words_of(&spec["initContainers"][0]["args"]).concat();
    let script = script
        .replace("/data", folder.path().to_str().unwrap())
        .replace("/secret/sentinel.conf", secret.to_str().unwrap())
        .replace("$(hostname).sentinel", "sentinel-1.sentinel")
        .replace("store-0.store 6379", &format!("localhost {}", primary.port()));
    let run = || {
        let status = Command::new("sh").args(["-ec", &script]).status().unwrap();
        assert!(status.success(), "{script}");
        std::fs::read_to_string(folder.path().join("sentinel.conf")).unwrap()
    };
    let lines = run();
    let kept = folder.write("sentinel.conf", &format!("{lines}sentinel current-epoch 7\n"));
    assert!(run().contains("current-epoch 7"), "{} was written again", kept.display());

    let sentinel = assert_watches(&lines);
    let told = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
    assert_eq!(told, format!("localhost\n{}", primary.port()), "clients are told names");
    let announced = sentinel.cli(&["SENTINEL", "CONFIG", "GET", "announce-ip"]);
    assert_eq!(announced, "announce-ip\nsentinel-1.sentinel");
}
