//! Elections on PostgreSQL 13 and newer, and fencing inside the transactions of a program.
//!
//! In: [`Call`]s. Each is read, decided by [`tenure_core::swap`], and written if nothing has
//! changed meanwhile (`calls`), one statement at a time on a few connections (`pool`). Hints come
//! as notifications where the server itself is at the other end, and by looking at a table
//! otherwise (`listener`). `schema.sql` is what is kept in the database, and `roles.sql` the rights
//! that taking part needs.
//!
//! What the data says counts only for the life of the server in which it was written
//! (`statements::FACTS`, the table `tenure.life`): a copy of the folder, a dump, a point in time
//! and a promoted standby are other lives, in which nobody leads until leases of the one before are
//! over.
//!
//! [`Fence`] is of use without elections on PostgreSQL as well: it needs nothing but a token.

mod address;
mod audience;
mod backoff;
mod calls;
mod dial;
mod error;
mod fence;
mod hint;
mod install;
mod lanes;
mod listener;
mod pool;
mod session;
mod statements;
mod survey;
mod text;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod warnings;

use std::fmt;
use std::sync::Arc;

use tenure_backend::{
    Backend, Calling, ConnectError, Connection, Listening, SignalSink, Subscription,
};
use tenure_core::Resource;
use tenure_core::protocol::Call;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub use self::address::{Mode, PostgresHost, PostgresUrl, TlsMode, Verify};
use self::audience::Audience;
use self::calls::Caller;
use self::dial::Route;
pub use self::fence::{Fence, FenceError};
pub use self::install::{Installed, install, statements_to_install};
use self::lanes::Lanes;
use self::pool::Pool;
pub use self::survey::{Survey, resources, survey};

/// The schemes of all addresses that [`PostgresBackend::open`] takes.
pub const SCHEMES: [&str; 2] = ["postgres", "postgresql"];

/// Elections in a PostgreSQL database.
///
/// A few connections carry the requests of any number of elections, and one more the hints. They
/// are opened in the background, watched and replaced; an unreachable server is not an error here.
pub struct PostgresBackend {
    lanes: Lanes,
    pool: Arc<Pool>,
    audience: Arc<Audience>,
    place: String,
}

impl PostgresBackend {
    /// The store at an address such as `postgres://app@db.internal/app`, see
    /// [`PostgresUrl::parse`]. Fails when the address or a file that it names is unusable.
    ///
    /// # Panics
    /// Outside a tokio runtime, in which its connections are to live.
    pub fn open(address: &str) -> Result<Self, ConnectError> {
        let url = PostgresUrl::parse(address)?;
        let (place, runtime) = (url.to_string(), Handle::current());
        let pool = Pool::start(Route::to(url)?, runtime.clone());
        let audience = Arc::new(Audience::default());
        runtime.spawn(listener::run(Arc::clone(&audience), Arc::clone(&pool)));
        let lanes = Lanes::new(Arc::new(Caller::new(Arc::clone(&pool))), runtime);
        Ok(PostgresBackend { lanes, pool, audience, place })
    }
}

impl Backend for PostgresBackend {
    fn call(&self, call: Call) -> Calling {
        self.lanes.call(call)
    }

    fn subscribe(&self, resource: &Resource) -> Subscription {
        self.audience.subscribe(resource.key())
    }

    fn listen(&self, resource: &Resource, sink: SignalSink) -> Listening {
        self.audience.listen(resource.key(), sink)
    }

    fn connection(&self) -> watch::Receiver<Connection> {
        self.pool.state()
    }

    fn describe(&self) -> String {
        self.place.clone()
    }
}

impl Drop for PostgresBackend {
    fn drop(&mut self) {
        self.audience.close();
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresBackend").field(&self.place).finish()
    }
}

/// Checks an address without opening anything: it must be well formed, and the files that it names
/// must be readable. Returns the address without logins and files, for logs.
pub fn check_address(address: &str) -> Result<String, ConnectError> {
    let url = PostgresUrl::parse(address)?;
    let shown = url.to_string();
    Route::to(url).map(|_| shown)
}

/// The address without logins and files, if it is well formed.
pub fn shown_address(address: &str) -> Option<String> {
    PostgresUrl::parse(address).ok().map(|url| url.to_string())
}
