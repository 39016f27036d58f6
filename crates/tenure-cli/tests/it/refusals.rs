//! Bad input: one line that names the thing and the next step, and the documented code.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use testkit::{GENEROUS, RedisServer, TempFolder, wait_until};

use crate::stage::{CommandOutput, Kind, NAME, Stage, plain_command};

#[track_caller]
fn refused(words: &[&str], code: i32, named: &[&str]) {
    let said = CommandOutput::of(plain_command(words));
    assert_eq!(said.code, code, "{words:?}: {said:?}");
    assert_eq!(said.err.lines().count(), 1, "{words:?}: {said:?}");
    assert_eq!(said.out, "", "{words:?}: {said:?}");
    for part in named {
        assert!(said.err.contains(part), "{words:?} should name {part:?}: {said:?}");
    }
}

#[test]
fn words_that_are_no_text_are_usage_and_no_panic() {
    let odd = OsStr::from_bytes(b"\xff");
    let lines: [&[&str]; 6] = [
        &["who"],
        &["run", "job", "--id"],
        &["once", "job", "--tick"],
        &["config", "check"],
        &["sidecar"],
        &["demo"],
    ];
    for words in lines {
        let mut command = plain_command(words);
        command.arg(odd);
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 64, "{words:?}: {said:?}");
        assert!(said.err.contains("--help"), "{words:?}: {said:?}");
        assert_eq!(said.err.lines().count(), 1, "{words:?}: {said:?}");
    }
    let mut command = plain_command(&[]);
    command.arg(odd);
    assert_eq!(CommandOutput::of(command).code, 64);
}

/// A store that nobody needs to reach.
const STORE: [&str; 2] = ["--store", "redis://127.0.0.1:1"];

fn run<'a>(flags: &[&'a str], program: &[&'a str]) -> Vec<&'a str> {
    [&["run", "job"][..], &STORE, flags, &["--"], program].concat()
}

#[test]
fn words_that_make_no_sense_are_usage() {
    refused(&["whoo"], 64, &["whoo", "'who'"]);
    refused(&["who"], 64, &["NAME", "tenure who --help"]);
    refused(&run(&["--tll", "1s"], &["true"]), 64, &["--tll", "--ttl"]);
    refused(&run(&["--ttl", "1x"], &["true"]), 64, &["--ttl", "1x", "10s"]);
    refused(&run(&["--ttl", "10"], &["true"]), 64, &["10s or 10ms"]);
    refused(&run(&["--wait-timeout", "soon"], &["true"]), 64, &["wait-timeout", "soon"]);
    refused(&run(&["--stop-signal", "TREM"], &["true"]), 64, &["TREM", "TERM"]);
    refused(&run(&["--on-loss", "panic"], &["true"]), 64, &["--on-loss", "recontend"]);
    refused(&run(&["--priority", "high"], &["true"]), 64, &["--priority", "high"]);
    refused(&run(&["--id", "a b"], &["true"]), 64, &["--id"]);
    refused(
        &["run", "job", "--key", "k", "--prefix", "p", "--", "true"],
        64,
        &["--key", "--prefix"],
    );
    refused(&["run", "job", "--store", "redis://127.0.0.1:1"], 64, &["COMMAND"]);
    refused(&["who", "", STORE[0], STORE[1]], 64, &["empty"]);
    for words in [&["run"][..], &["sidecar"]] {
        let words = [words, &["a b", "--ttl", "2s"], &STORE].concat();
        let program: &[&str] = if words[0] == "run" { &["--", "true"] } else { &[] };
        refused(&[&words, program].concat(), 64, &["tenure: resource name contains ' '"]);
    }
    refused(&["once", "job", STORE[0], STORE[1], "--wait", "--", "true"], 64, &["--every"]);
    refused(&["cli", "--nonsense"], 64, &["--nonsense", "tenure cli --help"]);
    refused(&["who", "job", "--profile", "nope", STORE[0], STORE[1]], 78, &["--profile", "nope"]);
}

/// An empty address is a secret that was not filled in, never a wish for the local store.
#[test]
fn a_store_that_is_named_by_nothing_is_refused() {
    let folder = testkit::TempFolder::create();
    let file = folder.write("tenure.toml", "store.url = \"\"\n");
    let blank = folder.write("blank", " \n");
    let by_file = folder.write("file.toml", &format!("store.url_file = {blank:?}\n"));
    for store in ["", " "] {
        refused(&["who", "job", "--store", store], 78, &["--store", "is empty", "redis://"]);
    }
    for file in [&file, &by_file] {
        let words = ["who", "job", "--config", file.to_str().unwrap()];
        refused(&words, 78, &["is empty", "redis://"]);
    }
    let variables = ["TENURE_STORE", "TENURE_STORE__URL", "TENURE_CONFIG", "TENURE_PROFILE"];
    for (variable, value) in variables.into_iter().flat_map(|name| [(name, ""), (name, " ")]) {
        let mut command = plain_command(&["run", "job", "--", "true"]);
        command.env(variable, value).env("XDG_STATE_HOME", folder.path());
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 78, "{variable}={value:?}: {said:?}");
        assert!(said.err.contains(variable), "{said:?}");
    }
    let mut command = plain_command(&["cli", "PING"]);
    command.env("TENURE_STORE", "");
    let said = CommandOutput::of(command);
    assert_eq!((said.code, said.err.contains("TENURE_STORE is empty")), (64, true), "{said:?}");
}

#[test]
fn misspelt_flags_and_commands_get_a_suggestion() {
    for (words, wanted) in [
        (&["status", "job", "--jsno"][..], "'--json'"),
        (&["history", "job", "--cuont", "5"], "'--count'"),
        (&["once", "job", "--evry", "1h", "--", "true"], "'--every'"),
        (&["hand-over", "job", "--too", "x"], "'--to'"),
        (&["clear", "job", "--raeson", "x"], "'--reason'"),
        (&["doctor", "--lst"], "'--list'"),
        (&["sidecar", "job", "--lisen", "127.0.0.1:0"], "'--listen'"),
        (&["demo", "--secons", "3"], "'--seconds'"),
        (&["config", "chek"], "'check'"),
        (&["local", "stat"], "'status'"),
        (&["hand-ovr", "job"], "'hand-over'"),
    ] {
        refused(words, 64, &[wanted, "--help"]);
    }
    refused(&["serve", "--prot", "7000"], 78, &["--prot", "--port"]);
    refused(&["pause", "job", "--for", "1"], 64, &["1s or 1ms", "tenure pause --help"]);
}

#[test]
fn a_flag_of_another_command_is_not_offered_as_a_value() {
    for words in [&["who", "job", "-v"][..], &["resume", "job", "--tick"], &["status", "--id", "x"]]
    {
        let said = CommandOutput::of(plain_command(words));
        assert_eq!(said.code, 64, "{said:?}");
        assert!(!said.err.contains("-- "), "{said:?}");
    }
}

#[test]
fn misspelt_keys_get_a_suggestion_in_every_format_and_in_variables() {
    let folder = testkit::TempFolder::create();
    for (name, text) in [
        ("tenure.toml", "[defaults]\nttll = '5s'\n"),
        ("tenure.yaml", "defaults:\n  ttll: 5s\n"),
        ("tenure.json", "{\"defaults\": {\"ttll\": \"5s\"}}\n"),
        ("tenure.hcl", "defaults {\n  ttll = \"5s\"\n}\n"),
    ] {
        let file = folder.write(name, text);
        let file = file.to_str().unwrap();
        refused(&["who", "job", "--config", file], 78, &[name, "ttll", "defaults.ttl"]);
    }
    let mut command = plain_command(&["who", "job"]);
    command.env("TENURE_DEFAULTS__TTLL", "5s");
    let said = CommandOutput::of(command);
    assert_eq!(said.code, 78, "{said:?}");
    assert!(said.err.contains("TENURE_DEFAULTS__TTLL; did you mean TENURE_DEFAULTS__TTL?"));
    let file = folder.write("redis.conf", "port 7000\nmaxmemroy 1mb\n");
    refused(&["serve", file.to_str().unwrap()], 78, &["redis.conf", "line 2", "maxmemory"]);
}

#[test]
fn any_setting_of_an_election_may_stand_on_the_command_line() {
    for (set, named) in [
        ("lock_delay", &["SETTING=VALUE", "lock_delay=30s"][..]),
        ("=3s", &["SETTING=VALUE"]),
        ("lockdelay=3s", &["elections.job.lockdelay", "--set", "elections.job.lock_delay"]),
        ("lock_delay=soon", &["elections.job.lock_delay", "--set"]),
        ("failback.delay=0s", &["failback.delay", "--set", "longer than 0s"]),
    ] {
        refused(&run(&["--set", set], &["true"]), 64, named);
    }
}

/// The program is there; what its first line names is not.
#[test]
fn a_script_without_its_interpreter_is_told_before_anybody_contends() {
    let folder = TempFolder::create();
    let script = folder.write("job.sh", "#!/no/such/shell -e\ntrue\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    refused(&run(&[], &[script]), 126, &[script, "/no/such/shell", "first line"]);
    let once = ["once", "job", STORE[0], STORE[1], "--", script];
    refused(&once, 126, &["/no/such/shell"]);
}

/// An election that is switched off asks no store, so none is started for it either.
#[test]
fn without_an_election_no_store_is_started() {
    let home = TempFolder::create();
    for command in ["run", "once"] {
        let words = [command, "job", "--set", "enabled=false", "--", "echo", "done"];
        let mut command = plain_command(&words);
        command.env("HOME", home.path()).env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR");
        let said = CommandOutput::of(command);
        assert_eq!((said.code, said.out.trim()), (0, "done"), "{said:?}");
        let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let address = format!("127.0.0.1:{port}");
    let named = [address.as_str(), "choose another"];
    let sidecar = ["sidecar", "job", STORE[0], STORE[1], "--listen", &address];
    refused(&sidecar, 78, &named);
    let run = run(&["--http", &address], &["true"]);
    let said = CommandOutput::of(plain_command(&run));
    assert_eq!(said.code, 78, "{said:?}");
    assert!(named.iter().all(|part| said.err.contains(part)), "{said:?}");
    let demo = CommandOutput::of(plain_command(&["demo", "--listen", &address, "--seconds", "1"]));
    assert_eq!(demo.code, 78, "{demo:?}");
    assert!(named.iter().all(|part| demo.err.contains(part)), "{demo:?}");
    let folder = testkit::TempFolder::create();
    let mut serve = plain_command(&["serve", "--port", &port]);
    // It notes in its folder that it was started.
    serve.current_dir(folder.path());
    let serve = CommandOutput::of(serve);
    assert_eq!(serve.code, 1, "{serve:?}");
    assert!(serve.err.contains(&address) && serve.err.contains("in use"), "{serve:?}");
}

#[test]
fn a_program_that_is_not_there_is_told_before_anybody_contends() {
    refused(&run(&[], &["no-such-program"]), 127, &["no-such-program", "PATH"]);
    refused(&run(&[], &["/etc/passwd"]), 126, &["/etc/passwd", "permissions"]);
}

#[test]
fn settings_that_do_not_fit_are_configuration() {
    refused(
        &run(&["--ttl", "2s", "--stop-grace", "5s"], &["true"]),
        78,
        &["stop_grace", "lengthen"],
    );
    refused(&["who", "job", "--store", "ftp://host"], 78, &["ftp", "redis://"]);
    refused(&["who", "job", "--config", "/no/such.toml"], 78, &["/no/such.toml"]);
    let folder = testkit::TempFolder::create();
    let file = folder.write("tenure.toml", "stoer = 'redis://h'\n");
    refused(&["who", "job", "--config", file.to_str().unwrap()], 78, &["stoer", "store"]);
}

#[test]
fn a_store_that_is_not_there_is_named() {
    for words in [
        &["who", "job"][..],
        &["status", "job"],
        &["members", "job"],
        &["history", "job"],
        &["hand-over", "job", "--to", "ada"],
        &["resign", "job"],
        &["pause", "job"],
        &["resume", "job"],
        &["clear", "job", "--reason", "drill", "--yes"],
        &["doctor", "job"],
    ] {
        refused(&[words, &STORE].concat(), 69, &["127.0.0.1:1", "--store"]);
    }
    let once = ["once", "job", STORE[0], STORE[1], "--tick", "1", "--", "true"];
    refused(&once, 69, &["127.0.0.1:1", "--store"]);
    let waiting = run(&["--wait-timeout", "300ms"], &["true"]);
    let said = CommandOutput::of(plain_command(&waiting));
    assert_eq!(said.code, 69, "{said:?}");
    assert!(said.err.contains("127.0.0.1:1"), "{said:?}");
    assert!(said.err.contains("not leading after 300ms: "), "{said:?}");
}

#[test]
fn a_refused_password_is_told_and_never_shown() {
    let server = RedisServer::builder().password("right").start();
    let wrong = format!("redis://:canary@127.0.0.1:{}", server.port());
    for words in [
        &["who", "job"][..],
        &["run", "job", "--", "true"],
        &["once", "job", "--tick", "1", "--", "true"],
        &["status", "job"],
        &["resign", "job"],
        &["doctor", "job"],
    ] {
        let mut command = plain_command(words);
        command.env("TENURE_STORE", &wrong);
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 78, "{said:?}");
        let line = said.err.lines().last().unwrap();
        assert!(line.contains("password"), "{said:?}");
        assert!(line.contains("127.0.0.1"), "{said:?}");
        assert!(!format!("{said:?}").contains("canary"), "{said:?}");
    }
}

#[test]
fn without_arguments_it_teaches() {
    let said = CommandOutput::of(plain_command(&[]));
    assert_eq!(said.code, 0);
    assert!(said.out.contains("tenure run"), "{said:?}");
    let version = CommandOutput::of(plain_command(&["--version"]));
    assert!(version.out.starts_with("tenure "), "{version:?}");
}

#[test]
fn config_check_shows_where_each_value_comes_from() {
    let folder = testkit::TempFolder::create();
    let file =
        folder.write("tenure.toml", "store = 'redis://u:canary@h'\n[defaults]\nttl = '5s'\n");
    let mut command = plain_command(&["config", "check", "--prefix", "p:", "--json", "--config"]);
    command.arg(&file).env("TENURE_DEFAULTS__PRIORITY", "3");
    let said = CommandOutput::of(command);
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let origin = |key: &str| {
        let settings = json["settings"].as_array().unwrap();
        let found = settings.iter().find(|setting| setting["key"] == key);
        found.unwrap_or_else(|| panic!("{key} in {json}"))["origin"].as_str().unwrap().to_owned()
    };
    assert!(origin("defaults.ttl").ends_with("tenure.toml:3"));
    assert_eq!(origin("prefix"), "--prefix");
    assert_eq!(origin("defaults.priority"), "TENURE_DEFAULTS__PRIORITY");
    assert!(!said.out.contains("canary"), "{said:?}");
}

#[test]
fn completions_and_manual_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let said = CommandOutput::of(plain_command(&["completions", shell]));
        assert!(said.code == 0 && said.out.contains("hand-over"), "{shell}");
    }
    let bash = CommandOutput::of(plain_command(&["completions", "bash"])).out;
    assert!(!bash.contains("local__serve"), "nobody types it");
    assert!(bash.contains("recontend exit"), "what --on-loss takes is known");
    let folder = testkit::TempFolder::create();
    let missing = folder.path().join("share/man1");
    assert_eq!(CommandOutput::of(plain_command(&["man", missing.to_str().unwrap()])).code, 0);
    let synopsis = |command: &str| {
        let page = missing.join(format!("tenure-{command}.1"));
        let page = std::fs::read_to_string(page).expect("a page");
        let line = page.lines().skip_while(|line| !line.contains("SYNOPSIS")).nth(1);
        line.expect("a line").replace("\\fB", "").replace("\\fR", "").replace('\\', "")
    };
    assert_eq!(synopsis("run"), "tenure run [OPTIONS] <NAME> -- <COMMAND>...");
    assert_eq!(synopsis("hand-over"), "tenure hand-over [OPTIONS] --to <ID> <NAME>");
    let file = folder.write("file", "");
    let (file, named) = (format!("{}/man1", file.display()), "choose another folder");
    refused(&["man", &file], 73, &[&file, named]);
    let page = CommandOutput::of(plain_command(&["man"]));
    assert!(page.out.contains(".TH") && page.out.contains("run"), "{page:?}");
}

#[test]
fn too_few_descriptors_are_an_error_and_no_panic() {
    let stage = Stage::on(Kind::Own);
    for limit in [5, 8, 9, 10, 11, 12] {
        let mut command = std::process::Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        command.args(["-c", &script, "sh", crate::stage::TENURE, "who", NAME]);
        let said = CommandOutput::of({
            command.env("TENURE_STORE", stage.store.url());
            command
        });
        assert_eq!(said.code, 78, "{limit}: {said:?}");
        assert!(said.err.contains("ulimit -n") && !said.err.contains("panicked"), "{said:?}");
    }
}

#[test]
fn too_little_address_space_is_an_error_and_no_abort() {
    for words in [&["who", NAME][..], &["run", NAME, "--", "true"], &["once", NAME, "--", "true"]] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -v 300000; exec \"$@\"", "sh", crate::stage::TENURE]);
        command.args(words).env("TENURE_STORE", STORE[1]);
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 78, "{words:?}: {said:?}");
        assert!(said.err.contains("ulimit -v"), "{words:?}: {said:?}");
    }
}

/// With so few it would lead, see neither its program nor what is left of it, and do nothing.
#[test]
fn a_wrapper_with_too_few_descriptors_does_not_contend() {
    let stage = Stage::on(Kind::Own);
    for words in [&["run", NAME, "--", "true"][..], &["once", NAME, "--", "true"]] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -n 21; exec \"$@\"", "sh", crate::stage::TENURE]).args(words);
        let said = CommandOutput::of({
            command.env("TENURE_STORE", stage.store.url());
            command
        });
        assert_eq!(said.code, 78, "{said:?}");
        assert!(said.err.contains("ulimit -n"), "{said:?}");
    }
}

/// What is looked at is what is read, whatever it is.
#[test]
fn a_pipe_that_everybody_may_write_is_no_configuration_either() {
    let folder = TempFolder::create();
    let pipe = folder.path().join("tenure.toml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let check = |mode: u32| {
        std::fs::set_permissions(&pipe, PermissionsExt::from_mode(mode)).unwrap();
        let writing = pipe.clone();
        // Opened for both, so that nobody waits for a reader.
        let mut open = std::fs::File::options().read(true).write(true).open(writing).unwrap();
        std::io::Write::write_all(&mut open, b"store = 'redis://h'\n").unwrap();
        let mut command = plain_command(&["config", "check"]);
        command.env("TENURE_CONFIG", &pipe).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut reading = command.spawn().unwrap();
        // It reads until nobody can write any more, or ends before that.
        let files = format!("/proc/{}/fd", reading.id());
        wait_until("it to have the pipe", GENEROUS, || {
            let mut files = std::fs::read_dir(&files).into_iter().flatten().flatten();
            files.any(|file| std::fs::read_link(file.path()).is_ok_and(|opened| opened == pipe))
                || reading.try_wait().unwrap().is_some()
        });
        drop(open);
        CommandOutput::read(reading.wait_with_output().unwrap())
    };
    let said = check(0o666);
    assert_eq!(said.code, 78, "{said:?}");
    assert!(said.err.contains("every user of this host may write it"), "{said:?}");
    let said = check(0o600);
    assert_eq!(said.code, 0, "{said:?}");
    let mut command = plain_command(&["config", "check"]);
    command.env("TENURE_CONFIG", "/dev/null");
    assert!(!CommandOutput::of(command).err.contains("may write it"), "a device keeps nothing");
}

/// Whoever writes it names the store and the commands to run; whoever reads it has its secrets.
#[test]
fn a_configuration_file_that_everybody_may_write_is_refused_and_secrets_are_for_its_owner() {
    let folder = TempFolder::create();
    let check = |text: &str, mode: u32| {
        let file = folder.write("tenure.toml", text);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let mut command = plain_command(&["config", "check"]);
        command.env("TENURE_CONFIG", &file).env("SECRET", "p");
        CommandOutput::of(command)
    };
    let secrets = [
        "store = { host = 'h', password = 'p' }",
        "store = 'redis://u:p@h'",
        "[sidecar]\ntoken = '0123456789abcdef'",
        "[defaults.hooks]\non_gain_url = 'https://u:p@h/x'",
        "[elections.a.hooks]\nsecret = '0123456789abcdef'",
        "[elections.a.hooks.headers]\nAuthorization = 'Bearer p'",
    ];
    let plain = [
        "store = 'redis://h'",
        "[defaults.hooks]\non_gain = 'true'",
        "store = { host = 'h', password = '${SECRET}' }",
    ];
    for text in secrets.into_iter().chain(plain) {
        let said = check(text, 0o640);
        assert!(said.code == 0 && !said.err.contains("chmod"), "{text}: {said:?}");
        let said = check(text, 0o644);
        assert_eq!(said.code, 0, "{text}: {said:?}");
        let is_warned = said.err.contains("tenure.toml") && said.err.contains("chmod 600");
        assert_eq!(is_warned, secrets.contains(&text), "{text}: {said:?}");
        let said = check(text, 0o666);
        assert_eq!((said.code, said.err.lines().count()), (78, 1), "{text}: {said:?}");
        assert!(said.err.contains("tenure.toml") && said.err.contains("chmod 600"), "{said:?}");
    }
}
