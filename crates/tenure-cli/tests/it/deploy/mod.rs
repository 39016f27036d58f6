//! The files under `deploy/`: what they ask of the command, the command does.

mod alerts;
mod kustomize;
mod sentinel;
mod store;
mod yaml;

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use testkit::{GENEROUS, Process, RedisServer, ServerProgram, wait_until};

use crate::stage::{CommandOutput, Kind, Stage, TENURE, plain_command};

fn read(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn words_of(value: &Value) -> Vec<String> {
    let words = value.as_array().into_iter().flatten();
    words.map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// What a file starts: the words after `tenure`, and the variables that it gives them.
#[derive(Debug)]
struct Started {
    words: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Started {
    /// The same on a store of the test's own, around a program that is there. What the file says
    /// beside that stays as it is.
    fn on(&self, stage: &Stage, program: &[&str]) -> Command {
        let mut words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        if let Some(end) = words.iter().position(|word| *word == "--") {
            words.truncate(end + 1);
            words.extend(program);
        }
        let mut command = stage.command(&words);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env("TENURE_STORE", stage.store.url());
        command
    }

    /// Whether every variable of ours is one that the configuration knows.
    fn check_variables(&self) {
        let mut command = plain_command(&["config", "check"]);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 0, "{:?}: {said:?}", self.variables);
        for (name, _) in &self.variables {
            let shown = !name.starts_with("TENURE_") || said.out.contains(name.as_str());
            assert!(shown, "{name} changes nothing: {said:?}");
        }
    }
}

/// The containers of Kubernetes' files that run `tenure`.
fn containers(file: &str) -> Vec<Started> {
    let documents = yaml::documents(&read(file));
    let secret = documents.iter().find(|document| document["kind"] == "Secret");
    let secret = secret.map_or("redis://redis.internal", |secret| {
        secret["stringData"]["url"].as_str().expect("the store's address is in the secret")
    });
    let deployments = documents.iter().filter(|document| document["kind"] == "Deployment");
    let containers = deployments.flat_map(|deployment| {
        let spec = &deployment["spec"]["template"]["spec"];
        assert_eq!(
            deployment["spec"]["selector"]["matchLabels"],
            deployment["spec"]["template"]["metadata"]["labels"],
        );
        spec["containers"].as_array().expect("a pod has containers")
    });
    let ours = containers.filter(|container| container["command"][0] == "tenure");
    ours.map(|container| started_in(container, secret)).collect()
}

fn started_in(container: &Value, secret: &str) -> Started {
    let value_of = |entry: &Value| match entry["value"].as_str() {
        Some("$(POD_NAME)") => "pod-1".to_owned(),
        Some(value) => value.to_owned(),
        None if entry["valueFrom"]["fieldRef"].is_object() => "pod-1".to_owned(),
        None => {
            assert_eq!(entry["valueFrom"]["secretKeyRef"]["key"], "url");
            secret.to_owned()
        }
    };
    let entries = container["env"].as_array().into_iter().flatten();
    let variables =
        entries.map(|entry| (entry["name"].as_str().unwrap().to_owned(), value_of(entry)));
    let words = [words_of(&container["command"]), words_of(&container["args"])].concat();
    let words = words.into_iter().skip(1).map(|word| word.replace("$(POD_NAME)", "pod-1"));
    Started { words: words.collect(), variables: variables.collect() }
}

#[test]
fn kubernetes_runs_the_wrapper() {
    let containers = containers("kubernetes/wrapper.yaml");
    let [started] = &containers[..] else { panic!("{containers:?}") };
    started.check_variables();
    let stage = Stage::on(Kind::Own);
    let said = CommandOutput::of(
        started.on(&stage, &["sh", "-c", "echo $TENURE_NAME $TENURE_ID; exit 5"]),
    );
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.out.starts_with("queue-poller pod-1_"), "{said:?}");
    let line = said.err.lines().find(|line| line.contains("acquired")).unwrap();
    assert!(serde_json::from_str::<Value>(line).is_ok(), "its log is JSON: {line}");
}

#[test]
fn kubernetes_runs_the_sidecar_and_its_probes_are_answered() {
    let containers = containers("kubernetes/sidecar.yaml");
    let [started] = &containers[..] else { panic!("{containers:?}") };
    started.check_variables();
    let stage = Stage::on(Kind::Own);
    let mut command = started.on(&stage, &[]);
    // The port of the file may be taken here.
    let process = Process::spawn({
        command.args(["--listen", "127.0.0.1:0"]);
        command
    });
    let line = process.next_line_with("serving queue-poller at http://", GENEROUS);
    let address = line.trim_end_matches('/').rsplit('/').next().unwrap();
    let file = read("kubernetes/sidecar.yaml");
    let asked = file.split("http://127.0.0.1:8420").skip(1);
    let paths: Vec<&str> = asked.filter_map(|rest| rest.split([' ', '"', '\n']).next()).collect();
    assert!(!paths.is_empty(), "it says what the program asks");
    for path in paths {
        wait_until(&format!("{path} to be answered well"), GENEROUS, || {
            crate::sidecar::get(address, path).starts_with("HTTP/1.1 200")
        });
    }
    for probe in probes("kubernetes/sidecar.yaml") {
        wait_until(&format!("{probe:?} to succeed"), GENEROUS, || {
            let words: Vec<&str> = probe.iter().map(String::as_str).collect();
            let here = ["--at", address, "--timeout", "30s"];
            CommandOutput::of(plain_command(&[&words[..], &here].concat())).code == 0
        });
    }
}

/// What the probes of a file execute, after `tenure`.
fn probes(file: &str) -> Vec<Vec<String>> {
    let documents = yaml::documents(&read(file));
    let deployments = documents.iter().filter(|document| document["kind"] == "Deployment");
    let containers = deployments.flat_map(|deployment| {
        deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap()
    });
    let of_ours = containers.filter(|container| container["command"][0] == "tenure");
    let probes: Vec<_> = of_ours
        .flat_map(|container| ["livenessProbe", "readinessProbe"].map(|name| &container[name]))
        .map(|probe| {
            let mut words = words_of(&probe["exec"]["command"]);
            assert_eq!(words.remove(0), "tenure", "the image has nothing else");
            // Longer than the probe waits itself: it says why, the orchestrator does not.
            assert_eq!(probe["timeoutSeconds"], "3");
            words
        })
        .collect();
    assert!(!probes.is_empty(), "{file} has no probe");
    probes
}

/// As compose would, with the network replaced by loopback.
#[test]
fn compose_runs_a_store_and_two_instances() {
    let document = &yaml::documents(&read("compose/compose.yaml"))[0];
    let service = |name: &str| &document["services"][name];
    let words = words_of(&service("store")["command"]);
    assert_eq!(words[0], "serve", "the program of the image is `tenure`");
    assert_eq!(document["networks"]["default"]["internal"], "true", "as it has no password");
    // On loopback, where nobody else can reach it.
    let words = words[1..].iter().map(|word| word.replace("0.0.0.0", "127.0.0.1"));
    let program = ServerProgram::new(TENURE).arg("serve");
    let store = RedisServer::builder().program(program).args(words).start();
    let port = store.port().to_string();
    let healthy = healthcheck(service("store"), &["-p", &port]);
    assert_eq!((healthy.code, healthy.out.as_str()), (0, "PONG"), "{healthy:?}");

    let folder = testkit::TempFolder::create();
    let socket = |name: &str| format!("unix:{}/{name}.sock", folder.path().display());
    let instance = |name: &str| {
        let service = service(name);
        let variables = service["environment"].as_object().into_iter().flatten();
        let variables = variables.map(|(name, value)| (name.clone(), value.as_str().unwrap()));
        let variables: Vec<_> = variables.map(|(name, value)| (name, value.to_owned())).collect();
        let started = Started { words: words_of(&service["command"]), variables };
        started.check_variables();
        assert_eq!(started.variables[0].1, "redis://store:6379");
        // The port of the file may be taken here, and both have it.
        let here = |word: &String| word.replace("127.0.0.1:8420", &socket(name));
        let words: Vec<String> = started.words.iter().map(here).collect();
        let program = words.iter().position(|word| word == "--").unwrap() + 1;
        assert_eq!(words[program], "tenure", "the image has no other program");
        let mut command = plain_command(&[]);
        command.args(&words[..program]).arg(TENURE).args(&words[program + 1..]);
        command.env("TENURE_STORE", format!("redis://127.0.0.1:{port}"));
        command.env("TENURE_DEFAULTS__FRESH_STORE", "true");
        Process::spawn(command)
    };
    let mut one = instance("one");
    one.next_line_with("leads", GENEROUS);
    let two = instance("two");
    for name in ["one", "two"] {
        wait_until(&format!("{name} to be healthy"), GENEROUS, || {
            healthcheck(service(name), &["--at", &socket(name), "--timeout", "30s"]).code == 0
        });
    }
    one.terminate();
    two.next_line_with("leads", GENEROUS);
}

/// What compose executes to see whether a service is well, with these words of our own.
fn healthcheck(service: &Value, more: &[&str]) -> CommandOutput {
    let words = words_of(&service["healthcheck"]["test"]);
    assert_eq!(words[..2], ["CMD", "tenure"], "the image has nothing else");
    let words: Vec<&str> = words[2..].iter().map(String::as_str).collect();
    // Before the words of the command that it sends.
    let (command, rest) = words.split_at(if words[0] == "cli" { 1 } else { words.len() });
    CommandOutput::of(plain_command(&[command, more, rest].concat()))
}

/// What everybody who may list processes, containers or pods can read.
#[test]
fn no_secret_is_in_the_arguments_or_the_environment_of_a_file() {
    let compose = &yaml::documents(&read("compose/compose.yaml"))[0];
    for (name, service) in compose["services"].as_object().unwrap() {
        let shown = format!("{} {}", service["command"], service["environment"]);
        for secret in ["requirepass", "change-me", "@", "PASSWORD\":"] {
            assert!(!shown.contains(secret), "{name}: {secret} in {shown}");
        }
        assert_eq!(words_of(&service["cap_drop"]), ["ALL"], "{name}");
        assert_eq!(words_of(&service["security_opt"]), ["no-new-privileges:true"], "{name}");
    }
}

#[test]
fn kubernetes_gives_its_pods_no_more_rights_than_they_need() {
    for name in ["wrapper", "sidecar", "store", "sentinel", "cluster"] {
        let file = &format!("kubernetes/{name}.yaml");
        let documents = yaml::documents(&read(file));
        let has_pods = |kind: &str| ["Deployment", "StatefulSet"].contains(&kind);
        let deployments =
            documents.iter().filter(|document| document["kind"].as_str().is_some_and(has_pods));
        let mut seen = 0;
        for deployment in deployments {
            assert_confined(file, &deployment["spec"]["template"]["spec"]);
            seen += 1;
        }
        assert!(seen > 0, "{file}");
    }
}

/// No token of the cluster, no root, no new privileges, nothing to write to but volumes.
fn assert_confined(file: &str, spec: &Value) {
    assert_eq!(spec["automountServiceAccountToken"], "false", "{file}");
    assert_eq!(spec["securityContext"]["runAsNonRoot"], "true", "{file}");
    assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let before = spec["initContainers"].as_array().into_iter().flatten();
    for container in spec["containers"].as_array().unwrap().iter().chain(before) {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], "false", "{file}: {container}");
        assert_eq!(context["readOnlyRootFilesystem"], "true", "{file}: {container}");
        assert_eq!(words_of(&context["capabilities"]["drop"]), ["ALL"]);
    }
}

/// A unit of our own: systemd waits for its word, and ends one that hangs.
#[test]
fn systemd_runs_a_sidecar() {
    let unit = read("systemd/tenure-sidecar.service");
    let setting = |name: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        found.unwrap_or_else(|| panic!("{name} is not set")).to_owned()
    };
    assert_eq!(setting("Type"), "notify");
    assert!(!setting("WatchdogSec").is_empty());
    let (folder, stage) = (testkit::TempFolder::create(), Stage::on(Kind::Own));
    // The settings of its head, which end where the other file begins.
    let settings: Vec<&str> = unit
        .lines()
        .take_while(|line| !line.contains("sidecar.env"))
        .filter_map(|line| line.strip_prefix("#   "))
        .collect();
    assert!(settings.contains(&"[elections.queue-poller]"), "{settings:?}");
    let file = folder.write("tenure.toml", &settings.join("\n"));
    let start = setting("ExecStart");
    let start = start.replace("/etc/tenure/tenure.toml", file.to_str().unwrap());
    let words: Vec<&str> = start.split(' ').skip(1).collect();
    let mut command = stage.command(&words);
    command.args(["--listen", "127.0.0.1:0"]);
    let process = Process::spawn(command);
    process.next_line_with("serving queue-poller at http://", GENEROUS);
    analyzed("tenure-sidecar.service", &unit);
}

#[test]
fn systemd_runs_the_wrapper() {
    let unit = read("systemd/tenure@.service");
    let setting = |name: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        found.unwrap_or_else(|| panic!("{name} is not set")).to_owned()
    };
    let example = |name: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(&format!("#   {name}=")));
        found.unwrap_or_else(|| panic!("{name} is not explained")).to_owned()
    };
    let start = setting("ExecStart").replace("%i", "queue-poller");
    let start = start.replace("$COMMAND", &example("COMMAND"));
    let mut words = start.split(' ').map(str::to_owned);
    assert!(words.next().unwrap().ends_with("/tenure"));
    let store = ("TENURE_STORE".to_owned(), example("TENURE_STORE"));
    let started = Started { words: words.collect(), variables: vec![store] };
    started.check_variables();
    let stage = Stage::on(Kind::Own);
    let said = CommandOutput::of(started.on(&stage, &["sh", "-c", "echo $TENURE_NAME"]));
    assert_eq!((said.code, said.out.as_str()), (0, "queue-poller"), "{said:?}");
    for (name, value) in [
        ("CapabilityBoundingSet", ""),
        ("NoNewPrivileges", "yes"),
        ("SystemCallArchitectures", "native"),
        ("SystemCallFilter", "@system-service"),
        ("RestrictNamespaces", "yes"),
        ("ProtectSystem", "strict"),
    ] {
        assert_eq!(setting(name), value, "{name}");
    }
    analyzed("tenure@queue-poller.service", &unit);
}

/// What systemd itself says about the unit, where it is there to say it.
fn analyzed(name: &str, unit: &str) {
    let folder = testkit::TempFolder::create();
    // The program of the file is not installed here.
    let unit = unit.replace("/usr/local/bin/tenure", "/bin/true");
    let file = folder.write(name, &unit);
    let mut command = Command::new("systemd-analyze");
    command.arg("verify").arg("--man=no").arg("--recursive-errors=no").arg(&file);
    let Ok(output) = command.output() else {
        println!("skipped: no systemd-analyze to check the unit with");
        return;
    };
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_it = words.lines().filter(|line| line.contains(name));
    let about_it: Vec<&str> = about_it.filter(|line| !line.contains("EnvironmentFile")).collect();
    assert!(about_it.is_empty(), "{about_it:?}");
}
