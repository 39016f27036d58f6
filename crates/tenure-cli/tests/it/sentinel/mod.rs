//! `tenure serve --sentinel`: our sentinels among real ones, over our stores and real servers.

mod alone;
mod failover;
mod history;
mod hostile;
mod ordeal;
mod rolling;
mod shape;

use testkit::{SentinelGroup, ServerProgram};

/// Short enough for tests: what a sentinel looks at now and then, it looks at often.
fn hurry(group: &SentinelGroup) {
    for sentinel in group.sentinels.iter() {
        // The real one takes these, too.
        let words = ["SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "300"];
        assert_eq!(sentinel.cli(&words), "OK");
    }
}

fn own(count: usize) -> Vec<ServerProgram> {
    vec![ServerProgram::own(); count]
}

fn real(count: usize) -> Vec<ServerProgram> {
    vec![ServerProgram::redis(); count]
}
