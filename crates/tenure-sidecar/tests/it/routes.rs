//! Every route, on each kind of store.

use serde_json::Value;
use tenure_sidecar::Sidecar;

use crate::http::request;
use crate::stage::{RESOURCE, Stage};

#[test]
fn every_route_answers_on_each_store() {
    Stage::on_each(|stage| {
        let (ada, leading) = stage.leader("ada");
        let served = stage.serve_election(&ada, &leading);
        let bob = stage.client("bob");
        let standing_by = stage.elect(&bob);
        let beside = stage.serve_election(&bob, &standing_by);
        beside.wait_for("bob knows its leader", "/status", |status| {
            status["resources"][0]["leader"]["instance"] == "ada"
        });

        for path in ["/livez", "/readyz", "/health", "/status", "/metrics", "/openapi.json", "/"] {
            assert_eq!(served.get(path).status, 200, "{path}");
            assert_eq!(beside.get(path).status, 200, "{path}");
        }
        for path in ["/leader", "/leader/nightly-report"] {
            let (here, there) = (served.get(path), beside.get(path));
            assert_eq!((here.status, there.status), (200, 503), "{path}");
            assert_eq!(here.json()["token"], leading.status().token.unwrap().get());
            assert!(here.json()["valid_for_ms"].as_u64().unwrap() > 0);
            assert_eq!(there.json()["leader"], ada.id().as_str());
        }
        let history = served.json("/history/nightly-report");
        assert_eq!(history["terms"][0]["instance"], "ada");
        assert_eq!(history["running"], true);

        let handed = served.post("/hand-over/nightly-report", "{\"to\":\"bob\"}");
        assert_eq!((handed.status, &handed.json()["outcome"]), (200, &"done".into()), "{handed:?}");
        let terms = beside.json("/history/nightly-report");
        assert_eq!(terms["terms"][0]["reason"], "handed-over", "{terms}");
        assert!(terms["terms"][1]["gap_ms"].is_u64(), "{terms}");

        let resigned = served.post("/resign/nightly-report", "");
        assert_eq!((resigned.status, &resigned.json()["outcome"]), (200, &"done".into()));
    });
}

#[test]
fn an_election_whose_key_was_chosen_in_code_can_be_asked() {
    let stage = Stage::embedded();
    let join = |name: &str| {
        let client = stage.client(name);
        let election = client.election(RESOURCE).key("elsewhere:report").start();
        (client.clone(), stage.runtime.block_on(election).unwrap())
    };
    let (ada, on_ada) = join("ada");
    testkit::wait_until("ada leads", testkit::GENEROUS, || on_ada.is_leader());
    let served = stage.serve_election(&ada, &on_ada);
    let (_bob, on_bob) = join("bob");
    served.wait_for("bob is listed", "/status", |status| {
        status["resources"][0]["members"].as_array().unwrap().len() == 2
    });
    let handed = served.post("/hand-over/nightly-report", "{\"to\":\"bob\"}");
    assert_eq!((handed.status, &handed.json()["outcome"]), (200, &"done".into()), "{handed:?}");
    testkit::wait_until("bob leads", testkit::GENEROUS, || on_bob.is_leader());
    let resigned = served.post("/resign/nightly-report", "");
    assert_eq!((resigned.status, &resigned.json()["outcome"]), (200, &"done".into()));
    testkit::wait_until("ada leads again", testkit::GENEROUS, || on_ada.is_leader());
}

#[test]
fn an_observer_sees_all_and_leads_nothing() {
    Stage::on_each(|stage| {
        let (_ada, _leading) = stage.leader("ada");
        let looker = stage.client("operator");
        let served = stage.serve(Sidecar::builder(looker).observe(RESOURCE));
        let resource = served.resource();
        assert_eq!(resource["role"], "observer");
        assert_eq!(resource["leader"]["instance"], "ada");
        assert_eq!(served.get("/leader").status, 503);
        assert_eq!(served.get("/health").json()["status"], "Healthy");
    });
}

#[test]
fn what_is_not_there_is_told_with_the_next_step() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    for (method, path, status, word) in [
        ("GET", "/leader/unknown", 404, "nightly-report"),
        ("GET", "/history/unknown", 404, "nightly-report"),
        ("POST", "/resign/unknown", 404, "nightly-report"),
        ("GET", "/monitoring/standby-status?name=unknown", 404, "nightly-report"),
        ("GET", "/nowhere", 404, "/openapi.json"),
    ] {
        let answer = request(served.address, method, path, &[], "");
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.json()["error"].as_str().unwrap().contains(word), "{answer:?}");
    }
    let wrong_method = served.get("/resign/nightly-report");
    assert_eq!(wrong_method.status, 405);
    assert!(wrong_method.json()["error"].as_str().unwrap().contains("/openapi.json"));
    assert_eq!(served.post("/hand-over/nightly-report", "").status, 400);
    assert_eq!(served.post("/hand-over/nightly-report", "{}").status, 422);
    assert_eq!(served.post("/hand-over/nightly-report", "{\"to\":\"\"}").status, 400);
    let nobody = served.post("/hand-over/nightly-report", "{\"to\":\"nobody\"}");
    assert_eq!((nobody.status, &nobody.json()["outcome"]), (409, &"refused".into()));
    let long = format!("{{\"to\":\"{}\"}}", "x".repeat(32 * 1024));
    assert_eq!(served.post("/hand-over/nightly-report", &long).status, 413);
}

#[test]
fn the_description_lists_every_route_and_every_field() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    served.wait_for("a member is listed", "/status", |status| {
        status["resources"][0]["members"][0].is_object()
    });
    let description = served.json("/openapi.json");
    let paths = description["paths"].as_object().unwrap();
    for (path, methods) in paths {
        let path = path.replace("{name}", "nightly-report");
        for method in methods.as_object().unwrap().keys() {
            if path != "/events" {
                let answer = request(served.address, &method.to_uppercase(), &path, &[], "");
                assert!(!matches!(answer.status, 404 | 405), "{method} {path}: {answer:?}");
            }
        }
    }
    served.wait_for("ada leads again", "/leader", |leading| leading["is_leader"] == true);
    let described =
        |schema: &str| names(&description["components"]["schemas"][schema]["properties"]);
    let status = served.json("/status");
    let resource = &status["resources"][0];
    assert_eq!(names(&status), described("Status"));
    assert_eq!(names(resource), described("Resource"));
    assert_eq!(names(&resource["members"][0]), described("Member"));
    assert_eq!(names(&served.json("/health")), described("Health"));
    assert_eq!(names(&served.json("/monitoring/standby-status")), described("Standby"));
    let history = served.json("/history/nightly-report");
    assert_eq!(names(&history), described("History"));
    assert_eq!(names(&history["terms"][0]), described("Term"));
}

#[test]
fn an_election_is_paused_and_resumed_over_http() {
    Stage::on_each(|stage| {
        let (ada, leading) = stage.leader("ada");
        let served = stage.serve_election(&ada, &leading);
        let paused = served.post("/pause/nightly-report", "{\"for_ms\":600000}");
        assert_eq!((paused.status, &paused.json()["paused_for_ms"]), (200, &600_000.into()));
        served.wait_for("it is paused", "/status", |status| {
            status["resources"][0]["paused_for_ms"].is_u64()
        });
        assert!(leading.is_leader(), "a running term goes on");
        let resumed = served.post("/resume/nightly-report", "");
        assert_eq!((resumed.status, &resumed.json()["paused_for_ms"]), (200, &Value::Null));
        served.wait_for("it is resumed", "/status", |status| {
            status["resources"][0]["paused_for_ms"].is_null()
        });
    });
}

#[test]
fn a_leader_that_is_not_ready_lets_another_lead() {
    let stage = Stage::embedded();
    let (ada, on_ada) = stage.leader("ada");
    let served = stage.serve_election(&ada, &on_ada);
    let bob = stage.client("bob");
    let on_bob = stage.elect(&bob);
    let answer = served.post("/ready/nightly-report", "{\"ready\":false}");
    assert_eq!((answer.status, &answer.json()["ready"]), (200, &false.into()));
    testkit::wait_until("bob leads", testkit::GENEROUS, || on_bob.is_leader());
    assert_eq!(served.post("/ready/nightly-report", "{\"ready\":true}").status, 200);
    served.post("/resign/nightly-report", "");
    testkit::wait_until("ada leads again", testkit::GENEROUS, || on_ada.is_leader());
}

#[test]
fn what_cannot_be_changed_is_refused_with_the_next_step() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve(Sidecar::builder(ada).election(leading).observe("mailer"));
    for (path, body, status) in [
        ("/pause/nightly-report", "", 400),
        ("/pause/nightly-report", "{}", 422),
        ("/pause/nightly-report", "{\"for_ms\":-1}", 422),
        ("/pause/nightly-report", "{\"for_ms\":0}", 400),
        ("/pause/nightly-report", "{\"for_ms\":604800001}", 400),
        ("/pause/unknown", "{\"for_ms\":1}", 404),
        ("/resume/unknown", "", 404),
        ("/ready/nightly-report", "{\"ready\":\"yes\"}", 422),
        ("/ready/mailer", "{\"ready\":true}", 409),
        ("/ready/unknown", "{\"ready\":true}", 404),
    ] {
        let answer = served.post(path, body);
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
        assert!(answer.json()["error"].is_string(), "{path} {body}: {answer:?}");
    }
    for path in ["/pause/nightly-report", "/resume/nightly-report", "/ready/nightly-report"] {
        let ask = |line: &str| request(served.address, "POST", path, &[line], "{}").status;
        assert_eq!(ask("Origin: http://evil.example"), 403, "{path}");
        assert_eq!(ask("Content-Type: text/plain"), 415, "{path}");
        assert_eq!(ask("Host: evil.example"), 421, "{path}");
    }
}

/// The names of an object's members, in order.
fn names(value: &Value) -> Vec<String> {
    let mut names: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
    names.sort();
    names
}

#[test]
fn several_resources_are_told_apart() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let builder = Sidecar::builder(ada).election(leading).observe("mailer");
    let served = stage.serve(builder);
    assert_eq!(served.get("/leader/nightly-report").status, 200);
    assert_eq!(served.get("/leader/mailer").status, 503);
    assert_eq!(served.get("/leader").status, 200, "it leads all that it takes part in");
    let standby = served.json("/monitoring/standby-status");
    assert_eq!((&standby["name"], &standby["role"]), (&"mailer".into(), &"STANDBY".into()));
    assert_eq!(standby["resources"]["nightly-report"]["role"], "PRIMARY");
    let one = served.json("/monitoring/standby-status?name=nightly-report");
    assert_eq!(one["role"], "PRIMARY");
}

#[test]
fn what_cannot_be_read_is_refused_as_everything_else_is() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    let paths = [
        "/leader/%00%ff",
        "/history/%ff",
        "/history/nightly-report?count=abc",
        "/history/nightly-report?count=0",
        "/history/nightly-report?count=9007199254740992",
        "/history/nightly-report?before=9007199254740992",
        "/monitoring/standby-status?name=a&name=b",
    ];
    for path in paths {
        let answer = served.get(path);
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        assert!(answer.json()["error"].is_string(), "{path}: {answer:?}");
    }
    for path in ["/resign/%ff", "/hand-over/%ff"] {
        assert!(served.post(path, "{}").json()["error"].is_string(), "{path}");
    }
}

#[test]
fn a_head_is_bounded_however_it_comes() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    let with = |len: usize| {
        let line = format!("X-Long: {}", "x".repeat(len));
        request(served.address, "GET", "/livez", &[&line], "").status
    };
    assert_eq!(with(16 * 1024), 200);
    assert_eq!([with(33 * 1024), with(40 * 1024)], [431, 431]);
    let path = format!("/{}", "x".repeat(40 * 1024));
    let status = served.get(&path).status;
    assert!([414, 431].contains(&status), "{status}");
}

#[test]
fn whoever_refuses_to_hand_over_is_named() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    served.wait_for("ada is seen", "/status", |status| {
        status["resources"][0]["leader"]["instance"] == "ada"
    });
    let answer = served.post("/hand-over/nightly-report", r#"{"to": "nobody"}"#);
    assert_eq!((answer.status, &answer.json()["outcome"]), (409, &"refused".into()), "{answer:?}");
    assert_eq!(answer.json()["leader"], ada.id().as_str(), "{answer:?}");
}

#[test]
fn what_was_meant_for_one_term_is_not_done_to_the_next() {
    Stage::on_each(|stage| {
        let (ada, on_ada) = stage.leader("ada");
        let served = stage.serve_election(&ada, &on_ada);
        let token = on_ada.status().token.unwrap().get();
        let bob = stage.client("bob");
        let on_bob = stage.elect(&bob);
        testkit::wait_until("it is handed over", testkit::GENEROUS, || {
            served.post("/hand-over/nightly-report", "{\"to\":\"bob\"}").status == 200
        });
        testkit::wait_until("bob leads", testkit::GENEROUS, || on_bob.is_leader());
        for (path, body) in [
            ("/resign/nightly-report", format!("{{\"token\":{token}}}")),
            ("/hand-over/nightly-report", format!("{{\"to\":\"ada\",\"token\":{token}}}")),
        ] {
            let answer = served.post(path, &body);
            assert_eq!((answer.status, &answer.json()["outcome"]), (409, &"over".into()));
            assert_eq!(answer.json()["leader"], bob.id().as_str());
        }
        assert!(on_bob.is_leader(), "bob was not meant");
        let token = on_bob.status().token.unwrap().get();
        let meant = served.post("/resign/nightly-report", &format!("{{\"token\":{token}}}"));
        assert_eq!((meant.status, &meant.json()["outcome"]), (200, &"done".into()), "{meant:?}");
        assert_eq!(served.post("/resign/nightly-report", "{\"token\":\"x\"}").status, 422);
        assert_eq!(served.post("/resign/nightly-report", "{").status, 400);
    });
}

#[test]
fn health_names_every_election_the_worst_first() {
    let stage = Stage::embedded();
    let ada = stage.client("ada");
    let start = |name: &str| stage.runtime.block_on(ada.election(name).start()).unwrap();
    let elections = ["mailer", "report", "zebra"].map(start);
    let builder = Sidecar::builder(ada.clone());
    let all = elections.iter().cloned();
    let served = stage.serve(all.fold(builder, |builder, election| builder.election(election)));
    let health = served.wait_for("it leads all", "/health", |health| {
        let parts = &health["results"]["leader_election"]["data"]["resources"];
        parts.as_object().unwrap().values().all(|part| part["is_leader"] == true)
    });
    let check = &health["results"]["leader_election"];
    assert_eq!(check["description"], "mailer: leads; report: leads; zebra: leads");
    assert_eq!((&health["status"], &check["status"]), (&"Healthy".into(), &"Healthy".into()));

    stage.runtime.block_on(elections[1].stop());
    let health = served.json("/health");
    let check = &health["results"]["leader_election"];
    let expected = "report: the election was stopped; mailer: leads; zebra: leads";
    assert_eq!(check["description"], expected);
    assert_eq!((&health["status"], &check["status"]), (&"Unhealthy".into(), &"Unhealthy".into()));
}

/// The shape that health checks of other systems have: of one election it is as it always was.
#[test]
fn health_of_one_election_names_it_alone() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    let health = served.json("/health");
    let check = &health["results"]["leader_election"];
    assert_eq!(check["description"], "nightly-report: leads");
    assert_eq!(names(&check["data"]), ["instance_id", "is_leader", "resources", "role"]);
    assert_eq!(
        (&check["data"]["role"], &check["data"]["is_leader"]),
        (&"leader".into(), &true.into())
    );
}
