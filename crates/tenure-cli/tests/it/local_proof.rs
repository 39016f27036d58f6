//! Whoever answers must be the store of the folder: a lock can be copied, a path can lead
//! elsewhere, and anybody can listen in `/tmp`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::getuid;
use testkit::{GENEROUS, wait_until};

use crate::instance::has_namespaces;
use crate::local::User;
use crate::local_place::among_mounts;
use crate::stage::{
    CommandOutput, Kind, NAME, Stage, TENURE, is_alive, number_in, wait_until_gone,
};

/// What a command may take that waits for nobody, on a busy machine. Those that wait do so for half
/// a minute.
const AT_ONCE: Duration = Duration::from_secs(15);

fn copy_lock(from: &User, to: &User) {
    // Over what is there, as `cp` does.
    let text = fs::read_to_string(from.state().join("local.lock")).unwrap();
    assert!(text.contains("state serves"), "{text}");
    fs::write(to.state().join("local.lock"), text).unwrap();
}

#[test]
fn a_lock_that_was_copied_from_another_folder_leads_nobody_there() {
    let (one, two) = (User::new(), User::new());
    assert_eq!(one.tenure(&["local", "start"]).code, 0);
    let _leader = two.lead();
    let (pid_of_one, pid_of_two) = (one.pid().unwrap(), two.pid().unwrap());
    for _ in 0..3 {
        copy_lock(&one, &two);
        let who = two.tenure(&["who", "job"]);
        assert_eq!((who.code, who.out.starts_with("ada")), (0, true), "{who:?}");
        copy_lock(&one, &two);
        assert_eq!(two.pid(), Some(pid_of_two));
    }
    copy_lock(&one, &two);
    let said = two.tenure(&["local", "stop", "--force"]);
    assert_eq!(said.code, 0, "{said:?}");
    wait_until("the end of the store that was meant", GENEROUS, || !is_alive(pid_of_two));
    assert_eq!(one.pid(), Some(pid_of_one), "the other one is not touched");
}

/// A container in which the user's state folder is at `data`, and another one at its own path.
fn in_container(
    user: &User,
    setup: &str,
    state_home: &Path,
    words: &[&str],
) -> Option<CommandOutput> {
    let path = |name: &str| user.folder.path().join(name).display().to_string();
    for name in ["data", "own"] {
        let _ = fs::create_dir(path(name));
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let (state, data, own) = (path("state"), path("data"), path("own"));
    let setup = format!("mount --bind {state} {data} && mount --bind {own} {state} && {setup}");
    let mut command = among_mounts(&setup, words)?;
    command.env("XDG_STATE_HOME", state_home);
    Some(CommandOutput::of(command))
}

#[test]
fn a_folder_that_is_mounted_elsewhere_has_its_store_there() {
    let user = User::new();
    let _leader = user.lead();
    let (state, data) = (user.folder.path().join("state"), user.folder.path().join("data"));
    let began_at = Instant::now();
    // The path that the lock names leads nowhere.
    let Some(who) = in_container(&user, "true", &data, &["who", "job"]) else { return };
    assert_eq!((who.code, who.out.starts_with("ada")), (0, true), "{who:?}");
    assert!(began_at.elapsed() < AT_ONCE, "{:?}", began_at.elapsed());
    // It leads to another store.
    let other = format!("XDG_STATE_HOME={} {TENURE} local start --idle 5s", state.display());
    let who = in_container(&user, &other, &data, &["who", "job"]).unwrap();
    assert!(who.code == 0 && who.out.lines().last().unwrap().starts_with("ada"), "{who:?}");
    let pid = user.pid().unwrap();
    let said = in_container(&user, &other, &data, &["local", "stop", "--force"]).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    wait_until("the end of the store", GENEROUS, || !is_alive(pid));
}

#[test]
fn two_containers_with_one_network_and_one_path_have_a_store_each() {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start"]).code, 0);
    let pid = user.pid().unwrap();
    let state = user.folder.path().join("state");
    let start = ["local", "start", "--idle", "5s"];
    let began_at = Instant::now();
    let Some(said) = in_container(&user, "true", &state, &start) else { return };
    assert_eq!(said.code, 0, "{said:?}");
    assert!(began_at.elapsed() < AT_ONCE, "{:?}", began_at.elapsed());
    let said = in_container(&user, "true", &state, &["local", "stop", "--force"]).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(user.pid(), Some(pid));
    if !has_namespaces() {
        return eprintln!("skipped: no pid namespace can be made here");
    }
    // Its processes cannot be seen from there.
    let inner = format!("XDG_STATE_HOME={} unshare -pf --mount-proc", state.display());
    let setup = format!("{inner} sh -c '{TENURE} local start && {TENURE} local stop --force'");
    let said = in_container(&user, &setup, &state, &["--version"]).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(user.pid(), Some(pid));
}

/// As in a rootless container: the store is shown there, but not what it has open.
#[test]
fn a_store_that_is_seen_from_another_user_namespace_is_the_right_one() {
    let allowed = Command::new("unshare").args(["-Ur", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no user namespace can be made here");
    }
    let user = User::new();
    let _leader = user.lead();
    let plain = user.command(&["who", "job"]);
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "15", "unshare", "-Ur", TENURE]).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let who = CommandOutput::of(command);
    assert_eq!((who.code, who.out.starts_with("ada")), (0, true), "{who:?}");
}

/// A user whose path is so long that the socket lies elsewhere.
fn with_long_path() -> (User, std::path::PathBuf) {
    let user = User::new();
    let long = user.folder.path().join("x".repeat(100));
    fs::create_dir(&long).unwrap();
    (user, long)
}

fn with_state(user: &User, state_home: &Path, words: &[&str]) -> CommandOutput {
    let mut command = user.command(words);
    command.env("XDG_STATE_HOME", state_home);
    CommandOutput::of(command)
}

#[test]
fn a_store_that_another_user_has_made_in_a_shared_place_is_not_asked() {
    if !getuid().is_root() {
        return eprintln!("skipped: only root can make a folder of another user");
    }
    let (user, long) = with_long_path();
    let started = with_state(&user, &long, &["local", "start"]);
    assert_eq!(started.code, 0, "{started:?}");
    let socket = Path::new(&started.out).to_owned();
    assert_eq!(with_state(&user, &long, &["cli", "--local", "PING"]).out, "PONG");
    assert_eq!(with_state(&user, &long, &["local", "stop", "--force"]).code, 0);
    // One that is starting has the lock and has said nothing.
    let lock = fs::File::options().write(true).open(long.join("tenure/local.lock")).unwrap();
    lock.set_len(0).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let foreign = Stage::on(Kind::Redis);
    let folder = user.folder.path().join("foreign");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let there = folder.join(socket.file_name().unwrap());
    let forwarded = forward(&there, foreign.store.url());
    chown(&folder, Some(65534), Some(65534)).unwrap();
    let parent = socket.parent().unwrap();
    let setup = format!("mount --bind {} {}", folder.display(), parent.display());
    let Some(mut command) = among_mounts(&setup, &["cli", "--local", "PING"]) else { return };
    let said = CommandOutput::of({
        command.env("XDG_STATE_HOME", &long);
        command
    });
    assert_eq!(said.code, 69, "{said:?}");
    assert!(!said.out.contains("PONG"), "{said:?}");
    drop(forwarded);
}

/// A socket that leads to a store.
fn forward(socket: &Path, url: String) -> std::os::unix::net::UnixListener {
    use std::io::{Read, Write};
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    fs::set_permissions(socket, fs::Permissions::from_mode(0o777)).unwrap();
    let accepting = listener.try_clone().unwrap();
    let address = url.trim_start_matches("redis://").trim_end_matches("/0").to_owned();
    std::thread::spawn(move || {
        for inside in accepting.incoming() {
            let (Ok(mut inside), Ok(mut outside)) =
                (inside, std::net::TcpStream::connect(address.trim_end_matches('/')))
            else {
                return;
            };
            let mut chunk = [0; 4096];
            while let Ok(len @ 1..) = inside.read(&mut chunk) {
                outside.write_all(&chunk[..len]).unwrap();
                let len = outside.read(&mut chunk).unwrap();
                inside.write_all(&chunk[..len]).unwrap();
            }
        }
    });
    listener
}

/// It has the words of a store, and a file of that name open where it works.
#[test]
fn a_program_that_calls_itself_a_store_does_not_outlive_its_term() {
    let stage = Stage::on(Kind::Own);
    let _ = stage
        .folder
        .write("local", "exec 9>>local.lock; echo $$ > pid; while :; do sleep 0.05; done");
    let _wrapper = stage.wrap("ada", &[], "setsid sh local serve & exec sleep 600");
    let pid = number_in(stage.folder.path(), "pid");
    stage.tenure(&["resign", NAME]);
    wait_until_gone(pid);
}

/// The same with everything but a folder for its user alone.
#[test]
fn a_lock_in_a_folder_of_everybody_makes_no_store() {
    if Command::new("flock").arg("--version").output().is_err() {
        return eprintln!("skipped: no flock here");
    }
    let stage = Stage::on(Kind::Own);
    fs::set_permissions(stage.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let script = "exec 9>>local.lock; flock 9; echo $$ > pid; while :; do sleep 0.05; done";
    let _ = stage.folder.write("local", script);
    let _wrapper = stage.wrap("ada", &[], "setsid sh local serve & exec sleep 600");
    let pid = number_in(stage.folder.path(), "pid");
    stage.tenure(&["resign", NAME]);
    wait_until_gone(pid);
}
