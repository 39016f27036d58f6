//! Administration as tools see it: INFO, CLIENT LIST, users in files.

use std::collections::BTreeSet;

use store_resp::Reply;
use store_server::{Config, Server};
use testkit::{RedisServer, TempFolder};

use crate::connection::Connection;

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?} is no text"),
    }
}

fn connect(server: &Server) -> Connection {
    Connection::unix(server.connect().unwrap())
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

/// Sections with the names of their fields, without those of single commands and errors.
fn sections(info: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut sections: Vec<(String, BTreeSet<String>)> = Vec::new();
    for line in info.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ") {
            Some(title) => sections.push((title.to_owned(), BTreeSet::new())),
            None => {
                let (name, _) = line.split_once(':').expect("a name and a value");
                let kinds = ["cmdstat_", "errorstat_", "latency_percentiles_"];
                if !kinds.iter().any(|kind| name.starts_with(kind)) {
                    sections.last_mut().expect("a title").1.insert(name.to_owned());
                }
            }
        }
    }
    sections
}

#[test]
fn info_has_every_section_and_field_of_redis() {
    let (server, redis) = (Server::builder().start().unwrap(), RedisServer::start());
    let (mut ours, mut theirs) = (connect(&server), Connection::tcp(redis.port()));
    for wanted in ["INFO", "INFO all", "INFO everything", "INFO stats keyspace"] {
        let (ours, theirs) = (text(ours.words(wanted)), text(theirs.words(wanted)));
        let (ours, theirs) = (sections(&ours), sections(&theirs));
        let titles = |sections: &[(String, BTreeSet<String>)]| {
            sections.iter().map(|(title, _)| title.clone()).collect::<Vec<_>>()
        };
        assert_eq!(titles(&ours), titles(&theirs), "{wanted}");
        for ((title, ours), (_, theirs)) in ours.iter().zip(&theirs) {
            let missing: Vec<&String> = theirs.difference(ours).collect();
            assert!(missing.is_empty(), "{wanted} {title} lacks {missing:?}");
        }
    }
}

#[test]
fn info_tells_the_life_of_the_data_in_plain_words() {
    let server = Server::builder().start().unwrap();
    let info = text(connect(&server).words("INFO server"));
    let value = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name}")).to_owned()
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    assert!(!value("tenure_incarnation").is_empty());
    assert!(value("tenure_incarnation").chars().all(is_plain));
    assert_eq!(value("tenure_history"), "complete");
    assert_eq!(value("redis_version"), "7.0.15");
}

#[test]
fn info_counts_what_happened() {
    let server = Server::builder().start().unwrap();
    let mut connection = connect(&server);
    for line in ["SET a 1", "GET a", "GET b", "NOSUCH", "LPUSH a x", "SET c 1 EX 100"] {
        connection.words(line);
    }
    let info = text(connection.words("INFO everything"));
    for line in [
        "keyspace_hits:1",
        "keyspace_misses:1",
        "total_error_replies:2",
        "errorstat_WRONGTYPE:count=1",
        "errorstat_ERR:count=1",
        "total_commands_processed:5",
        "connected_clients:1",
    ] {
        assert!(info.contains(&format!("\r\n{line}\r\n")), "{line} is not in\n{info}");
    }
    let lives = ["avg_ttl=99", "avg_ttl=100000"].map(|ttl| format!("db0:keys=2,expires=1,{ttl}"));
    assert!(lives.iter().any(|line| info.contains(line)), "{info}");
    assert!(info.contains("cmdstat_lpush:calls=1,"), "{info}");
    assert!(info.contains("latency_percentiles_usec_get:p50="), "{info}");
    connection.words("CONFIG RESETSTAT");
    let info = text(connection.words("INFO everything"));
    assert!(info.contains("\r\nkeyspace_hits:0\r\n") && !info.contains("cmdstat_lpush"), "{info}");
}

#[test]
fn client_list_has_the_fields_of_redis_in_their_order() {
    let (server, redis) = (Server::builder().any_port().start().unwrap(), RedisServer::start());
    let names = |line: String| -> Vec<String> {
        let name = |field: &str| field.split_once('=').expect("name=value").0.to_owned();
        line.trim_end().split(' ').map(name).collect()
    };
    let mut ours = Connection::tcp(server.port().unwrap());
    let mut theirs = Connection::tcp(redis.port());
    let (our_line, their_line) =
        (text(ours.words("CLIENT INFO")), text(theirs.words("CLIENT INFO")));
    assert_eq!(names(our_line.clone()), names(their_line));
    assert!(our_line.contains(" cmd=client|info user=default redir=-1 resp=2\n"), "{our_line}");

    let mut other = Connection::tcp(server.port().unwrap());
    other.words("CLIENT SETNAME worker");
    other.words("SELECT 3");
    other.words("SUBSCRIBE a");
    other.words("PSUBSCRIBE b");
    let list = text(ours.words("CLIENT LIST TYPE pubsub"));
    for field in [" name=worker ", " flags=P ", " db=3 ", " sub=1 psub=1 ssub=0 ", " multi=-1 "] {
        assert!(list.contains(field), "{field} is not in {list}");
    }
    ours.words("MULTI");
    ours.words("PING");
    let mut third = Connection::tcp(server.port().unwrap());
    let list = text(third.words("CLIENT LIST"));
    assert!(list.contains(" flags=x ") && list.contains(" multi=1 "), "{list}");
    assert_eq!(list.lines().count(), 3);
}

#[test]
fn a_monitor_sees_requests_and_no_passwords() {
    let server = Server::builder().any_port().start().unwrap();
    let mut monitor = Connection::tcp(server.port().unwrap());
    assert_eq!(monitor.words("MONITOR"), ok());
    let mut connection = Connection::tcp(server.port().unwrap());
    connection.ask(&["SET", "k", "a \"b\"\r\n\u{1}"]).unwrap();
    connection.words("AUTH default geheim");
    connection.words("HELLO 3 AUTH default geheim");
    connection.words("CONFIG SET requirepass geheim");
    connection.words("ECHO end");
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|line: &String| line.ends_with("\"ECHO\" \"end\"")) {
        match monitor.receive() {
            Some(Reply::Simple(line)) => seen.push(line),
            other => panic!("{other:?} is no line"),
        }
    }
    assert!(seen[0].contains(" [0 127.0.0.1:"), "{seen:?}");
    assert!(seen[0].ends_with(r#"] "SET" "k" "a \"b\"\r\n\x01""#), "{seen:?}");
    assert!(seen[1].ends_with(r#""AUTH" "(redacted)" "(redacted)""#), "{seen:?}");
    assert!(!seen.iter().any(|line| line.contains("geheim")), "{seen:?}");
}

#[test]
fn the_slow_log_keeps_no_passwords() {
    let server = Server::builder().setting("slowlog-log-slower-than", "0").start().unwrap();
    let mut connection = connect(&server);
    connection.words("ACL SETUSER bob on >geheim ~* +@all");
    connection.words("AUTH bob geheim");
    connection.words("CONFIG SET masterauth geheim");
    let log = format!("{:?}", connection.words("SLOWLOG GET -1"));
    assert!(log.contains("(redacted)") && !log.contains("geheim"), "{log}");
}

#[test]
fn users_are_kept_in_their_file() {
    let folder = TempFolder::create();
    let path = folder.path().join("users.acl");
    std::fs::write(&path, "user default on nopass ~* &* +@all\nuser ann on #0123 ~a +get\n")
        .unwrap();
    let file = path.display().to_string();
    let start = || Server::builder().setting("aclfile", &file).start();
    let error = start().err().expect("a hash must have 64 digits").to_string();
    assert!(error.contains("users.acl:2") && error.contains("password hash"), "{error}");

    std::fs::write(&path, "user ann on nopass ~a* +@all\n\nuser bob off\n").unwrap();
    let server = start().unwrap();
    let mut connection = connect(&server);
    assert_eq!(connection.words("AUTH ann x"), ok());
    assert!(matches!(connection.words("GET b"), Reply::Error(text) if text.starts_with("NOPERM")));
    let mut admin = connect(&server);
    assert_eq!(admin.words("ACL SETUSER eve on >pw ~* +get"), ok());
    assert_eq!(admin.words("ACL SAVE"), ok());
    let saved = std::fs::read_to_string(&path).unwrap();
    assert!(saved.contains("\nuser eve on #") && saved.contains("user bob off"), "{saved}");

    std::fs::write(&path, "user ann on\nuser ann on\nnonsense\n").unwrap();
    let Reply::Error(error) = admin.words("ACL LOAD") else { panic!("the file is wrong") };
    assert!(error.contains("Duplicate user 'ann'") && error.contains("users.acl:3"), "{error}");
    assert_eq!(connection.words("ACL WHOAMI"), Reply::Bulk(b"ann".to_vec()));

    std::fs::write(&path, saved).unwrap();
    assert_eq!(admin.words("ACL LOAD"), ok());
    assert_eq!(connection.receive(), None, "whoever was ann is not the new ann");
    assert_eq!(connect(&server).words("AUTH eve pw"), ok());
}

#[test]
fn users_may_stand_in_the_configuration() {
    let mut config = Config::default();
    let text = "user ann on >pw ~a* (%R~b +get) +@read\nuser default off\n";
    parse(&mut config, text);
    let server = Server::builder().config(config).setting("save", "").start().unwrap();
    let mut connection = connect(&server);
    assert!(matches!(connection.words("PING"), Reply::Error(text) if text.starts_with("NOAUTH")));
    assert_eq!(connection.words("AUTH ann pw"), ok());
    assert_eq!(connection.words("GET b"), Reply::Null);
    assert!(
        matches!(connection.words("SET a 1"), Reply::Error(text) if text.starts_with("NOPERM"))
    );
}

fn parse(config: &mut Config, text: &str) {
    store_engine::parse_file(config, text).unwrap();
}

#[test]
fn users_survive_a_rewrite_of_the_configuration() {
    let folder = TempFolder::create();
    let path = folder.path().join("redis.conf");
    std::fs::write(&path, "# mine\nuser ann off\nmaxclients 100\n").unwrap();
    let read = || {
        let mut config = Config::default();
        parse(&mut config, &std::fs::read_to_string(&path).unwrap());
        Server::builder().config(config).config_file(&path).setting("save", "").start().unwrap()
    };
    let server = read();
    let mut connection = connect(&server);
    connection.words("ACL SETUSER ann on >pw ~* +@all");
    connection.words("ACL SETUSER bob on nopass +ping");
    connection.words("CONFIG SET maxclients 200");
    let users = connection.words("ACL LIST");
    assert_eq!(connection.words("CONFIG REWRITE"), ok());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# mine\nmaxclients 200\n"), "{text}");
    drop(server);
    assert_eq!(connect(&read()).words("ACL LIST"), users);
}

#[test]
fn tracked_keys_beyond_the_limit_are_given_up_with_notice() {
    let server = Server::builder().setting("tracking-table-max-keys", "10").start().unwrap();
    let mut connection = connect(&server);
    connection.words("HELLO 3");
    connection.words("CLIENT TRACKING ON");
    let mut told = 0;
    for number in 0..100 {
        connection.send(&["GET", &format!("key:{number}")]);
        loop {
            match connection.receive() {
                Some(Reply::Null) => break,
                Some(Reply::Push(_)) => told += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    // The last notices follow the last reply.
    connection.send(&["PING"]);
    while let Some(Reply::Push(_)) = connection.receive() {
        told += 1;
    }
    assert_eq!(told, 90);
    let info = match connection.words("INFO stats") {
        Reply::Verbatim(_, text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    assert!(info.contains("tracking_total_keys:10\r\n"), "{info}");
}

#[test]
fn shutdown_ends_the_server() {
    let server = Server::builder().start().unwrap();
    let mut connection = connect(&server);
    connection.send(&["SHUTDOWN", "NOSAVE"]);
    assert_eq!(connection.receive(), None);
    server.wait().unwrap();
}

/// In the words of Redis for a module that is not there, which clients know.
#[test]
fn modules_are_refused_as_one_that_cannot_be_loaded() {
    let theirs = RedisServer::builder().args(["--enable-module-command", "yes"]).start();
    let ours = Server::builder().setting("enable-module-command", "yes").start().unwrap();
    let (mut ours, mut theirs) = (connect(&ours), Connection::tcp(theirs.port()));
    for line in ["MODULE LOAD /nosuch", "MODULE LOADEX /nosuch ARGS a", "MODULE UNLOAD nosuch"] {
        assert_eq!(ours.words(line), theirs.words(line), "{line}");
    }
}

#[test]
fn without_the_setting_debug_is_refused() {
    let server = Server::builder().start().unwrap();
    let reply = connect(&server).words("DEBUG SLEEP 0");
    assert!(
        matches!(reply, Reply::Error(text) if text.starts_with("ERR DEBUG command not allowed"))
    );
    let server = Server::builder().setting("enable-debug-command", "local").start().unwrap();
    let mut connection = connect(&server);
    assert_eq!(connection.words("DEBUG SLEEP 0"), ok());
    for crash in ["SEGFAULT", "PANIC", "OOM", "RESTART", "LEAK x"] {
        let reply = connection.words(&format!("DEBUG {crash}"));
        assert!(matches!(reply, Reply::Error(_)), "{crash} → {reply:?}");
    }
    assert_eq!(connection.words("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn users_that_no_file_can_keep_are_refused_or_not_written() {
    let folder = TempFolder::create();
    let users = folder.write("users.acl", "user default on nopass ~* &* +@all\n");
    let file = users.to_str().unwrap();
    let server = Server::builder().setting("aclfile", file).start().unwrap();
    let mut admin = Connection::unix(server.connect().unwrap());
    for words in [
        &["", "on"][..],
        &["bob", "+get|a b"],
        &["bob", "+get|a\nuser evil on nopass ~* +@all"],
        &["bob", "(+get|a\rb)"],
        &["bob", "+get|a\0b"],
    ] {
        let request: Vec<&str> = ["ACL", "SETUSER"].iter().chain(words).copied().collect();
        let reply = admin.ask(&request).unwrap();
        assert!(matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
    }
    assert_eq!(admin.words("ACL SAVE"), ok());
    // A selector may have what its own words in a file do not mean.
    for rule in ["(~a) +get)", r#"("~a\"b" +get)"#] {
        let before = std::fs::read(&users).unwrap();
        assert_eq!(admin.ask(&["ACL", "SETUSER", "odd", "reset", rule]).unwrap(), ok());
        let Reply::Error(refusal) = admin.words("ACL SAVE") else { panic!("{rule} was written") };
        assert!(refusal.contains("'odd'") && refusal.contains("remove"), "{refusal}");
        assert_eq!(std::fs::read(&users).unwrap(), before);
        admin.words("ACL DELUSER odd");
    }
    assert_eq!(admin.words("ACL SAVE"), ok());
    assert_eq!(admin.words("ACL LOAD"), ok());
}

/// White space that is not ASCII is a part of a rule, at the end of a line, too.
#[test]
fn a_rule_that_ends_with_a_wide_space_stays_what_it_is() {
    let set = ["ACL", "SETUSER", "bob", "on", "nopass", "~*", "-@all", "+get|x\u{3000}"];
    let is_denied = |admin: &mut Connection| {
        let is_denied = |reply: Reply| matches!(reply, Reply::Bulk(text) if !text.is_empty());
        assert!(is_denied(admin.ask(&["ACL", "DRYRUN", "bob", "get", "x"]).unwrap()));
        assert_eq!(admin.ask(&["ACL", "DRYRUN", "bob", "get", "x\u{3000}"]).unwrap(), ok());
    };
    let folder = TempFolder::create();
    let users = folder.write("users.acl", "user default on nopass ~* &* +@all\n");
    let file = users.to_str().unwrap();
    let server = Server::builder().setting("aclfile", file).start().unwrap();
    let mut admin = Connection::unix(server.connect().unwrap());
    assert_eq!(admin.ask(&set).unwrap(), ok());
    is_denied(&mut admin);
    assert_eq!(admin.words("ACL SAVE"), ok());
    assert_eq!(admin.words("ACL LOAD"), ok());
    is_denied(&mut admin);

    let path = folder.write("a.conf", "save \"\"\n");
    let server = Server::builder().config_file(&path).start().unwrap();
    let mut admin = Connection::unix(server.connect().unwrap());
    assert_eq!(admin.ask(&set).unwrap(), ok());
    assert_eq!(admin.words("CONFIG REWRITE"), ok());
    let mut config = store_server::Config::default();
    store_engine::parse_file(&mut config, &std::fs::read_to_string(&path).unwrap()).unwrap();
    let again = Server::builder().config(config).start().unwrap();
    is_denied(&mut Connection::unix(again.connect().unwrap()));
}

#[test]
fn a_rewritten_configuration_has_the_same_users() {
    let folder = TempFolder::create();
    let path = folder.write("a.conf", "save \"\"\n");
    let server = Server::builder().config_file(&path).start().unwrap();
    let mut admin = Connection::unix(server.connect().unwrap());
    for rule in [r#"~a"b"#, "~it's", r"~back\slash", "&#c"] {
        assert_eq!(admin.ask(&["ACL", "SETUSER", "odd", "on", rule, "+get|x'y"]).unwrap(), ok());
    }
    let told = admin.words("ACL LIST");
    assert_eq!(admin.words("CONFIG REWRITE"), ok());
    let mut config = store_server::Config::default();
    store_engine::parse_file(&mut config, &std::fs::read_to_string(&path).unwrap()).unwrap();
    let again = Server::builder().config(config).start().unwrap();
    assert_eq!(Connection::unix(again.connect().unwrap()).words("ACL LIST"), told);
}
