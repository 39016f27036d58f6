//! A sidecar behind a socket file.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use tenure::Secret;
use tenure_sidecar::{ServerSettings, Sidecar};
use testkit::TempFolder;

use crate::http::{Answer, read};
use crate::stage::Stage;

fn get(path: &std::path::Path, line: &str) -> Answer {
    let mut stream = UnixStream::connect(path).unwrap();
    let head =
        format!("GET /status HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n{line}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    read(stream)
}

#[test]
fn a_socket_file_serves_beside_an_address_and_goes_with_the_sidecar() {
    let stage = Stage::embedded();
    let folder = TempFolder::create();
    let path = folder.path().join("sidecar.sock");
    let both = format!("127.0.0.1:0, unix:{}", path.display());
    let settings = || ServerSettings::listen(both.clone());
    let builder = || Sidecar::builder(stage.client("ada")).may_be_empty(true);
    // Left behind by one that was killed.
    drop(UnixListener::bind(&path).unwrap());
    let served = stage.serve_at(builder(), settings()).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "nobody else may connect");
    assert_eq!((get(&path, "").status, served.get("/status").status), (200, 200));
    let taken = stage.serve_at(builder(), settings()).err().unwrap().to_string();
    assert!(taken.contains("another process listens there"), "{taken}");
    stage.end(served);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left");
}

#[test]
fn what_is_no_socket_is_left_alone_and_the_token_counts_there_too() {
    let stage = Stage::embedded();
    let folder = TempFolder::create();
    let path = folder.write("notes.txt", "mine");
    let listen = |path: &std::path::Path| {
        let settings = ServerSettings::listen(format!("127.0.0.1:0,unix:{}", path.display()));
        let settings = settings.token(Secret::new("0123456789abcdef"));
        stage.serve_at(Sidecar::builder(stage.client("ada")).may_be_empty(true), settings)
    };
    let refused = listen(&path).err().unwrap().to_string();
    assert!(refused.contains("left alone"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    let path = folder.path().join("sidecar.sock");
    let _served = listen(&path).unwrap();
    assert_eq!(get(&path, "").status, 401);
    assert_eq!(get(&path, "Authorization: Bearer 0123456789abcdef\r\n").status, 200);
}
