//! What was true is not shown as true once the lease that was seen is over.

use std::time::Duration;

use serde_json::Value;
use tenure::{Election, Tenure};
use tenure_sidecar::Sidecar;
use testkit::proxy::{Proxy, Rule};
use testkit::{GENEROUS, wait_until};

use crate::openmetrics::parse;
use crate::stage::{RESOURCE, Served, Stage, TTL};

/// Long enough that the time between the stop of work and the end of the lease can be looked at.
const LONG: Duration = Duration::from_secs(8);

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
        let looker = Tenure::builder().instance("ops").ttl(TTL).fresh_store(true).store(&address);
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
    let samples = parse(&served.metrics().body);
    samples.iter().find(|sample| sample.name == name).map(|sample| sample.value)
}

#[test]
fn a_store_that_never_answered_is_not_called_up() {
    let mut stage = Stage::redis();
    let looker = stage.client("ops");
    // Connected, but not asked anything about the resource.
    stage.runtime.block_on(looker.observe("another").unwrap().leader()).unwrap();
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
    // All wait in the same seconds.
    std::thread::scope(|scope| {
        for silence in Scene::SILENCES {
            scope.spawn(move || check_silence(silence));
        }
    });
}

fn check_silence(silence: fn(&mut Scene)) {
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
    // Within the same silence, whoever is asked.
    assert_ne!(status["resources"][0]["store"]["state"], "up", "{status}");
    assert_eq!(metric(served, "tenure_store_up"), Some(0.0));
    assert_eq!(served.json("/monitoring/standby-status")["redisAvailable"], false);

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
    let looker = Tenure::builder().instance("ops").fresh_store(true).store(&address).connect();
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

/// Ada leads, with work that does not stop, and her own sidecar tells of it.
fn stubborn(stage: &Stage) -> (Tenure, Election, tenure::Term, Served) {
    let ada = stage.runtime.block_on(stage.builder("ada").ttl(LONG).connect()).unwrap();
    let election = stage.elect(&ada);
    wait_until("ada leads", GENEROUS, || election.is_leader());
    let work = election.term().unwrap();
    let served = stage.serve_election(&ada, &election);
    served.wait_for("ada is seen to lead", "/status", |status| {
        status["resources"][0]["leader"]["leads_for_ms"].is_u64()
    });
    (ada, election, work, served)
}

/// Asks until the term is over; while it is held and not led, nobody is named as the leader.
/// Returns how often that was seen.
fn check_the_end(election: &Election, served: &Served) -> u32 {
    let mut seen = 0;
    wait_until("the term is over", GENEROUS, || {
        let is_over = || election.status().token.is_none();
        if election.is_leader() {
            return false;
        }
        let (leader, standby) = (served.json("/leader"), served.json("/monitoring/standby-status"));
        let (health, resource) = (served.json("/health").to_string(), served.resource());
        let known = metric(served, "tenure_leader_known");
        let token = metric(served, "tenure_token");
        if is_over() {
            return true;
        }
        seen += 1;
        assert_eq!(leader["is_leader"], false);
        assert_eq!(leader["leader"], Value::Null, "{leader}");
        assert_eq!(standby["role"], "STANDBY");
        assert_eq!(standby["currentLockHolder"], Value::Null, "{standby}");
        assert!(!health.contains("ada: leads\""), "{health}");
        assert_eq!(resource["is_leader"], false);
        assert_eq!(resource["leader"], Value::Null, "{resource}");
        assert_eq!(resource["vacancy"]["code"], "ending", "{resource}");
        assert!(resource["members"].as_array().unwrap().iter().all(|m| m["leads"] == false));
        assert_eq!((known, token), (Some(0.0), None));
        false
    });
    seen
}

#[test]
fn an_instance_that_gives_way_is_not_named_as_the_leader() {
    let stage = Stage::redis();
    let (_ada, election, _work, served) = stubborn(&stage);
    let operator = stage.client("operator");
    let asked = stage
        .runtime
        .spawn(async move { operator.observe(RESOURCE).unwrap().ask_to_resign().await });
    wait_until("ada gives way", GENEROUS, || !election.is_leader());
    assert!(check_the_end(&election, &served) > 0, "nothing was seen of the end");
    drop(asked);
}

#[test]
fn an_instance_that_could_not_renew_is_not_named_as_the_leader() {
    let mut stage = Stage::redis();
    let (_ada, election, _work, served) = stubborn(&stage);
    stage.server().pause();
    assert!(check_the_end(&election, &served) > 0, "nothing was seen of the end");
}

/// What cost the leadership is known without waiting for an observer's own time-out.
#[test]
fn a_store_that_left_a_renewal_unanswered_is_down_at_once() {
    let mut stage = Stage::redis();
    let (ada, election) = stage.leader("ada");
    let served = stage.serve_election(&ada, &election);
    served.wait_for("ada is seen to lead", "/status", |status| {
        status["resources"][0]["leader"]["leads_for_ms"].is_u64()
    });
    for _ in 0..3 {
        // At another moment of its course each time.
        wait_until("it leads", GENEROUS, || election.is_leader());
        served.wait_for("the store is up", "/monitoring/standby-status", |standby| {
            standby["redisAvailable"] == true
        });
        let renewed = election.status().counts.renewals;
        wait_until("a renewal", GENEROUS, || election.status().counts.renewals > renewed);
        stage.server().pause();
        // A look that is patient waits for its answer before the renewal does.
        served.get("/status");
        wait_until("the leadership is lost", GENEROUS, || !election.is_leader());
        assert_eq!(metric(&served, "tenure_store_up"), Some(0.0));
        let standby = served.json("/monitoring/standby-status");
        assert_eq!(standby["redisAvailable"], false, "{standby}");
        assert_eq!(served.resource()["store"]["state"], "down");
        let health = served.json("/health").to_string();
        assert!(!health.contains("unreachable: store unreachable"), "{health}");
        stage.server().resume();
    }
    served.wait_for("the store is up", "/monitoring/standby-status", |standby| {
        standby["redisAvailable"] == true
    });
}
