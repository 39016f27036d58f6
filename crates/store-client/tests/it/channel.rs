//! Messages, and what is told when some were missed.

use store_client::{Channel, Heard};
use tokio::time::timeout;

use crate::{SOON, stages};

#[tokio::test(flavor = "current_thread")]
async fn whoever_listens_hears_and_nobody_keeps() {
    for stage in stages() {
        let mut channel = Channel::new(&stage.store, "news");
        assert_eq!(channel.send("to nobody").await.unwrap(), 0);
        let mut ada = channel.listen().await.unwrap();
        let mut bob = channel.listen().await.unwrap();
        assert_eq!(channel.send(&b"binary \0\xff"[..]).await.unwrap(), 2);
        for listener in [&mut ada, &mut bob] {
            let heard = timeout(SOON, listener.next()).await.unwrap();
            assert_eq!(heard, Heard::Message(b"binary \0\xff".to_vec()));
        }
        drop(bob);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_listener_that_was_cut_off_is_told_and_listens_on() {
    for stage in stages() {
        let mut channel = Channel::new(&stage.store, "news");
        let mut listener = channel.listen().await.unwrap();
        channel.send("before").await.unwrap();
        stage.cut_connections().await;
        let heard = timeout(SOON, listener.next()).await.unwrap();
        assert_eq!(heard, Heard::Message(b"before".to_vec()));
        assert_eq!(timeout(SOON, listener.next()).await.unwrap(), Heard::Gap);
        // The first message finds the broken connection of the sender, too.
        while channel.send("after").await.is_err() {}
        let heard = timeout(SOON, listener.next()).await.unwrap();
        assert_eq!(heard, Heard::Message(b"after".to_vec()));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_listener_finds_a_store_that_was_restarted() {
    let [_, mut stage] = stages();
    let channel = Channel::new(&stage.store, "news");
    let mut listener = channel.listen().await.unwrap();
    stage.server.as_mut().unwrap().restart();
    assert_eq!(timeout(SOON, listener.next()).await.unwrap(), Heard::Gap);
}
