//! The append-only file from outside: what survives, what is refused, who else can read it.

mod crash;
mod damage;
mod exchange;
mod life;
mod loading;
mod restart;
mod switching;
mod trouble;

use std::path::Path;

use store_resp::Reply;
use store_server::{Server, ServerBuilder};

use crate::connection::Connection;

/// A server whose data lies in `dir`.
fn persistent(dir: &Path) -> ServerBuilder {
    Server::builder().persist(dir).setting("enable-debug-command", "yes")
}

fn connect(server: &Server) -> Connection {
    Connection::unix(server.connect().unwrap())
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

/// One fact of INFO.
fn fact(connection: &mut Connection, name: &str) -> String {
    let text = match connection.words("INFO everything") {
        Reply::Bulk(text) => String::from_utf8(text).unwrap(),
        Reply::Verbatim(_, text) => String::from_utf8(text).unwrap(),
        other => panic!("no facts: {other:?}"),
    };
    let prefix = format!("{name}:");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("INFO has no {name}")).to_owned()
}

fn wait_for_fact(connection: &mut Connection, name: &str, wanted: &str) {
    testkit::wait_until(&format!("{name}:{wanted}"), testkit::GENEROUS, || {
        fact(connection, name) == wanted
    });
}

/// Values of every kind, small and large, some with an end.
fn fill(connection: &mut Connection) {
    for (times, line) in crate::exchange::VALUES {
        for index in 0..*times {
            connection.words(&line.replace("{i}", &index.to_string()));
        }
    }
    for line in [
        "SET ends-later x PX 100000000",
        "EXPIRE hash 100000",
        "SET over x PX 1",
        "SELECT 3",
        "SET elsewhere 1",
        "SELECT 0",
    ] {
        connection.words(line);
    }
    let library = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";
    connection.ask(&["FUNCTION", "LOAD", "REPLACE", library]).unwrap();
}

fn digest(connection: &mut Connection) -> Reply {
    // What is over must be gone on both sides before they are compared.
    testkit::wait_until("the key with an end is gone", testkit::GENEROUS, || {
        connection.words("EXISTS over") == Reply::Integer(0)
    });
    connection.words("DEBUG DIGEST")
}

/// Names of the files in the folder of the append-only file.
fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join("appendonlydir")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
