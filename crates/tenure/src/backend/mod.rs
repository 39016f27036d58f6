//! What a store must offer to hold elections, and the stores that do.
//!
//! In: [`Call`](tenure_core::protocol::Call)s, one request about one resource each. Out:
//! [`Answer`](tenure_core::protocol::Answer)s, and hints pushed to subscribers. A backend decides
//! nothing about leadership: it carries out requests atomically, and reports an error when it does
//! not know the outcome. To write one, depend on the crate `tenure-core` for these types.

#[cfg_attr(not(feature = "redis"), path = "no_redis.rs")]
mod address;
mod check;
pub mod conformance;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg_attr(not(feature = "postgres"), path = "no_postgres.rs")]
mod postgres_address;
mod registry;

/// Elections on Redis, Valkey and stores that speak their protocol. Tools that examine the servers
/// behind an address use `Topology` of the crate `tenure-redis`.
#[cfg(feature = "redis")]
pub mod redis {
    pub use tenure_redis::{
        Connector, Dialing, Endpoint, Login, Mode, RedisBackend, RedisUrl, Stream, TlsFiles,
    };
}

/// Elections on PostgreSQL, and fencing inside the transactions of a program.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use tenure_postgres::{
        Fence, FenceError, Mode, PostgresBackend, PostgresHost, PostgresUrl, TlsMode, Verify,
    };
}

pub use tenure_backend::{
    Backend, Calling, ConnectError, Connecting, Connection, Listening, Signal, SignalSink,
    Subscription,
};
#[cfg(feature = "redis")]
pub use tenure_redis::QuorumBackend;

pub use self::check::check_address;
pub(crate) use self::check::shown_address;
#[cfg(feature = "embedded")]
pub use self::embedded::EmbeddedStore;
pub(crate) use self::registry::Registry;
