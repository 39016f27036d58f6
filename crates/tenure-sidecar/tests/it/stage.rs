//! What the tests share: stores, clients and served sidecars.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tenure::backend::EmbeddedStore;
use tenure::{Election, Tenure, TenureBuilder};
use tenure_sidecar::{Server, ServerSettings, Sidecar, SidecarBuilder, SidecarError};
use testkit::{GENEROUS, RedisServer, wait_until};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::http::{Answer, request};

pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const RESOURCE: &str = "nightly-report";

pub(crate) struct Stage {
    pub(crate) runtime: Runtime,
    store: Store,
}

enum Store {
    Embedded(EmbeddedStore),
    Redis(RedisServer),
}

impl Stage {
    pub(crate) fn embedded() -> Self {
        Self::on(Store::Embedded(EmbeddedStore::start().unwrap()))
    }

    pub(crate) fn redis() -> Self {
        Self::on(Store::Redis(RedisServer::start()))
    }

    fn on(store: Store) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        Stage { runtime, store }
    }

    /// Tells the same story on each kind of store.
    pub(crate) fn on_each(story: impl Fn(&mut Stage)) {
        story(&mut Self::embedded());
        story(&mut Self::redis());
    }

    pub(crate) fn server(&mut self) -> &mut RedisServer {
        match &mut self.store {
            Store::Redis(server) => server,
            Store::Embedded(_) => panic!("only a server of its own can be paused"),
        }
    }

    /// Whether the server of its own still runs.
    pub(crate) fn is_up(&mut self) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", self.server().port())).is_ok()
    }

    pub(crate) fn builder(&self, name: &str) -> TenureBuilder {
        let builder = Tenure::builder().instance(name).ttl(TTL).fresh_store(true);
        match &self.store {
            Store::Embedded(store) => builder.embedded(store),
            Store::Redis(server) => builder.store(&server.url()),
        }
    }

    pub(crate) fn client(&self, name: &str) -> Tenure {
        self.runtime.block_on(self.builder(name).connect()).unwrap()
    }

    pub(crate) fn elect(&self, client: &Tenure) -> Election {
        self.runtime.block_on(client.election(RESOURCE).start()).unwrap()
    }

    /// A client that leads.
    pub(crate) fn leader(&self, name: &str) -> (Tenure, Election) {
        let client = self.client(name);
        let election = self.elect(&client);
        wait_until("it leads", GENEROUS, || election.is_leader());
        (client, election)
    }

    pub(crate) fn serve(&self, builder: SidecarBuilder) -> Served {
        self.serve_at(builder, ServerSettings::listen("127.0.0.1:0")).unwrap()
    }

    pub(crate) fn serve_at(
        &self,
        builder: SidecarBuilder,
        settings: ServerSettings,
    ) -> Result<Served, SidecarError> {
        let _inside = self.runtime.enter();
        let sidecar = builder.start()?;
        let server = self.runtime.block_on(Server::bind(&sidecar, settings))?;
        let address = server.address().unwrap();
        let (ends, ended) = oneshot::channel::<()>();
        let task = self.runtime.spawn(async move {
            // Dropping the sender ends it as well.
            server.serve(async { drop(ended.await) }).await;
        });
        let served = Served { address, _sidecar: sidecar, ends: Some(ends), task: Some(task) };
        Ok(served)
    }

    /// A sidecar of an instance that takes part in [`RESOURCE`].
    pub(crate) fn serve_election(&self, client: &Tenure, election: &Election) -> Served {
        self.serve(Sidecar::builder(client.clone()).election(election.clone()))
    }

    pub(crate) fn end(&self, mut served: Served) {
        drop(served.ends.take());
        self.runtime.block_on(served.task.take().unwrap()).unwrap();
    }
}

/// A sidecar that listens.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    _sidecar: Sidecar,
    ends: Option<oneshot::Sender<()>>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Served {
    pub(crate) fn get(&self, path: &str) -> Answer {
        request(self.address, "GET", path, &[], "")
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        request(self.address, "DELETE", path, &[], "")
    }

    /// The metrics as OpenMetrics.
    pub(crate) fn metrics(&self) -> Answer {
        let accept = "Accept: application/openmetrics-text; version=1.0.0";
        request(self.address, "GET", "/metrics", &[accept], "")
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        self.get(path).json()
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        request(self.address, "POST", path, &["Content-Type: application/json"], body)
    }

    /// How the only resource stands.
    pub(crate) fn resource(&self) -> Value {
        self.json("/status")["resources"][0].take()
    }

    /// Waits until what `path` answers satisfies `condition`, and returns it.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        path: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut last = Value::Null;
        testkit::wait_for(what, GENEROUS, || {
            last = self.json(path);
            condition(&last).then(|| last.clone())
        })
    }
}
