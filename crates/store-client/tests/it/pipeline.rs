//! Many commands in few round trips.

use store_client::redis::Cmd;
use store_client::{Pipelined, pipelined};

use crate::stages;

#[tokio::test(flavor = "current_thread")]
async fn every_command_has_an_outcome_of_its_own_and_errors_stop_nothing() {
    for stage in stages() {
        let mut connection = stage.store.connect().await.unwrap();
        let commands = (0..2500).map(|number| match number % 100 {
            7 => Cmd::new().arg("NOSUCH").to_owned(),
            _ => Cmd::incr("counter", 1),
        });
        let mut wrong = Vec::new();
        let told = pipelined(&mut connection, commands, 1000, |number, outcome| {
            if outcome.is_err() {
                wrong.push(number);
            }
        });
        let told = told.await.unwrap();
        assert_eq!(told, Pipelined { done: 2475, failed: 25, round_trips: 3 });
        assert_eq!(wrong[..3], [7, 107, 207]);
        assert_eq!(stage.ask::<u64>(&["GET", "counter"]).await, 2475);
    }
}
