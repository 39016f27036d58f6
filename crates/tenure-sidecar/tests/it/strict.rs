//! Mode `strict` with a replica that is not there: every answer says the same, and the truth.

use serde_json::Value;
use tenure::Tenure;
use testkit::{GENEROUS, RedisServer, wait_until};

use crate::stage::{RESOURCE, Served, Stage, TTL};

/// A master and a replica that is in step with it.
fn pair() -> (RedisServer, RedisServer) {
    let master = RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]).start();
    let port = master.port().to_string();
    let replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start();
    wait_until("the replica is in step", GENEROUS, || {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
    });
    (master, replica)
}

fn metric(served: &Served, name: &str) -> Option<f64> {
    let text = served.get("/metrics").body;
    text.lines().find_map(|line| line.strip_prefix(name)?.split(' ').next_back()?.parse().ok())
}

/// What must be true of all answers while this instance contends in vain.
fn check_vacancy(served: &Served, resource: &Value) {
    assert_eq!(resource["vacancy"]["code"], "unconfirmed", "{resource}");
    assert!(resource["vacancy"]["text"].as_str().unwrap().contains("replicas"), "{resource}");
    assert_eq!(resource["leader"], Value::Null);
    assert_eq!(resource["is_leader"], false);
    assert_eq!(resource["store"]["state"], "up");
    assert_eq!(resource["store"]["error"], Value::Null);
    let leads = |member: &Value| member["leads"] == true;
    assert!(!resource["members"].as_array().unwrap().iter().any(leads), "{resource}");

    let standby = served.json("/monitoring/standby-status");
    assert_eq!(standby["role"], "STANDBY");
    assert_eq!(standby["currentLockHolder"], Value::Null);
    assert_eq!(standby["redisAvailable"], true);
    assert_eq!(standby["hasWarning"], true);
    assert!(standby["warnings"].to_string().contains("replicas"), "{standby}");

    let leader = served.get("/leader");
    assert_eq!((leader.status, &leader.json()["leader"]), (503, &Value::Null));
    assert_eq!(metric(served, "tenure_store_up"), Some(1.0));
    assert_eq!(metric(served, "tenure_leader_known"), Some(0.0));
    let health = served.json("/health");
    assert_eq!(health["status"], "Degraded");
    assert!(health.to_string().contains("0 of 1 replicas"), "{health}");
}

#[test]
fn all_answers_agree_while_a_replica_is_missing() {
    let (master, mut replica) = pair();
    let stage = Stage::embedded();
    let store = format!("{}/0?mode=strict&replicas=1", master.url());
    let builder = Tenure::builder().instance("ada").ttl(TTL).fresh_store(true).store(&store);
    let ada = stage.runtime.block_on(builder.connect()).unwrap();
    let election = stage.elect(&ada);
    let served = stage.serve_election(&ada, &election);
    served.wait_for("ada is seen to lead", "/status", |status| {
        status["resources"][0]["leader"]["instance"] == "ada"
    });

    replica.pause();
    let seen = served.wait_for("nobody leads", "/status", |status| {
        // The role of one that tries again is for a moment another one.
        let resource = &status["resources"][0];
        resource["vacancy"]["code"] == "unconfirmed" && resource["role"] == "unknown"
    });
    check_vacancy(&served, &seen["resources"][0]);
    let history = served.json(&format!("/history/{RESOURCE}"));
    assert_eq!(history["terms"].as_array().unwrap().len(), 1, "{history}");
    assert_eq!(history["running"], false);

    replica.resume();
    served.wait_for("ada leads again", "/status", |status| {
        let resource = &status["resources"][0];
        resource["is_leader"] == true && resource["vacancy"] == Value::Null
    });
    served.wait_for("both terms", &format!("/history/{RESOURCE}"), |history| {
        history["terms"].as_array().unwrap().len() == 2 && history["running"] == true
    });
}
