//! Chat: whoever is in the room hears what is said, and nobody keeps it.
//!
//! ```text
//! cargo run -p tenure-examples --bin chat [redis://127.0.0.1]
//! ```
//! Without an address it starts a store of its own inside this process. Ada and Bob are in the
//! room, Eve comes late and has missed what was said before.

use std::time::Duration;

use store_client::{Channel, Heard, Listener, Store};
use tenure_examples::{Outcome, address_or_own_store};

/// Longer than a message takes.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let (address, _own) = address_or_own_store()?;
    let store = Store::open(&address)?;
    let mut room = Channel::new(&store, "room:tea");
    println!("nobody is in the room: {} heard \"hello?\"", room.send("hello?").await?);

    let mut ada = room.listen().await?;
    let mut bob = room.listen().await?;
    println!(
        "ada and bob came: {} heard \"the kettle is on\"",
        room.send("the kettle is on").await?
    );

    let mut eve = room.listen().await?;
    println!("eve came late: {} heard \"sugar, anybody?\"", room.send("sugar, anybody?").await?);
    for (name, listener, count) in
        [("ada", &mut ada, 2), ("bob", &mut bob, 2), ("eve", &mut eve, 1)]
    {
        for _ in 0..count {
            println!("  {name} hears {:?}", next(listener).await?);
        }
    }
    Ok(())
}

async fn next(listener: &mut Listener) -> Outcome<String> {
    match tokio::time::timeout(PATIENCE, listener.next()).await? {
        Heard::Message(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Heard::Gap => Err("the store was away: something may have been missed".into()),
    }
}
