//! `/leader`: true at the moment of asking, and what it promises is kept.

use std::time::{Duration, Instant};

use tenure::testing::World;
use tenure_sidecar::{Server, ServerSettings, Sidecar};
use testkit::{GENEROUS, wait_until};

use crate::http::request;
use crate::stage::{RESOURCE, Stage};

/// On a clock that the test moves: the answer changes with it, and with nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_flips_exactly_when_the_lease_says_so() {
    let world = World::new();
    let (ada, bob) = (world.client("ada").await, world.client("bob").await);
    let on_ada = ada.election(RESOURCE).start().await.unwrap();
    world.settle().await;
    let on_bob = bob.election(RESOURCE).start().await.unwrap();
    world.settle().await;
    assert!(on_ada.is_leader());
    let sidecar = Sidecar::builder(ada).election(on_ada.clone()).start().unwrap();
    let settings = ServerSettings::listen("127.0.0.1:0");
    let server = Server::bind(&sidecar, settings).await.unwrap();
    let address = server.address().unwrap();
    tokio::spawn(server.serve(std::future::pending()));
    let ask = async || {
        let asked = move || request(address, "GET", "/leader", &[], "");
        tokio::task::spawn_blocking(asked).await.unwrap()
    };
    assert_eq!(ask().await.status, 200);

    world.cut_off("ada");
    let mut promised_until = Duration::ZERO;
    let mut flipped = 0;
    for _ in 0..120 {
        let answer = ask().await;
        assert_eq!(answer.status == 200, on_ada.is_leader(), "at {:?}", world.elapsed());
        if answer.status == 200 {
            assert_eq!(flipped, 0, "a lost term does not come back");
            let valid_for = answer.json()["valid_for_ms"].as_u64().unwrap();
            promised_until = world.elapsed() + Duration::from_millis(valid_for);
        } else {
            flipped += 1;
        }
        if on_bob.is_leader() {
            assert!(world.elapsed() >= promised_until, "bob leads while ada was promised to");
        }
        world.advance(Duration::from_millis(100)).await;
    }
    assert!(flipped > 0 && on_bob.is_leader(), "bob took over in the end");
}

#[test]
fn nobody_else_leads_while_somebody_relies_on_an_answer() {
    Stage::on_each(|stage| {
        let (ada, leading) = stage.leader("ada");
        let served = stage.serve_election(&ada, &leading);
        let bob = stage.client("bob");
        let standing_by = stage.elect(&bob);
        let asked_at = Instant::now();
        let answer = served.get("/leader");
        let valid_for = Duration::from_millis(answer.json()["valid_for_ms"].as_u64().unwrap());

        let resigned = served.post("/resign/nightly-report", "");
        assert_eq!(resigned.status, 200, "{resigned:?}");
        wait_until("bob leads", GENEROUS, || standing_by.is_leader());
        assert!(asked_at.elapsed() >= valid_for, "the promise of {valid_for:?} was not kept");
        assert_eq!(served.get("/leader").status, 503);
    });
}

/// What is only looked at can never be led, so it has no say.
#[test]
fn an_election_that_is_only_observed_does_not_count() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let builder = Sidecar::builder(ada.clone()).election(leading.clone()).observe("other");
    let served = stage.serve(builder);
    let answer = served.get("/leader");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["resources"].as_array().unwrap().len(), 2, "{answer:?}");

    let bob = stage.client("bob");
    let start =
        |client: &tenure::Tenure| stage.runtime.block_on(client.election("third").start()).unwrap();
    let third = start(&bob);
    wait_until("bob leads", GENEROUS, || third.is_leader());
    let both = Sidecar::builder(ada.clone()).election(leading).election(start(&ada));
    assert_eq!(stage.serve(both).get("/leader").status, 503, "it does not lead them all");

    let onlooker = Sidecar::builder(ada).observe("one").observe("other");
    assert_eq!(stage.serve(onlooker).get("/leader").status, 503, "it takes part in none");
}
