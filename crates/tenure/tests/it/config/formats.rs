//! The same settings in every format.

use tenure::config::{Config, Format, Loader};

use super::{FULL, origin_of, refusal};

pub(super) const FULL_JSON: &str = r#"{
  "prefix": "app:",
  "instance": "web-1",
  "store": {
    "host": "db.internal", "port": 6380,
    "user": "ann", "password": "env(\"REDIS_PASSWORD\")",
    "database": 2,
    "tls": true
  },
  "defaults": { "ttl": "20s", "failback": true, "metadata": { "zone": "eu" } },
  "elections": {
    "nightly-report": {
      "ttl": "10s",
      "priority": 5,
      "key": "jobs/nightly",
      "on_loss": "exit",
      "metadata": { "rack": "r1" }
    }
  },
  "profile": {
    "production": { "store": { "host": "db.production" } },
    "staging": { "elections": { "nightly-report": { "enabled": false } } }
  }
}"#;

#[cfg(feature = "yaml")]
pub(super) const FULL_YAML: &str = r#"
prefix: "app:"
instance: web-1
store:
  host: db.internal
  port: 6380
  user: ann
  password: ${REDIS_PASSWORD}
  database: 2
  tls: on
defaults:
  ttl: 20s
  failback: true
  metadata: { zone: eu }
elections:
  nightly-report:
    ttl: 10s
    priority: 5
    key: jobs/nightly
    on_loss: exit
    metadata:
      rack: r1
profile:
  production:
    store: { host: db.production }
  staging:
    elections: { nightly-report: { enabled: false } }
"#;

#[cfg(feature = "hcl")]
pub(super) const FULL_HCL: &str = r#"
prefix   = "app:"
instance = "web-1"

store {
  host     = "db.internal"
  port     = 6380
  user     = env("DATABASE_USER", "ann")
  password = "${REDIS_PASSWORD}"
  database = 2
  tls      = true
}

defaults {
  ttl      = "20s"
  failback = true
  metadata = { zone = "eu" }
}

elections "nightly-report" {
  ttl      = "10s"
  priority = 5
  key      = "jobs/nightly"
  on_loss  = "exit"
  metadata { rack = "r1" }
}

profile "production" {
  store { host = "db.production" }
}
profile "staging" {
  elections "nightly-report" { enabled = false }
}
"#;

fn load(format: Format, text: &str, profile: &str) -> Config {
    let loader = Loader::new().text(format, "file", text).profile(profile, "the test");
    loader.environment([("REDIS_PASSWORD", "p")]).load().unwrap()
}

/// Everything but the places, which differ.
fn values(config: &Config) -> String {
    let Config { store, prefix, instance, enabled, defaults, elections, .. } = config;
    let url = store.url().unwrap().reveal();
    format!("{url} {prefix} {instance:?} {enabled} {defaults:?} {elections:#?}")
}

#[test]
fn every_format_gives_the_same_configuration() {
    let others = [
        (Format::Json, FULL_JSON),
        #[cfg(feature = "yaml")]
        (Format::Yaml, FULL_YAML),
        #[cfg(feature = "hcl")]
        (Format::Hcl, FULL_HCL),
    ];
    for profile in ["production", "staging"] {
        let expected = values(&load(Format::Toml, FULL, profile));
        for (format, text) in others {
            assert_eq!(values(&load(format, text, profile)), expected, "{format:?}");
        }
    }
}

#[test]
fn json_knows_its_lines_although_its_parser_does_not() {
    let config = load(Format::Json, FULL_JSON, "staging");
    assert_eq!(origin_of(&config, "prefix"), "file:2");
    assert_eq!(origin_of(&config, "store.port"), "file:5");
    assert_eq!(origin_of(&config, "store.user"), "file:6");
    assert_eq!(origin_of(&config, "store.database"), "file:7");
    assert_eq!(origin_of(&config, "store.tls.enabled"), "file:8");
    assert_eq!(origin_of(&config, "elections.nightly-report.priority"), "file:14");
    assert_eq!(origin_of(&config, "elections.nightly-report.enabled"), "file:22");
}

#[cfg(feature = "yaml")]
#[test]
fn yaml_knows_its_lines_and_keeps_to_plain_values() {
    let config = load(Format::Yaml, FULL_YAML, "staging");
    assert_eq!(origin_of(&config, "store.port"), "file:6");
    assert_eq!(origin_of(&config, "defaults.metadata.zone"), "file:14");
    let version = "defaults: { version: 1.10 }";
    let config = Loader::new().text(Format::Yaml, "file", version).load().unwrap();
    assert_eq!(config.defaults.version, "1.10");
    assert!(Loader::new().text(Format::Yaml, "file", "# nothing\n").load().is_ok());

    let cases = [
        ("prefix: &a x\ninstance: *a", "file:2: aliases are not supported"),
        ("prefix: !!str x", "file:1: tags are not supported"),
        ("prefix: a\n---\nprefix: b", "file:2: a second document"),
        ("prefix: a\nprefix: b", "file:2: \"prefix\" is given twice"),
        ("prefix:", "file:1: prefix: null says nothing"),
        ("- a", "file:1: file: expects a table of settings"),
        ("prefix: [a, b]", "file:1: prefix: expects text, found a list"),
        ("? [a]\n: b", "a name must be plain text"),
        ("a:\n\t- b", "file:2: "),
    ];
    for (text, part) in cases {
        let error = refusal(Loader::new().text(Format::Yaml, "file", text));
        assert!(error.contains(part), "{text:?}: {error}");
    }
    let deep = "[".repeat(20_000);
    let error = refusal(Loader::new().text(Format::Yaml, "file", &deep));
    assert!(error.contains("file:1: "), "{error}");
}

#[cfg(feature = "hcl")]
#[test]
fn hcl_knows_its_lines_and_keeps_to_plain_values() {
    let config = load(Format::Hcl, FULL_HCL, "staging");
    assert_eq!(origin_of(&config, "store.port"), "file:7");
    assert_eq!(origin_of(&config, "store.user"), "file:8 ${DATABASE_USER}");
    assert_eq!(origin_of(&config, "defaults.metadata.zone"), "file:17");
    let text = "prefix = \"a-${A}-${env(\"B\", \"b}\")}-$${C}\"";
    let loader = Loader::new().text(Format::Hcl, "file", text).environment([("A", "x")]);
    assert_eq!(loader.load().unwrap().prefix, "a-x-b}-${C}");
    let text = "prefix = \"$${C}\"";
    let config = Loader::new().text(Format::Hcl, "file", text).load().unwrap();
    assert_eq!(config.prefix, "${C}");

    let cases = [
        ("prefix = \"${A:b}\"", "a default is written env(\"NAME\", \"default\")"),
        ("prefix = 1 + 2", "file:1: write a plain value"),
        ("prefix = word", "file:1: write a plain value"),
        ("\nprefix = file(\"x\")", "file:2: write a plain value"),
        ("prefix = \"a\"\nprefix = \"b\"", "file:2: "),
        ("prefix = [\"a\"]", "file:1: prefix: expects text, found a list"),
        ("defaults { ttl = 10 }", "\"10\" has no unit"),
        ("store {\n  hots = \"h\"\n}", "file:2: unknown setting store.hots"),
        ("prefix = null", "null says nothing"),
        ("prefix = \"${NONE}\"", "${NONE} is not set"),
    ];
    for (text, part) in cases {
        let error = refusal(Loader::new().text(Format::Hcl, "file", text));
        assert!(error.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused_with_what_there_is() {
    for file in ["tenure.ini", "tenure", "tenure.conf"] {
        let error = refusal(Loader::new().file(file));
        assert!(error.contains("end its name in .toml, .json, .yaml or .hcl"), "{error}");
    }
    let error = refusal(Loader::new().file("/nowhere/tenure.toml"));
    assert!(error.starts_with("/nowhere/tenure.toml: No such file"), "{error}");
    let named = Loader::new().environment([("TENURE_CONFIG", "/nowhere/tenure.json")]);
    assert!(refusal(named).starts_with("/nowhere/tenure.json: No such file"));
}
