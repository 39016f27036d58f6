//! `/metrics`: well formed, and true.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use tenure_sidecar::{Hook, Sidecar};
use testkit::{GENEROUS, wait_until};

use crate::http::request;
use crate::openmetrics::{Sample, parse};
use crate::stage::{RESOURCE, Served, Stage};

fn scrape(served: &Served) -> Vec<Sample> {
    let answer = served.metrics();
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("application/openmetrics-text"), "{}", answer.head);
    parse(&answer.body)
}

/// The value of `name` for the resource.
fn value(samples: &[Sample], name: &str) -> Option<f64> {
    let mut found = samples.iter().filter(|sample| {
        sample.name == name && sample.labels.get("name").is_none_or(|label| label == RESOURCE)
    });
    found.next().map(|sample| sample.value)
}

#[test]
fn numbers_follow_the_truth_on_each_store() {
    Stage::on_each(|stage| {
        let (ada, leading) = stage.leader("ada");
        let served = stage.serve_election(&ada, &leading);
        let bob = stage.client("bob");
        let on_bob = stage.elect(&bob);
        let beside = stage.serve_election(&bob, &on_bob);
        wait_until("ada was renewed", GENEROUS, || {
            value(&scrape(&served), "tenure_renewal_duration_seconds_count") > Some(0.0)
        });
        let (here, there) = (scrape(&served), scrape(&beside));
        assert_eq!(value(&here, "leader_election_master_status"), Some(1.0));
        assert_eq!(value(&there, "leader_election_master_status"), Some(0.0));
        assert!(value(&here, "tenure_lease_remaining_seconds") > Some(0.0));
        assert!(value(&here, "tenure_renewal_age_seconds").unwrap() < 60.0);
        assert_eq!(value(&there, "tenure_renewal_age_seconds"), None);
        assert_eq!(value(&here, "tenure_terms_total"), Some(1.0));
        assert_eq!(value(&here, "tenure_store_up"), Some(1.0));
        let build = here.iter().find(|sample| sample.name == "tenure_build_info").unwrap();
        let version = build.labels["version"].as_str();
        assert_eq!((build.value, version), (1.0, env!("CARGO_PKG_VERSION")));
        let role = |samples: &[Sample], role: &str| {
            let found =
                samples.iter().find(|s| s.name == "tenure_role" && s.labels["role"] == role);
            found.unwrap().value
        };
        assert_eq!((role(&here, "leader"), role(&there, "leader")), (1.0, 0.0));

        wait_until("bob leads", GENEROUS, || {
            served.post("/hand-over/nightly-report", "{\"to\":\"bob\"}");
            on_bob.is_leader()
        });
        let (here, there) = (scrape(&served), scrape(&beside));
        assert_eq!(value(&here, "leader_election_master_status"), Some(0.0));
        assert_eq!(value(&there, "leader_election_master_status"), Some(1.0));
        assert_eq!(value(&here, "tenure_terms_ended_total"), Some(1.0));
        assert_eq!(value(&here, "tenure_losses_total"), Some(0.0), "it was handed over");
        wait_until("the term was measured", GENEROUS, || {
            value(&scrape(&served), "tenure_term_duration_seconds_count") == Some(1.0)
        });
    });
}

#[test]
fn odd_names_do_not_break_the_format() {
    let stage = Stage::embedded();
    let looker = stage.client("operator");
    let odd = "a\"b\\c{d}";
    let served = stage.serve(Sidecar::builder(looker).observe(odd));
    wait_until("it was looked at", GENEROUS, || {
        scrape(&served).iter().any(|sample| sample.name == "tenure_members")
    });
    let samples = scrape(&served);
    let known = samples.iter().find(|sample| sample.name == "tenure_leader_known").unwrap();
    assert_eq!(known.labels["name"], odd);
}

/// Words on the standard input of promtool, which says what is wrong with them.
fn check_with_promtool(text: &str) -> Option<String> {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = piped.spawn() else {
        eprintln!("promtool is not installed (package prometheus): not checked");
        return None;
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words).into_owned();
    Some(if output.status.success() { words } else { format!("{}: {words}", output.status) })
}

#[test]
fn plain_text_has_the_same_numbers_and_passes_promtool() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let builder = Sidecar::builder(ada).election(leading).observe("a\"b\\c");
    let hook = Hook::on_gain("true");
    let served = stage.serve(builder.hook(hook));
    wait_until("it was renewed", GENEROUS, || {
        value(&scrape(&served), "tenure_renewal_duration_seconds_count") > Some(0.0)
    });
    for accept in ["Accept: text/plain", "Accept: */*", "X-None: at all"] {
        let answer = request(served.address, "GET", "/metrics", &[accept], "");
        assert!(answer.head.contains("text/plain; version=0.0.4"), "{}", answer.head);
        assert!(!answer.body.contains("# EOF"), "{}", answer.body);
        if let Some(words) = check_with_promtool(&answer.body) {
            assert_eq!(words.trim(), "", "{}", answer.body);
        }
    }
    let names = |text: &str| -> BTreeSet<String> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    assert_eq!(names(&served.get("/metrics").body), names(&served.metrics().body));
}
