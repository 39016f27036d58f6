//! `tenure probe`: yes, no, nobody there, too slow, refused; each has an exit code of its own.

use testkit::{GENEROUS, Process, RedisServer, TempFolder, wait_until};

use crate::sidecar::sidecar;
use crate::stage::{CommandOutput, Kind, NAME, Stage, plain_command};

fn probe(words: &[&str]) -> CommandOutput {
    CommandOutput::of(plain_command(&[&["probe"], words].concat()))
}

/// The same for a sidecar that may be slow to answer on a machine with much to do.
fn patient(words: &[&str]) -> CommandOutput {
    probe(&[words, &["--timeout", "30s"]].concat())
}

/// A sidecar that takes part in `report`, and where it listens.
struct Served {
    process: Process,
    address: String,
}

impl Served {
    fn start(id: &str, words: &[&str], configuration: &str, folder: &TempFolder) -> Self {
        let file = folder.write(&format!("{id}.toml"), configuration);
        let mut command = sidecar(&["report", "--id", id, "--config", file.to_str().unwrap()]);
        command.args(words).env("TENURE_DEFAULTS__FRESH_STORE", "true");
        let process = Process::spawn(command);
        let line = process.next_line_with("serving report at ", GENEROUS);
        let place = line.rsplit(' ').next().unwrap();
        let address = place.rsplit("//").next().unwrap().trim_end_matches('/').to_owned();
        Served { process, address }
    }
}

#[test]
fn a_leader_and_a_standby_are_alive_and_ready_and_one_of_them_leads() {
    let (server, folder) = (RedisServer::start(), TempFolder::create());
    let url = server.url();
    let socket = format!("unix:{}", folder.path().join("ada.sock").display());
    let listen = format!("127.0.0.1:0,{socket}");
    let ada = Served::start("ada", &["--store", &url, "--listen", &listen], "", &folder);
    let leads = |at: &str| patient(&["leader", "report", "--at", at]).code == 0;
    wait_until("ada leads", GENEROUS, || leads(&socket));
    let bob = Served::start("bob", &["--store", &url, "--listen", "127.0.0.1:0"], "", &folder);

    for at in [&ada.address, &socket, &bob.address] {
        wait_until("it is ready", GENEROUS, || patient(&["ready", "--at", at]).code == 0);
        let alive = patient(&["live", "--at", at]);
        assert_eq!((alive.code, alive.out.as_str()), (0, "live"), "{alive:?}");
    }
    let led = patient(&["leader", "report", "--at", &ada.address]);
    assert!(led.out.starts_with("leads report, token ") && led.code == 0, "{led:?}");
    let json = patient(&["leader", "--at", &ada.address, "--json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["token"].is_u64() && json["valid_for_ms"].is_u64(), "{json}");
    wait_until("bob has seen ada", GENEROUS, || {
        let other = patient(&["leader", "report", "--at", &bob.address]);
        assert_eq!((other.code, other.out.as_str()), (1, ""), "{other:?}");
        other.err.contains("report is led by ada_")
    });
}

#[test]
fn a_sidecar_whose_store_is_away_is_alive_and_not_ready() {
    let folder = TempFolder::create();
    let words = ["--store", "redis://127.0.0.1:1", "--listen", "127.0.0.1:0"];
    let served = Served::start("ada", &words, "", &folder);
    assert_eq!(patient(&["live", "--at", &served.address]).code, 0);
    let said = patient(&["ready", "--at", &served.address]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("not ready: report: the store has not answered yet"), "{said:?}");
    let json = patient(&["ready", "--at", &served.address, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["ready"], false);
}

#[test]
fn silence_is_told_apart_from_nobody_and_from_another_program() {
    let (server, folder) = (RedisServer::start(), TempFolder::create());
    let url = server.url();
    let mut served =
        Served::start("ada", &["--store", &url, "--listen", "127.0.0.1:0"], "", &folder);
    served.process.pause();
    let silent = probe(&["live", "--at", &served.address, "--timeout", "300ms"]);
    assert_eq!(silent.code, 75, "{silent:?}");
    assert!(silent.err.contains("did not answer within 300ms"), "{silent:?}");
    served.process.resume();

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = patient(&["live", "--at", &free.to_string()]);
    assert_eq!(nobody.code, 69, "{nobody:?}");
    assert!(nobody.err.contains("nobody answers") && nobody.err.contains("--at"), "{nobody:?}");
    let missing = patient(&["live", "--at", "unix:/nowhere/sidecar.sock", "--json"]);
    assert_eq!(missing.code, 69, "{missing:?}");
    let told: serde_json::Value = serde_json::from_str(&missing.err).unwrap();
    assert_eq!(told["code"], 69);

    let other = patient(&["live", "--at", &format!("127.0.0.1:{}", server.port())]);
    assert_eq!(other.code, 69, "{other:?}");
    assert!(other.err.contains("another program may listen there"), "{other:?}");
}

#[test]
fn a_question_that_is_refused_says_what_is_missing() {
    let (server, folder) = (RedisServer::start(), TempFolder::create());
    let url = server.url();
    let _ = folder.write("token", "0123456789abcdef\n");
    let settings = "sidecar.token_file = 'token'\n";
    let words = ["--store", &url, "--listen", "127.0.0.1:0"];
    let served = Served::start("ada", &words, settings, &folder);
    let at = served.address.as_str();
    let config = folder.path().join("ada.toml");
    let config = config.to_str().unwrap();
    wait_until("it leads, for who has the token", GENEROUS, || {
        patient(&["leader", "--at", at, "--config", config]).code == 0
    });
    // Open to all: an orchestrator needs no secret for them.
    assert_eq!(patient(&["ready", "--at", at]).code, 0);
    let refused = patient(&["leader", "--at", at]);
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.err.contains("401") && refused.err.contains("--config"), "{refused:?}");
    let unknown = patient(&["leader", "reprot", "--at", at, "--config", config]);
    assert_eq!(unknown.code, 78, "{unknown:?}");
    assert!(unknown.err.contains("404") && unknown.err.contains("reprot"), "{unknown:?}");

    let mut command = plain_command(&["probe", "leader", "--at", at]);
    command.env("TENURE_SIDECAR__TOKEN", "0123456789abc\u{7}def");
    assert_eq!(CommandOutput::of(command).code, 78, "no header can carry it");
    for words in [&["ready", "report"][..], &["dead"], &[], &["live", "--timeout", "0s"]] {
        assert_eq!(probe(words).code, 64, "{words:?}");
    }
    assert_eq!(probe(&["live", "--at", "localhost"]).code, 78);
}

#[test]
fn a_probe_trusts_the_certificate_that_the_sidecar_was_given_and_no_other() {
    let (server, folder) = (RedisServer::start(), TempFolder::create());
    let url = server.url();
    let (own, foreign) = (testkit::Certificates::issue(), testkit::Certificates::issue());
    let settings = |of: &testkit::Certificates, more: &str| {
        let (cert, key) = (of.file("localhost.pem"), of.file("localhost.key"));
        format!("[sidecar.tls]\ncert_file = '{cert}'\nkey_file = '{key}'\n{more}")
    };
    let words = ["--store", &url, "--listen", "127.0.0.1:0"];
    let served = Served::start("ada", &words, &settings(&own, ""), &folder);
    let at = served.address.as_str();
    let asked_with = |text: &str| {
        let file = folder.write("probe.toml", text);
        patient(&["live", "--at", at, "--config", file.to_str().unwrap()])
    };
    let right = asked_with(&settings(&own, ""));
    assert_eq!(right.code, 0, "{right:?}");
    let wrong = asked_with(&settings(&foreign, ""));
    assert_eq!(wrong.code, 78, "{wrong:?}");
    assert!(wrong.err.contains("has to show the certificate"), "{wrong:?}");
    let plain = asked_with("");
    assert_eq!(plain.code, 69, "{plain:?}");
    assert!(plain.err.contains("serves TLS"), "{plain:?}");
    let authority = format!("client_ca_file = '{}'\n", own.file("ca.pem"));
    let needs_own = asked_with(&settings(&own, &authority));
    assert_eq!(needs_own.code, 78, "{needs_own:?}");
    assert!(needs_own.err.contains("socket file"), "{needs_own:?}");
}

#[test]
fn a_wrapper_that_serves_http_is_asked_in_the_same_way() {
    let stage = Stage::on(Kind::Own);
    let socket = format!("unix:{}", stage.folder.path().join("http.sock").display());
    let _wrapper = stage.wrap("ada", &["--http", &socket], "exec sleep 600");
    wait_until("it leads", GENEROUS, || patient(&["leader", NAME, "--at", &socket]).code == 0);
    for question in ["live", "ready"] {
        assert_eq!(patient(&[question, "--at", &socket]).code, 0, "{question}");
    }
    // Where the configuration says it: nothing has to be said twice.
    let mut command = plain_command(&["probe", "live", "--timeout", "30s"]);
    command.env("TENURE_SIDECAR__LISTEN", &socket);
    assert_eq!(CommandOutput::of(command).code, 0);
}
