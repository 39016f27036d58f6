//! The alert rules lead whoever is woken by them to a page that says what to do.

use std::collections::BTreeSet;
use std::path::Path;

use super::yaml;

const FILES: [&str; 3] = ["tenure.rules.yaml", "store.rules.yaml", "sentinel.rules.yaml"];
/// Where the files say that the address of docs/ belongs.
const BASE: &str = "https://docs.example/tenure/";

/// Every alert, and the address of its page.
fn alerts() -> Vec<(String, String)> {
    let files = FILES
        .iter()
        .flat_map(|file| yaml::documents(&super::read(&format!("prometheus/{file}"))).into_iter());
    let groups = files.flat_map(|document| document["groups"].as_array().unwrap().clone());
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap().clone());
    let alerts = rules.map(|rule| {
        let name = rule["alert"].as_str().unwrap().to_owned();
        let page = rule["annotations"]["runbook_url"].as_str();
        let page = page.unwrap_or_else(|| panic!("{name} leads nowhere"));
        (name, page.to_owned())
    });
    alerts.collect()
}

/// The anchors of a page, as they are made from its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = |c: &char| c.is_alphanumeric() || *c == ' ' || *c == '-';
        let kept: String = heading.trim_start_matches('#').trim().chars().filter(kept).collect();
        kept.to_lowercase().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn every_alert_leads_to_a_section_that_is_there() {
    let alerts = alerts();
    assert!(alerts.len() >= 18, "{alerts:?}");
    for (name, page) in &alerts {
        let place = page.strip_prefix(BASE).unwrap_or_else(|| panic!("{name}: {page}"));
        let (page, anchor) = place.split_once('#').expect("a section");
        assert!(anchors(page).contains(anchor), "{name}: {page} has no section #{anchor}");
        assert_eq!(anchor, name.to_lowercase(), "the section of another alert");
    }
}

/// A section of an alert that was taken out or renamed would be read by nobody.
#[test]
fn every_section_is_of_an_alert_that_exists() {
    let alerts: BTreeSet<String> = alerts().into_iter().map(|(name, _)| name).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/alerts.md");
    let text = std::fs::read_to_string(path).unwrap();
    let sections: Vec<&str> = text.split("\n### ").skip(1).collect();
    for section in &sections {
        let name = section.lines().next().unwrap();
        assert!(alerts.contains(name), "{name} is no alert");
        for part in ["**Means**", "**Look**", "**Do**"] {
            assert!(section.contains(part), "{name} does not say {part}");
        }
    }
    assert_eq!(sections.len(), alerts.len());
}
