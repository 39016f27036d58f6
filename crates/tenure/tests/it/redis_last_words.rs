//! Last words on a connection that is dead: they are said again on another.

use std::time::Duration;

use tenure::{Error, Tenure};
use tenure_core::protocol::{Call, Request};
use testkit::proxy::{Direction, Rule, Script, What, When};
use testkit::{Proxy, RedisServer};

use crate::actor::{Actor, LONG};

/// From here on nothing comes back, until another connection is opened.
fn go_silent(proxy: &Proxy) {
    proxy.set_rule(Direction::ToClient, Rule::Swallow);
    let another = When::Connections(proxy.connections_accepted() + 1);
    let heal = What::Rule(Direction::ToClient, Rule::Forward);
    proxy.run_script(Script::new([(another, heal)]));
}

/// A client behind a proxy, whose connections are up.
async fn client_behind(proxy: &Proxy, server: &RedisServer) -> Tenure {
    let store = server.url_at(proxy.port());
    let tenure = Tenure::builder().store(&store).fresh_store(true).connect().await.unwrap();
    let term = tenure.try_acquire(&format!("warm-up-{}", proxy.port())).await.unwrap();
    term.expect("nobody else is there").resign().await;
    tenure
}

/// Others would see a leader, and skip what nobody does.
#[tokio::test]
async fn a_try_that_was_granted_unheard_is_taken_back_before_the_client_ends() {
    const ROUNDS: usize = 5;
    let server = RedisServer::start();
    let round = async |number: usize| {
        let proxy = Proxy::in_front_of(&server);
        let tenure = client_behind(&proxy, &server).await;
        go_silent(&proxy);
        let name = format!("job-{number}");
        let tried = tenure.election(&name).ttl(Duration::from_secs(12)).try_acquire().await;
        assert!(matches!(tried, Err(Error::Store(_))), "{tried:?}");
        tenure.shutdown().await;
        assert_eq!(server.cli(&["EXISTS", &format!("tenure:{name}")]), "0", "round {number}");
    };
    futures_util::future::join_all((0..ROUNDS).map(round)).await;
}

#[tokio::test]
async fn a_release_on_a_dead_connection_is_repeated_on_another_soon() {
    /// Far less than a request about this lease may take.
    const SOON: Duration = Duration::from_secs(30);
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let tenure = client_behind(&proxy, &server).await;
    let lease = Duration::from_secs(600);
    let term = tenure.election("job").ttl(lease).try_acquire().await.unwrap().unwrap();
    go_silent(&proxy);
    drop(term);
    tokio::time::timeout(SOON, tenure.shutdown()).await.expect("the release is heard");
    assert_eq!(server.cli(&["EXISTS", "tenure:job"]), "0");
}

#[tokio::test]
async fn a_patient_request_in_front_does_not_hide_that_a_line_is_dead() {
    const SHORT: Duration = Duration::from_millis(500);
    const FAIR: Duration = Duration::from_secs(20);
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let ada = Actor::at(&server.url_at(proxy.port()), "job");
    ada.ask(Request::Observe { members: false }).await.unwrap();
    go_silent(&proxy);
    let observe = |timeout| {
        let (resource, id, request) =
            (ada.resource.clone(), ada.id.clone(), Request::Observe { members: false });
        ada.backend.call(Call { resource, id, request, timeout, fleet_max_ttl: LONG })
    };
    let _patient = observe(Duration::from_secs(120));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(observe(SHORT).await.is_err());
    observe(FAIR).await.expect("an answer on another connection");
}
