//! `tenure serve --cluster-enabled yes`: our nodes among real ones.

mod bad;
mod channels;
mod create;
mod failover;

use testkit::{RedisServer, RedisServerBuilder, ServerProgram};

/// Ours, real, ours, …: each master has a replica of the other kind.
fn mixed() -> Vec<ServerProgram> {
    let kinds = [ServerProgram::own(), ServerProgram::redis()];
    kinds.into_iter().cycle().take(6).collect()
}

/// A node that knows nobody.
fn node(program: ServerProgram) -> RedisServerBuilder {
    RedisServer::builder().program(program).args([
        "--cluster-enabled",
        "yes",
        "--repl-diskless-sync-delay",
        "0",
    ])
}

fn address(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port())
}
