//! A store that is a cluster: many nodes, each with its share of the slots.
//!
//! In: steps whose keys share a slot, as those of one resource do. Out: their replies, from
//! whichever node has that slot. Nodes are found by asking any of those that the address names
//! (`survey`), requests find their node by the map that comes of it (`router`), listeners likewise
//! (`listener`). Each node has a connection as a single server has.

mod address;
mod listener;
mod router;
mod survey;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use store_client::cluster::Slot;
use tenure_core::StoreError;
use tokio::sync::{mpsc, oneshot, watch};

pub(super) use self::address::ClusterAddress;
use self::listener::ShardListeners;
use self::router::{Router, SURVEY_EVERY, SlotRequest};
pub use self::survey::{ClusterSurvey, Shard, dissenting_nodes};
use super::audience::Subscriber;
use super::connection::{CALLS_QUEUED_MAX, ConnectionOptions, Deployment, Replies, in_time};
use super::dial::Route;
use super::request::Step;
use super::warnings::Warnings;
use tenure_backend::clock::timer_now;
use tenure_backend::{ConnectError, Connection, Listening, SignalSink, Subscription};

/// The way to a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    requests: mpsc::Sender<SlotRequest>,
    state: watch::Receiver<Connection>,
    listener: Arc<ShardListeners>,
    warnings: Arc<Warnings>,
    batches_sent: Arc<AtomicU64>,
}

impl Cluster {
    /// Starts its task in the current runtime. Fails when a file that the address names is not
    /// usable.
    pub(super) fn start(
        address: ClusterAddress,
        warnings: Arc<Warnings>,
    ) -> Result<Self, ConnectError> {
        Self::start_surveying(address, SURVEY_EVERY, warnings)
    }

    /// The same with another time between two surveys: how long a cluster stays as it is, is
    /// nothing that a person could set better.
    fn start_surveying(
        address: ClusterAddress,
        survey_every: Duration,
        warnings: Arc<Warnings>,
    ) -> Result<Self, ConnectError> {
        if let Some(seed) = address.seeds().first() {
            // The files serve every node: a bad one is found now.
            Route::to(&address.node_at(seed))?;
        }
        address.warning().into_iter().for_each(|warning| warnings.tell(warning));
        let (requests, received) = mpsc::channel(CALLS_QUEUED_MAX);
        let (tell, state) = watch::channel(Connection::Connecting);
        let listener = Arc::new(ShardListeners::default());
        let batches_sent = Arc::new(AtomicU64::new(0));
        let options = ConnectionOptions {
            mode: address.mode(),
            deployment: Deployment::Cluster,
            warnings: Arc::clone(&warnings),
            batches_sent: Arc::clone(&batches_sent),
        };
        let (address, listeners) = (Arc::new(address), Arc::clone(&listener));
        let router = Router::new(address, survey_every, options, received, listeners, tell);
        tokio::spawn(router.run());
        Ok(Cluster { requests, state, listener, warnings, batches_sent })
    }

    /// Queues steps now; the future only waits.
    pub(super) fn carry_out(
        &self,
        steps: Vec<Step>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Replies, StoreError>> + Send + use<> {
        let deadline = timer_now() + timeout;
        let (done, replies) = oneshot::channel();
        let queued =
            self.queue(steps, |slot, steps| SlotRequest::new(slot, steps, deadline, timeout, done));
        let state = self.state.clone();
        async move {
            queued?;
            in_time(replies, deadline, timeout, &state).await
        }
    }

    fn queue(
        &self,
        steps: Vec<Step>,
        request: impl FnOnce(Slot, Vec<Step>) -> SlotRequest,
    ) -> Result<(), StoreError> {
        let (slot, steps) = self.in_one_slot(steps)?;
        self.requests.try_send(request(slot, steps)).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => {
                StoreError::not_now(format!("{CALLS_QUEUED_MAX} calls wait already"))
            }
            mpsc::error::TrySendError::Closed(_) => {
                StoreError::unreachable("the runtime of this connection has ended")
            }
        })
    }

    /// The slot of the first step, which counts, and all steps that stay in it.
    fn in_one_slot(&self, steps: Vec<Step>) -> Result<(Slot, Vec<Step>), StoreError> {
        let mut slot = None;
        let mut kept = Vec::with_capacity(steps.len());
        for mut step in steps {
            let stray = step.keys().find(|key| {
                let of_key = Slot::of(key);
                *slot.get_or_insert(of_key) != of_key
            });
            match stray {
                None => {
                    step.publish_in_shard();
                    // A slot may have come to its node without its keys.
                    step.distrust_age();
                    kept.push(step);
                }
                Some(stray) if kept.is_empty() => return Err(astray(stray)),
                Some(stray) => self.warnings.tell(format!(
                    "{} is not written: {}",
                    step.script.courtesy(),
                    astray(stray)
                )),
            }
        }
        let slot = slot.ok_or_else(|| StoreError::unexpected("a request without keys"))?;
        Ok((slot, kept))
    }

    /// Adds a listener with a queue of its own.
    pub(super) fn subscribe(&self, channel: &str) -> Subscription {
        let (subscriber, subscription) = Subscriber::queue();
        self.listener.add(channel, subscriber);
        subscription
    }

    /// Adds a listener that takes signals at once.
    pub(super) fn listen(&self, channel: &str, sink: SignalSink) -> Listening {
        let (subscriber, listening) = Subscriber::sink(sink);
        self.listener.add(channel, subscriber);
        listening
    }

    /// The state of the cluster.
    pub(super) fn state(&self) -> &watch::Receiver<Connection> {
        &self.state
    }

    /// How many pipelines were sent so far, to all nodes.
    pub(super) fn batches_sent(&self) -> u64 {
        self.batches_sent.load(Ordering::Relaxed)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.listener.close();
    }
}

fn astray(key: &[u8]) -> StoreError {
    let key = String::from_utf8_lossy(key);
    StoreError::unexpected(format!(
        "the key {key} lies in another slot of the cluster than the keys beside it: enclose the \
         part that they share in {{…}}"
    ))
}

#[cfg(test)]
mod tests {
    use tenure_core::protocol::{Answer, Call, Request};
    use tenure_core::{InstanceId, Resource};
    use testkit::{ClusterGroup, GENEROUS, wait_until};

    use super::*;
    use crate::{RedisBackend, Transport};
    use tenure_backend::Backend;

    fn surveying(group: &ClusterGroup, every: Duration) -> RedisBackend {
        let address = ClusterAddress::parse(&group.url()).unwrap();
        let warnings = Arc::new(Warnings::default());
        let cluster = Cluster::start_surveying(address, every, Arc::clone(&warnings)).unwrap();
        RedisBackend::over(Transport::Cluster(cluster), group.url(), warnings)
    }

    async fn look_at_job(backend: &RedisBackend) -> Result<Answer, StoreError> {
        let (resource, id) = (Resource::named("job").unwrap(), InstanceId::new("eve", 1).unwrap());
        let request = Request::Observe { members: false };
        let fleet_max_ttl = Duration::ZERO;
        backend.call(Call { resource, id, request, timeout: GENEROUS, fleet_max_ttl }).await
    }

    /// A count in what all nodes tell about themselves.
    fn count(group: &ClusterGroup, section: &str, name: &str) -> u64 {
        let of = |place: usize| {
            let told = group.server(place).cli(&["INFO", section]);
            let line = told.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
            line.split(',').next().unwrap_or_default().trim().parse::<u64>().unwrap()
        };
        (0..group.len()).map(of).sum()
    }

    fn redirections(group: &ClusterGroup) -> u64 {
        count(group, "errorstats", "errorstat_MOVED:count=")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_slot_that_moved_is_learnt_before_a_request_goes_astray() {
        let group = ClusterGroup::start().steady();
        let curious = surveying(&group, Duration::from_millis(200));
        let idle = surveying(&group, SURVEY_EVERY);
        for backend in [&curious, &idle] {
            look_at_job(backend).await.unwrap();
        }
        let slot = group.slot_of("tenure:job");
        let from = group.owner_of(slot).unwrap();
        group.migrate(slot, (from + 1) % ClusterGroup::MASTERS);

        // One survey may have been under way, and a survey asks three nodes at the most: after
        // seven questions, one that began with what every node knows now has ended.
        let surveys = || count(&group, "commandstats", "cmdstat_cluster|slots:calls=");
        let before = surveys();
        wait_until("surveys that nobody asked for", GENEROUS, || surveys() > before + 6);
        let redirected = redirections(&group);
        look_at_job(&curious).await.unwrap();
        assert_eq!(redirections(&group), redirected, "the request went to the new owner at once");
        look_at_job(&idle).await.unwrap();
        assert_eq!(redirections(&group), redirected + 1, "this one was not told");
    }
}
