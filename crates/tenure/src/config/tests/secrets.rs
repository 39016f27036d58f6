//! Nothing that prints shows a secret, and secrets may stand in files of their own.

use std::fs;
use std::path::PathBuf;

use super::{Config, Format, Loader, refusal, toml};

const CANARY: &str = "c4nary";

/// Everything about an outcome that could end up in a log.
fn printed(loader: Loader) -> String {
    let before = format!("{loader:?}");
    match loader.load() {
        Ok(config) => {
            let settings = config.settings();
            let warnings = config.warnings();
            let store = &config.store;
            format!("{before} {config:?} {config:#?} {settings:?} {warnings:?} {store} {store:?}")
        }
        Err(error) => format!("{before} {error} {error:?} {error:#?}"),
    }
}

#[test]
fn a_password_is_never_shown_whether_loading_succeeds_or_fails() {
    let texts = [
        "store = 'redis://u:c4nary@h'",
        "store = 'redis://u:c4nary@'",
        "store = 'redis://u:x/c4nary@h#insecure'",
        "store = 'rediss://u:c4nary@h?x=c4nary#insecure'",
        "store = 'unix:///s?password=c4nary'",
        "store = 'h:6379,password=c4nary,ssl=true'",
        "store = 'u:c4nary@h'",
        "store = 'password=c4nary'",
        "store = { host = 'h', password = 'c4nary' }",
        "store = { url = 'redis://:c4nary@h', password = 'x' }",
        "store = { url = 'redis://:x@h', password = 'c4nary' }",
        "store = { url = 'c4nary@h', password = 'c4nary' }",
        "store = { password = 'c4nary' }",
        "store = { pasword = 'c4nary', host = 'h' }",
        "store = { password = 'c4nary${X', host = 'h' }",
        "store = { password = 'c4nary${NONE}', host = 'h' }",
        "store = { password = ['c4nary'], host = 'h' }",
        "store.password = 'c4nary",
        "store.password = c4nary",
        "store.password = 'c4nary' c4nary",
        "store.password = \"c4nary\\q\"",
        "store = 'redis://${SECRET}@h'",
        "store.port = '${SECRET}'\nstore.host = 'h'",
        "defaults.ttl = '${SECRET}'",
        "enabled = '${SECRET}'",
        "defaults.on_loss = '${SECRET}'",
        "defaults.priority = 'env(\"SECRET\")'",
    ];
    for text in texts {
        let loader = toml(text).environment([("SECRET", CANARY)]);
        let shown = printed(loader);
        assert!(!shown.contains(CANARY), "{text} leaks: {shown}");
    }
}

#[test]
fn broken_files_of_any_format_do_not_show_their_lines() {
    let texts = [
        (Format::Json, "{\"store\": {\"password\": \"c4nary\" \"host\": 1}}"),
        (Format::Json, "{\"store\": {\"password\": \"c4nary\\q\"}}"),
        (Format::Json, "{\"store\": {\"password\": c4nary}}"),
        #[cfg(feature = "yaml")]
        (Format::Yaml, "store:\n  password: 'c4nary\n  host: h"),
        #[cfg(feature = "yaml")]
        (Format::Yaml, "store:\n  password: *c4nary"),
        #[cfg(feature = "yaml")]
        (Format::Yaml, "store: { password: !!c4nary x }"),
        #[cfg(feature = "hcl")]
        (Format::Hcl, "store {\n password = \"c4nary\n}"),
        #[cfg(feature = "hcl")]
        (Format::Hcl, "store { password = \"c4nary${x:y}\" }"),
        #[cfg(feature = "hcl")]
        (Format::Hcl, "store { password = c4nary(\"c4nary\") }"),
    ];
    for (format, text) in texts {
        let loader = Loader::new().text(format, "file", text);
        assert!(loader.clone().load().is_err(), "{text}");
        let shown = printed(loader);
        assert!(!shown.contains(CANARY), "{format:?} {text} leaks: {shown}");
    }
}

#[test]
fn variables_and_arguments_do_not_show_secrets_either() {
    let variables = [
        ("TENURE_STORE", "redis://u:c4nary@h"),
        ("TENURE_STORE__PASSWORD", CANARY),
        ("TENURE_STORE__PASSWRD", CANARY),
        ("OTHER", CANARY),
    ];
    for (name, value) in variables {
        let shown = printed(Loader::new().environment([(name, value)]));
        assert!(!shown.contains(CANARY), "{name} leaks: {shown}");
    }
    for names in [["store", "password"], ["store", "url"], ["store", "pass"]] {
        let shown = printed(Loader::new().set(names, CANARY, "--secret"));
        assert!(!shown.contains(CANARY), "{names:?} leaks: {shown}");
    }
}

/// A folder that is gone when the test is.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tenure-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let file = self.0.join(name);
        fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn url(config: &Config) -> &str {
    config.store.url().unwrap().reveal()
}

#[test]
fn secrets_may_stand_in_files_beside_the_configuration() {
    let folder = Folder::new("secrets");
    folder.write("password", "p w\n");
    folder.write("address", "redis://:c4nary@h/3\n");
    let parts = folder.write("parts.toml", "store = { host = 'h', password_file = 'password' }");
    assert_eq!(url(&Loader::new().file(parts).load().unwrap()), "redis://:p%20w@h:6379");
    let whole = folder.write("whole.json", "{\"store\": {\"url_file\": \"address\"}}");
    let loader = Loader::new().file(whole);
    assert_eq!(url(&loader.clone().load().unwrap()), "redis://:c4nary@h/3");
    assert!(!printed(loader).contains(CANARY));
    let variable = folder.0.join("address").to_string_lossy().into_owned();
    let loader = Loader::new().environment([("TENURE_STORE__URL_FILE", variable)]);
    assert_eq!(url(&loader.load().unwrap()), "redis://:c4nary@h/3");
}

#[test]
fn a_file_that_cannot_hold_a_secret_or_a_configuration_is_refused() {
    let folder = Folder::new("refused");
    let text =
        |file: &PathBuf| format!("store = {{ host = 'h', password_file = '{}' }}", file.display());
    let missing = refusal(toml(&text(&folder.0.join("missing"))));
    assert!(missing.contains("missing: No such file"), "{missing}");
    let endless = refusal(toml(&text(&PathBuf::from("/dev/zero"))));
    assert!(endless.starts_with("/dev/zero: is larger than 65536 bytes"), "{endless}");
    let binary = folder.write("binary", [0xff, 0xfe]);
    assert!(refusal(toml(&text(&binary))).ends_with("is not UTF-8 text"));
    let large = folder.write("large.toml", "#".repeat((1 << 20) + 1));
    assert!(refusal(Loader::new().file(large)).ends_with("is larger than 1048576 bytes"));
}
