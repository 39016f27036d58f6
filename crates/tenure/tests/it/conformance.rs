//! The Redis backend keeps the contract of backends.

use std::sync::Arc;
use std::time::Duration;

use tenure::MemoryBackend;
use tenure::backend::conformance::{self, Meddler, Meddling};
use tenure::backend::redis::{Connector, RedisBackend};
use tenure::backend::{Backend, EmbeddedStore};
use tenure::core::Resource;
use testkit::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn opened(server: &RedisServer) -> Arc<dyn Backend> {
    Arc::new(RedisBackend::open(&server.url()).unwrap())
}

/// Does to a Redis server what other programs and people do.
struct CommandLine(Arc<RedisServer>);

impl CommandLine {
    fn run(&self, words: &[&str]) -> Meddling {
        self.0.cli(words);
        Box::pin(std::future::ready(()))
    }
}

/// Does the same to a store of this process.
struct Inside(EmbeddedStore);

impl Inside {
    fn ask(&self, words: &[&str]) -> impl Future<Output = String> + Send + use<> {
        let arguments = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let request = format!("*{}\r\n{}", words.len(), arguments.collect::<String>());
        let dialing = self.0.connect();
        async move {
            let mut stream = dialing.await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            // Each reply asked for here is short enough to come in one piece.
            let mut reply = [0; 256];
            let count = stream.read(&mut reply).await.unwrap();
            String::from_utf8_lossy(&reply[..count]).into_owned()
        }
    }

    fn run(&self, words: &[&str]) -> Meddling {
        let asked = self.ask(words);
        Box::pin(async move { assert!(!asked.await.starts_with('-')) })
    }
}

impl Meddler for CommandLine {
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

    fn is_obstructed(
        &self,
        resource: &Resource,
    ) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send>> {
        let found = self.0.cli(&["HGETALL", resource.key()]);
        Box::pin(std::future::ready(found == "a\nb"))
    }
}

impl Meddler for Inside {
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

    fn is_obstructed(
        &self,
        resource: &Resource,
    ) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send>> {
        let found = self.ask(&["HGETALL", resource.key()]);
        Box::pin(async move { found.await == "*2\r\n$1\r\na\r\n$1\r\nb\r\n" })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_keeps_the_contract() {
    let server = Arc::new(RedisServer::start());
    let meddler = CommandLine(Arc::clone(&server));
    let report = conformance::check_with(|| opened(&server), meddler).await;
    report.assert_passed();
    assert!(report.skipped().is_empty() && report.passed().len() > 40, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_store_keeps_the_contract() {
    let store = EmbeddedStore::start().unwrap();
    let meddler = Inside(store.clone());
    let report = conformance::check_with(|| Arc::new(store.backend()), meddler).await;
    report.assert_passed();
    assert!(report.skipped().is_empty() && report.passed().len() > 40, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_in_memory_keeps_the_contract() {
    let store = MemoryBackend::new();
    let report = conformance::check(|| Arc::new(store.clone())).await;
    report.assert_passed();
}
