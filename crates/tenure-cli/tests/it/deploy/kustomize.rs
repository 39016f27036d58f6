//! The base for Kustomize, as kubectl itself puts it together.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{GENEROUS, Process, TempFolder, wait_until};

use super::{Started, started_in, words_of, yaml};
use crate::stage::{CommandOutput, Kind, Stage, plain_command};

/// What `kubectl apply -k deploy/kubernetes/example` would send; `None` without kubectl.
fn example() -> Option<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes");
    let Some(mut output) = kustomize(&folder.join("example")) else {
        println!("skipped: no kubectl to put the base together with (package kubernetes-client)");
        return None;
    };
    // Before 1.21 kubectl had another word for folders among the resources.
    if String::from_utf8_lossy(&output.stderr).contains("must be a file") {
        let copy = TempFolder::create();
        let copied = Command::new("cp").arg("-r").arg(&folder).arg(copy.path()).status().unwrap();
        assert!(copied.success());
        let file = "kubernetes/example/kustomization.yaml";
        let text = std::fs::read_to_string(copy.path().join(file)).unwrap();
        let _ = copy.write(file, &text.replace("resources:", "bases:"));
        output = kustomize(&copy.path().join("kubernetes/example")).unwrap();
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(yaml::documents(&String::from_utf8(output.stdout).unwrap()))
}

fn kustomize(folder: &Path) -> Option<Output> {
    Command::new("kubectl").arg("kustomize").arg(folder).output().ok()
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let mut found = documents.iter().filter(|document| document["kind"] == kind);
    let first = found.next().unwrap_or_else(|| panic!("there is no {kind}"));
    assert!(found.next().is_none(), "there are several of {kind}");
    first
}

fn name(document: &Value) -> &str {
    document["metadata"]["name"].as_str().unwrap()
}

#[test]
fn names_that_belong_together_are_the_same_after_kustomize_has_changed_them() {
    let Some(documents) = example() else { return };
    let of_kind = |kind: &str| of_kind(&documents, kind);
    let secrets: Vec<&str> =
        documents.iter().filter(|document| document["kind"] == "Secret").map(name).collect();
    let [store, token] = &secrets[..] else { panic!("{secrets:?}") };
    let pod = &of_kind("Deployment")["spec"]["template"];
    let text = pod.to_string();
    assert!(text.contains(store) && text.contains(token), "{text}");

    let labels = &pod["metadata"]["labels"];
    let monitor = &of_kind("PodMonitor")["spec"];
    let [endpoint] = &monitor["podMetricsEndpoints"].as_array().unwrap()[..] else { panic!() };
    assert_eq!(endpoint["authorization"]["credentials"]["name"], **token);
    let ports = pod["spec"]["containers"][1]["ports"].as_array().unwrap();
    assert_eq!(ports[0]["name"], endpoint["port"]);
    for chosen in [
        &monitor["selector"]["matchLabels"],
        &of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        &of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        &of_kind("Deployment")["spec"]["selector"]["matchLabels"],
    ] {
        assert_eq!(chosen, labels);
    }
    assert_eq!(
        of_kind("NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"],
        endpoint["port"]
    );
    assert_eq!(pod["spec"]["serviceAccountName"], name(of_kind("ServiceAccount")));
    assert_eq!(of_kind("RoleBinding")["roleRef"]["name"], name(of_kind("Role")));
}

/// What the pods may do in the cluster is nothing, and Prometheus may only find them.
#[test]
fn nobody_gets_more_rights_than_needed() {
    let Some(documents) = example() else { return };
    let of_kind = |kind: &str| of_kind(&documents, kind);
    assert_eq!(of_kind("ServiceAccount")["automountServiceAccountToken"], "false");
    let [rule] = &of_kind("Role")["rules"].as_array().unwrap()[..] else { panic!() };
    assert_eq!(words_of(&rule["resources"]), ["pods"]);
    assert_eq!(words_of(&rule["verbs"]), ["get", "list", "watch"]);
    let subjects = of_kind("RoleBinding")["subjects"].as_array().unwrap();
    assert!(subjects.iter().all(|subject| subject["namespace"] == "monitoring"), "{subjects:?}");
    let bound = documents.iter().filter(|document| document["kind"] == "ClusterRoleBinding");
    assert_eq!(bound.count(), 0, "nothing beyond its namespace");
    let spec = &of_kind("Deployment")["spec"]["template"]["spec"];
    super::assert_confined("kubernetes/base", spec);
}

/// The sidecar of the base on a store of the test's own: it starts, answers callers with the token
/// alone, and its probes succeed by nothing but its own variables.
#[test]
fn the_sidecar_of_the_base_is_probed_and_scraped() {
    let Some(documents) = example() else { return };
    let container = &of_kind(&documents, "Deployment")["spec"]["template"]["spec"]["containers"][1];
    let mut started = started_in(container, "redis://redis.internal");
    let (stage, folder) = (Stage::on(Kind::Own), TempFolder::create());
    let token = folder.write("token", "REPLACE-BY-A-RANDOM-TOKEN");
    let port = free_port();
    for (name, value) in &mut started.variables {
        match name.as_str() {
            "TENURE_SIDECAR__TOKEN_FILE" => *value = token.display().to_string(),
            "TENURE_SIDECAR__LISTEN" => {
                assert_eq!(value, "0.0.0.0:8420", "the port that Prometheus scrapes");
                *value = format!("0.0.0.0:{port}");
            }
            _ => {}
        }
    }
    let _sidecar = Process::spawn(started.on(&stage, &[]));
    for probe in ["livenessProbe", "readinessProbe"] {
        let words = words_of(&container[probe]["exec"]["command"]);
        assert_eq!(
            (words[0].as_str(), &container[probe]["timeoutSeconds"]),
            ("tenure", &"3".into())
        );
        wait_until(probe, GENEROUS, || probe_as(&started, &words[1..]).code == 0);
    }
    let address = format!("127.0.0.1:{port}");
    let scraped = |token: &str| {
        crate::sidecar::get_with(&address, "/metrics", &format!("Authorization: Bearer {token}"))
    };
    assert!(scraped("REPLACE-BY-A-RANDOM-TOKEN").starts_with("HTTP/1.1 200"));
    assert!(scraped("a-token-of-nobody").starts_with("HTTP/1.1 401"));
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// With the variables of the container, as its orchestrator executes it.
fn probe_as(started: &Started, words: &[String]) -> CommandOutput {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = plain_command(&words);
    command.args(["--timeout", "30s"]);
    command.envs(started.variables.iter().map(|(name, value)| (name, value)));
    CommandOutput::of(command)
}
