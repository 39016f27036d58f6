//! The hooks of elections.

use tenure::config::{Config, ConfigError, Format, Loader, WebhookConfig};

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Loader::new()
        .text(Format::Toml, "tenure.toml", text)
        .environment(variables.iter().copied())
        .load()
}

fn shown(config: &Config) -> String {
    let settings = config.settings().iter().map(|setting| setting.to_string() + "\n");
    let warnings = config.warnings().iter().map(|warning| warning.to_string() + "\n");
    settings.chain(warnings).collect::<String>() + &format!("{config:?}")
}

fn headers(webhook: &WebhookConfig) -> Vec<(&str, &str)> {
    webhook.headers.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect()
}

#[test]
fn an_election_has_hooks_of_its_own_else_those_of_the_defaults() {
    let text = "
        [defaults.hooks]
        on_gain = 'up default'
        on_loss = 'down default'
        on_loss_first = true
        [elections.report.hooks]
        on_gain = 'up report'
        [elections.mailer.hooks]
        on_loss = ''
        on_loss_first = false
    ";
    let config = load(text, &[("TENURE_ELECTIONS__REPORT__HOOKS__ON_LOSS", "down report")]);
    let config = config.unwrap();
    let commands = |name: &str| {
        let hooks = &config.election(name).hooks;
        let text = |command: &Option<tenure::Secret>| {
            command.as_ref().map(|command| command.reveal().to_owned()).unwrap_or_default()
        };
        (text(&hooks.on_gain), text(&hooks.on_loss), hooks.on_loss_first)
    };
    assert_eq!(commands("report"), ("up report".into(), "down report".into(), true));
    assert_eq!(commands("mailer"), ("up default".into(), String::new(), false), "empty: none");
    assert_eq!(commands("another"), ("up default".into(), "down default".into(), true));
}

#[test]
fn webhooks_have_headers_and_a_secret_and_nothing_of_them_is_shown() {
    let folder = testkit::TempFolder::create();
    let file = folder.write("key", " s3cret-from-a-file\n");
    let text = format!(
        "
        [defaults.hooks]
        on_gain_url = 'https://hooks.example/s3cret'
        secret = 's3cret-of-the-defaults'
        headers = {{ X-Team = 's3cret billing', Authorization = 'Bearer s3cret' }}
        [elections.report.hooks]
        secret_file = '{}'
        [elections.report.hooks.headers]
        x-team = 's3cret report'
        ",
        file.display()
    );
    let variables = [("TENURE_DEFAULTS__HOOKS__HEADERS__X_ENVIRONMENT", "s3cret production")];
    let config = load(&text, &variables).unwrap();
    let of = |name: &str| config.election(name).hooks.on_gain_url.clone().unwrap();
    let report = of("report");
    assert_eq!(report.secret.as_ref().unwrap().reveal(), "s3cret-from-a-file");
    let expected = [
        ("authorization", "Bearer s3cret"),
        ("x-environment", "s3cret production"),
        ("x-team", "s3cret report"),
    ];
    assert_eq!(headers(&report), expected);
    assert_eq!(of("another").secret.unwrap().reveal(), "s3cret-of-the-defaults");
    let shown = shown(&config);
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains("elections.report.hooks.headers.x-team = ***"), "{shown}");
}

#[test]
fn a_login_is_not_sent_to_another_host_than_it_was_set_for() {
    let text = "
        [defaults.hooks]
        on_gain_url = 'https://one.example/x'
        secret = '0123456789abcdef'
        headers.Authorization = 'Bearer one'
        [elections.same.hooks]
        on_gain_url = 'https://ONE.example/y'
        [elections.other.hooks]
        on_gain_url = 'https://two.example/x'
        [elections.own.hooks]
        on_gain_url = 'https://two.example/x'
        secret = 'fedcba9876543210'
    ";
    let config = load(text, &[]).unwrap();
    let of = |name: &str| config.election(name).hooks.on_gain_url.clone().unwrap();
    assert_eq!(headers(&of("same")), [("authorization", "Bearer one")]);
    assert!(of("same").secret.is_some());
    assert!(headers(&of("other")).is_empty() && of("other").secret.is_none());
    assert_eq!(of("own").secret.unwrap().reveal(), "fedcba9876543210");
    // Of both for one, of the header for the other.
    assert_eq!(config.warnings().len(), 3, "{}", shown(&config));
    let warning = config.warnings()[1].to_string();
    assert!(warning.contains("defaults.hooks.headers.Authorization: not sent"), "{warning}");

    // Nor where a stronger layer names another host.
    let elsewhere = [("TENURE_DEFAULTS__HOOKS__ON_GAIN_URL", "http://three.example")];
    let config = load(text, &elsewhere).unwrap();
    let webhook = config.defaults.hooks.on_gain_url.clone().unwrap();
    assert!(webhook.headers.is_empty() && webhook.secret.is_none());

    // A secret for all addresses needs none beside it.
    let text = "
        [defaults.hooks]
        secret = '0123456789abcdef'
        [elections.a.hooks]
        on_loss_url = 'https://a.example'
    ";
    let config = load(text, &[]).unwrap();
    let webhook = config.election("a").hooks.on_loss_url.clone().unwrap();
    assert!(webhook.secret.is_some() && config.warnings().is_empty());
}

#[test]
fn hooks_that_cannot_work_are_refused_with_their_place() {
    for (settings, expected) in [
        ("secret = 'short'", "tenure.toml:3: defaults.hooks.secret: has 5 characters"),
        ("headers.Host = 'a'", "defaults.hooks.headers.Host: is set by the sidecar itself"),
        ("headers.Webhook-Id = 'a'", "defaults.hooks.headers.Webhook-Id: is set by the sidecar"),
        ("headers.'a b' = 'a'", "is no name of a header"),
        ("headers.x = \"a\\r\\nb: s3cret\"", "has a character that a header cannot hold"),
        ("on_loss_first = 's3cret'", "defaults.hooks.on_loss_first: expects `true` or `false`"),
        ("secret_file = '/nowhere/at/all'", "/nowhere/at/all: No such file"),
        ("on_gains = 'x'", "did you mean defaults.hooks.on_gain?"),
    ] {
        let text = format!("\n[defaults.hooks]\n{settings}\non_gain_url = 'https://h'\n");
        let error = load(&text, &[]).unwrap_err().to_string();
        assert!(error.contains(expected), "{settings}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    // As they were called before there were hooks per election.
    let error = load("sidecar.on_loss = 'x'", &[]).unwrap_err().to_string();
    assert!(error.contains("did you mean defaults.hooks.on_loss?"), "{error}");
    let error = load("", &[("TENURE_SIDECAR__ON_LOSS", "x")]).unwrap_err().to_string();
    assert!(error.contains("did you mean TENURE_DEFAULTS__HOOKS__ON_LOSS?"), "{error}");
}

/// What a hook is told in its environment is no setting for the commands that it runs.
#[test]
fn a_hook_may_run_commands_of_tenure() {
    let told = ["TENURE_EVENT", "TENURE_NAME", "TENURE_ID", "TENURE_TOKEN", "TENURE_REASON"];
    load("", &told.map(|name| (name, "gain"))).unwrap();
}
