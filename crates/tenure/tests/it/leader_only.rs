//! Functions that run only on the leader.

use std::time::Duration;

use tenure::testing::World;
use tenure::{Election, Error, Tenure, Term, leader_only};

const NAME: &str = "nightly-report";

#[leader_only("nightly-report")]
async fn token(_tenure: &Tenure, #[term] term: Term) -> u64 {
    term.token().get()
}

#[leader_only("nightly-report")]
async fn parsed(
    text: &str,
    #[leader] _election: &Election,
) -> Result<u32, std::num::ParseIntError> {
    let number: u32 = text.parse()?;
    if number == 0 {
        return Ok(1);
    }
    Ok(number)
}

#[leader_only("nightly-report")]
async fn never_ends(_tenure: &Tenure, dropped: DropNote) {
    let _dropped = dropped;
    std::future::pending::<()>().await;
}

/// Says when it is dropped.
struct DropNote(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Drop for DropNote {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[tokio::test]
async fn it_runs_on_the_leader_and_nowhere_else() {
    let world = World::new();
    let (ada, bob) = (world.client("ada").await, world.client("bob").await);
    let _on_ada = ada.election(NAME).start().await.unwrap();
    world.settle().await;
    let _on_bob = bob.election(NAME).start().await.unwrap();
    world.settle().await;

    let under = token(&ada).await.unwrap().expect("ada leads");
    assert_eq!(token(&bob).await, Ok(None));
    world.make_leader(NAME, "bob").await;
    assert_eq!(token(&ada).await, Ok(None));
    assert!(token(&bob).await.unwrap().expect("bob leads") > under, "tokens must grow");
}

#[tokio::test]
async fn its_own_outcome_comes_back_whole() {
    let world = World::new();
    let ada = world.client("ada").await;
    let election = ada.election(NAME).start().await.unwrap();
    world.settle().await;
    assert_eq!(parsed("7", &election).await, Ok(Some(Ok(7))));
    assert_eq!(parsed("0", &election).await, Ok(Some(Ok(1))));
    assert!(parsed("seven", &election).await.unwrap().unwrap().is_err());
    election.stop().await;
    assert_eq!(parsed("7", &election).await, Ok(None));

    let other = ada.election("other").start().await.unwrap();
    world.settle().await;
    let error = parsed("7", &other).await.unwrap_err().to_string();
    assert!(error.contains("\"nightly-report\"") && error.contains("\"other\""), "{error}");
}

#[tokio::test]
async fn who_takes_no_part_leads_for_as_long_as_it_runs() {
    let world = World::new();
    let (ada, bob) = (world.client("ada").await, world.client("bob").await);
    let on_ada = ada.run_if_leader(NAME, |term| {
        let bob = bob.clone();
        async move { (term.is_valid(), token(&bob).await) }
    });
    assert_eq!(world.advance_while(on_ada).await, Ok(Some((true, Ok(None)))));
    let on_bob = world.advance_while(token(&bob)).await.unwrap();
    assert!(on_bob.is_some(), "ada gave the lease back before she returned");
}

#[tokio::test]
async fn it_is_dropped_when_the_term_ends_under_it() {
    let world = World::new();
    let ada = world.client("ada").await;
    let _election = ada.election(NAME).start().await.unwrap();
    world.settle().await;

    let dropped = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let note = DropNote(std::sync::Arc::clone(&dropped));
    let begun_at = world.elapsed();
    world.cut_off("ada");
    let outcome = world.advance_while(never_ends(&ada, note)).await;
    assert_eq!(outcome, Err(Error::NotLeading { name: NAME.to_owned() }));
    assert!(dropped.load(std::sync::atomic::Ordering::SeqCst));
    let lasted = world.elapsed() - begun_at;
    assert!(lasted < Duration::from_secs(10), "dropped {lasted:?} after the lease was cut off");
}

#[tokio::test]
async fn not_knowing_who_leads_is_an_error_and_not_a_no() {
    let world = World::new();
    let ada = world.client("ada").await;
    world.cut_off_everybody();
    let outcome = world.advance_while(token(&ada)).await;
    assert!(matches!(outcome, Err(Error::Store(_))), "{outcome:?}");
}
