//! Nothing that prints shows a secret, and secrets may stand in files of their own.

use std::path::PathBuf;

use tenure::config::{Config, Format, Loader};
use testkit::TempFolder;

#[cfg(feature = "hcl")]
use super::formats::FULL_HCL;
use super::formats::FULL_JSON;
#[cfg(feature = "yaml")]
use super::formats::FULL_YAML;
use super::{FULL, refusal, toml};

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
        "store = 'redis+quorum://u:c4nary@a,v:c4nary@b,c'",
        "store = 'redis+quorum://u:c4nary,x@a,b,c'",
        "store = 'redis+quorum://u:x,c4nary@a,b,c'",
        "store = 'redis+quorum://a,u:c4nary@b,c?x=c4nary'",
        "store = 'redis+sentinel://u:c4nary@a/m?sentinel_password=c4nary'",
        "store = 'reddis://u:c4nary@a'",
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
        "store = { tls = 'c4nary', host = 'h' }",
        "store = { host = 'h', port = 'c4nary' }",
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
        #[cfg(feature = "hcl")]
        (Format::Hcl, "store { password = c4nary }"),
    ];
    for (format, text) in texts {
        let loader = Loader::new().text(format, "file", text);
        assert!(loader.clone().load().is_err(), "{text}");
        let shown = printed(loader);
        assert!(!shown.contains(CANARY), "{format:?} {text} leaks: {shown}");
    }
}

/// One wrong keystroke anywhere: something missing, and a few things too much. The keys take
/// turns, so that each of them meets every kind of place.
fn slips(text: &str) -> impl Iterator<Item = String> {
    const KEYS: [&str; 13] = ["\"", "'", "\n", " ", "{", "}", "[", "$", ":", "=", "#", "*", "x"];
    text.char_indices().enumerate().flat_map(move |(turn, (at, found))| {
        let key = |offset: usize| KEYS[(turn * 2 + offset) % KEYS.len()];
        let inserted = |offset| format!("{}{}{}", &text[..at], key(offset), &text[at..]);
        let missing = format!("{}{}", &text[..at], &text[at + found.len_utf8()..]);
        [missing, inserted(0), inserted(1)]
    })
}

#[test]
fn no_slip_of_the_finger_breaks_the_loader_or_shows_the_password() {
    let files = [
        (Format::Toml, FULL),
        (Format::Json, FULL_JSON),
        #[cfg(feature = "yaml")]
        (Format::Yaml, FULL_YAML),
        #[cfg(feature = "hcl")]
        (Format::Hcl, FULL_HCL),
    ];
    for (format, full) in files {
        let full = full.replace("${REDIS_PASSWORD}", CANARY);
        let full = full.replace("env(\\\"REDIS_PASSWORD\\\")", CANARY);
        assert!(full.contains(CANARY), "{format:?}");
        for text in slips(&full) {
            if let Err(error) = Loader::new().text(format, "file", &text).load() {
                let shown = format!("{error} {error:?}");
                assert!(!shown.contains(CANARY), "{format:?} leaks: {shown}\n{text}");
                assert!(error.problems().len() <= 20);
            }
        }
    }
}

#[test]
fn variables_and_arguments_do_not_show_secrets_either() {
    let variables = [
        ("TENURE_STORE", "redis://u:c4nary@h"),
        ("TENURE_STORE__PASSWORD", CANARY),
        ("TENURE_STORE__PASSWRD", CANARY),
        ("TENURE_STORE__TLS", CANARY),
        ("TENURE_STORE__TLS__INSECURE", CANARY),
        ("TENURE_STORE__PORT", CANARY),
        ("TENURE_STORE__DATABASE", CANARY),
        ("TENURE_SIDECAR__STANDBY_IS_DEGRADED", CANARY),
        ("TENURE_DEFAULTS__HOOKS__ON_GAIN", "curl -H 'Authorization: c4nary' h"),
        ("TENURE_DEFAULTS__HOOKS__ON_LOSS", "TOKEN=c4nary curl h"),
        ("TENURE_DEFAULTS__HOOKS__ON_GAIN_URL", "https://hooks.example/services/T0/B0/c4nary"),
        ("TENURE_DEFAULTS__HOOKS__ON_LOSS_URL", "https://u:c4nary@hooks.example"),
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

fn url(config: &Config) -> &str {
    config.store.url().unwrap().reveal()
}

#[test]
fn secrets_may_stand_in_files_beside_the_configuration() {
    let folder = TempFolder::create();
    let _password = folder.write("password", "p w\n");
    let address = folder.write("address", "redis://:c4nary@h/3\n");
    let parts = folder.write("parts.toml", "store = { host = 'h', password_file = 'password' }");
    assert_eq!(url(&Loader::new().file(parts).load().unwrap()), "redis://:p%20w@h:6379");
    let whole = folder.write("whole.json", "{\"store\": {\"url_file\": \"address\"}}");
    let loader = Loader::new().file(whole);
    assert_eq!(url(&loader.clone().load().unwrap()), "redis://:c4nary@h/3");
    assert!(!printed(loader).contains(CANARY));
    let variable = address.to_string_lossy().into_owned();
    let loader = Loader::new().environment([("TENURE_STORE__URL_FILE", variable)]);
    assert_eq!(url(&loader.load().unwrap()), "redis://:c4nary@h/3");
}

#[test]
fn a_file_that_cannot_hold_a_secret_or_a_configuration_is_refused() {
    let folder = TempFolder::create();
    let text =
        |file: &PathBuf| format!("store = {{ host = 'h', password_file = '{}' }}", file.display());
    let missing = refusal(toml(&text(&folder.path().join("missing"))));
    assert!(missing.contains("missing: No such file"), "{missing}");
    let endless = refusal(toml(&text(&PathBuf::from("/dev/zero"))));
    assert!(endless.starts_with("/dev/zero: is larger than 65536 bytes"), "{endless}");
    let binary = folder.path().join("binary");
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    assert!(refusal(toml(&text(&binary))).ends_with("is not UTF-8 text"));
    let large = folder.write("large.toml", &"#".repeat((1 << 20) + 1));
    assert!(refusal(Loader::new().file(large)).ends_with("is larger than 1048576 bytes"));
}

#[test]
fn a_file_with_a_secret_is_for_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempFolder::create();
    let password = folder.write("password", "p");
    let settings = folder.write("parts.toml", "store = { host = 'h', password_file = 'password' }");
    let load = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&password, permissions).unwrap();
        Loader::new().file(&settings).load()
    };
    for mode in [0o600, 0o400, 0o640] {
        assert!(load(mode).unwrap().warnings().is_empty(), "{mode:o}");
    }
    let warned = load(0o644).unwrap();
    let warning = warned.warnings()[0].to_string();
    assert!(warning.contains("store.password_file") && warning.contains("chmod 600"), "{warning}");
    let refused = load(0o666).unwrap_err().to_string();
    assert!(refused.contains("may write it: chmod 600"), "{refused}");
}

#[test]
fn an_empty_file_is_no_secret() {
    let folder = TempFolder::create();
    for (name, text) in [("empty", ""), ("blank", " \n")] {
        let file = folder.write(name, text);
        let file = file.display();
        let password = toml(&format!("store = {{ host = 'h', password_file = '{file}' }}"));
        let error = refusal(password);
        assert!(error.contains("store.password_file") && error.contains("empty file"), "{error}");
        let error = refusal(toml(&format!("store.url_file = '{file}'")));
        assert!(error.contains("store.url_file") && error.contains("is empty"), "{error}");
    }
}

#[test]
fn a_pipe_is_read_if_somebody_writes_into_it() {
    let folder = TempFolder::create();
    let pipe = folder.path().join("pipe.toml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let (told, tells) = std::sync::mpsc::channel();
    let loading = |pipe: PathBuf| {
        let told = told.clone();
        std::thread::spawn(move || told.send(Loader::new().file(pipe).load()).unwrap());
        tells.recv_timeout(testkit::GENEROUS).expect("it does not hang")
    };
    let error = loading(pipe.clone()).unwrap_err().to_string();
    assert!(error.contains("nobody writes into it"), "{error}");
    let writing = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::write(pipe, "store = 'redis://h'").unwrap()
    });
    assert_eq!(url(&loading(pipe).unwrap()), "redis://h");
    writing.join().unwrap();
}
