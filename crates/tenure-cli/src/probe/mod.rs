//! `tenure probe`: what an orchestrator wants to know of a sidecar, where an image has no curl.
//!
//! `target` says where the sidecar listens, `ask` gets its answer, and this file turns that into a
//! line and an exit code.

mod ask;
mod pinned;
mod target;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::config::{Config, Loader};

use crate::exit::{self, Failure};
use crate::output::{OutputOptions, plain, talk};
use crate::run::duration;
use crate::{sidecar, store_options};
use ask::Answer;
use target::Target;

/// Ask a sidecar whether it is alive, ready, or leads: for the probes of containers.
///
/// It asks `tenure sidecar` or `tenure run --http`, where the same configuration (a file,
/// TENURE_SIDECAR__ variables) has it listen: on its socket file if there is one, else on its
/// address, which is 127.0.0.1:8420 by default. The image needs neither a shell nor curl.
///
/// Exits with 0 if the answer is yes, 1 if it is no, 69 if nobody answers, 75 if the answer takes
/// too long, and 78 if the question is refused: a token that is missing, an unknown election.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure probe live
  tenure probe ready --at unix:/run/tenure/sidecar.sock
  tenure probe leader nightly --timeout 500ms
  tenure probe leader nightly --json")]
pub(crate) struct Arguments {
    /// What to ask.
    #[arg(value_enum)]
    question: Question,
    /// The election, for `leader`; without it, all in which the sidecar takes part.
    name: Option<String>,
    /// Where the sidecar listens, as for its --listen: 127.0.0.1:8420 or unix:FILE.
    #[arg(long, value_name = "ADDRESS")]
    at: Option<String>,
    /// How long to wait for the answer. Let whoever runs the probe wait a little longer.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    timeout: Duration,
    /// The configuration file of the sidecar; TENURE_CONFIG otherwise.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The profile of the configuration file; TENURE_PROFILE otherwise.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    #[command(flatten)]
    output: OutputOptions,
}

/// What a sidecar is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Question {
    /// Does the process answer at all? Never depends on the store.
    Live,
    /// Has the store answered for every election? A standby is ready.
    Ready,
    /// Does this instance lead now?
    Leader,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let path = arguments.path()?;
    let config = arguments.config()?;
    let target = Target::of(&config.sidecar)?;
    // The others are open to all, and a token goes nowhere without need.
    let token = config.sidecar.token.as_ref().filter(|_| arguments.question == Question::Leader);
    let limit = arguments.timeout;
    let answer = sidecar::runtime()?.block_on(async {
        match tokio::time::timeout(limit, ask::ask(&target, &path, token)).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = format!("{target} did not answer within {limit:?}; see its log");
                Err(Failure::new(exit::TIMED_OUT, why))
            }
        }
    })?;
    arguments.judge(&target, &answer)
}

impl Arguments {
    fn config(&self) -> Result<Config, Failure> {
        let mut loader = Loader::of_process();
        if let Some(file) = &self.config {
            loader = loader.file(file);
        }
        if let Some(profile) = &self.profile {
            loader = loader.profile(profile, "--profile");
        }
        if let Some(at) = &self.at {
            loader = loader.set(["sidecar", "listen"], at, "--at");
        }
        Ok(loader.load()?)
    }

    fn path(&self) -> Result<String, Failure> {
        match (self.question, &self.name) {
            (Question::Live, None) => Ok("/livez".to_owned()),
            (Question::Ready, None) => Ok("/readyz".to_owned()),
            (Question::Leader, None) => Ok("/leader".to_owned()),
            (Question::Leader, Some(name)) => {
                store_options::check_name(name)?;
                Ok(format!("/leader/{}", ask::escaped(name)))
            }
            (_, Some(name)) => Err(Failure::usage(format!(
                "{} is asked of the whole sidecar: leave out {}, or ask `tenure probe leader`",
                self.question.word(),
                plain(name)
            ))),
        }
    }

    /// What the answer means.
    fn judge(&self, target: &Target, answer: &Answer) -> Result<ExitCode, Failure> {
        let is_yes = match answer.status {
            200 => true,
            503 => false,
            _ => return Err(refused(target, answer)),
        };
        if self.output.json || is_yes {
            let json = self.question.as_json(is_yes, answer);
            self.output.print(&json, || self.question.yes(answer));
        }
        if is_yes {
            return Ok(ExitCode::SUCCESS);
        }
        talk(&self.question.no(answer));
        Ok(ExitCode::from(exit::NO))
    }
}

impl Question {
    fn word(self) -> &'static str {
        match self {
            Question::Live => "live",
            Question::Ready => "ready",
            Question::Leader => "leader",
        }
    }

    /// `live` or `ready` with `why` if it is not; of a leader what the sidecar says, see `/leader`.
    fn as_json(self, is_yes: bool, answer: &Answer) -> Value {
        match (self, answer.json()) {
            (Question::Leader, Some(said)) => said,
            (Question::Leader, None) => json!({ "is_leader": is_yes }),
            _ if is_yes => json!({ self.word(): true }),
            _ => json!({ self.word(): false, "why": answer.text() }),
        }
    }

    fn yes(self, answer: &Answer) -> String {
        let said = answer.json().unwrap_or_default();
        match (self, said["name"].as_str(), &said["token"]) {
            (Question::Leader, Some(name), Value::Number(token)) => {
                format!("leads {}, token {token}", plain(name))
            }
            (Question::Leader, ..) => "leads all in which it takes part".to_owned(),
            _ => self.word().to_owned(),
        }
    }

    fn no(self, answer: &Answer) -> String {
        let said = answer.json().unwrap_or_default();
        match (self, said["name"].as_str(), said["leader"].as_str()) {
            (Question::Leader, Some(name), Some(leader)) => {
                format!("{} is led by {}", plain(name), plain(leader))
            }
            (Question::Leader, Some(name), None) => format!("it does not lead {}", plain(name)),
            (Question::Leader, None, _) => {
                "it does not lead everything in which it takes part".to_owned()
            }
            _ => format!("not {}: {}", self.word(), plain(answer.text())),
        }
    }
}

/// An answer that is neither yes nor no.
fn refused(target: &Target, answer: &Answer) -> Failure {
    let said = answer.json().unwrap_or_default();
    let why = said["error"].as_str().unwrap_or_else(|| answer.text());
    let next = match answer.status {
        401 => {
            "; give the probe the configuration of the sidecar (--config), or its token in \
                TENURE_SIDECAR__TOKEN_FILE"
        }
        _ => "",
    };
    let why = format!("{target} answered {}: {}{next}", answer.status, plain(why));
    Failure::new(exit::CONFIGURATION, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, body: body.to_owned() }
    }

    #[test]
    fn an_answer_is_told_in_one_line() {
        let leads = answer(200, r#"{"name":"mailer","is_leader":true,"token":7}"#);
        assert_eq!(Question::Leader.yes(&leads), "leads mailer, token 7");
        let other = answer(503, r#"{"name":"mailer","is_leader":false,"leader":"web-2_x\u001b"}"#);
        assert_eq!(Question::Leader.no(&other), "mailer is led by web-2_x?");
        let nobody = answer(503, r#"{"name":"mailer","is_leader":false}"#);
        assert_eq!(Question::Leader.no(&nobody), "it does not lead mailer");
        let several = answer(503, r#"{"is_leader":false,"resources":[]}"#);
        assert!(Question::Leader.no(&several).contains("everything"));
        let unready = answer(503, "mailer: the store has not answered yet\n");
        let text = "not ready: mailer: the store has not answered yet";
        assert_eq!(Question::Ready.no(&unready), text);
    }

    #[test]
    fn json_says_the_same_as_the_exit_code() {
        let json = |question: Question, is_yes, answer| question.as_json(is_yes, &answer);
        assert_eq!(json(Question::Live, true, answer(200, "ok\n")), json!({ "live": true }));
        let unready = json(Question::Ready, false, answer(503, "not yet\n"));
        assert_eq!(unready, json!({ "ready": false, "why": "not yet" }));
        // Something else than a sidecar may answer.
        let odd = json(Question::Leader, false, answer(503, "<html>"));
        assert_eq!(odd, json!({ "is_leader": false }));
    }
}
