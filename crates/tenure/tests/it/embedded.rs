//! A store inside the process.

use tenure::backend::EmbeddedStore;
use tenure::{Error, Tenure};

#[tokio::test]
async fn a_client_leads_on_a_store_of_its_own_without_waiting_out_old_leases() {
    let tenure = Tenure::embedded().await.unwrap();
    assert_eq!(tenure.store(), "embedded:");
    let election = tenure.election("report").start().await.unwrap();
    let began = std::time::Instant::now();
    election.wait_for_leadership().await.unwrap();
    // A store that might have lost something makes the first leader wait for a whole lease.
    assert!(began.elapsed() < std::time::Duration::from_secs(8), "{:?}", began.elapsed());
    tenure.shutdown().await;
}

#[tokio::test]
async fn clients_on_one_embedded_store_follow_each_other() {
    let store = EmbeddedStore::start().unwrap();
    let mut clients = Vec::new();
    for name in ["ada", "bob"] {
        let client = Tenure::builder().instance(name).embedded(&store).connect().await.unwrap();
        clients.push(client);
    }
    // The clients keep it.
    drop(store);
    let ada = clients[0].election("report").start().await.unwrap();
    let term = ada.wait_for_leadership().await.unwrap();
    let bob = clients[1].election("report").start().await.unwrap();
    assert!(!bob.is_leader());
    clients[0].shutdown().await;
    let next = bob.wait_for_leadership().await.unwrap();
    assert!(next.token() > term.token());
}

#[tokio::test]
async fn two_embedded_stores_share_nothing() {
    let mut leaders = Vec::new();
    for _ in 0..2 {
        let tenure = Tenure::connect("embedded:").await.unwrap();
        let election = tenure.election("report").start().await.unwrap();
        election.wait_for_leadership().await.unwrap();
        leaders.push((tenure, election));
    }
    assert!(leaders.iter().all(|(_, election)| election.is_leader()));
}

#[tokio::test]
async fn an_embedded_store_has_no_place() {
    let error = Tenure::connect("embedded:/tmp/x").await.unwrap_err();
    assert!(matches!(error, Error::Connect(_)), "{error}");
    assert!(error.to_string().contains("write embedded:"), "{error}");
}
