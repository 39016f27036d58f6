//! Streams shared by groups of workers.

use std::time::Duration;

use store_client::{Entry, Log, LogWorker};

use crate::{BRIEFLY, SOON, Stage, stages};

async fn write(stage: &Stage, log: &Log, count: usize) {
    let mut writer = log.writer(&stage.store);
    for number in 0..count {
        writer.append(&[("level", "info"), ("text", &number.to_string())]).await.unwrap();
    }
}

fn texts(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.text("text")).collect()
}

/// Takes over until something was found.
async fn take_over(worker: &mut LogWorker) -> Vec<Entry> {
    let found = async {
        loop {
            let entries = worker.take_over(BRIEFLY, 100).await.unwrap();
            if !entries.is_empty() {
                return entries;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, found).await.expect("entries of a dead worker are found")
}

#[tokio::test(flavor = "current_thread")]
async fn workers_of_a_group_share_and_groups_do_not() {
    for stage in stages() {
        let log = Log::new("events");
        write(&stage, &log, 6).await;
        let mut ada = log.worker(&stage.store, "mailers", "ada");
        let mut bob = log.worker(&stage.store, "mailers", "bob");
        let first = ada.read(4, SOON).await.unwrap();
        let second = bob.read(4, SOON).await.unwrap();
        assert_eq!(texts(&first), ["0", "1", "2", "3"]);
        assert_eq!(texts(&second), ["4", "5"]);
        assert_eq!(first[0].text("level"), "info");
        assert_eq!(ada.done(&first).await.unwrap(), 4);
        assert_eq!(bob.done(&second).await.unwrap(), 2);
        assert!(ada.read(4, BRIEFLY).await.unwrap().is_empty());

        let mut eve = log.worker(&stage.store, "archivers", "eve");
        assert_eq!(eve.read(10, SOON).await.unwrap().len(), 6);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn what_a_dead_worker_had_in_hand_is_taken_over() {
    for stage in stages() {
        let log = Log::new("events");
        write(&stage, &log, 3).await;
        let mut ada = log.worker(&stage.store, "mailers", "ada");
        let in_hand = ada.read(2, SOON).await.unwrap();
        ada.done(&in_hand[..1]).await.unwrap();
        drop(ada);

        let mut bob = log.worker(&stage.store, "mailers", "bob");
        assert_eq!(texts(&bob.read(10, SOON).await.unwrap()), ["2"]);
        let taken = take_over(&mut bob).await;
        assert_eq!(texts(&taken)[0], "1", "the one that was not confirmed");
        assert!(bob.done(&taken).await.unwrap() >= 1);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_worker_that_comes_back_goes_on_with_what_it_had() {
    for stage in stages() {
        let log = Log::new("events");
        write(&stage, &log, 2).await;
        let _lost = log.worker(&stage.store, "mailers", "ada").read(1, SOON).await.unwrap();
        let mut ada = log.worker(&stage.store, "mailers", "ada");
        let again = ada.read(10, SOON).await.unwrap();
        assert_eq!(texts(&again), ["0"]);
        ada.done(&again).await.unwrap();
        assert_eq!(texts(&ada.read(10, SOON).await.unwrap()), ["1"]);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn the_stream_keeps_about_as_many_entries_as_asked() {
    for stage in stages() {
        let log = Log::new("events").keep(100);
        write(&stage, &log, 500).await;
        let kept: usize = stage.ask(&["XLEN", "events"]).await;
        assert!((100..300).contains(&kept), "{kept} entries");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_broken_connection_loses_no_entry() {
    for stage in stages() {
        let log = Log::new("events");
        write(&stage, &log, 50).await;
        let mut ada = log.worker(&stage.store, "mailers", "ada");
        let mut seen = Vec::new();
        while seen.len() < 50 {
            if seen.len() % 10 == 0 {
                stage.cut_connections().await;
            }
            let Ok(entries) = ada.read(1, SOON).await else { continue };
            while ada.done(&entries).await.is_err() {}
            seen.extend(texts(&entries));
            seen.dedup();
        }
        let expected: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        assert_eq!(seen, expected);
    }
}
