//! Every form of command line that redis-server takes, to it and to `tenure serve`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{GENEROUS, Process, TempFolder, wait_for, wait_until};

/// A command line, and the settings to look at.
struct Form {
    words: &'static [&'static str],
    file: Option<&'static str>,
    stdin: &'static str,
    asks: &'static str,
}

const fn form(words: &'static [&'static str], asks: &'static str) -> Form {
    Form { words, file: None, stdin: "", asks }
}

const fn with_file(words: &'static [&'static str], file: &'static str, asks: &'static str) -> Form {
    Form { words, file: Some(file), stdin: "", asks }
}

const FORMS: &[Form] = &[
    form(&["--maxmemory 700mb"], "maxmemory"),
    form(&["--maxmemory 700mb", "--maxclients", "50"], "maxmemory maxclients"),
    with_file(&["maxmemory", "5mb"], "maxclients 30\n", "maxmemory maxclients"),
    with_file(&["maxmemory", "5mb", "--maxclients", "40"], "", "maxmemory maxclients"),
    form(&["--ignore-warnings", "ARM64-COW-BUG"], "ignore-warnings"),
    form(&["--shutdown-on-sigint", "nosave", "force", "now"], "shutdown-on-sigint"),
    form(&["--shutdown-on-sigint", "nosave force now"], "shutdown-on-sigint"),
    with_file(&["--save", "100", "1", "--save", "200", "2"], "save 5 6\n", "save"),
    with_file(&["--save", ""], "save 5 6\n", "save"),
    with_file(&["--save", "", "--save", "7 8"], "save 5 6\n", "save"),
    form(&["--save", "100", "1", "--save", "200", "2"], "save"),
    form(&["--save", "100 1 200 2"], "save"),
    form(&["--save", "--maxclients", "40"], "save maxclients"),
    form(&["--proc-title-template", "--my--title--template"], "proc-title-template"),
    form(&["--maxclients", "--40"], "maxclients"),
    form(&["--loading-process-events-interval-bytes", "2048"], "loading-process-events-*"),
    form(
        &["--loading-process-events-interval-bytes", "2048"],
        "loading-process-events-interval-bytes",
    ),
    form(&["--use-exit-on-panic", "yes"], "use-exit-on-panic use-*"),
    form(&["--key-load-delay", "-10"], "key-load-delay key-*"),
    form(&["--rdb-key-save-delay", "200"], "rdb-key-save-delay rdb-key*"),
    form(&["--watchdog-period", "0"], "watchdog-period watch*"),
    form(&["--lua-enable-deprecated-api", "no"], "lua-enable-deprecated-api lua-e*"),
    form(&["--aof-disable-auto-gc", "yes"], "aof-disable-auto-gc aof-d*"),
    Form { words: &["-"], file: None, stdin: "maxclients 33\n", asks: "maxclients" },
    Form { words: &["-"], file: Some("hz 9\n"), stdin: "hz 33", asks: "hz" },
    form(&["--bind", "127.0.0.1 -::1"], "bind"),
    form(&["--client-output-buffer-limit pubsub 1mb 2mb 3"], "client-output-buffer-limit"),
    form(&["--rename-command", "PING", "ICMP"], "port"),
    form(&["--PORT", "0", "--MaxMemory", "1GB"], "maxmemory"),
    form(&["--latency-tracking-info-percentiles", "50 99"], "latency-tracking-info-percentiles"),
    // What both refuse.
    with_file(&["maxmemory 5mb"], "", "maxmemory"),
    form(&["--maxclients", "40", "maxmemory", "5mb"], "maxmemory"),
    form(&["--shutdown-on-sigterm", "nosave", "save"], "shutdown-on-sigterm"),
    form(&["--shutdown-on-sigterm", "bogus"], "shutdown-on-sigterm"),
    form(&["--save", "100 1", "200 2"], "save"),
    form(&["--save", "100", "1", ""], "save"),
    form(&["--proc-title-template", "{title} {bogus}"], "proc-title-template"),
    form(&["--maxmemory=5mb"], "maxmemory"),
    form(&["--key-load-delay", "x"], "key-load-delay"),
    form(&["--loading-process-events-interval-bytes", "1"], "port"),
];

fn redis_server() -> Command {
    Command::new("redis-server")
}

fn tenure_serve() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("serve");
    command
}

/// What a server says of its settings after such a start, or `None` when it refuses to start.
fn settings_after(mut command: Command, form: &Form) -> Option<BTreeMap<String, String>> {
    let folder = TempFolder::create();
    command.current_dir(folder.path());
    let place = ["--port", "0", "--unixsocket", "sock"];
    match form {
        Form { words: ["-"], file: None, .. } => command.arg("-").args(place),
        Form { words, file, .. } => {
            if let Some(text) = file {
                command.arg(folder.write("redis.conf", text));
            }
            let (stdin, words) = words
                .split_last()
                .filter(|(last, _)| **last == "-")
                .map_or((None, *words), |(last, rest)| (Some(*last), rest));
            command.args(words).args(place).args(stdin)
        }
    };
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(form.stdin.as_bytes()).unwrap();
    let connected = wait_for("the server listens or has ended", GENEROUS, || {
        match UnixStream::connect(folder.path().join("sock")) {
            Ok(stream) => Some(Some(stream)),
            Err(_) => child.try_wait().unwrap().map(|_| None),
        }
    });
    let told = connected.map(|mut stream| {
        let line = format!("CONFIG GET {}\r\nQUIT\r\n", form.asks);
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        pairs(&answer)
    });
    // One that refused has ended already.
    let _ = child.kill();
    child.wait().unwrap();
    told
}

/// The words of a reply that are neither lengths nor the answer to QUIT, two by two.
fn pairs(answer: &str) -> BTreeMap<String, String> {
    let mut lines = answer.split("\r\n");
    let mut words = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with('$') {
            words.push(lines.next().unwrap_or_default().to_owned());
        }
    }
    words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

#[test]
fn command_lines_mean_what_they_mean_to_redis_server() {
    let mut differences = Vec::new();
    let mut refused = 0;
    for form in FORMS {
        let theirs = settings_after(redis_server(), form);
        let ours = settings_after(tenure_serve(), form);
        refused += usize::from(theirs.is_none());
        if ours != theirs {
            differences.push(format!("{:?}\n  ours   {ours:?}\n  theirs {theirs:?}", form.words));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(refused < FORMS.len() / 2, "redis-server itself takes most of them");
}

fn serve(folder: &Path, words: &[&str]) -> Process {
    let mut command = tenure_serve();
    command.current_dir(folder).args(words);
    command.args(["--port", "0", "--unixsocket", "sock", "--enable-debug-command", "yes"]);
    Process::spawn(command)
}

fn connect(folder: &Path) -> UnixStream {
    wait_for("the server listens", GENEROUS, || UnixStream::connect(folder.join("sock")).ok())
}

/// The answers to these lines, in one text.
fn ask(folder: &Path, lines: &[&str]) -> String {
    let mut stream = connect(folder);
    stream.write_all(format!("{}\r\nQUIT\r\n", lines.join("\r\n")).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.strip_suffix("+OK\r\n").unwrap_or(&answer).to_owned()
}

/// The test suite of Redis itself, and tools made like it, wait for ` PID: <pid>` and for
/// `Server initialized` behind it.
#[test]
fn tools_find_the_process_id_in_the_logo() {
    let folder = TempFolder::create();
    let server = serve(folder.path(), &["--always-show-logo", "yes"]);
    let pid = format!(" PID: {}", server.pid());
    let line = server.next_line_with(&pid, GENEROUS);
    assert!(line.ends_with(&pid), "{line}");
    let _ = server.next_line_with("Server initialized", GENEROUS);
    let _ = server.next_line_with("Ready to accept connections", GENEROUS);
    let _ = server.next_line_with("ready to accept connections at sock", GENEROUS);
}

#[test]
fn a_signal_ends_the_server_as_its_setting_says() {
    let ends = |words: &[&str], end: fn(&mut Process)| {
        let folder = TempFolder::create();
        let mut server = serve(folder.path(), words);
        assert_eq!(ask(folder.path(), &["SET k v"]), "+OK\r\n");
        end(&mut server);
        assert!(server.wait(GENEROUS).success());
        folder.path().join("dump.rdb").exists()
    };
    let (saves, saves_not) = (["--save", "3600 1"], ["--save", ""]);
    assert!(ends(&saves, Process::terminate));
    assert!(!ends(&saves_not, Process::terminate));
    let nosave = ["--save", "3600 1", "--shutdown-on-sigterm", "nosave", "now"];
    assert!(!ends(&nosave, Process::terminate));
    assert!(ends(&nosave, Process::interrupt));
    let save = ["--save", "", "--shutdown-on-sigint", "save"];
    assert!(ends(&save, Process::interrupt));
    assert!(!ends(&save, Process::terminate));
}

#[test]
fn a_forced_end_does_not_wait_for_a_snapshot_that_cannot_be_written() {
    let folder = TempFolder::create();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let words = ["--save", "3600 1", "--dir", "data", "--unixsocket", "../sock"];
    let mut command = tenure_serve();
    command.current_dir(folder.path()).args(words);
    command.args(["--port", "0", "--shutdown-on-sigterm", "force"]);
    let mut server = Process::spawn(command);
    assert_eq!(ask(folder.path(), &["SET k v"]), "+OK\r\n");
    fs::remove_dir_all(&data).unwrap();
    server.terminate();
    assert!(server.wait(GENEROUS).success());
    assert!(server.lines().iter().any(|line| line.contains("its data is lost")));
}

#[test]
fn a_test_can_look_at_a_server_that_saves_or_loads_slowly() {
    let folder = TempFolder::create();
    let mut server = serve(folder.path(), &["--save", ""]);
    let info = |wanted: &str| ask(folder.path(), &["INFO persistence"]).contains(wanted);
    ask(folder.path(), &["DEBUG POPULATE 100", "CONFIG SET rdb-key-save-delay 10000000", "BGSAVE"]);
    ask(folder.path(), &["DEBUG SLEEP 0.5"]);
    assert!(info("rdb_bgsave_in_progress:1") && !folder.path().join("dump.rdb").exists());
    // Nobody wants that one any more; the next is not slow.
    ask(folder.path(), &["FLUSHALL", "CONFIG SET rdb-key-save-delay 0", "DEBUG POPULATE 100"]);
    wait_until("the slow save is over", GENEROUS, || info("rdb_bgsave_in_progress:0"));
    assert_eq!(ask(folder.path(), &["SAVE"]), "+OK\r\n");
    server.kill();
    let _ = fs::remove_file(folder.path().join("sock"));

    let _server = serve(folder.path(), &["--save", "", "--key-load-delay", "1000000"]);
    assert!(ask(folder.path(), &["GET key:1"]).starts_with("-LOADING"));
    assert!(info("loading:1"));
    ask(folder.path(), &["CONFIG SET key-load-delay 0"]);
    wait_until("all is loaded", GENEROUS, || info("loading:0"));
    assert_eq!(ask(folder.path(), &["DBSIZE"]), ":100\r\n");
}

#[test]
fn a_configuration_file_can_be_written_with_all_settings() {
    let folder = TempFolder::create();
    let file = folder.write("redis.conf", "# mine\nmaxmemory 5mb\nsave 60 1\n");
    let get = || {
        let mut pairs = pairs(&ask(folder.path(), &["CONFIG GET *"]));
        pairs.remove("pidfile");
        pairs
    };
    let mut server = serve(folder.path(), &["redis.conf"]);
    assert_eq!(ask(folder.path(), &["DEBUG CONFIG-REWRITE-FORCE-ALL"]), "+OK\r\n");
    let before = get();
    let text = fs::read_to_string(&file).unwrap();
    for line in ["# mine", "maxmemory 5242880", "save 60 1", "hz 10", "appendonly no"] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    server.kill();
    let _ = fs::remove_file(folder.path().join("sock"));
    let _server = serve(folder.path(), &["redis.conf"]);
    assert_eq!(get(), before);
}

/// The same steps on redis-server, which loads the files that it left, too.
#[test]
fn an_append_only_file_that_was_turned_off_can_be_loaded() {
    for mut command in [redis_server(), tenure_serve()] {
        let folder = TempFolder::create();
        command.current_dir(folder.path()).args(["--port", "0", "--unixsocket", "sock"]);
        command.args(["--enable-debug-command", "yes", "--save", "", "--appendonly", "yes"]);
        let _server = Process::spawn(command);
        for line in ["SET a 1", "CONFIG SET appendonly no", "SET b 2", "DEBUG LOADAOF"] {
            assert_eq!(ask(folder.path(), &[line]), "+OK\r\n", "{line}");
        }
        assert_eq!(ask(folder.path(), &["MGET a b"]), "*2\r\n$1\r\n1\r\n$-1\r\n");
    }
    // Without any file redis-server ends at once; we keep what there is.
    let folder = TempFolder::create();
    let _server = serve(folder.path(), &["--save", ""]);
    let answers = ask(folder.path(), &["SET a 1", "DEBUG LOADAOF", "GET a"]);
    assert!(answers.contains("-ERR There is no append-only file"), "{answers}");
    assert!(answers.ends_with("$1\r\n1\r\n"), "{answers}");
}
