//! What can be wrong with a store.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::proxy::{Direction, Door, Proxy, Rule, Script, What, When};
use testkit::{GENEROUS, RedisServer, ServerProgram, WallClock, wait_until};

use super::{codes, codes_at, planted};
use crate::stage::{CommandOutput, Kind, NAME, Stage, plain_command};

planted! {
    "configuration": fn a_lease_that_is_hardly_meant() {
        let stage = Stage::on(Kind::Own);
        let mut command = stage.command(&["doctor", NAME, "--json"]);
        command.env("TENURE_DEFAULTS__TTL", "300ms");
        super::codes_of(&serde_json::from_str(&CommandOutput::of(command).out).unwrap())
    }

    "local-store": fn hosts_that_do_not_know_of_each_other() {
        let folder = testkit::TempFolder::create();
        let tenure = |words: &[&str]| {
            let mut command = plain_command(words);
            command.env("XDG_STATE_HOME", folder.path());
            CommandOutput::of(command)
        };
        let said = tenure(&["doctor", NAME, "--json"]);
        tenure(&["local", "stop", "--force"]);
        let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let found = super::finding(&json, "local-store");
        assert!(found["do"].as_str().unwrap().contains("--store"), "{found}");
        assert!(!said.out.contains("Sentinel"), "a replica would help nobody: {said:?}");
        super::codes_of(&json)
    }

    "eviction": fn a_store_that_gives_keys_up() {
        let stage = Stage::on(Kind::Redis);
        stage.store.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        codes(&stage)
    }

    "no-persistence": fn a_store_that_keeps_nothing() {
        let stage = Stage::on(Kind::Redis);
        stage.store.cli(&["CONFIG", "SET", "appendonly", "yes"]);
        assert!(!codes(&stage).contains(&"no-persistence".to_owned()));
        stage.store.cli(&["CONFIG", "SET", "appendonly", "no"]);
        // What a file changes after a restart, and what it does not: Redis has lost nothing that it
        // could show.
        let advice = |stage: &Stage| {
            let json = stage.json(&["doctor", NAME]);
            super::finding(&json, "no-persistence")["do"].as_str().unwrap().to_owned()
        };
        assert!(advice(&stage).contains("the wait after a restart stays"), "{}", advice(&stage));
        let own = Stage::on(Kind::Own);
        assert!(advice(&own).contains("nobody waits"), "{}", advice(&own));
        codes(&stage)
    }

    "replica": fn a_store_that_takes_no_writes() {
        let stage = Stage::on(Kind::Redis);
        stage.store.cli(&["REPLICAOF", "127.0.0.1", "1"]);
        codes(&stage)
    }

    "single-node": fn a_store_that_stands_alone() {
        codes(&Stage::on(Kind::Own))
    }

    "split-brain-risk": fn replicas_that_nobody_waits_for() {
        let stage = Stage::on(Kind::Redis);
        let port = stage.store.port().to_string();
        let replica = RedisServer::builder().program(ServerProgram::new("redis-server"));
        let _replica = replica.args(["--replicaof", "127.0.0.1", &port]).start();
        wait_until("the replica to be there", GENEROUS, || {
            stage.store.cli(&["INFO", "replication"]).contains("connected_slaves:1")
        });
        let waiting = codes_at(&format!("{}?mode=strict&replicas=1", stage.store.url()));
        assert!(!waiting.iter().any(|code| code == "split-brain-risk"), "{waiting:?}");
        codes(&stage)
    }

    "no-auth": fn a_store_elsewhere_without_a_password() {
        found_elsewhere("no-auth")
    }

    "no-tls": fn a_store_elsewhere_without_encryption() {
        found_elsewhere("no-tls")
    }

    "acl": fn rights_that_are_missing() {
        let rules = "user default on nopass ~* &* +@all -publish -xadd\n";
        let server = RedisServer::builder().acl(rules).start();
        let mut command = plain_command(&["doctor"]);
        command.env("TENURE_STORE", server.url());
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.out.contains("(default) may not use xadd, publish"), "{said:?}");
        assert!(said.out.contains("ACL SETUSER default +xadd +publish"), "{said:?}");
        codes_at(&server.url())
    }

    "writes-refused": fn a_store_that_takes_no_more_writes() {
        let stage = Stage::on(Kind::Redis);
        let refusal = || {
            let json = stage.json(&["doctor", NAME]);
            super::finding(&json, "writes-refused")["what"].as_str().unwrap().to_owned()
        };
        stage.store.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        assert!(refusal().contains("NOREPLICAS"), "the server's own words");
        stage.store.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        let writable = codes(&stage);
        assert!(!writable.contains(&"writes-refused".to_owned()), "{writable:?}");
        stage.store.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        assert!(refusal().contains("OOM"), "the server's own words");
        assert_eq!(stage.store.cli(&["DBSIZE"]), "0", "nothing was written to find that out");
        let told = stage.tenure(&["doctor", NAME]);
        assert!(told.out.contains("maxmemory"), "{told:?}");
        assert!(!told.out.contains("tenure run"), "no candidate could be heard of: {told:?}");
        codes(&stage)
    }

    "clock-drift": fn a_store_whose_clock_goes_too_fast() {
        let Some(clock) = WallClock::build() else { return };
        let server = under(&clock);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // A second more in every tenth of one.
            scope.spawn(|| {
                for seconds in 0.. {
                    clock.move_by(seconds);
                    std::thread::sleep(Duration::from_millis(100));
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let found = codes_at(&server.url());
            over.store(true, Ordering::Relaxed);
            found
        })
    }

    "clock-offset": fn a_store_in_another_hour() {
        let Some(clock) = WallClock::build() else { return };
        let server = under(&clock);
        clock.move_by(3_600);
        codes_at(&server.url())
    }

    "slow-store": fn a_store_that_is_far_away() {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        proxy.set_rule(Direction::ToClient, Rule::Delay(Duration::from_millis(70)));
        codes_at(&server.url_at(proxy.port()))
    }

    "no-answer": fn a_store_that_answers_the_doctor_and_no_candidate() {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        proxy.run_script(Script::new([(When::Connections(1), What::Door(Door::Refuse))]));
        codes_at(&server.url_at(proxy.port()))
    }
}

/// A server that lives by this clock.
fn under(clock: &WallClock) -> RedisServer {
    let mut command = Command::new("env");
    clock.govern(&mut command);
    let mut program = ServerProgram::new("env");
    for (name, value) in command.get_envs() {
        let value = value.unwrap_or_default().to_str().unwrap();
        program = program.arg(format!("{}={value}", name.to_str().unwrap()));
    }
    RedisServer::builder().program(program.arg("redis-server")).start()
}

/// What is found at a server that is reached by another address than loopback's.
fn found_elsewhere(code: &str) -> Vec<String> {
    let Some(address) = address_elsewhere() else {
        println!("skipped: this machine has no address but loopback's");
        return vec![code.to_owned()];
    };
    let bound = ["--bind", "127.0.0.1", &address.to_string(), "--protected-mode", "no"];
    let server = RedisServer::builder().args(bound).start();
    codes_at(&format!("redis://{address}:{}", server.port()))
}

/// An address of this machine that others could reach. Nothing is sent.
fn address_elsewhere() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.77", 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}
