//! A store whose primary is named by sentinels.
//!
//! In: the sentinels' addresses and the name under which they watch the primary. Out: streams to
//! whichever server they agree on, asked again for every connection, and a word when that changes.
//! Whether the server really is a primary is asked when the connection is greeted.

mod address;
mod verdict;
mod watcher;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tenure_core::StoreError;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub(super) use self::address::SentinelAddress;
use self::verdict::{Named, verdict};
use super::dial::{Connector, Dialing, Route, open_stream};
use super::error;
use super::node::Node;
use super::url::{Login, RedisUrl};
use crate::SurveyError;
use tenure_backend::ConnectError;

/// How long one sentinel may take to name the primary. The others are asked at the same time, so a
/// dead one costs this much once.
const ASK_TIMEOUT: Duration = Duration::from_millis(700);

/// Streams to the primary that the sentinels name.
pub(super) struct Sentinels {
    shared: Arc<Shared>,
    moved: watch::Receiver<u64>,
    watcher: AbortHandle,
}

struct Shared {
    address: SentinelAddress,
    /// One way to each sentinel, in the order of the address.
    transport: Vec<Route>,
    /// Whom the last stream was opened to.
    last: Mutex<Option<Node>>,
    /// Whom a stream is being opened to, for errors.
    dialled: Mutex<Option<Node>>,
}

impl Sentinels {
    /// Starts watching in the current runtime. Fails when a file that the address names is not
    /// usable.
    pub(super) fn start(address: SentinelAddress) -> Result<Self, ConnectError> {
        let shared = Arc::new(Shared::new(address)?);
        let (tell, moved) = watch::channel(0);
        let watcher = tokio::spawn(watcher::run(Arc::clone(&shared), tell)).abort_handle();
        Ok(Sentinels { shared, moved, watcher })
    }

    /// Who logs in to the primary.
    pub(super) fn login(&self) -> Login {
        self.shared.address.login().clone()
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl Connector for Sentinels {
    fn connect(&self) -> Dialing {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            *locked(&shared.dialled) = None;
            let node = shared.find_master().await.map_err(io::Error::other)?;
            *locked(&shared.last) = Some(node.clone());
            *locked(&shared.dialled) = Some(node.clone());
            let stream = open_stream(&shared.address.master_at(&node)).await;
            stream.map_err(|error| match promotion_advice(error.kind()) {
                Some(advice) => io::Error::other(error::unopened(&error, advice)),
                None => error,
            })
        })
    }

    fn describe(&self) -> String {
        self.shared.address.to_string()
    }

    fn place(&self) -> String {
        match &*locked(&self.shared.dialled) {
            Some(node) => format!("{} (primary {node})", self.shared.address),
            None => self.describe(),
        }
    }

    fn moved(&self) -> Option<watch::Receiver<u64>> {
        Some(self.moved.clone())
    }
}

/// What helps where the primary that sentinels name cannot be reached, if they have a part in it.
fn promotion_advice(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            Some("wait until the sentinels promote a replica, or start it again")
        }
        io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => Some(
            "wait until the sentinels promote a replica; if they reach it, check the network from \
             here",
        ),
        _ => None,
    }
}

/// What sentinels say about a primary.
#[derive(Debug)]
pub struct SentinelSurvey {
    /// The sentinels, as the address names them.
    pub sentinels: Vec<SentinelAnswer>,
    /// The primary that more than half of them name, or why there is none.
    pub master: Result<RedisUrl, StoreError>,
}

/// The answer of one sentinel.
#[derive(Debug)]
pub struct SentinelAnswer {
    /// The address of the sentinel.
    pub sentinel: String,
    /// The address of the primary; `None` if the sentinel watches none of that name.
    pub master: Result<Option<String>, StoreError>,
    /// What it says about a failover; `None` if it does not say.
    pub failover: Option<FailoverForecast>,
    /// Its id; `None` if it does not say.
    id: Option<String>,
}

/// Ids that several sentinels have, each with the addresses of those. Nobody can tell their votes
/// apart.
pub fn shared_ids(survey: &SentinelSurvey) -> BTreeMap<&str, Vec<&str>> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for answer in &survey.sentinels {
        if let Some(id) = &answer.id {
            places.entry(id).or_default().push(&answer.sentinel);
        }
    }
    places.retain(|_, places| places.len() > 1);
    places
}

/// What a sentinel says about a failover that might become necessary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailoverForecast {
    /// How many sentinels watch the primary, as far as it knows.
    pub sentinels: usize,
    /// Why there could be no failover now, in its own words.
    pub obstacle: Option<String>,
}

impl SentinelSurvey {
    /// Asks all of them. Fails when a file is not usable, and when none of them answers.
    pub(super) async fn take(address: SentinelAddress) -> Result<Self, SurveyError> {
        let shared = Shared::new(address)?;
        let answers = shared.ask_all().await;
        let master = shared.verdict(&answers);
        if answers.iter().all(|(_, answer)| answer.is_err()) {
            master.clone()?;
        }
        let mut forecasts = shared.ask_forecasts(&answers).await.into_iter();
        let told = |(sentinel, answer): (String, Result<Named, StoreError>)| {
            let (failover, id) = forecasts.next().flatten().unzip();
            let master = answer.map(|named| match named {
                Named::At(node) => Some(node.to_string()),
                Named::Unknown => None,
            });
            SentinelAnswer { sentinel, master, failover, id: id.flatten() }
        };
        let sentinels = answers.into_iter().map(told).collect();
        Ok(SentinelSurvey { sentinels, master: master.map(|node| shared.address.master_at(&node)) })
    }
}

impl Shared {
    fn new(address: SentinelAddress) -> Result<Self, ConnectError> {
        let way = |sentinel| Route::to(&address.sentinel_at(sentinel));
        let transport = address.sentinels().iter().map(way).collect::<Result<_, _>>()?;
        // The files serve the master, too, so a bad one is found now.
        Ok(Shared { address, transport, last: Mutex::new(None), dialled: Mutex::new(None) })
    }

    /// Asks every sentinel and takes what more than half of them say.
    async fn find_master(&self) -> Result<Node, StoreError> {
        self.verdict(&self.ask_all().await)
    }

    async fn ask_all(&self) -> Vec<(String, Result<Named, StoreError>)> {
        let answers = join_all(self.transport.iter().map(|way| self.ask(way))).await;
        let names = self.address.sentinels().iter().map(ToString::to_string);
        names.zip(answers).collect()
    }

    fn verdict(&self, answers: &[(String, Result<Named, StoreError>)]) -> Result<Node, StoreError> {
        verdict(&self.address.master, answers)
    }

    /// Asks those that named a primary whether they could replace it, and for their ids, in the
    /// order of `answers`.
    async fn ask_forecasts(
        &self,
        answers: &[(String, Result<Named, StoreError>)],
    ) -> Vec<Option<(FailoverForecast, Option<String>)>> {
        let asked = self.transport.iter().zip(answers).map(async |(way, (_, answer))| {
            matches!(answer, Ok(Named::At(_))).then_some(())?;
            way.within(ASK_TIMEOUT, self.ask_forecast(way)).await.ok()?
        });
        join_all(asked).await
    }

    async fn ask_forecast(
        &self,
        way: &Route,
    ) -> Result<Option<(FailoverForecast, Option<String>)>, StoreError> {
        let mut line = way.open_unchecked().await?;
        let question = |word: &str| {
            let mut question = redis::cmd("SENTINEL");
            question.arg(word).arg(&self.address.master);
            question
        };
        let others = line.connection.send_packed_command(&question("SENTINELS")).await;
        // What says nothing is not worth an error: this is about advice.
        let others = match others.map_err(|error| error::from_connection(&error))? {
            Value::Array(others) => others.len(),
            _ => return Ok(None),
        };
        let quorum = line.connection.send_packed_command(&question("CKQUORUM")).await;
        let obstacle = match quorum.and_then(Value::extract_error) {
            Err(error) if error.code() == Some("NOQUORUM") => {
                Some(error.detail().unwrap_or_default().to_owned())
            }
            reply => {
                reply.map_err(|error| error::from_connection(&error))?;
                None
            }
        };
        let mut question = redis::cmd("SENTINEL");
        let id = line.connection.send_packed_command(question.arg("MYID")).await;
        let id = id.ok().and_then(|id| redis::from_redis_value(id).ok());
        Ok(Some((FailoverForecast { sentinels: others + 1, obstacle }, id)))
    }

    async fn ask(&self, way: &Route) -> Result<Named, StoreError> {
        let asking = async {
            let mut line = way.open_unchecked().await?;
            let mut question = redis::cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.address.master);
            let reply = line.connection.send_packed_command(&question).await;
            named(reply.map_err(|error| error::from_connection(&error))?)
        };
        way.within(ASK_TIMEOUT, asking).await
    }
}

/// Nothing that runs under these locks leaves them half changed.
fn locked(node: &Mutex<Option<Node>>) -> MutexGuard<'_, Option<Node>> {
    node.lock().unwrap_or_else(PoisonError::into_inner)
}

fn named(reply: Value) -> Result<Named, StoreError> {
    match reply {
        Value::Nil => Ok(Named::Unknown),
        Value::ServerError(error) => Err(error::from_reply(&error)),
        reply => {
            let words: Option<(String, u16)> = redis::from_redis_value(reply).ok();
            let node = words.filter(|(host, port)| !host.is_empty() && *port > 0);
            let node = node.map(|(host, port)| Named::At(Node { host, port }));
            node.ok_or_else(|| StoreError::unexpected("a sentinel named no address"))
        }
    }
}
