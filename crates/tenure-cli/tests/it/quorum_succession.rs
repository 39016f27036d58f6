//! `hand-over` and `resign` on a quorum of three stores.

use testkit::{GENEROUS, Process, RedisServer, ServerProgram, wait_until};

use crate::stage::{CommandOutput, NAME, TENURE, plain_command};

/// How often the leadership goes there and back: a command that is right by luck is found out.
const ROUNDS: usize = 5;

struct Quorum {
    _nodes: Vec<RedisServer>,
    url: String,
}

impl Quorum {
    fn of(program: &ServerProgram) -> Self {
        let start = |_| RedisServer::builder().program(program.clone()).start();
        let nodes: Vec<RedisServer> = (0..3).map(start).collect();
        let hosts: Vec<_> = nodes.iter().map(|n| format!("127.0.0.1:{}", n.port())).collect();
        Quorum { url: format!("redis+quorum://{}", hosts.join(",")), _nodes: nodes }
    }

    fn tenure(&self, words: &[&str]) -> CommandOutput {
        let mut command = plain_command(words);
        command.env("TENURE_STORE", &self.url);
        CommandOutput::of(command)
    }

    fn wrap(&self, id: &str) -> Process {
        let words = ["run", NAME, "--id", id, "--ttl", "3s", "--", "sleep", "600"];
        let mut command = plain_command(&words);
        command.env("TENURE_STORE", &self.url).env("TENURE_DEFAULTS__FRESH_STORE", "true");
        Process::spawn(command)
    }

    fn wait_for_both(&self) {
        wait_until("a leader and a standby", GENEROUS, || {
            let said = self.tenure(&["members", NAME]).out;
            said.contains("leader") && said.contains("standby")
        });
    }
}

/// What is told is so: whoever deploys by a script goes by the exit code.
fn hand_overs_and_resignations_tell_who_leads(quorum: &Quorum) {
    let _instances = ["web-1", "web-2"].map(|id| quorum.wrap(id));
    quorum.wait_for_both();
    let first = match quorum.tenure(&["who", NAME]).out.starts_with("web-1_") {
        true => ["web-2", "web-1"],
        false => ["web-1", "web-2"],
    };
    for round in 0..ROUNDS {
        for to in first {
            let said = quorum.tenure(&["hand-over", NAME, "--to", to]);
            assert_eq!(said.code, 0, "round {round}: {said:?}");
            assert!(said.out.starts_with(&format!("done: {to}_")), "round {round}: {said:?}");
            let leads = quorum.tenure(&["who", NAME]).out;
            assert!(leads.starts_with(&format!("{to}_")), "round {round}: {leads}");
        }
    }
    for round in 0..ROUNDS {
        let said = quorum.tenure(&["resign", NAME]);
        assert!(said.code == 0 && said.out.ends_with(" leads"), "round {round}: {said:?}");
    }
}

#[test]
fn on_redis_servers_it_is_told_who_leads() {
    let quorum = Quorum::of(&ServerProgram::new("redis-server"));
    hand_overs_and_resignations_tell_who_leads(&quorum);
}

#[test]
fn on_our_own_stores_it_is_told_who_leads() {
    let quorum = Quorum::of(&ServerProgram::new(TENURE).arg("serve"));
    hand_overs_and_resignations_tell_who_leads(&quorum);
}
