//! The files under `deploy/`: what they ask of the command, the command does.

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
    assert!(paths.len() >= 3, "{paths:?}");
    for path in paths {
        wait_until(&format!("{path} to be answered well"), GENEROUS, || {
            crate::sidecar::get(address, path).starts_with("HTTP/1.1 200")
        });
    }
}

/// As compose would, with the network replaced by loopback, and its secrets by files of our own.
#[test]
fn compose_runs_a_store_and_two_instances() {
    let document = &yaml::documents(&read("compose/compose.yaml"))[0];
    let folder = testkit::TempFolder::create();
    let _ = folder.write("store.conf", "requirepass change-me\n");
    let _ = folder.write("store-password", "change-me\n");
    let here = |text: &str| text.replace("/run/secrets", folder.path().to_str().unwrap());
    let service = |name: &str| {
        let service = &document["services"][name];
        for secret in words_of(&service["secrets"]) {
            let file = document["secrets"][&secret]["file"].as_str().expect("it has a file");
            assert_eq!(file, format!("secrets/{secret}"));
        }
        let variables = service["environment"].as_object().into_iter().flatten();
        let words = words_of(&service["command"]).split_off(1);
        Started {
            words: words.iter().map(|word| here(word)).collect(),
            variables: variables
                .map(|(name, value)| (name.clone(), here(value.as_str().unwrap())))
                .collect(),
        }
    };
    let words = service("store").words;
    assert_eq!(words[0], "serve");
    // On loopback, where nobody else can reach it.
    assert!(words[1].ends_with("/store.conf"), "{words:?}");
    let program = ServerProgram::new(TENURE).arg("serve").arg(&words[1]);
    let words = words[2..].iter().map(|word| word.replace("0.0.0.0", "127.0.0.1"));
    let store = RedisServer::builder().program(program).args(words).start();

    let instance = |name: &str| {
        let started = service(name);
        started.check_variables();
        let (_, url) = started.variables.iter().find(|(name, _)| name == "TENURE_STORE").unwrap();
        assert_eq!(url, "redis://store:6379", "no password in it");
        let url = url.replace("store:6379", &format!("127.0.0.1:{}", store.port()));
        let words: Vec<&str> = started.words.iter().map(String::as_str).collect();
        let program = words.iter().position(|word| *word == "--").unwrap();
        let mut command = plain_command(&words[..=program]);
        command.args(["sh", "-c", "echo started; exec sleep 600"]);
        command.envs(started.variables.iter().map(|(name, value)| (name, value)));
        command.env("TENURE_STORE", url).env("TENURE_DEFAULTS__FRESH_STORE", "true");
        Process::spawn(command)
    };
    let mut one = instance("one");
    assert_eq!(one.next_line(GENEROUS), "started");
    let two = instance("two");
    one.terminate();
    assert_eq!(two.next_line(GENEROUS), "started", "the other takes over");
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
            let spec = &deployment["spec"]["template"]["spec"];
            assert_eq!(spec["automountServiceAccountToken"], "false", "{file}");
            assert_eq!(spec["securityContext"]["runAsNonRoot"], "true", "{file}");
            assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            let before = spec["initContainers"].as_array().into_iter().flatten();
            for container in spec["containers"].as_array().unwrap().iter().chain(before) {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], "false", "{file}: {container}");
                assert_eq!(context["readOnlyRootFilesystem"], "true", "{file}: {container}");
                assert_eq!(words_of(&context["capabilities"]["drop"]), ["ALL"]);
                seen += 1;
            }
        }
        assert!(seen > 0, "{file}");
    }
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
