//! A hot standby: every instance is warm, one is active.
//!
//! ```text
//! cargo run -p tenure-examples --bin hot_standby [redis://127.0.0.1]
//! ```
//! Start it twice. Both load their data, then say that they are ready; the first becomes active.
//! Stop the active one with Ctrl-C: it hands over to the other by name, in about one round trip.
//! `TENURE_ELECTIONS__EXAMPLE_STANDBY__PRIORITY=5` makes an instance the preferred one.

use std::error::Error;
use std::time::Duration;

use tenure::{Election, Role};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let tenure = tenure_examples::connect().await?;
    // Not ready yet: it takes part and can be seen, but nobody would make it the leader.
    let election = tenure.election("example-standby").ready(false).start().await?;
    println!("warming up {}", tenure.id());
    warm_up().await;
    election.set_ready(true);

    tokio::select! {
        () = follow(&election) => {}
        stop = tenure_examples::asked_to_stop() => stop?,
    }

    // A planned stop names its successor. On standby, shutting down is enough.
    if election.is_leader() {
        match election.hand_over_to_best().await {
            Ok(successor) => println!("handed over to {successor}"),
            Err(error) => println!("nobody to hand over to: {error}"),
        }
    }
    tenure.shutdown().await;
    println!("stopped");
    Ok(())
}

async fn warm_up() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Shows the state of this instance, at each change, until the election is over. A real service
/// opens its doors when it becomes active and closes them when it stops being so.
async fn follow(election: &Election) {
    let mut watch = election.watch();
    let mut last = None;
    loop {
        let status = watch.status();
        let leader = status.seen_leader.as_ref().map(|leader| leader.id.to_string());
        let now = (status.role, leader.clone());
        if last.as_ref() != Some(&now) {
            match status.role {
                Role::Leader => println!("active"),
                Role::Unknown => println!("the store is silent: {}", status.reason.code()),
                role => println!("{role}, leader: {}", leader.as_deref().unwrap_or("nobody")),
            }
            last = Some(now);
        }
        if watch.wait_for_change().await.is_none() {
            return;
        }
    }
}
