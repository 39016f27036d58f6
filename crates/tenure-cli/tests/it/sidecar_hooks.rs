//! Hooks of single elections, by the configuration.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use testkit::{GENEROUS, RedisServer, TempFolder, wait_until};

use crate::sidecar::{get, leading, written};
use crate::stage::{CommandOutput, plain_command};

/// Posts a body and returns the answer.
fn post(address: &str, path: &str, body: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn each_election_has_its_own_hooks_and_what_joins_those_of_the_defaults() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let hooks = "defaults.hooks.on_gain = 'echo default $TENURE_NAME >> log'\n\
                 elections.mailer.hooks.on_gain = 'echo own $TENURE_NAME >> log'\n\
                 elections.quiet.hooks.on_gain = ''\n\
                 elections.quiet.hooks.on_loss = 'true'\n";
    let (_process, address) = leading(&server, &folder, hooks);
    let joined = post(&address, "/elections/joined", "{\"within_ms\": 60000}");
    assert!(joined.starts_with("HTTP/1.1 201"), "{joined}");
    let told = || {
        let mut lines: Vec<String> = written(&folder, "log").lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let expected = ["default joined", "default report", "own mailer"];
    wait_until("all were told", GENEROUS, || told() == expected);
    wait_until("the fourth leads", GENEROUS, || {
        get(&address, "/leader/quiet").starts_with("HTTP/1.1 200")
    });
    let metrics = get(&address, "/metrics");
    assert!(metrics.contains("name=\"quiet\",hook=\"on_loss\""), "{metrics}");
    assert!(!metrics.contains("name=\"quiet\",hook=\"on_gain\""), "{metrics}");
    assert_eq!(told(), expected);
}

#[test]
fn secrets_of_hooks_are_shown_nowhere() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (asked, received) = mpsc::channel();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut text = vec![0; 8192];
            let mut len = 0;
            while !text[..len].ends_with(b"}") {
                len += stream.read(&mut text[len..]).unwrap();
            }
            // What it says is repeated nowhere either.
            let answer = "HTTP/1.1 403 s3cret\r\nContent-Length: 6\r\n\r\ns3cret";
            stream.write_all(answer.as_bytes()).unwrap();
            let _ = asked.send(String::from_utf8_lossy(&text[..len]).into_owned());
        }
    });
    let hooks = format!(
        "[defaults.hooks]\n\
         on_gain_url = 'http://127.0.0.1:{port}/s3cret?key=s3cret'\n\
         secret = 's3cret-s3cret-s3cret'\n\
         headers = {{ Authorization = 'Bearer s3cret', X-Key = 's3cret' }}\n"
    );
    let (_process, address) = leading(&server, &folder, &hooks);
    let request = received.recv_timeout(GENEROUS).unwrap();
    for line in ["authorization: Bearer s3cret", "x-key: s3cret", "webhook-signature: v1,"] {
        assert!(request.contains(line), "{request}");
    }
    assert!(!request.contains("s3cret-s3cret"), "the key itself was sent: {request}");
    wait_until("the failure is logged", GENEROUS, || {
        written(&folder, "stderr").contains("hook failed")
    });
    let check = |words: &[&str]| {
        let mut command = plain_command(words);
        command.env("TENURE_CONFIG", folder.path().join("tenure.toml"));
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 0, "{said:?}");
        format!("{said:?}")
    };
    let shown = [
        written(&folder, "stderr"),
        get(&address, "/status"),
        get(&address, "/metrics"),
        check(&["config", "check"]),
        check(&["config", "check", "--json"]),
    ];
    for text in shown {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn hooks_that_cannot_be_called_are_told_by_the_check_and_at_the_start() {
    let folder = TempFolder::create();
    for (settings, why) in [
        (
            "elections.a.hooks.on_gain_url = 'ftp://u:s3cret@h'",
            "elections.a.hooks.on_gain_url: the",
        ),
        (
            "defaults.hooks = { on_loss_url = 'http://h', secret = 'whsec_not base64, is it' }",
            "defaults.hooks.on_loss_url: a secret that begins with whsec_",
        ),
        (
            "defaults.hooks = { on_gain_url = 'http://u:s3cret@h', headers = { Authorization = 'x' } }",
            "defaults.hooks.on_gain_url: the address has a login, and so has",
        ),
    ] {
        let file = folder.write("tenure.toml", settings);
        for words in [&["config", "check"][..], &["sidecar", "a", "--listen", "127.0.0.1:0"]] {
            let mut command = plain_command(words);
            command.env("TENURE_CONFIG", &file).env("TENURE_STORE", "redis://127.0.0.1:1");
            let said = CommandOutput::of(command);
            assert!(said.code == 78 && said.err.contains(why), "{words:?}: {said:?}");
            assert!(!said.err.contains("s3cret"), "{said:?}");
        }
    }
}
