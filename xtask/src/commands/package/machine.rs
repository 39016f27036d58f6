//! A machine of its own, over this system's files: what changes is in a layer that is thrown away.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use super::{failed, make, remove};
use crate::command::Failure;

/// Mounts what a machine has, and goes on as its first process. `$1` is the folder, the rest what
/// to execute there.
const START: &str = r#"
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
# What is set there would be set for everybody.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 cgroup sys/fs/cgroup
  mkdir sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
fi
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
mount -t tmpfs -o mode=755 dev dev
for device in null zero full random urandom tty; do
  touch dev/$device
  mount --bind /dev/$device dev/$device
done
mkdir dev/shm dev/pts
ln -s /proc/self/fd dev/fd
ln -s pts/ptmx dev/ptmx
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ip link set lo up
hostname machine
shift
exec chroot . /usr/bin/env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
"#;

/// Goes into control groups of its own before that, so that those of the machine are below them.
const PREPARE: &str = r#"
for group in $GROUPS_OF_MACHINE; do
  mkdir -p "$group"
  echo $$ > "$group/cgroup.procs"
done
exec unshare --mount --pid --fork --net --uts --ipc --cgroup sh -ec "$START" machine "$@"
"#;

/// How long it may take until something is so.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Machine {
    folder: PathBuf,
    groups: Vec<PathBuf>,
    /// Outside: it ends when the machine does.
    parent: Child,
    /// Its first process, as seen from outside.
    pid: u32,
}

impl Machine {
    /// Starts one whose first process is this.
    pub(super) fn start(folder: &Path, first: &[&str]) -> Result<Self, Failure> {
        remove(folder)?;
        for part in ["upper", "work", "root"] {
            make(&folder.join(part))?;
        }
        let log = folder.join("console.log");
        let console = fs::File::create(&log).map_err(|error| failed(&log, &error))?;
        let also = console.try_clone().map_err(|error| failed(&log, &error))?;
        let groups = groups();
        let names: Vec<&str> = groups.iter().filter_map(|group| group.to_str()).collect();
        let mut command = Command::new("sh");
        command.args(["-ec", PREPARE, "machine"]).arg(folder).args(first);
        command.env("GROUPS_OF_MACHINE", names.join(" ")).env("START", START);
        command.stdin(Stdio::null()).stdout(console).stderr(also);
        let parent = command.spawn().map_err(|error| failed(folder, &error))?;
        let mut machine = Machine { folder: folder.to_owned(), groups, parent, pid: 0 };
        let program = Path::new(first[0]).file_name().expect("it is a program").to_owned();
        machine.pid = machine.wait_for("it to start", |machine| {
            let pid = child_of(machine.parent.id())?;
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            (name.trim() == program.to_str()?).then_some(pid)
        })?;
        Ok(machine)
    }

    /// What has changed, as a folder.
    pub(super) fn layer(&self) -> PathBuf {
        self.folder.join("upper")
    }

    /// Runs a shell script there.
    pub(super) fn shell(&self, script: &str) -> Result<Output, Failure> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.pid)).args([
            "--mount",
            "--pid",
            "--net",
            "--uts",
            "--ipc",
            "--cgroup",
            "--root",
            "--wd",
            "env",
            "-i",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND=noninteractive",
            "sh",
            "-ec",
            script,
        ]);
        let output = command.stdin(Stdio::null()).output();
        output.map_err(|error| Failure::Failed(format!("cannot start nsenter: {error}")))
    }

    /// Runs it, and fails when it fails. Returns what it said.
    pub(super) fn run(&self, script: &str) -> Result<String, Failure> {
        let output = self.shell(script)?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(self.failed(script, &output)),
        }
    }

    /// Runs it again and again until it succeeds.
    pub(super) fn until(&self, script: &str) -> Result<(), Failure> {
        let mut last = self.shell(script)?;
        for _ in 0..tries() {
            if last.status.success() {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
            last = self.shell(script)?;
        }
        Err(self.failed(script, &last))
    }

    fn failed(&self, script: &str, output: &Output) -> Failure {
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        let journal = self.shell("journalctl --no-pager --lines=60").map(|output| output.stdout);
        let text = format!(
            "package: {script}: {}\n{}\nThe journal:\n{}",
            output.status,
            String::from_utf8_lossy(&said),
            String::from_utf8_lossy(&journal.unwrap_or_default()),
        );
        Failure::Failed(text)
    }

    fn wait_for<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Failure> {
        for _ in 0..tries() {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let console = fs::read_to_string(self.folder.join("console.log")).unwrap_or_default();
        Err(Failure::Failed(format!("package: waited for {what} for {PATIENCE:?}:\n{console}")))
    }
}

fn tries() -> u128 {
    PATIENCE.as_millis() / LOOK_EVERY.as_millis()
}

/// Control groups that the first process begins in, wherever this system has some.
fn groups() -> Vec<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let places = [top.to_owned(), top.join("systemd"), top.join("unified")];
    let places = places.into_iter().filter(|place| place.join("cgroup.procs").exists());
    places.map(|place| place.join(format!("tenure-package-{}", std::process::id()))).collect()
}

fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

impl Drop for Machine {
    /// All its processes end with the first.
    fn drop(&mut self) {
        // Its child may not be what was waited for.
        if let Some(pid) =
            Some(self.pid).filter(|pid| *pid > 0).or_else(|| child_of(self.parent.id()))
        {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        } else {
            let _ = self.parent.kill();
        }
        let _ = self.parent.wait();
        for group in &self.groups {
            let mut command = Command::new("find");
            command.arg(group).args(["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]);
            let _ = command.stderr(Stdio::null()).status();
        }
    }
}
