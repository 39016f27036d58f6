//! Elections on Redis, Valkey and stores that speak their protocol.
//!
//! In: [`Call`]s. They become scripts (`request`), go out in pipelines (`connection`), and come
//! back as answers (`reply`). Hints arrive on a connection of their own (`listener`).
//!
//! What Tenure keeps in the store for a resource `NAME`, readable with redis-cli (`{K}` is the key
//! in braces, so that all of it is in one cluster slot):
//!
//! | key | type | what |
//! |---|---|---|
//! | `tenure:NAME` (K) | string | the holder's id; its expiry is the lease |
//! | `{K}:meta` | hash | holder, token, attempt, times in µs, quarantine, wish, pause |
//! | `{K}:beats` | sorted set | members by their last heartbeat, in ms |
//! | `{K}:members` | hash | what each member told about itself |
//! | `{K}:history` | stream | the last thousand or so events |
//! | `{K}:ticks`, `{K}:tick:…` | hash, strings | which ticks ran |
//! | `{K}:events` | channel | hints |
//! | `PREFIX` and the id | string | a leader's heartbeat for other programs, where asked for |
//!
//! The least rights that an ACL user needs, with the default prefix: `~tenure:* ~{tenure:*
//! &{tenure:* +eval +evalsha +time +info +type +get +getrange +set +del +pttl +pexpire +hget +hmget
//! +hset +hdel +hlen +hgetall +zadd +zscore +zcard +zrem +zrange +zrangebyscore +zrevrangebyscore
//! +zremrangebyscore +xadd +xrevrange +publish +subscribe +unsubscribe`. Without `publish` and
//! `subscribe` elections depend on timers only; without `info` a failover behind a running
//! connection goes unnoticed; both are reported as warnings. A cluster also needs `+cluster|slots
//! +asking +spublish +ssubscribe +sunsubscribe`, and `mode=strict` needs `+wait`.

mod address;
mod any;
mod audience;
mod backoff;
mod check;
mod cluster;
#[cfg(test)]
mod conform;
mod connection;
mod dial;
mod error;
mod fenced;
mod guard;
mod hint;
mod independent;
mod listener;
mod mode;
mod node;
mod quorum;
mod reply;
mod request;
mod scripts;
mod sentinel;
mod text;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod topology;
mod transport;
mod url;
mod warnings;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::protocol::{Answer, Call, Outcome, Request, View};
use tenure_core::{Resource, StoreError, Token};
use tokio::sync::watch;

pub(crate) use self::address::Form;
use self::any::AnyAddress;
pub use self::backoff::REDIAL_WAIT_MAX;
pub use self::check::{check_address, shown_address};
use self::cluster::{Cluster, ClusterAddress};
pub use self::cluster::{ClusterSurvey, Shard, dissenting_nodes};
use self::connection::Replies;
use self::dial::Route;
pub use self::dial::{Connector, Dialing, Stream};
pub use self::error::refusal_step;
pub use self::fenced::{FenceReply, FencedWrite, connection_error, fence_command, fence_reply};
pub(crate) use self::independent::{NodeFacts, look_at};
pub use self::mode::Mode;
pub(crate) use self::node::{Node, Nodes};
pub use self::quorum::QuorumBackend;
pub use self::scripts::script_digests;
use self::sentinel::SentinelAddress;
pub use self::sentinel::{FailoverForecast, SentinelAnswer, SentinelSurvey, shared_ids};
pub use self::topology::{SurveyError, Topology};
use self::transport::Transport;
pub(crate) use self::url::DEFAULT_PORT;
pub use self::url::{Endpoint, Login, RedisUrl, TlsFiles};
use self::warnings::Warnings;
use tenure_backend::{
    Backend, Calling, ConnectError, Connection, Listening, SignalSink, Subscription,
};

/// The schemes of all addresses that [`open`] takes.
pub const SCHEMES: [&str; 9] = [
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
    "redis+quorum",
    "rediss+quorum",
];

/// The store at an address of any of our [`SCHEMES`]. Fails as [`RedisBackend::open`] and
/// [`QuorumBackend::open`] do.
///
/// # Panics
/// Outside a tokio runtime, in which its connections are to live.
pub async fn open(address: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    match quorum::QuorumAddress::is_meant(address) {
        true => Ok(Arc::new(QuorumBackend::open(address).await?)),
        false => Ok(Arc::new(RedisBackend::open(address)?)),
    }
}

/// Elections on a Redis or Valkey server, or on a cluster of them.
///
/// One connection carries all requests, one all hints, for any number of elections, and in mode
/// `strict` one more the grants and renewals; in a cluster, these per node. They are opened in the
/// background, watched and replaced; an unreachable server is not an error here.
pub struct RedisBackend {
    transport: Arc<Transport>,
    shared: Arc<Shared>,
    place: String,
}

/// What answers still on their way need of the backend.
#[derive(Debug)]
struct Shared {
    numbers: AtomicU64,
    warnings: Arc<Warnings>,
}

/// Begins the warning that the store's life can only be judged at connect. Told once.
const WEAKNESS: &str = "INFO is not allowed in scripts";

impl RedisBackend {
    /// The store at an address such as `redis://127.0.0.1`, see [`RedisUrl::parse`],
    /// `redis+sentinel://host1,host2,host3/master-name`, or `redis+cluster://host1,host2`. Fails
    /// when the address or a file that it names is unusable.
    ///
    /// # Panics
    /// Outside a tokio runtime, in which its connections are to live.
    pub fn open(address: &str) -> Result<Self, ConnectError> {
        match AnyAddress::parse(address)? {
            AnyAddress::One(url) => Self::open_url(&url),
            AnyAddress::Sentinels(address) => Self::open_by_sentinels(address),
            AnyAddress::Cluster(address) => Self::open_cluster(address),
        }
    }

    /// The store at an address that was parsed before.
    pub(crate) fn open_url(url: &RedisUrl) -> Result<Self, ConnectError> {
        let backend = Self::start(Route::to(url)?, url.mode);
        url.warning().into_iter().for_each(|warning| backend.shared.warnings.tell(warning));
        Ok(backend)
    }

    fn open_by_sentinels(address: SentinelAddress) -> Result<Self, ConnectError> {
        let (warning, mode) = (address.warning(), address.mode());
        let backend = Self::start(Route::by_sentinels(address)?, mode);
        warning.into_iter().for_each(|warning| backend.shared.warnings.tell(warning));
        Ok(backend)
    }

    fn open_cluster(address: ClusterAddress) -> Result<Self, ConnectError> {
        let (place, warnings) = (address.to_string(), Arc::new(Warnings::default()));
        let cluster = Cluster::start(address, Arc::clone(&warnings))?;
        Ok(Self::over(Transport::Cluster(cluster), place, warnings))
    }

    /// The store at the other end of the streams that `connector` opens.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_connector(connector: impl Connector, login: Login) -> Self {
        Self::start(Route::Streams { connector: Arc::new(connector), login }, Mode::default())
    }

    /// The store of an existing client of the `redis` crate, with connections of its own making:
    /// they are not guarded against replies without end.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_client(client: redis::Client) -> Self {
        Self::start(Route::Client(client), Mode::default())
    }

    fn start(route: Route, mode: Mode) -> Self {
        let (place, warnings) = (route.describe(), Arc::new(Warnings::default()));
        Self::over(Transport::to_one(route, mode, &warnings), place, warnings)
    }

    fn over(transport: Transport, place: String, warnings: Arc<Warnings>) -> Self {
        let numbers = AtomicU64::new(fastrand::u64(..1 << 52));
        let shared = Arc::new(Shared { numbers, warnings });
        RedisBackend { transport: Arc::new(transport), shared, place }
    }

    /// A fenced write of the value at `key`, whose fence is `fence_key`. Fails when it is not known
    /// to be done; in mode `strict` also when the replicas did not confirm it.
    pub async fn fenced(
        &self,
        key: &str,
        fence_key: &str,
        token: Token,
        write: &FencedWrite<'_>,
        timeout: Duration,
    ) -> Result<FenceReply, StoreError> {
        let number = self.shared.next_number();
        let replies = self
            .transport
            .carry_out(vec![fenced::step(key, fence_key, token, write, number)], timeout);
        let replies = replies.await?;
        let reply = match replies.values.as_slice() {
            [reply] => fence_reply(reply)?,
            _ => return Err(StoreError::unexpected("no reply")),
        };
        if reply == FenceReply::Written {
            // A fence that a failover forgets would let leaders of the past in again.
            replies.settled?;
        }
        Ok(reply)
    }

    /// How many pipelines were sent so far: calls made together share one.
    pub fn pipelines_sent(&self) -> u64 {
        self.transport.batches_sent()
    }
}

impl Backend for RedisBackend {
    fn call(&self, call: Call) -> Calling {
        let steps = match request::steps(&call, || self.shared.next_number()) {
            Ok(steps) => steps,
            Err(what) => return Box::pin(std::future::ready(Ok(impossible(what)))),
        };
        let courtesies: Vec<_> = steps.iter().skip(1).map(|step| step.script.courtesy()).collect();
        let replies = self.transport.carry_out(steps, call.timeout);
        let (shared, transport) = (Arc::clone(&self.shared), Arc::clone(&self.transport));
        Box::pin(async move {
            let mut answer = shared.answer(&call.request, &replies.await?, &courtesies)?;
            if is_held(&answer.outcome)
                && std::mem::take(&mut answer.view.unconfirmed)
                && let Some(token) = answer.view.token
            {
                shared.confirm(&transport, &call, token);
            }
            Ok(answer)
        })
    }

    fn subscribe(&self, resource: &Resource) -> Subscription {
        self.transport.subscribe(&request::channel(resource))
    }

    fn listen(&self, resource: &Resource, sink: SignalSink) -> Listening {
        self.transport.listen(&request::channel(resource), sink)
    }

    fn connection(&self) -> watch::Receiver<Connection> {
        self.transport.state().clone()
    }

    fn describe(&self) -> String {
        self.place.clone()
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisBackend").field(&self.place).finish()
    }
}

impl Shared {
    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells the store that replicas have the caller's grant, so that others see a term. Nobody
    /// waits for that: where it is lost, the next renewal finds it still to be done.
    fn confirm(&self, transport: &Transport, call: &Call, token: Token) {
        let step = request::confirmation(call, token, self.next_number());
        let told = transport.carry_out(vec![step], call.timeout);
        let (warnings, request) = (Arc::clone(&self.warnings), call.request.clone());
        tokio::spawn(async move {
            let Ok(replies) = told.await else { return };
            let parsed = replies.values.first().map(|reply| reply::parse(&request, reply));
            if let Some(Ok(answer)) = parsed {
                answer.warnings.into_iter().for_each(|warning| warnings.tell(warning));
            }
        });
    }

    fn answer(
        &self,
        request: &Request,
        replies: &Replies,
        courtesies: &[&str],
    ) -> Result<Answer, StoreError> {
        let mut answers = replies.values.iter().map(|reply| match reply {
            redis::Value::ServerError(error) => Err(error::from_reply(error)),
            reply => reply::parse(request, reply)
                .map_err(|fault| StoreError::unexpected(format!("the store answered {fault}"))),
        });
        let first = answers.next().unwrap_or(Err(StoreError::unexpected("no reply")));
        let mut answer = first?;
        if is_promise(&answer.outcome) {
            // Whoever asked may rely on it only once it is where a failover cannot lose it.
            replies.settled.clone()?;
        }
        // What follows the first step is a courtesy: it can only add warnings.
        for (what, courtesy) in courtesies.iter().zip(answers) {
            match courtesy {
                Ok(more) => answer.warnings.extend(more.warnings),
                Err(error) => answer.warnings.push(format!("{what}: {error}")),
            }
        }
        let (weakness, mut warnings): (Vec<_>, Vec<_>) =
            answer.warnings.drain(..).partition(|warning| warning.starts_with(WEAKNESS));
        weakness.into_iter().for_each(|weakness| self.warnings.tell(weakness));
        warnings.dedup();
        warnings.extend(self.warnings.take());
        Ok(Answer { warnings, ..answer })
    }
}

/// Whether the caller is promised something. What replicas have no say in is settled anyway.
fn is_promise(outcome: &Outcome) -> bool {
    is_held(outcome) || matches!(outcome, Outcome::TickRuns | Outcome::Done)
}

/// Whether the caller leads by this.
fn is_held(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Granted { .. } | Outcome::Renewed)
}

/// A request that no reply of a store could satisfy.
fn impossible(what: String) -> Answer {
    Answer { outcome: Outcome::Conflict { what }, view: View::default(), warnings: Vec::new() }
}
