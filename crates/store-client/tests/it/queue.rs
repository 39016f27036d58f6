//! Jobs through crashes.

use std::time::Duration;

use store_client::{Finished, Job, Pushed, Queue, Recovered, Worker};

use crate::{BRIEFLY, SOON, stages};

/// Short, so that a dead worker is found while a test waits.
const ALIVE_FOR: Duration = Duration::from_millis(200);

async fn take(worker: &mut Worker) -> Job {
    worker.take(SOON).await.unwrap().expect("a job waits")
}

/// Recovers until something was put back or set aside.
async fn recover(worker: &mut Worker) -> Recovered {
    let found = async {
        loop {
            let recovered = worker.recover().await.unwrap();
            if recovered != Recovered::default() {
                return recovered;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, found).await.expect("a dead worker is found")
}

#[tokio::test(flavor = "current_thread")]
async fn jobs_are_taken_in_order_and_gone_when_done() {
    for stage in stages() {
        let queue = Queue::new("mail");
        let mut sender = queue.sender(&stage.store);
        for job in ["one", "two"] {
            assert_eq!(sender.push(job).await.unwrap(), Pushed::Waiting);
        }
        let mut worker = queue.worker(&stage.store, "ada");
        for expected in ["one", "two"] {
            let job = take(&mut worker).await;
            assert_eq!(job.bytes(), expected.as_bytes());
            assert_eq!(worker.done(job).await.unwrap(), Finished::Ours);
        }
        assert!(worker.take(BRIEFLY).await.unwrap().is_none());
        assert_eq!(
            stage.ask::<usize>(&["EXISTS", "{mail}:waiting", "{mail}:working:ada"]).await,
            0
        );
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_full_queue_refuses() {
    for stage in stages() {
        let queue = Queue::new("small").waiting_max(2);
        let mut sender = queue.sender(&stage.store);
        for expected in [Pushed::Waiting, Pushed::Waiting, Pushed::Full] {
            assert_eq!(sender.push("x").await.unwrap(), expected);
        }
        assert_eq!(sender.waiting().await.unwrap(), 2);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn the_job_of_a_worker_that_crashed_is_done_by_another_one() {
    for stage in stages() {
        let queue = Queue::new("mail").alive_for(ALIVE_FOR);
        let mut sender = queue.sender(&stage.store);
        sender.push("precious").await.unwrap();
        sender.push("next").await.unwrap();
        let mut ada = queue.worker(&stage.store, "ada");
        let _lost = take(&mut ada).await;
        drop(ada);

        let mut bob = queue.worker(&stage.store, "bob");
        bob.beat().await.unwrap();
        assert_eq!(recover(&mut bob).await, Recovered { back: 1, failed: 0 });
        let job = take(&mut bob).await;
        assert_eq!(job.bytes(), b"precious", "it comes before those that waited less");
        assert_eq!(bob.done(job).await.unwrap(), Finished::Ours);
        assert_eq!(take(&mut bob).await.bytes(), b"next");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_living_worker_keeps_its_job_and_a_paused_one_learns_of_its_loss() {
    for stage in stages() {
        let queue = Queue::new("mail").alive_for(ALIVE_FOR);
        queue.sender(&stage.store).push("slow").await.unwrap();
        let mut ada = queue.worker(&stage.store, "ada");
        let mut bob = queue.worker(&stage.store, "bob");
        let job = take(&mut ada).await;
        ada.beat().await.unwrap();
        assert_eq!(bob.recover().await.unwrap(), Recovered::default());

        // Ada pauses for too long.
        assert_eq!(recover(&mut bob).await.back, 1);
        let again = take(&mut bob).await;
        assert_eq!(again.bytes(), b"slow");
        assert_eq!(ada.done(job).await.unwrap(), Finished::TakenAway);
        assert_eq!(bob.done(again).await.unwrap(), Finished::Ours);

        // Who was taken for dead and goes on is guarded as before.
        queue.sender(&stage.store).push("another").await.unwrap();
        let _lost = take(&mut ada).await;
        drop(ada);
        assert_eq!(recover(&mut bob).await.back, 1);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_job_that_arrives_after_its_worker_was_taken_for_dead_is_found() {
    for stage in stages() {
        let queue = Queue::new("mail").alive_for(Duration::from_millis(50));
        let mut ada = queue.worker(&stage.store, "ada");
        assert!(ada.take(BRIEFLY).await.unwrap().is_none());
        drop(ada);
        let mut bob = queue.worker(&stage.store, "bob");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(bob.recover().await.unwrap(), Recovered::default());
        // As a take of hers would that was held up on the way.
        let _: usize = stage.ask(&["LPUSH", "{mail}:working:ada", "late"]).await;
        assert_eq!(recover(&mut bob).await.back, 1);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_worker_that_comes_back_goes_on_with_what_it_had() {
    for stage in stages() {
        let queue = Queue::new("mail");
        let mut sender = queue.sender(&stage.store);
        sender.push("first").await.unwrap();
        sender.push("second").await.unwrap();
        let _lost = take(&mut queue.worker(&stage.store, "ada")).await;

        let mut ada = queue.worker(&stage.store, "ada");
        assert_eq!(take(&mut ada).await.bytes(), b"first");
        assert_eq!(take(&mut ada).await.bytes(), b"second");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_broken_connection_loses_no_job_and_gives_none_twice() {
    for stage in stages() {
        let queue = Queue::new("mail");
        let mut sender = queue.sender(&stage.store);
        sender.push("held").await.unwrap();
        let mut ada = queue.worker(&stage.store, "ada");
        let held = take(&mut ada).await;
        stage.cut_connections().await;
        // As if the answer to a take had been lost on the way.
        let _: usize = stage.ask(&["LPUSH", "{mail}:working:ada", "on its way"]).await;
        while ada.beat().await.is_err() {}
        stage.cut_connections().await;
        let next = loop {
            match ada.take(BRIEFLY).await {
                Ok(job) => break job.expect("the job that was on its way"),
                Err(error) => assert!(error.is_io_error(), "{error}"),
            }
        };
        assert_eq!(next.bytes(), b"on its way", "and not the one that is held already");
        assert_eq!(ada.done(held).await.unwrap(), Finished::Ours);
        assert_eq!(ada.done(next).await.unwrap(), Finished::Ours);
        assert_eq!(stage.ask::<usize>(&["EXISTS", "{mail}:working:ada"]).await, 0);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_job_that_crashes_its_workers_is_set_aside() {
    for stage in stages() {
        let queue = Queue::new("mail").alive_for(Duration::from_millis(50)).crashes_max(2);
        queue.sender(&stage.store).push("poison").await.unwrap();
        let mut guard = queue.worker(&stage.store, "guard");
        for (name, expected) in
            [("ada", Recovered { back: 1, failed: 0 }), ("bob", Recovered { back: 0, failed: 1 })]
        {
            let _lost = take(&mut queue.worker(&stage.store, name)).await;
            assert_eq!(recover(&mut guard).await, expected);
        }
        let failed: Vec<String> = stage.ask(&["LRANGE", "{mail}:failed", "0", "-1"]).await;
        assert_eq!(failed, ["poison"]);
        assert_eq!(stage.ask::<usize>(&["EXISTS", "{mail}:crashes"]).await, 0);
    }
}
