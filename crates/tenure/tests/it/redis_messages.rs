//! Hints: many subscriptions on one connection, broken and made again; and connections that
//! people bring along.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::backend::redis::{Login, RedisBackend, Stream};
use tenure::backend::{Backend, Connection, Signal, SignalSink, Subscription};
use tenure_core::Resource;
use tenure_core::protocol::Hint;
use testkit::proxy::Cut;
use testkit::{Proxy, RedisServer};
use tokio::net::TcpStream;

use crate::actor::{Actor, PATIENT};

async fn next(subscription: &mut Subscription) -> Signal {
    let signal = tokio::time::timeout(PATIENT, subscription.next()).await;
    signal.expect("a signal comes").expect("the subscription goes on")
}

async fn next_hint(subscription: &mut Subscription) -> Hint {
    loop {
        if let Signal::Hint(hint) = next(subscription).await {
            return hint;
        }
    }
}

#[tokio::test]
async fn ten_thousand_subscriptions_share_one_connection() {
    let server = RedisServer::start();
    let backend = Arc::new(RedisBackend::open(&server.url()).unwrap());
    let resources: Vec<_> =
        (0..10_000).map(|number| Resource::named(&format!("job-{number}")).unwrap()).collect();
    let mut subscriptions: Vec<_> = resources.iter().map(|r| backend.subscribe(r)).collect();
    for subscription in &mut subscriptions {
        assert_eq!(next(subscription).await, Signal::Listening);
    }
    let clients = server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert_eq!(clients.lines().count(), 1, "{clients}");
    server.cli(&["PUBLISH", "{tenure:job-9999}:events", "m"]);
    assert_eq!(next(&mut subscriptions[9999]).await, Signal::Hint(Hint::Members));

    // Two ears on one resource; the second hears at once that it listens.
    let mut second = backend.subscribe(&resources[5]);
    assert_eq!(next(&mut second).await, Signal::Listening);
    server.cli(&["PUBLISH", "{tenure:job-5}:events", "p"]);
    assert_eq!(next(&mut second).await, Signal::Hint(Hint::PauseChanged));
    assert_eq!(next(&mut subscriptions[5]).await, Signal::Hint(Hint::PauseChanged));

    // Dropped subscriptions are given up in the store after a while.
    drop(subscriptions);
    let mut left = String::new();
    for _ in 0..600 {
        left = server.cli(&["PUBSUB", "CHANNELS"]);
        if left.lines().count() == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} channels are still subscribed", left.lines().count());
}

#[tokio::test]
async fn sinks_hear_until_they_are_dropped() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let (heard, mut hearing) = tokio::sync::mpsc::unbounded_channel();
    let receiver: Arc<dyn Fn(Signal) + Send + Sync> = Arc::new(move |signal| {
        let _ = heard.send(signal);
    });
    let listening = ada.backend.listen(&ada.resource, SignalSink::new(&receiver));
    assert_eq!(hearing.recv().await, Some(Signal::Listening));
    server.cli(&["PUBLISH", "{tenure:job}:events", "p"]);
    assert_eq!(hearing.recv().await, Some(Signal::Hint(Hint::PauseChanged)));
    drop(listening);
    for _ in 0..600 {
        if server.cli(&["PUBSUB", "CHANNELS"]).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the channel is still subscribed");
}

#[tokio::test]
async fn a_broken_line_deafens_and_listens_again() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let ada = Actor::at(&server.url_at(proxy.port()), "job");
    let mut ears = ada.backend.subscribe(&ada.resource);
    assert_eq!(next(&mut ears).await, Signal::Listening);
    for _ in 0..3 {
        proxy.cut(Cut::Reset);
        assert_eq!(next(&mut ears).await, Signal::Deaf);
        assert_eq!(next(&mut ears).await, Signal::Listening);
    }
    server.cli(&["PUBLISH", "{tenure:job}:events", "k"]);
    assert_eq!(next_hint(&mut ears).await, Hint::TickFinished);
}

#[tokio::test]
async fn forged_messages_are_dropped_and_honest_ones_still_come() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let mut ears = ada.backend.subscribe(&ada.resource);
    assert_eq!(next(&mut ears).await, Signal::Listening);
    let channel = "{tenure:job}:events";
    let flood = "for i = 1, 20000 do redis.call('PUBLISH', KEYS[1], 'forged ' .. i) end \
                 redis.call('PUBLISH', KEYS[1], string.rep('g', 100000)) \
                 redis.call('PUBLISH', KEYS[1], '\\255\\0') return 1";
    server.cli(&["EVAL", flood, "1", channel]);
    server.cli(&["PUBLISH", channel, "m"]);
    assert_eq!(next(&mut ears).await, Signal::Hint(Hint::Members));
    // More honest ones than anybody reads: the surplus is dropped.
    let flood = "for i = 1, 1000 do redis.call('PUBLISH', KEYS[1], 'm') end return 1";
    server.cli(&["EVAL", flood, "1", channel]);
    ada.lead(1).await;
    for _ in 0..10 {
        assert_eq!(next_hint(&mut ears).await, Hint::Members);
    }
}

#[tokio::test]
async fn an_own_connector_and_an_existing_client_work_as_well() {
    let server = RedisServer::start();
    let port = server.port();
    let opened = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&opened);
    let connector = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await?;
            io::Result::Ok(Box::new(stream) as Box<dyn Stream>)
        }
    };
    let login = Login { database: 2, ..Login::default() };
    let backends: [Arc<dyn Backend>; 2] = [
        Arc::new(RedisBackend::with_connector(connector, login)),
        Arc::new(RedisBackend::with_client(redis::Client::open(server.url()).unwrap())),
    ];
    for backend in backends {
        let ada = Actor::new("ada", "job", backend);
        let mut ears = ada.backend.subscribe(&ada.resource);
        assert_eq!(next(&mut ears).await, Signal::Listening);
        let token = ada.lead(1).await;
        while !matches!(next_hint(&mut ears).await, Hint::Granted { token: t, .. } if t == token) {}
        server.cli(&["SCRIPT", "FLUSH"]);
        ada.renew(token).await.unwrap();
    }
    assert_eq!(opened.load(Ordering::Relaxed), 2, "one for requests, one for hints");
    assert_eq!(server.cli(&["-n", "2", "EXISTS", "tenure:job"]), "1");
    assert_eq!(server.cli(&["EXISTS", "tenure:job"]), "1");
}

/// A backend that panics is one that does not answer, and is asked again.
#[tokio::test]
async fn a_connector_that_panics_is_asked_again() {
    let server = RedisServer::start();
    let port = server.port();
    let opened = Arc::new(AtomicUsize::new(0));
    let connector = move || {
        let number = opened.fetch_add(1, Ordering::Relaxed);
        async move {
            assert!(number > 1, "a panic of the test");
            let stream = TcpStream::connect(("127.0.0.1", port)).await?;
            io::Result::Ok(Box::new(stream) as Box<dyn Stream>)
        }
    };
    let backend = Arc::new(RedisBackend::with_connector(connector, Login::default()));
    let ada = Actor::new("ada", "job", Arc::clone(&backend) as Arc<dyn Backend>);
    let mut ears = ada.backend.subscribe(&ada.resource);
    assert_eq!(next(&mut ears).await, Signal::Listening);
    let mut connection = backend.connection();
    let is_up = connection.wait_for(|connection| *connection == Connection::Up);
    tokio::time::timeout(PATIENT, is_up).await.expect("it is asked again").unwrap();
    ada.lead(1).await;
}
