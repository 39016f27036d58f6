//! One of several nodes: what it says about itself.

use redis::Value;
use tenure_core::StoreError;

use super::dial::{Route, field};
use super::error;
use super::url::RedisUrl;

/// What a server says about itself. Empty where it may not be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    /// Its run id: the same for the same process, whatever it is called.
    pub(crate) run: String,
    /// `standalone`, `cluster` or `sentinel`.
    pub(crate) kind: String,
    pub(crate) is_replica: bool,
}

/// Looks at a server once.
pub(crate) async fn look_at(url: &RedisUrl) -> Result<NodeFacts, StoreError> {
    let route = Route::to(url).map_err(|error| StoreError::unexpected(error.to_string()))?;
    let looking = async {
        let mut line = route.open_unchecked().await?;
        let mut facts = NodeFacts::default();
        for section in ["server", "replication"] {
            let mut question = redis::cmd("INFO");
            question.arg(section);
            let reply = line.connection.send_packed_command(&question).await;
            let text = match reply.map_err(|error| error::from_connection(&error))? {
                Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Value::VerbatimString { text, .. } => text,
                _ => continue,
            };
            facts.is_replica |= field(&text, "role").is_some_and(|role| role == "slave");
            let run = field(&text, "run_id").unwrap_or(&facts.run).to_owned();
            let kind = field(&text, "redis_mode").unwrap_or(&facts.kind).to_owned();
            facts = NodeFacts { run, kind, ..facts };
        }
        Ok(facts)
    };
    route.in_time(looking).await
}
