//! The alert rules, evaluated by Prometheus' own tool on what bad situations really scrape.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use tenure_sidecar::Sidecar;
use testkit::{
    ClusterGroup, GENEROUS, RedisServer, Sentinel, SentinelGroup, TempFolder, wait_until,
};

use crate::openmetrics::{Sample, parse};
use crate::stage::{Served, Stage};

const RULES: [&str; 3] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/tenure.rules.yaml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/store.rules.yaml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/sentinel.rules.yaml"),
];
/// Prometheus scrapes less often than the tests can wait: each scrape stands for this long.
const SCRAPE_SECONDS: u64 = 15;

/// What one instance told, scrape by scrape.
struct Target {
    name: &'static str,
    scrapes: Vec<Vec<Sample>>,
}

impl Target {
    fn new(name: &'static str) -> Self {
        Target { name, scrapes: Vec::new() }
    }

    fn scrape(&mut self, served: &Served) {
        self.scrapes.push(parse(&served.metrics().body));
    }

    /// The situation lasts: the latest scrape again, as often as this.
    fn go_on(&mut self, times: usize) {
        let last = self.scrapes.last().unwrap().clone();
        self.scrapes.extend(std::iter::repeat_n(last, times));
    }

    /// Scrapes once the sidecar has looked at its store.
    fn scrape_settled(&mut self, served: &Served) {
        wait_until("the store to be up", GENEROUS, || {
            parse(&served.metrics().body)
                .iter()
                .any(|sample| sample.name == "tenure_store_up" && sample.value == 1.0)
        });
        self.scrape(served);
    }

    /// As the tool writes series: one line of values each, `stale` where there was none: that is
    /// what Prometheus notes when a scrape lacks a series.
    fn series(&self, text: &mut String) {
        let mut names: Vec<String> = Vec::new();
        for sample in self.scrapes.iter().flatten() {
            let series = self.name_of(sample);
            if !names.contains(&series) {
                names.push(series);
            }
        }
        for name in names {
            let value = |scrape: &Vec<Sample>| {
                let found = scrape.iter().find(|sample| self.name_of(sample) == name);
                found.map_or("stale".to_owned(), |sample| sample.value.to_string())
            };
            let values: Vec<String> = self.scrapes.iter().map(value).collect();
            writeln!(text, "      - series: '{name}'").unwrap();
            writeln!(text, "        values: '{}'", values.join(" ")).unwrap();
        }
    }

    fn name_of(&self, sample: &Sample) -> String {
        let mut labels = format!("instance=\"{}\",job=\"test\"", self.name);
        for (label, value) in &sample.labels {
            write!(labels, ",{label}=\"{value}\"").unwrap();
        }
        format!("{}{{{labels}}}", sample.name)
    }
}

/// The alerts that fire after the last scrape.
fn firing(targets: &[&Target]) -> Vec<&'static str> {
    let alerts = [
        "TenureNoLeader",
        "TenureTwoLeaders",
        "TenureRenewalStale",
        "TenureChangesTooOften",
        "TenureStoreUnreachable",
        "StoreReplicaLinkDown",
        "StoreReplicaLagging",
        "StoreNoReplica",
        "StoreTwoPrimaries",
        "SentinelPrimaryDown",
        "SentinelQuorumLost",
        "SentinelTooFew",
        "SentinelsDisagree",
        "SentinelNoReplica",
        "SentinelTilt",
        "StoreClusterDown",
        "StoreClusterSlotsUncovered",
        "StoreClusterNodesDisagree",
    ];
    alerts.into_iter().filter(|alert| fires(targets, alert)).collect()
}

/// Whether an alert fires. The tool can only be asked to expect silence, so its "no" is our yes.
fn fires(targets: &[&Target], alert: &str) -> bool {
    let count = targets.iter().map(|target| target.scrapes.len()).max().unwrap() as u64;
    let mut text = format!(
        "rule_files: [{}]\nevaluation_interval: {SCRAPE_SECONDS}s\ntests:\n  - interval: \
         {SCRAPE_SECONDS}s\n    input_series:\n",
        RULES.join(", ")
    );
    targets.iter().for_each(|target| target.series(&mut text));
    let at = (count - 1) * SCRAPE_SECONDS;
    write!(text, "    alert_rule_test:\n      - eval_time: {at}s\n        alertname: {alert}\n")
        .unwrap();
    text.push_str("        exp_alerts: []\n");
    let folder = TempFolder::create();
    let file = folder.write("test.yaml", &text);
    let output = promtool(&["test", "rules", file.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => false,
        // Anything but an unexpected alert is a mistake of ours.
        false if told.contains(&format!("alertname: {alert}")) => true,
        false => panic!("promtool: {told}\n{text}"),
    }
}

fn promtool(words: &[&str]) -> std::process::Output {
    let output = Command::new("promtool").args(words).output();
    output.expect("promtool is missing: apt-get install prometheus")
}

#[test]
fn the_rules_are_sound_and_silent_while_all_is_well() {
    let checked = promtool(&["check", "rules", RULES[0], RULES[1], RULES[2]]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let stage = Stage::embedded();
    let (ada, on_ada) = stage.leader("ada");
    let served = stage.serve_election(&ada, &on_ada);
    let (bob, mut well, mut beside) = (stage.client("bob"), Target::new("a"), Target::new("b"));
    let on_bob = stage.elect(&bob);
    let standing_by = stage.serve_election(&bob, &on_bob);
    well.scrape_settled(&served);
    beside.scrape_settled(&standing_by);
    well.go_on(8);
    beside.go_on(8);
    assert_eq!(firing(&[&well, &beside]), Vec::<&str>::new());
}

#[test]
fn nobody_leading_is_an_alert() {
    let stage = Stage::embedded();
    let ada = stage.client("ada");
    let election = stage.runtime.block_on(ada.election("nightly-report").ready(false).start());
    let served = stage.serve_election(&ada, &election.unwrap());
    let mut target = Target::new("a");
    target.scrape_settled(&served);
    target.go_on(4);
    assert_eq!(firing(&[&target]), ["TenureNoLeader"]);
}

#[test]
fn two_leaders_are_an_alert() {
    // Two stores: each instance is right in its own world.
    let (here, there) = (Stage::embedded(), Stage::embedded());
    let mut targets = [Target::new("a"), Target::new("b")];
    for (stage, target) in [&here, &there].into_iter().zip(&mut targets) {
        let (client, election) = stage.leader("ada");
        let served = stage.serve(Sidecar::builder(client).election(election));
        target.scrape_settled(&served);
        target.go_on(4);
    }
    assert_eq!(firing(&[&targets[0], &targets[1]]), ["TenureTwoLeaders"]);
}

#[test]
fn a_renewal_that_does_not_come_is_an_alert() {
    let mut stage = Stage::redis();
    let client = stage.runtime.block_on(stage.builder("ada").ttl(Duration::from_secs(6)).connect());
    let client = client.unwrap();
    let election = stage.elect(&client);
    wait_until("it leads", GENEROUS, || election.is_leader());
    let served = stage.serve_election(&client, &election);
    let mut target = Target::new("a");
    target.scrape(&served);
    stage.server().pause();
    let age = |samples: &[Sample]| {
        let found = samples.iter().find(|sample| sample.name == "tenure_renewal_age_seconds");
        found.map_or(0.0, |sample| sample.value)
    };
    wait_until("the renewal is late", GENEROUS, || {
        target.scrape(&served);
        let late = age(target.scrapes.last().unwrap()) > 0.65 * 6.0;
        if !late {
            target.scrapes.pop();
        }
        late
    });
    target.go_on(1);
    assert_eq!(firing(&[&target]), ["TenureRenewalStale"]);
    stage.server().resume();
}

#[test]
fn leaders_that_change_too_often_are_an_alert() {
    let stage = Stage::embedded();
    let (ada, on_ada) = stage.leader("ada");
    let served = stage.serve_election(&ada, &on_ada);
    let mut target = Target::new("a");
    for _ in 0..8 {
        target.scrape(&served);
        let terms = on_ada.status().counts.terms;
        stage.runtime.block_on(on_ada.resign());
        wait_until("it leads again", GENEROUS, || {
            on_ada.is_leader() && on_ada.status().counts.terms > terms
        });
    }
    target.scrape(&served);
    assert_eq!(firing(&[&target]), ["TenureChangesTooOften"]);
}

#[test]
fn a_store_that_is_gone_is_an_alert() {
    let mut stage = Stage::redis();
    let (ada, on_ada) = stage.leader("ada");
    let served = stage.serve_election(&ada, &on_ada);
    let mut target = Target::new("a");
    stage.server().kill();
    wait_until("the sidecar to see it", GENEROUS, || {
        target.scrapes.clear();
        target.scrape(&served);
        let up = target.scrapes[0].iter().find(|sample| sample.name == "tenure_store_up");
        up.is_some_and(|sample| sample.value == 0.0)
    });
    target.go_on(5);
    assert!(firing(&[&target]).contains(&"TenureStoreUnreachable"));
    stage.server().restart();
}

fn sample(name: &str, value: f64, labels: &[(&str, &str)]) -> Sample {
    let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    Sample { name: name.to_owned(), value, labels: labels.collect() }
}

/// What redis_exporter makes of a server's INFO.
fn exported(server: &RedisServer) -> Vec<Sample> {
    let info = server.cli(&["INFO", "replication"]);
    let fields = || info.lines().filter_map(|line| line.trim().split_once(':'));
    let field = |wanted: &str| fields().find(|(name, _)| *name == wanted).map(|(_, value)| value);
    let replicas = field("connected_slaves").unwrap().parse().unwrap();
    let mut samples =
        vec![sample("redis_up", 1.0, &[]), sample("redis_connected_slaves", replicas, &[])];
    if let Some(link) = field("master_link_status") {
        let labels = [("master_host", field("master_host").unwrap())];
        let up = if link == "up" { 1.0 } else { 0.0 };
        samples.push(sample("redis_master_link_up", up, &labels));
    }
    for (_, line) in fields().filter(|(_, line)| line.starts_with("ip=")) {
        let of = |name: &str| line.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
        let labels = [("slave_ip", of("ip=")), ("slave_port", of("port="))];
        let lag = of("lag=").parse().unwrap();
        samples.push(sample("redis_connected_slave_lag_seconds", lag, &labels));
    }
    samples
}

#[test]
fn each_trouble_of_a_replicated_store_is_an_alert() {
    let mut primary = RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]).start();
    let follow = ["--replicaof".to_owned(), primary.host(), primary.port().to_string()];
    let mut replica = RedisServer::builder().args(&follow).start();
    let link_is = |replica: &RedisServer, state: &str| {
        let told = replica.cli(&["INFO", "replication"]);
        told.contains(&format!("master_link_status:{state}"))
    };
    wait_until("the link", GENEROUS, || link_is(&replica, "up"));
    // The situation, as both are scraped for some minutes after all was well.
    let well = [exported(&primary), exported(&replica)];
    let firing_after = |now: [Vec<Sample>; 2]| {
        let names = ["primary", "replica"];
        let targets: Vec<Target> = names
            .into_iter()
            .zip(well.clone().into_iter().zip(now))
            .map(|(name, (well, now))| {
                let mut target = Target { name, scrapes: vec![well, now] };
                target.go_on(6);
                target
            })
            .collect();
        firing(&[&targets[0], &targets[1]])
    };
    assert_eq!(firing_after(well.clone()), Vec::<&str>::new());

    replica.pause();
    wait_until("the replica to be late", GENEROUS, || {
        exported(&primary).iter().any(|sample| sample.value > 5.0)
    });
    let late = [exported(&primary), well[1].clone()];
    replica.resume();
    assert_eq!(firing_after(late), ["StoreReplicaLagging"]);

    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    wait_until("it to be alone", GENEROUS, || {
        primary.cli(&["INFO", "replication"]).contains("connected_slaves:0")
    });
    let apart = firing_after([exported(&primary), exported(&replica)]);
    assert_eq!(apart, ["StoreNoReplica", "StoreTwoPrimaries"]);

    replica.cli(&["REPLICAOF", &follow[1], &follow[2]]);
    primary.kill();
    wait_until("the link to be down", GENEROUS, || link_is(&replica, "down"));
    assert_eq!(firing_after([Vec::new(), exported(&replica)]), ["StoreReplicaLinkDown"]);
}

/// What redis_exporter makes of what a sentinel says.
fn exported_by(sentinel: &Sentinel) -> Vec<Sample> {
    let name = SentinelGroup::MASTER;
    let info = sentinel.cli(&["INFO", "sentinel"]);
    let of = |prefix: &str| info.lines().find_map(|line| line.trim().strip_prefix(prefix)).unwrap();
    let group = of("master0:");
    let field =
        |name: &str| group.split(',').find_map(|part| part.strip_prefix(name)).unwrap().to_owned();
    let (status, address) = (field("status="), field("address="));
    let labels = [("master_name", name), ("master_address", &*address)];
    let up = |words: &[&str]| {
        let told = sentinel.cli(words);
        let lines: Vec<&str> = told.lines().collect();
        let flags = lines.windows(2).filter(|pair| pair[0] == "flags").map(|pair| pair[1]);
        flags.filter(|flags| !flags.contains("s_down")).count() as f64
    };
    let can_fail_over = sentinel.cli(&["SENTINEL", "CKQUORUM", name]).starts_with("OK");
    let is_ok = f64::from(u8::from(status == "ok"));
    let of_status = [labels[0], labels[1], ("master_status", &*status)];
    vec![
        sample("redis_sentinel_tilt", of("sentinel_tilt:").parse().unwrap(), &[]),
        sample("redis_sentinel_master_status", is_ok, &of_status),
        sample(
            "redis_sentinel_master_ckquorum_status",
            f64::from(u8::from(can_fail_over)),
            &[("master_name", name), ("message", "as told")],
        ),
        sample(
            "redis_sentinel_master_ok_sentinels",
            1.0 + up(&["SENTINEL", "SENTINELS", name]),
            &labels,
        ),
        sample("redis_sentinel_master_ok_slaves", up(&["SENTINEL", "REPLICAS", name]), &labels),
    ]
}

/// The alerts when this is scraped for as long as the most patient rule waits.
fn firing_while(scraped: &[(&'static str, Vec<Sample>)]) -> Vec<&'static str> {
    let lasting = |(name, scrape): &(&'static str, Vec<Sample>)| {
        let mut target = Target { name, scrapes: vec![scrape.clone()] };
        target.go_on(5 * 60 / SCRAPE_SECONDS as usize + 2);
        target
    };
    let targets: Vec<Target> = scraped.iter().map(lasting).collect();
    firing(&targets.iter().collect::<Vec<_>>())
}

#[test]
fn each_trouble_of_sentinels_is_an_alert() {
    let mut group = SentinelGroup::start(1);
    group.wait_until_heard();
    let scrape = |sentinel: &Sentinel| exported_by(sentinel);
    let well = scrape(&group.sentinels[0]);
    assert_eq!(firing_while(&[("a", well.clone())]), Vec::<&str>::new());

    // One that names another primary than the rest.
    let stranger = RedisServer::start();
    let lines = format!("sentinel monitor main 127.0.0.1 {} 1\n", stranger.port());
    let stray = Sentinel::start_alone(&testkit::ServerProgram::redis(), &lines, None);
    let strays = [("a", well), ("b", scrape(&stray))];
    assert_eq!(firing_while(&strays), ["SentinelTooFew", "SentinelsDisagree", "SentinelNoReplica"]);

    group.sentinels[1].kill();
    group.sentinels[2].kill();
    let told = |group: &SentinelGroup, wanted: &str, value: f64| {
        let samples = exported_by(&group.sentinels[0]);
        let found = samples.iter().any(|it| it.name.ends_with(wanted) && it.value == value);
        found.then_some(samples)
    };
    // The two are noticed one after the other.
    testkit::wait_until("the others to be missed, and the quorum", GENEROUS, || {
        let alone = told(&group, "ok_sentinels", 1.0);
        alone.is_some_and(|alone| {
            firing_while(&[("a", alone)]) == ["SentinelQuorumLost", "SentinelTooFew"]
        })
    });

    group.servers[0].kill();
    let down = testkit::wait_for("the primary to be missed", GENEROUS, || {
        told(&group, "master_status", 0.0)
    });
    let alerts = ["SentinelPrimaryDown", "SentinelQuorumLost", "SentinelTooFew"];
    assert_eq!(firing_while(&[("a", down)]), alerts);

    group.sentinels[0].pause();
    std::thread::sleep(Duration::from_secs(3));
    group.sentinels[0].resume();
    let tilted = testkit::wait_for("it to notice", GENEROUS, || told(&group, "sentinel_tilt", 1.0));
    assert!(firing_while(&[("a", tilted)]).contains(&"SentinelTilt"));
}

/// What redis_exporter makes of a node's INFO and CLUSTER INFO.
fn exported_node(server: &RedisServer) -> Vec<Sample> {
    let told = server.cli(&["CLUSTER", "INFO"]);
    let fields = told.lines().filter_map(|line| line.trim().split_once(':'));
    let sample = |(name, value): (&str, &str)| {
        let value =
            if name == "cluster_state" { f64::from(value == "ok") } else { value.parse().ok()? };
        Some(Sample {
            name: format!("redis_{name}"),
            value,
            labels: Vec::new().into_iter().collect(),
        })
    };
    let enabled = sample(("cluster_enabled", "1"));
    exported(server).into_iter().chain(fields.filter_map(sample)).chain(enabled).collect()
}

#[test]
fn each_trouble_of_a_cluster_is_an_alert() {
    let group = ClusterGroup::start().steady();
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    // The situation, as all nodes are scraped for some minutes.
    let firing_now = || {
        let target = |(place, name): (usize, &'static str)| {
            let mut target = Target { name, scrapes: vec![exported_node(group.server(place))] };
            target.go_on(7);
            target
        };
        let targets: Vec<Target> = NAMES.into_iter().enumerate().map(target).collect();
        firing(&targets.iter().collect::<Vec<_>>())
    };
    assert_eq!(firing_now(), Vec::<&str>::new());

    let replica = group.server(5).cli(&["CLUSTER", "MYID"]);
    assert_eq!(group.server(0).cli(&["CLUSTER", "FORGET", &replica]), "OK");
    assert_eq!(firing_now(), ["StoreClusterNodesDisagree"]);

    group.uncover(7);
    wait_until("the cluster to be down for all", GENEROUS, || {
        let is_down = |place| group.server(place).cli(&["CLUSTER", "INFO"]).contains("state:fail");
        (0..group.len()).all(is_down)
    });
    let uncovered = firing_now();
    assert!(uncovered.contains(&"StoreClusterDown"), "{uncovered:?}");
    assert!(uncovered.contains(&"StoreClusterSlotsUncovered"), "{uncovered:?}");
}
