//! Hooks of one election alone, and messages that their receiver can check.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use tenure::Secret;
use tenure_sidecar::{Hook, Sidecar, Webhook};
use testkit::{GENEROUS, TempFolder, wait_until};

use crate::stage::{Served, Stage};

const SECRET: &str = "correct horse battery staple";

/// The receiver of docs/sidecar.md, as it is there.
struct DocumentedReceiver {
    program: Child,
    port: u16,
    lines: Receiver<String>,
    _folder: TempFolder,
}

impl DocumentedReceiver {
    fn start(secret: &str) -> Self {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sidecar.md");
        let page = std::fs::read_to_string(page).unwrap();
        let begun = page.split_once("```python\n").unwrap().1;
        let folder = TempFolder::create();
        let program = folder.write("receiver.py", begun.split_once("```").unwrap().0);
        let secret = folder.write("secret", secret);
        let mut command = Command::new("python3");
        command.arg(program).arg(secret).arg("0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut program = command.spawn().unwrap();
        let (send, lines) = channel();
        let mut output = BufReader::new(program.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            while let Some(Ok(line)) = output.next()
                && send.send(line).is_ok()
            {}
        });
        let first = lines.recv_timeout(GENEROUS).unwrap();
        let port = first.strip_prefix("listening on port ").unwrap().parse().unwrap();
        DocumentedReceiver { program, port, lines, _folder: folder }
    }

    fn webhook(&self) -> Webhook {
        Webhook::new(&Secret::new(format!("http://127.0.0.1:{}/leader", self.port))).unwrap()
    }
}

impl Drop for DocumentedReceiver {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn outcome(served: &Served, name: &str, hook: &str, outcome: &str) -> u64 {
    let sample =
        format!("tenure_hooks_total{{name=\"{name}\",hook=\"{hook}\",outcome=\"{outcome}\"}} ");
    let metrics = served.get("/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(&sample));
    line.unwrap_or_else(|| panic!("no {sample} in {metrics}")).parse().unwrap()
}

#[test]
fn the_receiver_of_the_documentation_accepts_what_is_signed_with_its_secret() {
    for secret in [SECRET, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
        let receiver = DocumentedReceiver::start(secret);
        let stage = Stage::embedded();
        let (ada, leading) = stage.leader("ada");
        let token = leading.status().token.unwrap();
        let signed = receiver.webhook().signed_with(&Secret::new(secret)).unwrap();
        let builder = Sidecar::builder(ada).election(leading.clone());
        let builder = builder.hook(Hook::on_gain_url(signed.clone()));
        let _served = stage.serve(builder.hook(Hook::on_loss_url(signed)));
        let heard = || receiver.lines.recv_timeout(GENEROUS).unwrap();
        assert_eq!(heard(), format!("gain nightly-report {token}"));
        stage.runtime.block_on(leading.stop());
        assert_eq!(heard(), format!("loss nightly-report {token}"));
    }
}

#[test]
fn it_refuses_what_is_not_signed_or_signed_with_another_secret() {
    let receiver = DocumentedReceiver::start(SECRET);
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let other = Secret::new("correct horse battery stable");
    let forged = receiver.webhook().signed_with(&other).unwrap();
    let builder = Sidecar::builder(ada).election(leading);
    let builder = builder.hook(Hook::on_gain_url(receiver.webhook()));
    let served = stage.serve(builder.hook(Hook::on_gain_url(forged)));
    for hook in ["on_gain_url", "on_gain_url-2"] {
        wait_until("it was refused", GENEROUS, || {
            outcome(&served, "nightly-report", hook, "retried") > 0
        });
        assert_eq!(outcome(&served, "nightly-report", hook, "done"), 0);
    }
    assert!(receiver.lines.try_recv().is_err(), "it acted on a forged message");
}

#[test]
fn a_hook_of_one_election_hears_of_no_other() {
    let stage = Stage::embedded();
    let folder = TempFolder::create();
    let log = |file: &str| {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let command = |file: &str| {
        let file = folder.path().join(file);
        Hook::on_gain(format!("echo $TENURE_NAME >> {}", file.display()))
    };
    let ada = stage.client("ada");
    let start = |name: &str| stage.runtime.block_on(ada.election(name).start()).unwrap();
    let (report, mailer) = (start("report"), start("mailer"));
    let builder = Sidecar::builder(ada.clone()).election(report).election(mailer);
    let builder = builder.hook(command("all")).hook_for("mailer", command("one"));
    let served = stage.serve(builder);
    wait_until("both were told", GENEROUS, || log("all") == ["mailer", "report"]);
    wait_until("one was told", GENEROUS, || log("one") == ["mailer"]);
    for (name, hook) in [("mailer", "on_gain-2"), ("report", "on_gain")] {
        wait_until("it counts", GENEROUS, || outcome(&served, name, hook, "done") == 1);
    }
    let metrics = served.get("/metrics").body;
    assert!(!metrics.contains("name=\"report\",hook=\"on_gain-2\""), "{metrics}");
}
