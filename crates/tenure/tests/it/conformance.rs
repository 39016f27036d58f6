//! The Redis backend keeps the contract of backends.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure::MemoryBackend;
use tenure::backend::conformance::{self, Meddler, Meddling};
use tenure::backend::redis::{Connector, RedisBackend};
use tenure::backend::{Backend, EmbeddedStore};
use tenure_core::Resource;
use testkit::{ClusterGroup, RedisServer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

fn opened(server: &RedisServer) -> Arc<dyn Backend> {
    Arc::new(RedisBackend::open(&server.url()).unwrap())
}

/// The reply of a command: its texts, one per line.
pub(crate) type CommandReply = Pin<Box<dyn Future<Output = String> + Send>>;

/// A way to give a store plain commands.
pub(crate) trait Commands: Send + Sync + 'static {
    fn give(&self, words: &[&str]) -> CommandReply;
}

impl Commands for Arc<RedisServer> {
    fn give(&self, words: &[&str]) -> CommandReply {
        Box::pin(std::future::ready(self.cli(words)))
    }
}

impl Commands for Arc<ClusterGroup> {
    fn give(&self, words: &[&str]) -> CommandReply {
        // redis-cli finds the node by itself.
        Box::pin(std::future::ready(self.server(0).cli(&[&["-c"], words].concat())))
    }
}

impl Commands for EmbeddedStore {
    fn give(&self, words: &[&str]) -> CommandReply {
        let request = request(words);
        let dialing = self.connect();
        Box::pin(async move { said(dialing.await.unwrap(), &request).await })
    }
}

/// All nodes of a quorum, by their ports. What they say must be the same.
pub(crate) struct Everywhere(pub(crate) Vec<u16>);

impl Commands for Everywhere {
    fn give(&self, words: &[&str]) -> CommandReply {
        let (ports, request) = (self.0.clone(), request(words));
        Box::pin(async move {
            let mut texts = Vec::new();
            for port in ports {
                let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                texts.push(said(stream, &request).await);
            }
            texts.dedup();
            texts.join(" but ")
        })
    }
}

fn request(words: &[&str]) -> String {
    let arguments = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), arguments.collect::<String>())
}

async fn said(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    // Each reply asked for here is short enough to come in one piece.
    let mut reply = [0; 256];
    let count = stream.read(&mut reply).await.unwrap();
    let reply = String::from_utf8_lossy(&reply[..count]).into_owned();
    let texts = reply.lines().filter(|line| !line.starts_with(['*', '$']));
    texts.collect::<Vec<_>>().join("\n")
}

/// Does to a store what other programs and people do.
pub(crate) struct Stranger<C>(pub(crate) C);

impl<C: Commands> Stranger<C> {
    fn run(&self, words: &[&str]) -> Meddling {
        let said = self.0.give(words);
        Box::pin(async move {
            let said = said.await;
            assert!(!said.starts_with("-") && !said.starts_with("ERR"), "{said}");
        })
    }
}

impl<C: Commands> Meddler for Stranger<C> {
    fn take(&self, resource: &Resource, holder: &str, ttl: Option<Duration>) -> Meddling {
        match ttl.map(|ttl| ttl.as_millis().to_string()) {
            Some(ttl) => self.run(&["SET", resource.key(), holder, "PX", &ttl]),
            None => self.run(&["SET", resource.key(), holder]),
        }
    }

    fn remove_holder(&self, resource: &Resource) -> Meddling {
        self.run(&["DEL", resource.key()])
    }

    fn forget(&self, resource: &Resource) -> Meddling {
        self.run(&["DEL", resource.key(), &resource.side_key("meta")])
    }

    fn obstruct(&self, resource: &Resource) -> Meddling {
        self.run(&["HSET", resource.key(), "a", "b"])
    }

    fn is_obstructed(&self, resource: &Resource) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let found = self.0.give(&["HGETALL", resource.key()]);
        Box::pin(async move { found.await == "a\nb" })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_keeps_the_contract() {
    let server = Arc::new(RedisServer::start());
    let meddler = Stranger(Arc::clone(&server));
    let report = conformance::check_with(|| opened(&server), meddler, &[]).await;
    report.assert_passed();
    assert!(report.skipped().is_empty() && report.passed().len() > 40, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_the_contract() {
    let group = Arc::new(ClusterGroup::start().steady());
    let opened = || -> Arc<dyn Backend> { Arc::new(RedisBackend::open(&group.url()).unwrap()) };
    let report = conformance::check_with(opened, Stranger(Arc::clone(&group)), &[]).await;
    report.assert_passed();
    assert!(report.skipped().is_empty() && report.passed().len() > 40, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_store_keeps_the_contract() {
    let store = EmbeddedStore::start().unwrap();
    let meddler = Stranger(store.clone());
    let report = conformance::check_with(|| Arc::new(store.backend()), meddler, &[]).await;
    report.assert_passed();
    assert!(report.skipped().is_empty() && report.passed().len() > 40, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_in_memory_keeps_the_contract() {
    let store = MemoryBackend::new();
    let report = conformance::check(|| Arc::new(store.clone())).await;
    report.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_can_be_one_of_several_nodes() {
    let server = RedisServer::start();
    conformance::check_node(|| opened(&server)).await.assert_passed();
    let store = EmbeddedStore::start().unwrap();
    conformance::check_node(|| Arc::new(store.backend()) as Arc<dyn Backend>).await.assert_passed();
    let memory = Arc::new(MemoryBackend::new());
    conformance::check_node(|| Arc::clone(&memory) as Arc<dyn Backend>).await.assert_passed();
}
