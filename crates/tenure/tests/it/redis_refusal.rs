//! Credentials and permissions: a person has to act, and is told so without the password.

use tenure::backend::redis::RedisBackend;
use tenure::backend::{Backend, ConnectError, Connection, Signal};
use tenure::{Error, Tenure};
use tenure_core::protocol::{Answer, Outcome};
use tenure_core::{Resource, StoreErrorKind};
use testkit::{RedisServer, TempFolder};

use crate::actor::Actor;

const CANARY: &str = "c4nary-in-the-c0al-mine";
/// The user of the documentation in `backend::redis`.
const LEAST: &str = "~tenure:* ~{tenure:* &{tenure:* +eval +evalsha +time +info +type +get \
    +getrange +set +del +pttl +pexpire +hget +hmget +hset +hdel +hlen +hkeys +hgetall +zadd \
    +zscore +zcard +zrem +zrange +zrangebyscore +zrevrangebyscore +zremrangebyscore +xadd \
    +xrevrange +publish +subscribe +unsubscribe";

fn with_user(rules: &str) -> (RedisServer, String) {
    let acl = format!(
        "user default off\nuser admin on >admin allcommands allkeys allchannels\n\
         user app on >{CANARY} {rules}"
    );
    let server = RedisServer::builder().acl(&acl).login("admin", "admin").start();
    let url = format!("redis://app:{CANARY}@127.0.0.1:{}", server.port());
    (server, url)
}

fn token_of(answer: &Answer) -> tenure_core::Token {
    match answer.outcome {
        Outcome::Granted { token } => token,
        ref other => panic!("no grant but {other:?}"),
    }
}

#[tokio::test]
async fn the_least_permissions_of_the_documentation_are_enough() {
    let (_server, url) = with_user(LEAST);
    let ada = Actor::at(&url, "job");
    let mut ears = ada.backend.subscribe(&ada.resource);
    assert_eq!(ears.next().await, Some(Signal::Listening));
    let answer = ada.acquire(1).await.unwrap();
    assert_eq!(answer.warnings, Vec::<String>::new());
    let token = token_of(&answer);
    assert_eq!(ada.renew(token).await.unwrap().warnings, Vec::<String>::new());
    let released = ada.release(token).await.unwrap();
    assert_eq!((released.outcome, released.warnings), (Outcome::Released, Vec::new()));
}

#[tokio::test]
async fn without_publish_the_lease_works_and_the_answer_warns() {
    let (server, url) = with_user("~* +@all -publish");
    let ada = Actor::at(&url, "job");
    let answer = ada.acquire(1).await.unwrap();
    assert!(answer.warnings.iter().any(|w| w.starts_with("hints")), "{:?}", answer.warnings);
    let token = token_of(&answer);
    assert_eq!(server.cli(&["GET", "tenure:job"]), ada.id.as_str());
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    assert_eq!(ada.release(token).await.unwrap().outcome, Outcome::Released);
}

#[tokio::test]
async fn without_subscribe_elections_work_and_somebody_is_told() {
    let (_server, url) = with_user("~* &* +@all -subscribe");
    let ada = Actor::at(&url, "job");
    let _ears = ada.backend.subscribe(&ada.resource);
    for attempt in 1..500 {
        let answer = ada.acquire(attempt).await.unwrap();
        if answer.warnings.iter().any(|w| w.contains("not allowed to subscribe")) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("nobody was told");
}

#[tokio::test]
async fn a_server_that_evicts_keys_is_told_once() {
    let arguments = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = RedisServer::builder().args(arguments).start();
    let ada = Actor::at(&server.url(), "job");
    let warned = |answer: &Answer| answer.warnings.iter().any(|w| w.contains("allkeys-lru"));
    let answer = ada.acquire(1).await.unwrap();
    assert!(warned(&answer), "{:?}", answer.warnings);
    assert!(!warned(&ada.renew(token_of(&answer)).await.unwrap()), "told twice");
}

#[tokio::test]
async fn without_info_elections_work_and_the_weakness_is_told_once() {
    let (_server, url) = with_user("~* &* +@all -info");
    let ada = Actor::at(&url, "job");
    let tells = |answer: &Answer| answer.warnings.iter().any(|w| w.contains("INFO"));
    let answer = ada.acquire(1).await.unwrap();
    assert!(tells(&answer), "{:?}", answer.warnings);
    let answer = ada.renew(token_of(&answer)).await.unwrap();
    assert_eq!(answer.outcome, Outcome::Renewed);
    assert!(!tells(&answer), "told twice");
}

#[tokio::test]
async fn users_with_and_without_info_do_not_quarantine_each_other() {
    let (server, url) = with_user("~* &* +@all -info");
    let weak = Actor::at(&url, "job");
    let strong = Actor::at(&server.url(), "job");
    for round in 1..4 {
        for actor in [&strong, &weak] {
            let token = actor.lead(round).await;
            actor.release(token).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_missing_permission_names_itself() {
    let (_server, url) = with_user("~* &* +@all -set");
    let ada = Actor::at(&url, "job");
    let error = ada.acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Denied, "{error:?}");
    assert!(!error.is_temporary());
    let (_server, url) = with_user("~other:* &* +@all");
    let error = Actor::at(&url, "job").acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Denied, "{error:?}");
}

#[tokio::test]
async fn wrong_credentials_are_denied_at_once_and_never_shown() {
    let (server, _) = with_user("~* &* +@all");
    let port = server.port();
    let addresses = [
        format!("redis://app:{CANARY}x@127.0.0.1:{port}"),
        format!("redis://:{CANARY}@127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}"),
    ];
    for address in addresses {
        let backend = std::sync::Arc::new(RedisBackend::open(&address).unwrap());
        let ada = Actor::new("ada", "job", backend.clone());
        let error = ada.acquire(1).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Denied, "{address}: {error:?}");
        let state = backend.connection().borrow().clone();
        assert!(
            matches!(&state, Connection::Down(why) if why.kind() == StoreErrorKind::Denied),
            "{state:?}"
        );
        let shown = format!("{error} {error:?} {state:?} {backend:?} {}", backend.describe());
        assert!(!shown.contains(CANARY), "{shown}");
    }
    assert_eq!(server.cli(&["DBSIZE"]), "0", "nothing was changed");
}

#[tokio::test]
async fn a_password_that_is_put_right_is_found_without_a_restart() {
    let (server, url) = with_user("~* &* +@all");
    server.cli(&["ACL", "SETUSER", "app", "resetpass", ">another"]);
    let ada = Actor::at(&url, "job");
    assert_eq!(ada.acquire(1).await.unwrap_err().kind(), StoreErrorKind::Denied);
    server.cli(&["ACL", "SETUSER", "app", &format!(">{CANARY}")]);
    let acquire = crate::actor::attempt_of(2, crate::actor::LONG);
    ada.acquire_until("a grant", acquire, crate::actor::is_granted).await.unwrap();
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_denied() {
    let server = RedisServer::start();
    let error = Actor::at(&format!("{}/99", server.url()), "job").acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Denied, "{error:?}");
    let ada = Actor::at(&format!("{}/5", server.url()), "job");
    ada.lead(1).await;
    assert_eq!(server.cli(&["-n", "5", "EXISTS", "tenure:job"]), "1");
    assert_eq!(server.cli(&["EXISTS", "tenure:job"]), "0");
}

#[tokio::test]
async fn a_registry_takes_third_parties_and_refuses_the_unknown() {
    let server = RedisServer::start();
    let builder = || {
        Tenure::builder().fresh_store(true).scheme("twin", |address| {
            let inner = format!("redis:{}", address.strip_prefix("twin:").unwrap());
            Box::pin(async move { Ok(std::sync::Arc::new(RedisBackend::open(&inner)?) as _) })
        })
    };
    let url = server.url();
    for address in [url.clone(), url.replace("redis:", "twin:")] {
        let tenure = builder().store(&address).connect().await.unwrap();
        let term = tenure.try_acquire(&format!("job-{}", &address[..4])).await.unwrap();
        assert!(term.is_some(), "{address} leads to the store");
    }
    for address in ["etcd://u:c4nary@host", "", "host:1,password=c4nary"] {
        let error = builder().store(address).connect().await.unwrap_err();
        assert!(matches!(&error, Error::Connect(ConnectError::Address(_))), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("c4nary"), "{error}");
    }
}

#[tokio::test]
async fn unix_sockets_work_and_missing_files_are_named() {
    let server = RedisServer::builder().with_unix_socket().start();
    let url = format!("unix://{}?db=3", server.unix_socket().display());
    Actor::at(&url, "job").lead(1).await;
    assert_eq!(server.cli(&["-n", "3", "EXISTS", "tenure:job"]), "1");

    let folder = TempFolder::create();
    let missing = folder.path().join("missing.pem");
    let address = format!("rediss://localhost?ca={}", missing.display());
    let error = RedisBackend::open(&address).unwrap_err();
    assert!(matches!(&error, ConnectError::Files(text) if text.contains("missing.pem")), "{error}");
}

#[tokio::test]
async fn every_resource_name_survives_the_way_to_the_store() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let whole = Resource::with_key("report", "{team}:reports/nightly").unwrap();
    let prefixed = Resource::with_prefix("app:", "größe\"'*?").unwrap();
    for resource in [whole, prefixed] {
        let ada = Actor { resource: resource.clone(), ..ada.clone() };
        ada.lead(1).await;
        assert_eq!(server.cli(&["--raw", "GET", resource.key()]), ada.id.as_str());
    }
}
