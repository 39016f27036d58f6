//! The section `sidecar`.

use tenure::config::{Format, Loader};

#[test]
fn the_sidecar_is_configured_like_everything_else() {
    let text = "
        [elections.report]
        [sidecar]
        listen = '[::1]:9000'
        hosts = 'ops.example, tenure.example'
        observe = 'mailer'
        standby_is_degraded = true
    ";
    let loader = Loader::new().text(Format::Toml, "tenure.toml", text);
    let config = loader.environment([("TENURE_SIDECAR__LISTEN", "[::1]:9001")]).load().unwrap();
    assert!(config.elections.contains_key("report"), "an empty table names an election");
    let sidecar = &config.sidecar;
    assert_eq!(sidecar.listen, "[::1]:9001");
    assert_eq!(sidecar.hosts, ["ops.example", "tenure.example"]);
    assert_eq!(sidecar.observe, ["mailer"]);
    assert!(sidecar.standby_is_degraded && sidecar.token.is_none());
}

#[test]
fn the_token_comes_from_a_file_or_from_the_environment() {
    let folder = testkit::TempFolder::create();
    let file = folder.write("token", " 0123456789abcdef\n");
    let file = file.to_str().unwrap();
    let loader = || Loader::new().environment([("TENURE_SIDECAR__TOKEN_FILE", file)]);
    let config = loader().load().unwrap();
    assert_eq!(config.sidecar.token.unwrap().reveal(), "0123456789abcdef");

    let config = loader().set(["sidecar", "token"], "stronger", "--token").load().unwrap();
    assert_eq!(config.sidecar.token.unwrap().reveal(), "stronger");

    let empty = folder.write("empty", " \n");
    let loader = Loader::new().set(["sidecar", "token_file"], empty.to_str().unwrap(), "a test");
    let error = loader.load().unwrap_err().to_string();
    assert!(error.contains("sidecar.token_file") && error.contains("is empty"), "{error}");
}
