//! What the package does on a machine: installed, used, installed again, purged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::machine::Machine;
use super::{UNITS, failed};
use crate::command::Failure;

/// Where systemd is.
const SYSTEMD: &str = "/lib/systemd/systemd";
/// What dpkg, the lists of users and systemd keep for themselves.
const OF_OTHERS: &[&str] = &[
    "var/lib/dpkg",
    "var/lib/systemd",
    "var/lib/private",
    "var/cache",
    "var/log",
    "var/tmp",
    "etc/passwd-",
    "etc/group-",
    "etc/shadow-",
    "etc/gshadow-",
    "etc/subuid",
    "etc/subgid",
    "etc/subuid-",
    "etc/subgid-",
    "etc/.pwd.lock",
    "etc/machine-id",
    "etc/.updated",
    "var/.updated",
];

pub(super) fn try_all(package: &Path, folder: &Path) -> Result<(), Failure> {
    let has_systemd = Path::new(SYSTEMD).exists();
    let machine = match has_systemd {
        true => Machine::start(folder, &[SYSTEMD, "--system", "--unit=sysinit.target"])?,
        false => Machine::start(folder, &["/usr/bin/sleep", "infinity"])?,
    };
    if has_systemd {
        machine.until("systemctl is-active sysinit.target")?;
    }
    let before = content(&machine.layer())?;
    let install = format!("dpkg --install {}", package.display());
    machine.run(&install)?;
    look(&machine)?;
    if has_systemd {
        serve(&machine, &install)?;
    } else {
        println!("package: there is no systemd here: its units were not started");
    }
    machine.run("dpkg --purge tenure")?;
    nothing_is_left(&machine, before)
}

/// What lies there, and that it is right.
fn look(machine: &Machine) -> Result<(), Failure> {
    let version = machine.run("tenure --version")?;
    if version != format!("tenure {}", env!("CARGO_PKG_VERSION")) {
        return Err(Failure::Failed(format!("package: the program says {version:?}")));
    }
    machine.run("zcat /usr/share/man/man1/tenure-run.1.gz | grep -q TENURE_TOKEN")?;
    let complete = ". /usr/share/bash-completion/completions/tenure && complete -p tenure";
    machine.run(&format!("bash -c '{complete}'"))?;
    machine.run("tenure config check --config /etc/tenure/tenure.toml")?;
    machine.run("test \"$(stat -c %U:%a /etc/tenure/store-6379.conf)\" = tenure-store:600")?;
    let units: Vec<String> = UNITS.iter().map(|unit| unit.replace('@', "@6379")).collect();
    let units = units.iter().map(|unit| format!("{unit}.service")).collect::<Vec<_>>().join(" ");
    let said = machine.run(&format!("systemd-analyze verify --man=no {units} 2>&1 || true"))?;
    match said.lines().find(|line| line.contains("tenure")) {
        None => Ok(()),
        Some(line) => Err(Failure::Failed(format!("package: {line}"))),
    }
}

/// As services: nothing runs by itself, what is started is ready, and what hangs is restarted.
fn serve(machine: &Machine, install: &str) -> Result<(), Failure> {
    let [store, sidecar] = ["tenure-store@6379.service", "tenure-sidecar.service"];
    let both = format!("{store} {sidecar}");
    machine.run(&format!("! systemctl is-active {both} && ! systemctl is-enabled {both}"))?;
    // A watchdog that one can wait for.
    machine.run(
        "for unit in tenure-store@6379 tenure-sidecar; do \
           mkdir -p /run/systemd/system/$unit.service.d; \
           printf '[Service]\\nWatchdogSec=3\\n' > /run/systemd/system/$unit.service.d/test.conf; \
         done; systemctl daemon-reload",
    )?;
    machine.run(&format!("systemctl enable --now {both}"))?;
    machine.run("test \"$(tenure cli PING)\" = PONG")?;
    // Ready means that it can be asked.
    machine.run("tenure probe live --config /etc/tenure/tenure.toml --timeout 30s")?;
    for service in [store, sidecar] {
        let shows = |name: &str| format!("$(systemctl show --value -p {name} {service})");
        machine.run(&format!("systemctl kill --kill-whom=main -s STOP {service}"))?;
        let (restarts, state) = (shows("NRestarts"), shows("ActiveState"));
        machine.until(&format!("test \"{restarts}\" = 1 && test \"{state}\" = active"))?;
        eprintln!("package: {service} hung, and its watchdog restarted it");
    }
    // It goes on with the new program.
    machine.run(install)?;
    machine.until(&format!("systemctl is-active {store} && systemctl is-active {sidecar}"))?;
    machine.run("systemctl stop tenure-sidecar.service")?;
    machine.run("test \"$(systemctl show --value -p Result tenure-sidecar)\" = success").map(|_| ())
}

/// The layer as it was, but for what others keep.
fn nothing_is_left(machine: &Machine, before: BTreeMap<String, Vec<u8>>) -> Result<(), Failure> {
    let after = content(&machine.layer())?;
    let is_ours = |path: &str| {
        !OF_OTHERS.iter().any(|kept| path == *kept || path.starts_with(&format!("{kept}/")))
    };
    let left: Vec<String> = after
        .iter()
        .filter(|(path, bytes)| is_ours(path) && before.get(*path) != Some(bytes))
        // What is as it is below the layer was changed and changed back.
        .filter(|(path, bytes)| !is_as_below(path, bytes))
        .map(|(path, _)| format!("/{path}"))
        .collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(format!("package: purged, and left: {}", left.join(", ")))),
    }
}

/// Whether this system has the same there.
fn is_as_below(path: &str, bytes: &[u8]) -> bool {
    let below = Path::new("/").join(path);
    match fs::symlink_metadata(&below) {
        Ok(metadata) if metadata.is_dir() => bytes == FOLDER,
        Ok(_) => fs::read(&below).is_ok_and(|found| found == bytes),
        Err(_) => bytes == REMOVED,
    }
}

/// What a folder has in place of bytes; what was removed, and other things that are no files.
const FOLDER: &[u8] = b"/";
const REMOVED: &[u8] = b"-";

/// Every path of a layer, and what is there.
fn content(layer: &Path) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let mut found = BTreeMap::new();
    let mut folders = vec![layer.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| failed(&folder, &error))?.path();
            let kind = fs::symlink_metadata(&path).map_err(|error| failed(&path, &error))?;
            let name = path.strip_prefix(layer).expect("it lies there").display().to_string();
            let bytes = if kind.is_dir() {
                folders.push(path);
                FOLDER.to_vec()
            } else if kind.is_file() {
                fs::read(&path).map_err(|error| failed(&path, &error))?
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).map_err(|error| failed(&path, &error))?;
                target.into_os_string().into_encoded_bytes()
            } else {
                REMOVED.to_vec()
            };
            found.insert(name, bytes);
        }
    }
    Ok(found)
}
