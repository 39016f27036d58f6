//! What can be wrong with a server of PostgreSQL.

use testkit::{GENEROUS, PgBouncer, PostgresServer, Process, wait_for};

use super::{codes_at, planted};
use crate::stage::{CommandOutput, plain_command};

/// With room for so many connections, nine tenths of which are not many.
const CONNECTIONS: usize = 20;

planted! {
    "many-connections": fn a_server_whose_connections_others_use() {
        let room = CONNECTIONS.to_string();
        let server = prepared(&[("max_connections", &room), ("superuser_reserved_connections", "0")]);
        assert!(!codes_at(&server.url()).contains(&"many-connections".to_owned()));
        let _others: Vec<_> = (0..CONNECTIONS - 2).map(|_| sleeper(&server)).collect();
        wait_for("the others to be connected", GENEROUS, || {
            let found = codes_at(&server.url());
            found.iter().any(|code| code == "many-connections").then_some(found)
        })
    }

    "no-notifications": fn a_pooler_before_the_server() {
        let server = prepared(&[]);
        assert!(!codes_at(&server.url()).contains(&"no-notifications".to_owned()));
        let pooler = PgBouncer::before(&server);
        codes_at(&server.url_at(pooler.port()))
    }
}

/// A server that elections can be kept on.
fn prepared(settings: &[(&str, &str)]) -> PostgresServer {
    let server = PostgresServer::start_with(settings);
    let mut command = plain_command(&["store", "init"]);
    command.env("TENURE_STORE", server.url());
    let said = CommandOutput::of(command);
    assert_eq!(said.code, 0, "{said:?}");
    server
}

/// Somebody who is connected and does nothing.
fn sleeper(server: &PostgresServer) -> Process {
    let mut psql = server.psql_command("postgres");
    psql.args(["-c", "SELECT pg_sleep(600)"]);
    Process::spawn(psql)
}
