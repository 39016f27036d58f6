//! What was true is not shown as true once the lease that was seen is over.

use serde_json::Value;
use tenure::{Election, Tenure};
use tenure_sidecar::Sidecar;
use testkit::proxy::{Proxy, Rule};
use testkit::{GENEROUS, wait_until};

use crate::openmetrics::parse;
use crate::stage::{RESOURCE, Served, Stage, TTL};

/// Ada leads, and a sidecar looks on through a network of its own.
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    pub(crate) proxy: Proxy,
    pub(crate) served: Served,
    _ada: (Tenure, Election),
}

impl Scene {
    pub(crate) fn new() -> Self {
        let mut stage = Stage::redis();
        let ada = stage.leader("ada");
        let proxy = Proxy::in_front_of(stage.server());
        let address = format!("redis://{}", proxy.address());
        let looker = Tenure::builder().name("ops").ttl(TTL).fresh_store(true).store(&address);
        let looker = stage.runtime.block_on(looker.connect()).unwrap();
        let served = stage.serve(Sidecar::builder(looker).observe(RESOURCE));
        served.wait_for("ada is seen to lead", "/status", |status| {
            status["resources"][0]["leader"]["instance"] == "ada"
        });
        Scene { stage, proxy, served, _ada: ada }
    }

    /// Ways in which a store falls silent.
    pub(crate) const SILENCES: [fn(&mut Scene); 3] = [
        |scene| scene.stage.server().pause(),
        |scene| scene.stage.server().kill(),
        |scene| scene.proxy.set_rules(Rule::HalfOpen),
    ];
}

fn metric(served: &Served, name: &str) -> Option<f64> {
    let samples = parse(&served.get("/metrics").body);
    samples.iter().find(|sample| sample.name == name).map(|sample| sample.value)
}

#[test]
fn a_store_that_never_answered_is_not_called_up() {
    let mut stage = Stage::redis();
    let looker = stage.client("ops");
    // Connected, but not asked anything about the resource.
    stage.runtime.block_on(looker.leader("another")).unwrap();
    stage.server().pause();
    let served = stage.serve(Sidecar::builder(looker).observe(RESOURCE));
    // Until the first look is given up, and beyond: it can be connected to all the while.
    served.wait_for("the silence is noticed", "/status", |status| {
        assert_ne!(status["resources"][0]["store"]["state"], "up");
        assert_eq!(metric(&served, "tenure_store_up"), Some(0.0));
        status["resources"][0]["store"]["state"] == "down"
    });
    stage.server().resume();
    served.wait_for("it answers", "/status", |status| {
        status["resources"][0]["store"]["state"] == "up"
    });
}

#[test]
fn a_leader_whose_lease_is_over_is_unknown_and_not_shown() {
    for silence in Scene::SILENCES {
        let mut scene = Scene::new();
        wait_until("a look that metrics tell of", GENEROUS, || {
            metric(&scene.served, "tenure_token").is_some()
        });
        silence(&mut scene);
        let served = &scene.served;
        let status = served.wait_for("the leader is unknown", "/status", |status| {
            let resource = &status["resources"][0];
            resource["leader"].is_null() && resource["unknown"].is_object()
        });
        check_status(&status["resources"][0]);

        assert_eq!(served.json("/leader")["leader"], Value::Null);
        let standby = served.json("/monitoring/standby-status");
        assert_eq!(standby["currentLockHolder"], Value::Null);
        let warnings = standby["warnings"].to_string();
        assert!(warnings.contains("unknown since") && warnings.contains("ada"), "{warnings}");
        assert!(!warnings.contains("nobody leads"), "{warnings}");

        assert_eq!(metric(served, "tenure_leader_known"), Some(0.0));
        for stale in ["tenure_token", "tenure_members", "tenure_members_ready", "tenure_paused"] {
            assert_eq!(metric(served, stale), None, "{stale}");
        }
        assert!(metric(served, "tenure_seen_age_seconds") > Some(0.0));
    }
}

fn check_status(resource: &Value) {
    assert_eq!(resource["vacancy"], Value::Null, "that nobody leads is not known either");
    let unknown = &resource["unknown"];
    assert_eq!(unknown["last_leader"]["instance"], "ada", "{unknown}");
    assert!(unknown["last_leader"]["token"].is_u64(), "{unknown}");
    assert!(unknown["since"].as_str().unwrap().ends_with('Z'), "{unknown}");
    assert!(unknown["text"].as_str().unwrap().contains("last seen"), "{unknown}");
    for member in resource["members"].as_array().unwrap() {
        assert_eq!(member["leads"], false, "{member}");
    }
}

#[test]
fn a_vacancy_that_nobody_can_confirm_is_unknown_as_well() {
    let mut stage = Stage::redis();
    let proxy = Proxy::in_front_of(stage.server());
    let address = format!("redis://{}", proxy.address());
    let looker = Tenure::builder().name("ops").fresh_store(true).store(&address).connect();
    let looker = stage.runtime.block_on(looker).unwrap();
    let served = stage.serve(Sidecar::builder(looker).observe(RESOURCE));
    served.wait_for("nobody leads", "/status", |status| {
        status["resources"][0]["vacancy"]["code"] == "free"
    });
    proxy.set_rules(Rule::HalfOpen);
    let status = served.wait_for("that is unknown", "/status", |status| {
        status["resources"][0]["unknown"].is_object()
    });
    assert_eq!(status["resources"][0]["vacancy"], Value::Null);
    assert_eq!(status["resources"][0]["unknown"]["last_leader"], Value::Null);
    proxy.heal();
    served.wait_for("it is known again", "/status", |status| {
        status["resources"][0]["vacancy"]["code"] == "free"
            && status["resources"][0]["unknown"].is_null()
    });
}
