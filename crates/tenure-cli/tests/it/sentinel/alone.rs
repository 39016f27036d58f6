//! One sentinel: events, scripts, logins, its file, and lines that it cannot use.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use testkit::{
    Certificates, GENEROUS, Process, RedisServer, Sentinel, ServerProgram, TempFolder, wait_until,
};

use crate::stage::TENURE;

fn monitor(server: &RedisServer, more: &str) -> String {
    format!(
        "sentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 1000\n\
         sentinel failover-timeout main 3000\n{more}",
        server.port()
    )
}

fn start(server: &RedisServer, more: &str) -> Sentinel {
    Sentinel::start_alone(&ServerProgram::own(), &monitor(server, more), None)
}

/// A primary with a replica that is in step.
fn pair(arguments: &[&str]) -> (RedisServer, RedisServer) {
    let primary = RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]);
    let primary = primary.args(arguments).start();
    let port = primary.port().to_string();
    let replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]);
    let replica = replica.args(arguments).start();
    (primary, replica)
}

fn knows_replica(sentinel: &Sentinel) {
    assert_eq!(sentinel.cli(&["SENTINEL", "DEBUG", "info-period", "300"]), "OK");
    wait_until("the replica to be known and well", GENEROUS, || {
        sentinel.cli(&["SENTINEL", "REPLICAS", "main"]).contains("master-link-status\nok")
    });
}

fn script(folder: &TempFolder, name: &str, lines: &str) -> String {
    let path = folder.write(name, &format!("#!/bin/sh\n{lines}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn a_failover_is_told_on_channels_and_to_scripts_with_their_limits() {
    let (mut primary, replica) = pair(&[]);
    let folder = TempFolder::create();
    let told = folder.path().join("told").display().to_string();
    let notify = script(&folder, "notify", &format!("echo \"$1\" >> {told}"));
    let moved = script(&folder, "moved", &format!("echo \"$@\" >> {told}; exit 1"));
    let hangs = script(&folder, "hangs", "sleep 600");
    let sentinel = start(
        &primary,
        &format!(
            "sentinel deny-scripts-reconfig no\nsentinel notification-script main {notify}\n\
             sentinel client-reconfig-script main {moved}\n"
        ),
    );
    knows_replica(&sentinel);
    let mut listener = Command::new("redis-cli");
    listener.args(["-p", &sentinel.port().to_string(), "PSUBSCRIBE", "*"]);
    let listener = Process::spawn(listener);
    listener.next_line_with("psubscribe", GENEROUS);
    primary.kill();
    let from_to = format!("127.0.0.1 {} 127.0.0.1 {}", primary.port(), replica.port());
    listener.next_line_with("+sdown", GENEROUS);
    listener.next_line_with("+odown", GENEROUS);
    listener.next_line_with("+switch-master", GENEROUS);
    listener.next_line_with(&format!("main {from_to}"), GENEROUS);
    wait_until("the scripts to have run", GENEROUS, || {
        let text = fs::read_to_string(&told).unwrap_or_default();
        text.contains("+sdown\n") && text.contains(&format!("main leader start {from_to}\n"))
    });

    // One that failed waits for its next try; one that hangs is ended.
    let pending = || sentinel.cli(&["SENTINEL", "PENDING-SCRIPTS"]);
    wait_until("the script to be tried again", GENEROUS, || {
        let text = pending();
        text.contains(&moved) && text.contains("scheduled") && text.contains("retry-num\n1")
    });
    let words = ["SENTINEL", "SET", "main", "notification-script", &hangs];
    assert_eq!(sentinel.cli(&words), "OK");
    assert_eq!(sentinel.cli(&["SENTINEL", "DEBUG", "script-max-runtime", "200"]), "OK");
    assert_eq!(sentinel.cli(&["SENTINEL", "SET", "main", "quorum", "1"]), "OK");
    listener.next_line_with("-script-timeout", GENEROUS);
    wait_until("the script to be ended", GENEROUS, || {
        let text = pending();
        text.contains(&hangs) && !text.contains("running")
    });
    assert!(sentinel.file().contains(&format!("sentinel notification-script main {hangs}")));
}

#[test]
fn logins_are_used_at_servers_and_asked_for_by_the_sentinel() {
    let users = ["--requirepass", "server", "--masterauth", "server"];
    let primary = RedisServer::builder().password("server").args(users).start();
    let lines = "sentinel auth-pass main wrong\nrequirepass \"of sentinels\"\n\
        user limited on >narrow +sentinel|masters\n";
    let lines = monitor(&primary, lines);
    let sentinel = Sentinel::start_alone(&ServerProgram::own(), &lines, Some("of sentinels"));
    wait_until("a wrong password to be noticed", GENEROUS, || {
        sentinel.field("flags").contains("s_down")
    });
    assert_eq!(sentinel.cli(&["SENTINEL", "SET", "main", "auth-pass", "server"]), "OK");
    wait_until("the right one to be used", GENEROUS, || sentinel.field("flags") == "master");
    let log = sentinel.log().join("\n");
    assert!(log.contains("+set") && !log.contains("auth-pass server"), "{log}");

    let port = sentinel.port().to_string();
    let says = |words: &[&str]| {
        let output = Command::new("redis-cli").args(["-p", &port]).args(words).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let said = says(&["SENTINEL", "MASTERS"]);
    assert!(said.starts_with("NOAUTH"), "{said}");
    let limited = ["--user", "limited", "--pass", "narrow", "--no-auth-warning", "SENTINEL"];
    let said = says(&[&limited[..], &["MASTERS"]].concat());
    assert!(said.contains("main"), "{said}");
    let said = says(&[&limited[..], &["RESET", "main"]].concat());
    assert!(said.starts_with("NOPERM"), "{said}");

    // Two that know each other's password find each other; a third with another does not get in.
    let peer = format!("{lines}sentinel sentinel-pass \"of sentinels\"\n");
    let peer = peer.replace("auth-pass main wrong", "auth-pass main server");
    let other = Sentinel::start_alone(&ServerProgram::own(), &peer, Some("of sentinels"));
    wait_until("the second to reach the first", GENEROUS, || {
        let known = other.cli(&["SENTINEL", "SENTINELS", "main"]);
        known.contains("flags\nsentinel\n")
    });
}

#[test]
fn a_sentinel_announces_what_it_is_told_and_takes_names_if_allowed() {
    let primary = RedisServer::start();
    let sentinel = Sentinel::start_alone(
        &ServerProgram::own(),
        &format!(
            "sentinel resolve-hostnames yes\nsentinel monitor main localhost {} 1\n\
             sentinel announce-ip 10.1.2.3\nsentinel announce-port 4567\n",
            primary.port()
        ),
        None,
    );
    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"];
    let address = |host: &str| format!("{host}\n{}", primary.port());
    wait_until("the name to be looked up", GENEROUS, || {
        sentinel.cli(&words) == address("127.0.0.1")
    });
    assert_eq!(sentinel.cli(&["SENTINEL", "CONFIG", "SET", "announce-hostnames", "yes"]), "OK");
    assert_eq!(sentinel.cli(&words), address("localhost"));

    let mut listener = Command::new("redis-cli");
    listener.args(["-p", &primary.port().to_string(), "SUBSCRIBE", "__sentinel__:hello"]);
    let hello = Process::spawn(listener).next_line_with("main", GENEROUS);
    assert!(hello.starts_with("10.1.2.3,4567,") && hello.contains(",localhost,"), "{hello}");
}

#[test]
fn a_simulated_crash_ends_the_process_and_the_file_has_what_was_decided() {
    let (mut primary, replica) = pair(&[]);
    let mut sentinel = start(&primary, "");
    knows_replica(&sentinel);
    assert_eq!(sentinel.cli(&["SENTINEL", "SIMULATE-FAILURE", "crash-after-promotion"]), "OK");
    primary.kill();
    assert_eq!(sentinel.wait().code(), Some(99));
    let line = format!("sentinel monitor main 127.0.0.1 {} 1\n", replica.port());
    assert!(sentinel.file().contains(&line), "{}", sentinel.file());
    sentinel.restart();
    assert_eq!(sentinel.field("port"), replica.port().to_string());
}

#[test]
fn without_a_file_to_write_it_gives_no_votes_and_says_what_to_do() {
    let primary = RedisServer::start();
    let sentinel = start(&primary, "");
    wait_until("the first hello", GENEROUS, || !sentinel.field("runid").is_empty());
    let id = "0123456789012345678901234567890123456789";
    let port = primary.port().to_string();
    let ask = |epoch: &str| {
        sentinel.cli(&["SENTINEL", "IS-MASTER-DOWN-BY-ADDR", "127.0.0.1", &port, epoch, id])
    };
    assert_eq!(ask("5"), format!("0\n{id}\n5"));

    // As root nothing is read-only: a folder in the way of the new file is as good.
    let name = format!(".sentinel.conf.{}.tenure-new", sentinel.pid());
    let blocker = sentinel.folder().join(name);
    fs::create_dir_all(blocker.join("x")).unwrap();
    assert_eq!(ask("6"), "0\n*\n0", "a vote that is not kept is not given");
    let said = sentinel.cli(&["SENTINEL", "FLUSHCONFIG"]);
    assert!(said.starts_with("ERR Failed to save config file"), "{said}");
    wait_until("the log to say what to do", GENEROUS, || {
        sentinel.log().iter().any(|line| line.contains("make the file and its folder writable"))
    });
    let said = sentinel.cli(&["SENTINEL", "SET", "main", "quorum", "3"]);
    assert!(said.starts_with("ERR Failed to save config file"), "{said}");
    assert_eq!(sentinel.field("flags"), "master", "it watches on");

    fs::remove_dir_all(&blocker).unwrap();
    wait_until("votes to be given again", GENEROUS, || ask("7") == format!("0\n{id}\n7"));
    assert!(sentinel.file().contains("sentinel leader-epoch main 7"), "{}", sentinel.file());
}

#[test]
fn lines_that_cannot_be_used_are_refused_with_what_to_do() {
    let folder = TempFolder::create();
    let run = |words: &[&str]| {
        let output = Command::new(TENURE).arg("serve").args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let monitor = "sentinel monitor main 127.0.0.1 6379 2\n";
    for (lines, words) in [
        ("sentinel frobnicate main 1\n", "line 2: frobnicate: unknown setting; remove the line"),
        ("frobnicate 1\n", "frobnicate"),
        (monitor, "line 2: monitor: this name is monitored twice"),
        ("sentinel down-after-milliseconds other 1\n", "no such primary; add a line"),
        ("sentinel monitor other redis.example 6379 1\n", "sentinel resolve-hostnames yes"),
        ("sentinel notification-script main /no/such\n", "/no/such of main cannot be run"),
        ("sentinel monitor other 127.0.0.1 6379 0\n", "needs a quorum of 1 or more"),
        ("sentinel current-epoch 18446744073709551615\n", "line 2: current-epoch: leaves no room"),
    ] {
        let file = folder.write("sentinel.conf", &format!("{monitor}{lines}"));
        let (code, said) = run(&["--sentinel", file.to_str().unwrap()]);
        assert_eq!(code, Some(78), "{lines}{said}");
        assert!(said.contains(words), "{lines}: {said}");
    }
    let (code, said) = run(&["--sentinel"]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("needs a file") && said.contains("sentinel monitor NAME"), "{said}");
    let (code, said) = run(&["--sentinel", "/no/such/sentinel.conf"]);
    assert_eq!(code, Some(78), "{said}");
}

#[test]
fn a_file_that_it_may_not_write_is_refused_with_what_to_do() {
    use std::os::unix::process::CommandExt;
    let folder = TempFolder::create();
    let file = folder.write("sentinel.conf", "sentinel monitor main 127.0.0.1 6379 2\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(TENURE);
    command.args(["serve", "--sentinel"]).arg(&file);
    if fs::metadata(&file).unwrap().uid() == 0 {
        // To root nothing is read-only.
        command.uid(65_534);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return println!("skipped: nobody else may run the program: {error}"),
    };
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("make the file and its folder writable"), "{said}");
}

#[test]
fn a_second_sentinel_with_the_file_of_another_one_is_refused() {
    let primary = RedisServer::start();
    let mut sentinel = start(&primary, "");
    let file = sentinel.folder().join("sentinel.conf");
    let is_refused = || {
        // One that started would not end.
        let words = ["60", TENURE, "serve", "--sentinel", file.to_str().unwrap(), "--port", "0"];
        let output = Command::new("timeout").args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("is in use by another sentinel"), "{said}");
    };
    is_refused();
    // A file that was replaced is locked, too.
    assert_eq!(sentinel.cli(&["SENTINEL", "SET", "main", "quorum", "2"]), "OK");
    is_refused();
    sentinel.restart();
    assert_eq!(sentinel.field("quorum"), "2");
}

#[test]
fn under_the_name_redis_sentinel_it_is_one() {
    let primary = RedisServer::start();
    let folder = TempFolder::create();
    let name = folder.path().join("redis-sentinel");
    std::os::unix::fs::symlink(TENURE, &name).unwrap();
    let sentinel = Sentinel::start_alone(&ServerProgram::new(name), &monitor(&primary, ""), None);
    assert_eq!(sentinel.cli(&["ROLE"]), "sentinel\nmain");
}

#[test]
fn a_real_sentinel_whose_epoch_leaves_no_room_is_ignored_and_named_in_the_log() {
    let (primary, replica) = pair(&[]);
    let ours = start(&primary, "");
    knows_replica(&ours);
    let lines = monitor(&primary, "sentinel current-epoch 18446744073709551614\n");
    let theirs = Sentinel::start_alone(&ServerProgram::redis(), &lines, None);
    let place = format!("127.0.0.1:{} says that the epoch is 18446744073709551614", theirs.port());
    wait_until("the log to name it", GENEROUS, || {
        ours.log().iter().any(|line| line.contains(&place) && line.contains("Stop that sentinel"))
    });
    assert_eq!(ours.cli(&["SENTINEL", "FAILOVER", "main"]), "OK");
    wait_until("the failover to be of the next epoch", GENEROUS, || {
        ours.file().contains("sentinel config-epoch main 1\n")
    });
    let port = replica.port().to_string();
    wait_until("the replica to be the primary", GENEROUS, || ours.field("port") == port);
}

#[test]
fn a_replica_given_as_master_and_a_quorum_out_of_reach_are_told_in_the_log() {
    let (mut primary, replica) = pair(&[]);
    let lines = monitor(&replica, "").replace(" 1\nsentinel down", " 5\nsentinel down");
    let sentinel = Sentinel::start_alone(&ServerProgram::own(), &lines, None);
    let says = |words: &str| {
        wait_until(words, GENEROUS, || sentinel.log().iter().any(|line| line.contains(words)));
    };
    says("says that it is a replica of 127.0.0.1:");
    let said = sentinel.cli(&["SENTINEL", "CKQUORUM", "main"]);
    assert!(said.starts_with("NOQUORUM 1 usable Sentinels."), "{said}");
    primary.kill();
    drop(replica);
    says("the quorum is 5, and only 1 sentinels are known");
}

#[test]
fn servers_are_reached_by_tls_where_the_settings_say_so() {
    let certificates = Certificates::issue();
    let settings = || certificates.settings("localhost", "yes");
    let primary = RedisServer::builder().tls(settings()).start();
    let lines = settings().map(|(name, value)| format!("{name} {value}\n")).concat();
    let sentinel = Sentinel::start_alone(
        &ServerProgram::own(),
        &format!(
            "{lines}tls-replication yes\nsentinel monitor main 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds main 2000\n",
            primary.tls_port()
        ),
        None,
    );
    wait_until("the server to be reached", GENEROUS, || !sentinel.field("runid").is_empty());
    assert_eq!(sentinel.field("flags"), "master");
}
