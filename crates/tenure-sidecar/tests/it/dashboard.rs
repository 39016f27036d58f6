//! The Grafana dashboard asks for what `/metrics` really has.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use testkit::TempFolder;

use crate::openmetrics::parse;
use crate::stage::Stage;

fn dashboard() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/grafana/tenure.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).expect("it is JSON")
}

/// Every value under a name, wherever it stands.
fn found<'a>(value: &'a Value, name: &str, into: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                into.extend(value.as_str().filter(|_| member == name));
                found(value, name, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| found(item, name, into)),
        _ => {}
    }
}

/// The words of an expression that can be names of metrics.
fn metrics(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words.filter(|word| word.starts_with("tenure_") || word.starts_with("leader_election_"))
}

#[test]
fn every_metric_of_the_dashboard_is_served() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    served.wait_for("a first look", "/status", |status| {
        status["resources"][0]["members"].as_array().is_some_and(|members| !members.is_empty())
    });
    let samples = parse(&served.metrics().body);
    let names: BTreeSet<&str> = samples.iter().map(|sample| sample.name.as_str()).collect();
    let labels: BTreeSet<&str> =
        samples.iter().flat_map(|sample| sample.labels.keys().map(String::as_str)).collect();

    let dashboard = dashboard();
    let mut expressions = Vec::new();
    found(&dashboard, "expr", &mut expressions);
    assert!(expressions.len() >= 8, "{expressions:?}");
    let mut queries = Vec::new();
    found(&dashboard["templating"], "query", &mut queries);
    for expression in expressions.iter().chain(queries.iter().filter(|query| query.contains('('))) {
        assert!(metrics(expression).count() > 0, "asks for nothing of ours: {expression}");
        for metric in metrics(expression) {
            assert!(names.contains(metric), "{metric} is not served: {expression}");
        }
        for grouped in expression.split("by (").skip(1) {
            let inside = grouped.split(')').next().unwrap();
            for label in inside.split(", ").filter(|label| *label != "instance") {
                assert!(labels.contains(label), "nothing has {label}: {expression}");
            }
        }
    }
    check_grammar(&expressions);
}

/// By Prometheus' own tool, which has them as rules.
fn check_grammar(expressions: &[&str]) {
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, expression) in expressions.iter().enumerate() {
        let expression = expression.replace("$name", ".*").replace("$__rate_interval", "1m");
        rules += &format!("      - record: panel:{number}\n        expr: '{expression}'\n");
    }
    let folder = TempFolder::create();
    let file = folder.write("dashboard.yaml", &rules);
    let output = Command::new("promtool").args(["check", "rules"]).arg(&file).output();
    let output = output.expect("promtool is there: see CONTRIBUTING.md");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn panels_have_numbers_of_their_own_and_titles() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    assert!(panels.iter().all(|panel| !panel["title"].as_str().unwrap().is_empty()));
}

/// A line in every graph where a term begins: on the instance that leads then, and no other.
#[test]
fn a_change_of_leader_is_marked_on_the_instance_that_leads_next() {
    let dashboard = dashboard();
    let marks = dashboard["annotations"]["list"].as_array().unwrap();
    let changes = marks.iter().find(|mark| mark["name"] == "Changes of leader").unwrap();
    assert_eq!(changes["titleFormat"], "{{instance}} leads {{name}}");
    let expression = changes["expr"].as_str().unwrap().replace("$name", ".*");
    // Ada leads from the start, Bob from the third scrape on; Eve is restarted and leads nothing.
    let text = format!(
        "evaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n      \
         - series: 'tenure_terms_total{{instance=\"ada\",name=\"mailer\"}}'\n        \
         values: '1 1 1 1 1'\n      \
         - series: 'tenure_terms_total{{instance=\"bob\",name=\"mailer\"}}'\n        \
         values: '0 0 1 1 1'\n      \
         - series: 'tenure_terms_total{{instance=\"eve\",name=\"mailer\"}}'\n        \
         values: '3 3 0 0 0'\n    promql_expr_test:\n      \
         - expr: 'count by (instance) ({expression})'\n        eval_time: 45s\n        \
         exp_samples:\n          - labels: '{{instance=\"bob\"}}'\n            value: 1\n"
    );
    let folder = TempFolder::create();
    let file = folder.write("marks.yaml", &text);
    let output = Command::new("promtool").args(["test", "rules"]).arg(&file).output();
    let output = output.expect("promtool is there: see CONTRIBUTING.md");
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
}
