//! One owner: a data folder and a unix socket belong to one server at a time, and small files are
//! replaced without a moment in which they are not there.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use store_engine::parse_file;
use store_resp::Reply;
use store_server::{Config, Server};
use testkit::TempFolder;

use crate::connection::Connection;

fn connect(server: &Server) -> Connection {
    Connection::unix(server.connect().unwrap())
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

#[test]
fn a_second_server_is_refused_in_the_same_folder() {
    let folder = TempFolder::create();
    let dir = folder.path().to_str().unwrap();
    let appending = || Server::builder().persist(folder.path()).start();
    let saving = || Server::builder().setting("dir", dir).setting("save", "3600 1").start();
    let first = appending().unwrap();
    for second in [appending(), saving()] {
        let error = second.err().expect("it is refused").to_string();
        assert!(error.contains(dir) && error.contains("in use"), "{error}");
    }
    drop(first);
    drop(appending().unwrap());
}

/// Whoever cleans the lock file away, or keeps it from being made, lets no second server in; nor
/// does a link to the files.
#[test]
fn the_files_have_one_owner_without_any_lock_file() {
    let folder = TempFolder::create();
    let (dir, other) = (folder.path().join("d"), folder.path().join("other"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::create_dir(&other).unwrap();
    let start = |dir: &Path| Server::builder().persist(dir).start();
    let first = start(&dir).unwrap();
    assert_eq!(connect(&first).words("SET who first"), ok());
    std::os::unix::fs::symlink(dir.join("appendonlydir"), other.join("appendonlydir")).unwrap();
    std::fs::remove_file(dir.join("tenure.lock")).unwrap();
    // No file can be made there.
    std::fs::create_dir(dir.join("tenure.lock")).unwrap();
    for dir in [&dir, &other] {
        let error = start(dir).err().expect("it is refused").to_string();
        assert!(error.contains("appendonlydir") && error.contains("in use"), "{error}");
    }
    drop(first);
    let second = start(&other).unwrap();
    assert_eq!(connect(&second).words("GET who"), Reply::Bulk(b"first".to_vec()));
}

/// What stands in place of a server's folder may be the only copy of somebody's data: a backup that
/// was put back, or what another server wrote there meanwhile.
#[test]
fn files_that_took_the_place_of_the_own_ones_are_left_alone() {
    let folder = TempFolder::create();
    let (dir, old) = (folder.path().join("d"), folder.path().join("d.old"));
    std::fs::create_dir(&dir).unwrap();
    let start = || Server::builder().persist(&dir).setting("appendfsync", "always").start();
    let first = start().unwrap();
    let mut writer = connect(&first);
    assert_eq!(writer.words("SET who first"), ok());
    std::fs::rename(&dir, &old).unwrap();
    std::fs::create_dir(&dir).unwrap();
    let second = start().unwrap();
    assert_eq!(connect(&second).words("SET precious 1"), ok());
    drop(second);
    testkit::wait_until("the first says no", testkit::GENEROUS, || {
        writer.words("SET who first");
        let Reply::Bulk(text) = writer.words("INFO persistence") else { panic!("no facts") };
        String::from_utf8(text).unwrap().contains("aof_last_bgrewrite_status:err")
    });
    let Reply::Error(refusal) = writer.words("SET who first") else { panic!("it is taken") };
    assert!(refusal.starts_with("MISCONF"), "{refusal}");
    let second = start().unwrap();
    assert_eq!(connect(&second).words("GET precious"), Reply::Bulk(b"1".to_vec()));
    drop(second);
    // The place is free again: all is written anew, at once where somebody asks for it.
    std::fs::rename(&dir, folder.path().join("d.second")).unwrap();
    std::fs::create_dir(&dir).unwrap();
    testkit::wait_until("all is written anew", testkit::GENEROUS, || {
        writer.words("BGREWRITEAOF");
        writer.words("SET who first") == ok()
    });
    drop((writer, first));
    let again = start().unwrap();
    assert_eq!(connect(&again).words("GET who"), Reply::Bulk(b"first".to_vec()));
}

/// Without a name there is no snapshot whose leftovers could be removed.
#[test]
fn a_server_without_a_snapshot_removes_nothing_beside_its_folder() {
    let folder = TempFolder::create();
    let dir = folder.path().join("data");
    std::fs::create_dir(&dir).unwrap();
    let beside = folder.write("temp-999999-x-data", "not ours");
    let settings = |builder: store_server::ServerBuilder| builder.setting("dbfilename", "");
    drop(settings(Server::builder().persist(&dir)).start().unwrap());
    assert!(beside.exists());
}

#[test]
fn a_server_that_keeps_nothing_takes_the_folder_when_it_first_writes_there() {
    let folder = TempFolder::create();
    let dir = folder.path().to_str().unwrap();
    let first = Server::builder().persist(folder.path()).start().unwrap();
    let second = Server::builder().setting("dir", dir).start().unwrap();
    let mut connection = connect(&second);
    for words in ["SAVE", "CONFIG SET appendonly yes", "BGREWRITEAOF", "BGSAVE SCHEDULE"] {
        connection.words(words);
    }
    testkit::wait_until("both failed", testkit::GENEROUS, || {
        let Reply::Bulk(text) = connection.words("INFO persistence") else { panic!("no facts") };
        let text = String::from_utf8(text).unwrap();
        text.contains("rdb_last_bgsave_status:err")
            && text.contains("aof_last_bgrewrite_status:err")
    });
    assert!(!folder.path().join("dump.rdb").exists());
    drop(first);
    assert_eq!(connection.words("SAVE"), ok());
}

/// Somebody moves a folder away under a server, and another one begins in a new one of that name.
#[test]
fn a_folder_that_another_server_began_in_is_not_taken_from_it() {
    let folder = TempFolder::create();
    let (dir, old) = (folder.path().join("d"), folder.path().join("d.old"));
    let start = || Server::builder().persist(&dir).setting("appendfsync", "always").start();
    std::fs::create_dir(&dir).unwrap();
    let first = start().unwrap();
    let mut connection = connect(&first);
    assert_eq!(connection.words("SET who first"), ok());
    std::fs::rename(&dir, &old).unwrap();
    std::fs::create_dir(&dir).unwrap();
    let second = start().unwrap();
    assert_eq!(connect(&second).words("SET who second"), ok());
    // Its writes are refused, and so is everything that it would write there.
    testkit::wait_until("it is noticed", testkit::GENEROUS, || {
        let reply = connection.words("SET who first");
        matches!(&reply, Reply::Error(text) if text.starts_with("MISCONF"))
    });
    for _ in 0..3 {
        connection.words("BGREWRITEAOF");
        let Reply::Error(refusal) = connection.words("SAVE") else { panic!("it saves there") };
        assert!(refusal.contains("in use by another server"), "{refusal}");
    }
    testkit::wait_until("the rewrite is refused", testkit::GENEROUS, || {
        let Reply::Bulk(text) = connection.words("INFO persistence") else { panic!("no facts") };
        String::from_utf8(text).unwrap().contains("aof_last_bgrewrite_status:err")
    });
    assert_eq!(connection.words("GET who"), Reply::Bulk(b"first".to_vec()));
    assert!(connection.ask(&["SHUTDOWN", "NOSAVE"]).is_none());
    // Whether its last words were heard or not, the folder is not its own to give up.
    let _ = first.wait();
    assert!(start().is_err(), "the second one has it");
    drop(second);
    let second = start().unwrap();
    assert_eq!(connect(&second).words("GET who"), Reply::Bulk(b"second".to_vec()));
}

#[test]
fn a_socket_that_a_living_server_has_is_not_taken_from_it() {
    let folder = TempFolder::create();
    let path = folder.path().join("socket");
    let start = || Server::builder().unix_socket(&path).start();
    let first = start().unwrap();
    let error = start().err().expect("it is refused").to_string();
    assert!(error.contains("another server listens"), "{error}");
    let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    assert_eq!(Connection::unix(stream).words("PING"), Reply::Simple("PONG".into()));
    drop(first);
    // One that a killed server left is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = start().unwrap();
    // Its place was taken by force: what is there now is not this server's to remove.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "mine").unwrap();
    drop(server);
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    let error = start().err().expect("it is refused").to_string();
    assert!(error.contains("no socket"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(folder: &TempFolder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn users_and_settings_keep_their_mode_and_leave_nothing_behind() {
    let folder = TempFolder::create();
    let (users, settings) = (folder.path().join("users.acl"), folder.path().join("a.conf"));
    std::fs::write(&users, "user default on nopass ~* &* +@all\n").unwrap();
    std::fs::write(&settings, "save \"\"\n").unwrap();
    for path in [&users, &settings] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let link = folder.path().join("link.conf");
    std::os::unix::fs::symlink("a.conf", &link).unwrap();
    let mut config = Config::default();
    parse_file(&mut config, &format!("save \"\"\naclfile {}\n", users.display())).unwrap();
    let server = Server::builder().config(config).config_file(&link).start().unwrap();
    let mut connection = connect(&server);
    assert_eq!(connection.words("ACL SETUSER ada on >secret ~* +@all"), ok());
    assert_eq!(connection.words("ACL SAVE"), ok());
    assert_eq!(connection.words("CONFIG SET maxclients 77"), ok());
    assert_eq!(connection.words("CONFIG REWRITE"), ok());
    assert!(std::fs::read_to_string(&users).unwrap().contains("user ada"));
    assert!(std::fs::read_to_string(&settings).unwrap().contains("maxclients 77"));
    assert_eq!((mode(&users), mode(&settings)), (0o600, 0o600));
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(names(&folder), ["a.conf", "link.conf", "users.acl"]);
}

#[test]
fn an_emptied_acl_file_is_refused() {
    let folder = TempFolder::create();
    let path = folder.path().join("users.acl");
    let file = path.display().to_string();
    let start = || Server::builder().setting("aclfile", &file).start();
    std::fs::write(&path, "").unwrap();
    let error = start().err().expect("it is refused").to_string();
    assert!(error.contains(&file) && error.contains("user default"), "{error}");
    std::fs::write(&path, "user default on nopass ~* &* +@all\n").unwrap();
    let server = start().unwrap();
    std::fs::write(&path, "\n").unwrap();
    let reply = connect(&server).words("ACL LOAD");
    assert!(matches!(&reply, Reply::Error(text) if text.contains("no user")), "{reply:?}");
}
