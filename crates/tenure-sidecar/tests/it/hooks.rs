//! Hooks: told on gain and loss, tried again, and never told a lie.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use tenure::Secret;
use tenure_sidecar::{Hook, Sidecar, Webhook};
use testkit::{GENEROUS, TempFolder, wait_until};

use crate::stage::Stage;

fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn commands_hear_of_gain_and_loss() {
    let stage = Stage::embedded();
    let folder = TempFolder::create();
    let log = folder.path().join("log");
    let word = "\"$TENURE_EVENT $TENURE_NAME $TENURE_ID $TENURE_TOKEN $TENURE_REASON\"";
    let command = format!("echo {word} >> {}", log.display());
    let (ada, leading) = stage.leader("ada");
    let token = leading.status().token.unwrap();
    let builder = Sidecar::builder(ada.clone()).election(leading.clone());
    let builder = builder.hook(Hook::on_gain(&command));
    let _served = stage.serve(builder.hook(Hook::on_loss(&command)));
    wait_until("the gain was told", GENEROUS, || lines(&log).len() == 1);

    stage.runtime.block_on(leading.resign());
    wait_until("the loss was told, and the gain after it", GENEROUS, || lines(&log).len() == 3);
    let told = lines(&log);
    let id = ada.id();
    assert_eq!(told[0], format!("gain nightly-report {id} {token} granted"));
    assert_eq!(told[1], format!("loss nightly-report {id} {token} resigned"));
    assert!(told[2].starts_with("gain"), "{told:?}");
}

#[test]
fn a_hook_that_fails_is_tried_again_until_it_succeeds() {
    let stage = Stage::embedded();
    let folder = TempFolder::create();
    let log = folder.path().join("log");
    let file = log.display();
    let command = format!("echo x >> {file}; test $(wc -l < {file}) -ge 3");
    let (ada, leading) = stage.leader("ada");
    let builder = Sidecar::builder(ada).election(leading);
    let served = stage.serve(builder.hook(Hook::on_gain(command)));
    wait_until("the third try succeeds", GENEROUS, || {
        let metrics = served.get("/metrics").body;
        metrics.contains(
            "tenure_hooks_total{name=\"nightly-report\",hook=\"on_gain\",outcome=\"done\"} 1",
        )
    });
    assert_eq!(lines(&log).len(), 3);
    let metrics = served.get("/metrics").body;
    assert!(metrics.contains(
        "tenure_hooks_total{name=\"nightly-report\",hook=\"on_gain\",outcome=\"retried\"} 2"
    ));
}

#[test]
fn a_gain_is_not_told_after_the_loss() {
    let stage = Stage::embedded();
    let folder = TempFolder::create();
    let gate = folder.path().join("gate");
    let log = folder.path().join("log");
    let command = format!("test -e {} && echo told >> {}", gate.display(), log.display());
    let (ada, leading) = stage.leader("ada");
    let builder = Sidecar::builder(ada).election(leading.clone());
    let served = stage.serve(builder.hook(Hook::on_gain(command)));
    wait_until("the hook fails", GENEROUS, || {
        served.get("/metrics").body.contains("outcome=\"retried\"} 1")
    });
    stage.runtime.block_on(leading.stop());
    wait_until("the gain is given up", GENEROUS, || {
        served.get("/metrics").body.contains("outcome=\"superseded\"} 1")
    });
    std::fs::write(&gate, "").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(lines(&log).is_empty(), "told of a leadership that was over");
}

#[test]
fn a_webhook_is_posted_to_until_it_says_yes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Secret::new(format!("http://user:pass@{}/hook?x=1", listener.local_addr().unwrap()));
    let (requests, received) = mpsc::channel();
    std::thread::spawn(move || {
        for (stream, answer) in listener.incoming().zip(["500 No", "200 OK"]) {
            let mut stream = stream.unwrap();
            let mut text = vec![0; 4096];
            let mut length = 0;
            while !text[..length].ends_with(b"}") {
                length += stream.read(&mut text[length..]).unwrap();
            }
            let head = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            requests.send(String::from_utf8_lossy(&text[..length]).into_owned()).unwrap();
        }
    });
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let builder = Sidecar::builder(ada.clone()).election(leading);
    let served = stage.serve(builder.hook(Hook::on_gain_url(Webhook::new(&url).unwrap())));
    let (first, second) =
        (received.recv_timeout(GENEROUS).unwrap(), received.recv_timeout(GENEROUS).unwrap());
    assert_eq!(first, second, "the same news");
    assert!(first.starts_with("POST /hook?x=1 HTTP/1.1\r\n"), "{first}");
    assert!(first.to_lowercase().contains("authorization: basic dxnlcjpwyxnz"), "{first}");
    assert!(first.contains("\"event\":\"gain\"") && first.contains(ada.id().as_str()), "{first}");
    wait_until("it counts as done", GENEROUS, || {
        served.get("/metrics").body.contains("outcome=\"done\"} 1")
    });
}

fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn a_gain_that_still_runs_is_ended_before_the_loss_is_told() {
    let stage = Stage::embedded();
    let folder = TempFolder::create();
    let (log, pid) = (folder.path().join("log"), folder.path().join("pid"));
    let (log_file, pid_file) = (log.display(), pid.display());
    let gain =
        format!("echo $$ > {pid_file}; echo begun >> {log_file}; sleep 60; echo up >> {log_file}");
    let loss = format!(
        "kill -0 $(cat {pid_file}) 2>/dev/null && echo beside >> {log_file}; echo down >> {log_file}"
    );
    let (ada, leading) = stage.leader("ada");
    let builder = Sidecar::builder(ada).election(leading.clone());
    let builder = builder.hook(Hook::on_gain(gain)).hook(Hook::on_loss(loss));
    let served = stage.serve(builder);
    wait_until("the gain runs", GENEROUS, || lines(&log) == ["begun"]);

    stage.runtime.block_on(leading.stop());
    wait_until("the loss was told", GENEROUS, || lines(&log).contains(&"down".to_owned()));
    assert_eq!(lines(&log), ["begun", "down"]);
    assert!(!is_running(std::fs::read_to_string(&pid).unwrap().trim()), "the gain is gone");
    wait_until("it counts as outdated", GENEROUS, || {
        served.get("/metrics").body.contains("hook=\"on_gain\",outcome=\"superseded\"} 1")
    });
}

/// `timeout` leaves the process group of the hook.
#[test]
fn what_a_gain_started_elsewhere_is_ended_with_it() {
    let stage = Stage::embedded();
    let folder = TempFolder::create();
    let pid = folder.path().join("pid");
    let gain = format!("timeout 600 sh -c 'echo $$ > {}; exec sleep 600' && true", pid.display());
    let (ada, leading) = stage.leader("ada");
    let builder = Sidecar::builder(ada).election(leading.clone());
    let _served = stage.serve(builder.hook(Hook::on_gain(gain)));
    wait_until("the gain runs", GENEROUS, || lines(&pid).len() == 1);
    let started = lines(&pid).remove(0);
    stage.runtime.block_on(leading.stop());
    wait_until("all of the gain to be gone", GENEROUS, || !is_running(&started));
}

#[test]
fn the_next_gain_waits_until_the_loss_was_told() {
    let stage = Stage::embedded();
    let folder = TempFolder::create();
    let (log, gate) = (folder.path().join("log"), folder.path().join("gate"));
    let (log_file, gate_file) = (log.display(), gate.display());
    let loss = format!(
        "echo down begins >> {log_file}; while ! test -e {gate_file}; do sleep 0.05; done; \
         echo down ends >> {log_file}"
    );
    let (ada, leading) = stage.leader("ada");
    let builder = Sidecar::builder(ada).election(leading.clone());
    let gain = format!("echo up >> {log_file}");
    let builder = builder.hook(Hook::on_gain(gain)).hook(Hook::on_loss(loss));
    let _served = stage.serve(builder);
    wait_until("the gain was told", GENEROUS, || lines(&log) == ["up"]);
    stage.runtime.block_on(leading.resign());
    wait_until("it leads again", GENEROUS, || leading.is_leader());
    wait_until("the loss is told", GENEROUS, || lines(&log).len() >= 2);
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(&gate, "").unwrap();
    wait_until("all was told", GENEROUS, || lines(&log).len() == 4);
    assert_eq!(lines(&log), ["up", "down begins", "down ends", "up"]);
}

#[test]
fn a_webhook_is_sent_the_host_and_the_login_of_its_address() {
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = Secret::new(format!("http://us%40er:p%3Aw@[::1]:{port}/x"));
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let builder = Sidecar::builder(ada).election(leading);
    let _served = stage.serve(builder.hook(Hook::on_gain_url(Webhook::new(&url).unwrap())));
    let (mut stream, _) = listener.accept().unwrap();
    let mut text = [0; 4096];
    let mut length = 0;
    while !text[..length].ends_with(b"}") {
        length += stream.read(&mut text[length..]).unwrap();
    }
    let asked = String::from_utf8_lossy(&text[..length]).into_owned();
    assert!(asked.contains(&format!("host: [::1]:{port}\r\n")), "{asked}");
    // us@er:p:w
    assert!(asked.contains("authorization: Basic dXNAZXI6cDp3\r\n"), "{asked}");
}
