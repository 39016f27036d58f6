//! `docs/configuration.md` says what the code does.

use std::path::PathBuf;

use tenure::config::{Config, Format, KnownSetting, Loader, known_settings};

use super::seconds;

const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->\n";

fn page() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md"))
}

fn table(title: &str, rows: &[(String, KnownSetting)]) -> String {
    let mut text =
        format!("### {title}\n\n| setting | value | default | meaning |\n|---|---|---|---|\n");
    for (name, setting) in rows {
        let KnownSetting { kind, default, meaning, .. } = setting;
        text.push_str(&format!("| `{name}` | {kind} | {default} | {meaning} |\n"));
    }
    text + "\n"
}

/// The tables, as the code has the settings.
fn tables() -> String {
    let below = |prefix: &str| -> Vec<(String, KnownSetting)> {
        let all = known_settings().into_iter();
        all.filter_map(|s| Some((s.key.strip_prefix(prefix)?.to_owned(), s))).collect()
    };
    let mut top = below("");
    top.retain(|(name, _)| !name.contains('.'));
    let mut store = below("store.");
    store.iter_mut().for_each(|(name, _)| *name = format!("store.{name}"));
    let mut sidecar = below("sidecar.");
    sidecar.iter_mut().for_each(|(name, _)| *name = format!("sidecar.{name}"));
    [
        table("At the top", &top),
        table("The store", &store),
        table(
            "Elections: in `defaults` for all, in `elections.NAME` for one",
            &below("elections.NAME."),
        ),
        table("The sidecar", &sidecar),
    ]
    .concat()
}

#[test]
fn the_page_lists_every_setting_as_the_code_has_it() {
    let text = std::fs::read_to_string(page()).expect("docs/configuration.md is there");
    let (before, rest) = text.split_once(BEGIN).expect("the page marks its tables");
    let (found, after) = rest.split_once(END).expect("the page marks the end of its tables");
    let expected = format!("\n{}", tables());
    if found != expected && std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(page(), format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, expected, "run UPDATE_DOCS=1 cargo test -p tenure to write the page anew");
}

#[test]
fn defaults_and_elections_differ_only_in_the_key() {
    let names = |prefix: &str| -> Vec<String> {
        let settings = known_settings();
        settings.iter().filter_map(|s| Some(s.key.strip_prefix(prefix)?.to_owned())).collect()
    };
    let mut of_election = names("elections.NAME.");
    of_election.retain(|name| name != "key");
    assert_eq!(names("defaults."), of_election);
}

#[test]
fn defaults_that_follow_from_others_are_told_truly() {
    let default = |key: &str| {
        let known = known_settings().into_iter().find(|setting| setting.key == key);
        known.expect("is listed").default
    };
    let failback = tenure::Failback::default();
    let code = |duration| format!("`{}`", tenure_core::timing::duration_text(duration));
    assert_eq!(default("defaults.failback.delay"), code(failback.delay));
    assert_eq!(default("defaults.failback.min_tenure"), code(failback.min_tenure));
    assert_eq!(default("defaults.ttl"), code(Config::default().defaults.ttl));
}

#[test]
fn the_example_of_the_page_loads() {
    let text = std::fs::read_to_string(page()).unwrap();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let loader =
        Loader::new().text(Format::Toml, "tenure.toml", example).profile("production", "the test");
    let config = loader.environment([("REDIS_PASSWORD", "p")]).load().unwrap();
    assert_eq!(config.election("nightly-report").priority, 5);
    assert_eq!(config.election("nightly-report").ttl, seconds(30));
}
