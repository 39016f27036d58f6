//! The store's address from all the ways to say it.

use tenure::config::Loader;

use super::{refusal, toml};

#[track_caller]
fn url(loader: Loader) -> String {
    let config = loader.load().unwrap();
    config.store.url().expect("a store").reveal().to_owned()
}

#[test]
fn an_address_is_a_url_or_its_parts() {
    let cases = [
        ("store = 'redis://h'", "redis://h"),
        ("store.url = ' redis://h '", "redis://h"),
        ("store.host = 'h'", "redis://h:6379"),
        ("store.host = '::1'\nstore.port = 7000", "redis://[::1]:7000"),
        ("store.port = 7000", "redis://127.0.0.1:7000"),
        ("store.socket = '/run/r s.sock'", "unix:///run/r%20s.sock"),
        (
            "store.socket = '/s'\nstore.user = 'u'\nstore.password = 'p&'\nstore.database = 1",
            "unix:///s?user=u&password=p%26&db=1",
        ),
        ("store = { host = 'h', password = 'a/b@c' }", "redis://:a%2Fb%40c@h:6379"),
        ("store = { host = 'h', user = 'u', password = 'p' }", "redis://u:p@h:6379"),
        ("store = { host = 'h', tls = { ca_file = '/ca' } }", "rediss://h:6379?ca=/ca"),
        (
            "store = { host = 'h', tls = { cert_file = '/c', key_file = '/k', insecure = true } }",
            "rediss://h:6379?cert=/c&key=/k#insecure",
        ),
        ("store = { host = 'h', tls = { enabled = false, ca_file = '/ca' } }", "redis://h:6379"),
        ("store = { url = 'rediss://h', tls = true }", "rediss://h"),
        ("store = { url = 'redis://h/1', password = 'p' }", "redis://:p@h/1"),
        ("store = { url = 'redis://u@h', password = 'p' }", "redis://u:p@h"),
        ("store = { url = 'other://h', password = 'p' }", "other://:p@h"),
        (
            "store = { url = 'redis+sentinel://a,b:1/main', password = 'p', database = 2 }",
            "redis+sentinel://:p@a,b:1/main/2",
        ),
        ("store = { url = 'redis+cluster://a,b:1', password = 'p' }", "redis+cluster://:p@a,b:1"),
        (
            "store = { url = 'rediss+cluster://a,b', tls = { ca_file = '/ca' } }",
            "rediss+cluster://a,b?ca=/ca",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(url(toml(text)), expected, "{text}");
    }
}

#[test]
fn the_strongest_layer_that_names_a_store_wins() {
    let parts = "store = { host = 'a', port = 7000, password = 'p' }";
    let by_url = toml(parts).environment([("TENURE_STORE", "redis://b")]);
    assert_eq!(url(by_url.clone()), "redis://b", "the password was meant for a");
    let listed = by_url.load().unwrap();
    assert!(listed.settings().iter().all(|s| s.key != "store.host" && s.key != "store.port"));

    let by_host = toml("store = 'redis://b'").environment([("TENURE_STORE__HOST", "a")]);
    assert_eq!(url(by_host), "redis://a:6379");
    let by_socket = toml(parts).environment([("TENURE_STORE__SOCKET", "/s")]);
    assert_eq!(url(by_socket), "unix:///s");
    let other_host = toml(parts).environment([("TENURE_STORE__HOST", "b")]);
    assert_eq!(url(other_host), "redis://b:7000");
}

#[test]
fn a_login_of_a_weaker_layer_never_goes_to_another_address() {
    let production = "store = { url = 'rediss://prod', user = 'u', password = 'c4nary', \
                      tls = { ca_file = '/ca' } }";
    for other in ["redis://127.0.0.1:7000", "rediss://prod:7000", "rediss://other", "redis://prod"]
    {
        let loader = toml(production).set(["store"], other, "--store");
        assert_eq!(url(loader.clone()), other);
        let config = loader.load().unwrap();
        // What is shown is what is used.
        let shown: Vec<_> = config.settings().iter().map(|setting| setting.to_string()).collect();
        let is_gone = |name: &str| !shown.iter().any(|line| line.starts_with(name));
        assert!(
            ["store.user", "store.password", "store.tls.ca_file"].into_iter().all(is_gone),
            "{shown:?}"
        );
        let warned: Vec<_> = config.warnings().iter().map(|warning| warning.key.as_str()).collect();
        assert_eq!(warned, ["store.user", "store.password", "store.tls.ca_file"], "{other}");
        let text = config.warnings()[1].to_string();
        assert!(text.contains("--store") && text.contains("same place as the address"), "{text}");
        assert!(!format!("{config:?}").contains("c4nary"));
    }
    // The same address said again, and a layer that names none: it is meant for them.
    let again = toml(production).environment([("TENURE_STORE", "rediss://PROD:6379")]);
    assert_eq!(url(again), "rediss://u:c4nary@PROD:6379?ca=/ca");
    let only_login = toml("store = { user = 'u', password = 'p' }");
    let elsewhere = only_login.environment([("TENURE_STORE", "redis://h")]);
    assert_eq!(url(elsewhere), "redis://u:p@h");
    let stronger = toml("store = 'redis://a'").environment([("TENURE_STORE__PASSWORD", "p")]);
    assert_eq!(url(stronger.clone()), "redis://:p@a");
    assert_eq!(url(stronger.set(["store"], "redis://b", "--store")), "redis://b");
}

#[test]
fn a_login_that_was_set_with_tls_is_not_sent_without() {
    let loader = toml("store = { password = 'p', tls = true }");
    let bare = loader.clone().environment([("TENURE_STORE", "redis://h")]);
    assert_eq!(url(bare.clone()), "redis://h");
    assert_eq!(bare.load().unwrap().warnings().len(), 2);
    let kept = loader.clone().environment([("TENURE_STORE", "rediss://h")]);
    assert_eq!(url(kept), "rediss://:p@h");
    let said = [("TENURE_STORE", "redis://h"), ("TENURE_STORE__TLS", "false")];
    assert_eq!(url(loader.environment(said)), "redis://:p@h", "on purpose");
    let host = toml("store = { host = 'a', tls = true }");
    let error = refusal(host.environment([("TENURE_STORE__HOST", "b")]));
    assert!(error.contains("store.tls.enabled (tenure.toml:1) and store.host"), "{error}");
}

#[test]
fn a_part_outranks_that_of_a_url_in_a_weaker_layer_only() {
    let text = "store = 'redis://u:old@h/1'";
    let login = [("TENURE_STORE__PASSWORD", "new"), ("TENURE_STORE__DATABASE", "2")];
    assert_eq!(url(toml(text).environment(login)), "redis://u:new@h/2");
    let encrypted = toml(text).environment([("TENURE_STORE__TLS", "true")]);
    assert_eq!(url(encrypted), "rediss://u:old@h/1");
    let whole = toml("store = { host = 'h', password = 'old', database = 1, tls = true }");
    let whole = whole.environment([("TENURE_STORE", "redis://:new@h/2")]);
    assert_eq!(url(whole), "redis://:new@h/2");
}

#[test]
fn what_contradicts_itself_is_refused_with_both_places() {
    let cases = [
        (
            "store = { url = 'redis://h', host = 'h' }",
            "store.url (tenure.toml:1) and store.host (tenure.toml:1) contradict each other: keep one",
        ),
        ("store = { url = 'redis://h', port = 1 }", "store.port (tenure.toml:1) and store.url"),
        (
            "store = { url = 'redis://:a@h', password = 'b' }",
            "store.password (tenure.toml:1) and store.url (tenure.toml:1)",
        ),
        (
            "store = { url = 'redis://h', tls = true }",
            "store.tls.enabled (tenure.toml:1) and store.url",
        ),
        (
            "store = { host = 'h', password = 'a', password_file = '/b' }",
            "store.password (tenure.toml:1) and store.password_file",
        ),
        ("store = { socket = '/s', tls = true }", "is for redis:// and rediss:// addresses only"),
        ("store = { host = 'h', user = 'u' }", "store.user: needs a password"),
        ("store.password = 'p'", "store.password: is set but no address"),
        ("store.tls.ca_file = '/ca'", "store.tls.ca_file: is set but no address"),
        ("store.host = 'h:1'", "give the port as store.port"),
        ("store.host = 'redis://h'", "call it store.url"),
        ("store.host = 'a/b'", "is not a host name"),
        ("store.host = ''", "is empty"),
        ("store = ''", "tenure.toml:1: store.url is empty: write the store's address"),
        ("store.url = '  '", "store.url is empty"),
        ("store = '${NOBODY_SET_THIS:}'", "store.url is empty"),
        ("store = { host = 'h', password = '' }", "store.password is empty: write the password"),
        ("store = { url = 'redis://h', password = ' ' }", "store.password is empty"),
        ("store = { host = 'h', user = '', password = 'p' }", "store.user is empty"),
        ("store = { host = 'h', port = '' }", "store.port: expects whole number"),
        ("store = { url = 'h:6379', password = 'p' }", "store.url: is not a URL"),
    ];
    for (text, part) in cases {
        let error = refusal(toml(text));
        assert!(error.contains(part), "{text}: {error}");
    }
    // What is meant to name the store and does not is never passed over, whatever is below it.
    for name in ["STORE", "STORE__URL", "STORE__URL_FILE", "STORE__HOST", "STORE__SOCKET"] {
        let variable = format!("TENURE_{name}");
        for below in ["", "store = 'redis://h'"] {
            let error = refusal(toml(below).environment([(variable.as_str(), "")]));
            assert!(error.starts_with(&format!("{variable}: ")), "{below}: {error}");
        }
    }
    for name in ["PORT", "USER", "PASSWORD", "PASSWORD_FILE", "DATABASE"] {
        let variable = format!("TENURE_STORE__{name}");
        let error = refusal(toml("store.host = 'h'").environment([(variable.as_str(), "")]));
        assert!(error.starts_with(&format!("{variable}: ")), "{error}");
    }
    for (variable, part) in
        [("TENURE_CONFIG", "is empty: name the"), ("TENURE_PROFILE", "is empty: name a")]
    {
        let error = refusal(Loader::new().environment([(variable, "")]));
        assert!(error.starts_with(variable) && error.contains(part), "{error}");
    }
    // A stronger layer that says where it is takes the place of an empty one.
    let flag = Loader::new().environment([("TENURE_STORE", "")]);
    let config = flag.set(["store", "url"], "redis://h", "--store").load().unwrap();
    assert_eq!(config.store.to_string(), "redis://h:6379/0");
    let port = toml("store = 'redis://h'").environment([("TENURE_STORE__PORT", "7000")]);
    let error = refusal(port);
    assert!(error.starts_with("store.port (TENURE_STORE__PORT) and store.url (tenure.toml:1)"));
}
