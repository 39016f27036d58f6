//! The loader as a whole: stories of layers, places, variables, mistakes and secrets.

mod documents;
mod formats;
mod hooks;
mod secrets;
mod sidecar;
mod store;

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::OnLoss;
use tenure::config::*;
use tenure_core::{DEFAULT_PREFIX, Failback, Timing, TimingSettings};

const FULL: &str = r#"
prefix = "app:"
instance = "web-1"

[store]
host = "db.internal"
port = 6380
user = "ann"
password = "${REDIS_PASSWORD}"
database = 2
tls = true

[defaults]
ttl = "20s"
failback = true

[defaults.metadata]
zone = "eu"

[elections.nightly-report]
ttl = "10s"
priority = 5
key = "jobs/nightly"
on_loss = "exit"

[elections.nightly-report.metadata]
rack = "r1"

[profile.production.store]
host = "db.production"

[profile.staging.elections.nightly-report]
enabled = false
"#;

fn toml(text: &str) -> Loader {
    Loader::new().text(Format::Toml, "tenure.toml", text)
}

fn full() -> Loader {
    toml(FULL).environment([("REDIS_PASSWORD", "c4nary")])
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[track_caller]
fn refusal(loader: Loader) -> String {
    loader.load().expect_err("should be refused").to_string()
}

fn origin_of(config: &Config, key: &str) -> String {
    let setting = config.settings().iter().find(|setting| setting.key == key);
    setting.unwrap_or_else(|| panic!("{key} is not listed")).origin.to_string()
}

#[test]
fn without_any_layer_the_defaults_count() {
    let config = Config::default();
    assert_eq!(config.store.url(), None);
    assert_eq!(config.prefix, DEFAULT_PREFIX);
    assert!(config.enabled && config.is_enabled("any"));
    assert_eq!(config.election("any"), &config.defaults);
    assert_eq!(config.defaults, ElectionConfig::default());
    assert_eq!(config.defaults.timing(), Timing::new(&TimingSettings::default()));
    assert_eq!(config.defaults.failback, None);
    assert_eq!(config.defaults.on_loss, OnLoss::Recontend);
    assert_eq!(origin_of(&config, "defaults.ttl"), "default");
    assert!(config.warnings().is_empty());
}

#[test]
fn a_file_is_understood_as_a_whole() {
    let config = full().load().unwrap();
    let url = config.store.url().unwrap();
    assert_eq!(url.reveal(), "rediss://ann:c4nary@db.internal:6380/2");
    assert_eq!(config.store.to_string(), "rediss://***@db.internal:6380/2");
    assert_eq!(config.instance.as_deref(), Some("web-1"));
    let nightly = &config.elections["nightly-report"];
    assert_eq!((nightly.ttl, nightly.priority), (seconds(10), 5));
    assert_eq!(nightly.key.as_deref(), Some("jobs/nightly"));
    assert_eq!(nightly.on_loss, OnLoss::Exit(1));
    assert_eq!(nightly.failback, Some(Failback::default()));
    let labels = [("rack", "r1"), ("zone", "eu")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(nightly.metadata, BTreeMap::from(labels));
    assert_eq!(config.election("another").ttl, seconds(20));
}

#[test]
fn each_layer_outranks_the_one_before_value_by_value() {
    let layers = |profile: bool, variable: bool, argument: bool| {
        let text = "defaults.ttl = '2s'\ndefaults.priority = 1\n[profile.p]\ndefaults.ttl = '3s'";
        let mut loader = toml(text);
        if profile {
            loader = loader.environment([("TENURE_PROFILE", "p")]);
        }
        if variable {
            loader = loader.environment([("TENURE_DEFAULTS__TTL", "4s")]);
        }
        if argument {
            loader = loader.set(["defaults", "ttl"], "5s", "--ttl");
        }
        let config = loader.load().unwrap();
        assert_eq!(config.defaults.priority, 1, "the other values stay");
        (config.defaults.ttl, origin_of(&config, "defaults.ttl"))
    };
    assert_eq!(layers(false, false, false), (seconds(2), "tenure.toml:1".to_owned()));
    assert_eq!(layers(true, false, false), (seconds(3), "tenure.toml:4".to_owned()));
    assert_eq!(layers(true, true, false), (seconds(4), "TENURE_DEFAULTS__TTL".to_owned()));
    assert_eq!(layers(true, true, true), (seconds(5), "--ttl".to_owned()));
}

#[test]
fn every_value_knows_its_origin() {
    let config = full().environment([("TENURE_PREFIX", "x:")]).load().unwrap();
    assert_eq!(origin_of(&config, "store.host"), "tenure.toml:6");
    assert_eq!(origin_of(&config, "store.password"), "tenure.toml:9 ${REDIS_PASSWORD}");
    assert_eq!(origin_of(&config, "store.tls.enabled"), "tenure.toml:11");
    assert_eq!(origin_of(&config, "elections.nightly-report.metadata.rack"), "tenure.toml:27");
    assert_eq!(origin_of(&config, "prefix"), "TENURE_PREFIX");
    assert_eq!(origin_of(&config, "enabled"), "default");
    let shown: Vec<String> = config.settings().iter().map(Setting::to_string).collect();
    assert!(shown.contains(&"elections.nightly-report.ttl = 10s (tenure.toml:21)".to_owned()));
    assert!(shown.contains(&"store.password = *** (tenure.toml:9 ${REDIS_PASSWORD})".to_owned()));
}

#[test]
fn a_profile_changes_only_what_it_names() {
    let production = full().profile("production", "the test").load().unwrap();
    assert_eq!(production.store.to_string(), "rediss://***@db.production:6380/2");
    assert_eq!(production.profile.as_deref(), Some("production"));
    assert!(production.is_enabled("nightly-report"));
    let staging = full().environment([("TENURE_PROFILE", "staging")]).load().unwrap();
    assert!(!staging.is_enabled("nightly-report") && staging.is_enabled("another"));
    let chosen_by_program = full().environment([("TENURE_PROFILE", "staging")]);
    let config = chosen_by_program.profile("production", "the test").load().unwrap();
    assert_eq!(config.profile.as_deref(), Some("production"));
}

#[test]
fn a_profile_that_is_not_there_is_refused_with_those_that_are() {
    let text = refusal(full().environment([("TENURE_PROFILE", "prod")]));
    let expected = "TENURE_PROFILE: profile \"prod\" is not in tenure.toml, which has ";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("production") && text.contains("staging"), "{text}");
    let text = refusal(Loader::new().environment([("TENURE_PROFILE", "prod")]));
    assert!(text.contains("TENURE_CONFIG names none"), "{text}");
    let text = refusal(toml("profile = 'production'"));
    assert!(text.starts_with("tenure.toml:1: profile expects tables"), "{text}");
}

#[test]
fn a_profile_not_chosen_needs_no_variables_but_right_names() {
    let text = "[profile.a.store]\npassword = '${NOT_SET}'\nurl = 'redis://h'";
    toml(text).load().unwrap();
    assert_eq!(
        refusal(toml(text).profile("a", "the program")),
        "tenure.toml:2: profile.a.store.password: ${NOT_SET} is not set: set it, or write \
         ${NOT_SET:default}"
    );
    assert_eq!(
        refusal(toml("[profile.a.defaults]\ntll = '1s'")),
        "tenure.toml:2: unknown setting profile.a.defaults.tll; did you mean defaults.ttl?"
    );
}

#[test]
fn unknown_names_get_a_suggestion_and_their_place() {
    let cases = [
        ("stoer = 'x'", "tenure.toml:1: unknown setting stoer; did you mean store?"),
        (
            "\n[store]\npasword = 'x'",
            "tenure.toml:3: unknown setting store.pasword; did you mean store.password?",
        ),
        ("ttl = '1s'", "tenure.toml:1: unknown setting ttl; did you mean defaults.ttl?"),
        (
            "defaults.renewEvery = '1s'",
            "tenure.toml:1: unknown setting defaults.renewEvery; did you mean defaults.renew_every?",
        ),
        (
            "[elections.x]\nmetadata.a.b = 'c'",
            "tenure.toml:2: elections.x.metadata.a: expects text, found a table",
        ),
        (
            "colour = 1",
            "tenure.toml:1: unknown setting colour; docs/configuration.md lists them all",
        ),
        (
            "defaults.key = 'k'",
            "tenure.toml:1: unknown setting defaults.key; did you mean elections.NAME.key?",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(toml(text)), expected);
    }
}

#[test]
fn unknown_variables_get_a_suggestion() {
    let cases = [
        ("TENURE_STROE", "TENURE_STORE"),
        ("TENURE_STORE_PASSWORD", "TENURE_STORE__PASSWORD"),
        ("TENURE_TTL", "TENURE_DEFAULTS__TTL"),
        ("TENURE_ELECTIONS__NIGHTLY__TLL", "TENURE_ELECTIONS__NIGHTLY__TTL"),
        ("TENURE_DEFAULTS__FAILBACK__DELY", "TENURE_DEFAULTS__FAILBACK__DELAY"),
    ];
    for (variable, meant) in cases {
        let text = refusal(Loader::new().environment([(variable, "1s")]));
        assert_eq!(text, format!("unknown setting {variable}; did you mean {meant}?"));
    }
    for variable in ["TENURE_ELECTIONS", "TENURE_DEFAULTS", "TENURE_", "TENURE_PREFIX__X"] {
        let text = refusal(Loader::new().environment([(variable, "1s")]));
        assert!(text.starts_with(&format!("unknown setting {variable};")), "{text}");
    }
}

#[test]
fn variables_that_are_no_settings_are_left_alone() {
    let variables = [
        ("TENURE_NAME", "nightly"),
        ("TENURE_TOKEN", "17"),
        ("TENURE_STORE_SERVICE_HOST", "10.0.0.1"),
        ("TENURE_STORE_PORT", "tcp://10.0.0.1:6379"),
        ("TENURE_DEFAULTS__TTL", ""),
        ("PATH", "/bin"),
    ];
    let config = Loader::new().environment(variables).load().unwrap();
    assert_eq!(config.defaults.ttl, seconds(10));
}

#[test]
fn a_variable_finds_the_election_that_it_cannot_spell() {
    let text = "[elections.nightly-report]\npriority = 1";
    let variable = [("TENURE_ELECTIONS__NIGHTLY_REPORT__TTL", "7s")];
    let config = toml(text).environment(variable).load().unwrap();
    assert_eq!(config.elections.len(), 1);
    assert_eq!(config.elections["nightly-report"].ttl, seconds(7));

    let config = Loader::new().environment(variable).load().unwrap();
    assert_eq!(config.election("nightly-report").ttl, seconds(7));
    assert_eq!(config.election("nightly_report").ttl, seconds(7));
    assert_eq!(config.election("nightly").ttl, seconds(10));

    let text = "elections.a-b.priority = 1\nelections.a_b.priority = 2";
    let text = refusal(toml(text).environment([("TENURE_ELECTIONS__A_B__TTL", "7s")]));
    assert!(text.contains("it may mean \"a-b\" or \"a_b\""), "{text}");
}

#[test]
fn values_of_the_wrong_kind_say_what_to_write() {
    let cases = [
        ("defaults.ttl = 10", "\"10\" has no unit: write 10s or 10ms"),
        ("defaults.ttl = '10 sec'", "\"10 sec\" is not a duration"),
        ("defaults.ttl = 1.5", "expects duration, found a number with a fraction"),
        ("defaults.ttl = 2020-01-01", "expects duration, found a date or time"),
        ("defaults.priority = 'high'", "expects whole number, found \"high\""),
        ("defaults.priority = 9999999999", "expects a whole number from -2147483648"),
        ("store.port = 0", "expects a whole number from 1 to 65535, found 0"),
        ("enabled = 'maybe'", "expects true or false, found \"maybe\""),
        ("prefix = ['a']", "expects text, found a list"),
        ("prefix = 3", "expects text, found a whole number"),
        ("defaults = 3", "expects a table of settings"),
        ("elections = ['a']", "expects a table of settings"),
        (
            "defaults.on_loss = 'exti'",
            "expects recontend or exit, found \"exti\"; did you mean exit?",
        ),
        ("defaults.require_beat = '0s'", "must be longer than 0s"),
        ("store.ca_file = ''", "unknown setting store.ca_file; did you mean store.tls.ca_file?"),
        ("store.tls.ca_file = ''", "expects the name of a file"),
        ("prefix = 'a b'", "key contains ' '"),
        ("instance = 'web 1'", "instance name contains ' '"),
        ("[elections.'']\nttl = '1s'", "resource name is empty"),
        ("[elections.a]\nkey = 'a}b'", "breaks its hash tag"),
        ("prefix = '${A'", "not closed"),
    ];
    for (text, part) in cases {
        let error = refusal(toml(text));
        assert!(error.starts_with("tenure.toml:") && error.contains(part), "{text}: {error}");
    }
    let error = refusal(Loader::new().environment([("TENURE_ENABLED", "perhaps")]));
    assert_eq!(error, "TENURE_ENABLED: enabled: expects true or false, found \"perhaps\"");
}

#[test]
fn problems_of_every_layer_and_of_the_whole_are_told_together() {
    let text = "instance = 'two words'\nttl = '5s'\n[elections.nightly]\nstop_grace = '9s'";
    let loader = toml(text).environment([("TENURE_ENABLED", "perhaps")]);
    let told = loader.set(["defaults", "priority"], "high", "--priority").load().unwrap_err();
    for part in ["instance", "unknown setting ttl", "TENURE_ENABLED", "--priority"] {
        assert!(told.to_string().contains(part), "{part}: {told}");
    }
    assert_eq!(told.problems().len(), 4, "what a wrong ttl may lead to is not guessed at: {told}");

    let unreadable = Loader::new().file("/nowhere/tenure.toml");
    let told = refusal(unreadable.environment([("TENURE_ENABLED", "perhaps")]));
    assert!(told.contains("/nowhere") && told.contains("TENURE_ENABLED"), "{told}");
}

#[test]
fn all_problems_are_told_at_once() {
    let text = "a = 1\ndefaults.ttl = 'x'\nprefix = 5";
    let error = toml(text).environment([("TENURE_X", "1")]).load().unwrap_err();
    assert_eq!(error.problems().len(), 4);
    assert_eq!(error.to_string().lines().count(), 4);
    let many: String = (0..100).map(|n| format!("x{n} = 1\n")).collect();
    assert_eq!(toml(&many).load().unwrap_err().problems().len(), 20, "no more are told at once");
}

#[test]
fn times_that_do_not_fit_name_the_rule_the_settings_and_their_origins() {
    let text = "[defaults]\nrenew_every = '5s'\n[elections.fast]\nttl = '1s'";
    assert_eq!(
        refusal(toml(text)),
        "elections.fast: renew_every 5s + one try 166ms + stop_grace 300ms exceed the 988ms \
         that a 1s lease leaves: lengthen ttl, or shorten renew_every or stop_grace \
         (elections.fast.ttl = 1s from tenure.toml:4, \
         defaults.renew_every = 5s from tenure.toml:2)"
    );
    let text = refusal(Loader::new().environment([("TENURE_DEFAULTS__TTL", "10ms")]));
    assert!(text.starts_with("defaults: ttl is 10ms"), "{text}");
    assert!(text.ends_with("(defaults.ttl = 10ms from TENURE_DEFAULTS__TTL)"), "{text}");
}

#[test]
fn risky_settings_are_warned_of() {
    let text = "store = 'rediss://h#insecure'\ndefaults.ttl = '500ms'\nelections.a.ttl = '2h'";
    let config = toml(text).load().unwrap();
    let warnings: Vec<String> = config.warnings().iter().map(Warning::to_string).collect();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings[0].starts_with("tenure.toml:1: store.url: INSECURE"));
    assert!(warnings[1].starts_with("tenure.toml:3: elections.a.ttl: 2h is long"));
    assert!(warnings[2].starts_with("tenure.toml:2: defaults.ttl: 500ms is short"));
}

#[test]
fn failback_is_a_switch_or_a_table() {
    let failback = |text: &str| toml(text).load().unwrap().defaults.failback;
    let usual = Failback::default();
    assert_eq!(failback("defaults.failback = true"), Some(usual));
    assert_eq!(failback("defaults.failback = false"), None);
    let patient = Failback { delay: seconds(9), ..usual };
    assert_eq!(failback("defaults.failback.delay = '9s'"), Some(patient));
    assert_eq!(failback("defaults.failback = { enabled = false, delay = '9s' }"), None);
    let off = [("TENURE_DEFAULTS__FAILBACK", "off")];
    let config = toml("defaults.failback.delay = '9s'").environment(off).load().unwrap();
    assert_eq!(config.defaults.failback, None);
}

#[test]
fn text_that_is_not_of_its_format_is_refused_with_its_line() {
    let cases = [
        (Format::Toml, "a = 1\nb = = 2", ":2: "),
        (Format::Toml, "a = 1\na = 2", ":2: duplicate key"),
        (Format::Json, "{\n\"enabled\": true,\n}", ":3: trailing comma"),
        (
            Format::Json,
            "{\n\"prefix\": \"a\",\n\"prefix\": \"b\"\n}",
            ":3: \"prefix\" is given twice",
        ),
        (Format::Json, "[]", ":1: file: expects a table of settings"),
        (Format::Json, "", ":1: EOF while parsing a value"),
        (Format::Json, "{} {}", ":1: trailing characters"),
    ];
    for (format, text, part) in cases {
        let error = refusal(Loader::new().text(format, "f", text));
        assert!(error.starts_with('f') && error.contains(part), "{text:?}: {error}");
    }
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let error = refusal(Loader::new().text(Format::Json, "f", &format!("{{\"a\": {deep}}}")));
    assert!(error.contains("nested too deep"), "{error}");
    let error = refusal(Loader::new().text(Format::Json, "f", "{\n\"enabled\": null}"));
    assert_eq!(error, "f:2: enabled: null says nothing: leave the setting out");
}
