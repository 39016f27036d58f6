//! Starts what is in the image as a container engine would: as the first process of a namespace,
//! as a user without rights, on a root that nobody can write to.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use super::{failed, make, write};
use crate::command::Failure;

/// The user of the image.
const USER: &str = "65532";
/// How long a program may take to answer, and to end. A lease is over within that.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Mounts the root without a way to write to it, but for /data, and goes on as process 1 there.
const START: &str = r#"
mount --bind "$1" "$1"
mount -t tmpfs -o "uid=$2,gid=$2,mode=700" data "$1/data"
mount -t tmpfs -o mode=755 dev "$1/dev"
for device in null zero full random urandom; do
  touch "$1/dev/$device"
  mount --bind /dev/$device "$1/dev/$device"
done
mkdir "$1/dev/shm"
mount -t tmpfs -o mode=1777 shm "$1/dev/shm"
mount -o remount,bind,ro "$1"
root=$1 user=$2
shift 2
exec /usr/bin/env -i PATH=/usr/bin TENURE_DEFAULTS__FRESH_STORE=true \
  /usr/bin/unshare --pid --fork --kill-child --mount-proc --root="$root" --wd=/data \
  --setgid="$user" --setuid="$user" "$@"
"#;

pub(super) fn try_all(unpacked: &Path) -> Result<(), Failure> {
    prepare(unpacked)?;
    let port = free_port().map_err(|error| failed(unpacked, &error))?.to_string();
    let url = format!("redis://store:{port}");
    let at = "unix:/data/sidecar.sock";

    let words = ["serve", "--bind", "127.0.0.1", "--port", &port, "--appendonly", "yes"];
    let store = Container::start(unpacked, "store", &words)?;
    store.answers(&["cli", "-p", &port, "PING"])?;
    // A name, looked up as in any container.
    let words = ["sidecar", "nightly", "--store", &url, "--listen", at];
    let sidecar = Container::start(unpacked, "sidecar", &words)?;
    for question in [&["live"][..], &["ready"], &["leader", "nightly"]] {
        sidecar.answers(&[&["probe"], question, &["--at", at]].concat())?;
    }
    let words =
        ["run", "report", "--store", &url, "--", "tenure", "watch", "report", "--store", &url];
    let wrapper = Container::start(unpacked, "wrapper", &words)?;
    store.answers(&["who", "report", "--store", &url])?;

    // The program ends in order as well, and its code is passed on.
    wrapper.ends_on_sigterm(0)?;
    store.refuses(&["who", "report", "--store", &url])?;
    sidecar.ends_on_sigterm(0)?;
    store.refuses(&["who", "nightly", "--store", &url])?;
    store.ends_on_sigterm(0)
}

/// What an engine adds to every root.
fn prepare(unpacked: &Path) -> Result<(), Failure> {
    make(&unpacked.join("proc"))?;
    make(&unpacked.join("dev"))?;
    write(&unpacked.join("etc/hosts"), "127.0.0.1 localhost store\n")?;
    write(&unpacked.join("etc/resolv.conf"), "")
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A program of the image that runs as process 1.
struct Container {
    name: &'static str,
    /// Outside: it ends with it.
    parent: Child,
    /// As seen from outside.
    pid: u32,
    log: PathBuf,
}

impl Container {
    fn start(unpacked: &Path, name: &'static str, words: &[&str]) -> Result<Self, Failure> {
        let log = unpacked.with_file_name(format!("{name}.log"));
        let file = File::create(&log).map_err(|error| failed(&log, &error))?;
        let also = file.try_clone().map_err(|error| failed(&log, &error))?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", START, "container"]).arg(unpacked).arg(USER);
        command.arg("/usr/bin/tenure").args(words);
        command.stdin(Stdio::null()).stdout(file).stderr(also);
        let parent = command.spawn().map_err(|error| failed(Path::new("unshare"), &error))?;
        let mut container = Container { name, parent, pid: 0, log };
        container.pid = container.wait_for("it to start", Container::first_process)?;
        container.check_rights()?;
        Ok(container)
    }

    /// The child of the parent, once it is the program of the image.
    fn first_process(&mut self) -> Option<u32> {
        let parent = self.parent.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        let pid: u32 = children.split_whitespace().next()?.parse().ok()?;
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        words.starts_with(b"/usr/bin/tenure\0").then_some(pid)
    }

    fn check_rights(&self) -> Result<(), Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let field = |name: &str| -> Vec<&str> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace().collect()
        };
        let is_user = field("Uid:").iter().chain(&field("Gid:")).all(|id| *id == USER);
        let rights = field("CapEff:").concat();
        if field("NSpid:").last() != Some(&"1") || !is_user || !rights.chars().all(|c| c == '0') {
            return Err(self.failed(&format!("it has other rights, or a parent inside: {status}")));
        }
        Ok(())
    }

    /// What `docker exec` would do.
    fn execute(&self, words: &[&str]) -> std::io::Result<Output> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.pid)).args(["--mount", "--pid", "--root"]);
        command.args(["--setuid", USER, "--setgid", USER, "/usr/bin/tenure"]).args(words);
        command.stdin(Stdio::null()).output()
    }

    fn answers(&self, words: &[&str]) -> Result<(), Failure> {
        self.exits_with(0, words)
    }

    /// The answer is no.
    fn refuses(&self, words: &[&str]) -> Result<(), Failure> {
        self.exits_with(1, words)
    }

    fn exits_with(&self, code: i32, words: &[&str]) -> Result<(), Failure> {
        let mut last = None;
        for _ in 0..tries() {
            let output = self.execute(words).map_err(|error| self.failed(&error.to_string()))?;
            if output.status.code() == Some(code) {
                eprintln!("{}: tenure {}: {code}", self.name, words.join(" "));
                return Ok(());
            }
            last = Some(output);
            std::thread::sleep(LOOK_EVERY);
        }
        Err(self.failed(&format!("tenure {}: {last:?}", words.join(" "))))
    }

    fn ends_on_sigterm(mut self, code: i32) -> Result<(), Failure> {
        let mut kill = Command::new("kill");
        kill.args(["-TERM", &self.pid.to_string()]);
        kill.status().map_err(|error| self.failed(&error.to_string()))?;
        let status = self.wait_for("its end", |it| it.parent.try_wait().ok().flatten())?;
        if status.code() != Some(code) {
            return Err(self.failed(&format!("it ended with {status}, not with {code}")));
        }
        eprintln!("{}: ended on SIGTERM with {code}", self.name);
        Ok(())
    }

    fn wait_for<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Failure> {
        for _ in 0..tries() {
            let has_ended = matches!(self.parent.try_wait(), Ok(Some(_)));
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if has_ended {
                return Err(self.failed(&format!("waited for {what}, and it has ended")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(self.failed(&format!("waited for {what} for {PATIENCE:?}")))
    }

    fn failed(&self, why: &str) -> Failure {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Failure::Failed(format!("image: {}: {why}\nIts log:\n{log}", self.name))
    }
}

fn tries() -> u128 {
    PATIENCE.as_millis() / LOOK_EVERY.as_millis()
}

impl Drop for Container {
    /// A check that failed leaves nothing behind.
    fn drop(&mut self) {
        if self.pid > 0 && matches!(self.parent.try_wait(), Ok(None)) {
            let _ = Command::new("kill").args(["-KILL", &self.pid.to_string()]).status();
        }
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}
