//! Work that runs once: single tries, ticks, and the outcome that others wait for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::testing::World;
use tenure::{Error, NotStarted, OnceOutcome, Reason, Tenure, Tick};
use tenure_core::protocol::TickOutcome;

const NAME: &str = "cron";
const HOURLY: Duration = Duration::from_secs(3600);

async fn clients(world: &World, count: usize) -> Vec<Tenure> {
    let mut clients = Vec::new();
    for number in 0..count {
        clients.push(world.client(&format!("web-{number}")).await);
    }
    clients
}

#[tokio::test]
async fn a_single_try_gives_a_guard_or_says_no_at_once() {
    let world = World::new();
    let clients = clients(&world, 2).await;
    let term = world.advance_while(clients[0].try_acquire(NAME)).await.unwrap().unwrap();
    assert!(term.is_valid() && clients[0].is_leader(NAME) && !clients[1].is_leader(NAME));
    let denied = world.advance_while(clients[1].try_acquire(NAME)).await.unwrap();
    assert!(denied.is_none());
    world.advance(Duration::from_secs(120)).await;
    assert!(term.is_valid(), "renewed while the guard lives");
    assert!(world.advance_while(term.renew()).await);
    drop(term);
    world.advance(Duration::from_millis(50)).await;
    assert!(!clients[0].is_leader(NAME));
    let term = world.advance_while(clients[1].try_acquire(NAME)).await.unwrap();
    assert!(term.is_some(), "given back by the drop");
}

#[tokio::test]
async fn a_try_without_a_store_is_an_error_and_leaves_nothing_behind() {
    let world = World::new();
    let clients = clients(&world, 2).await;
    world.lose_answers("web-0");
    let error = world.advance_while(clients[0].try_acquire(NAME)).await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    world.heal("web-0");
    world.advance(Duration::from_secs(12)).await;
    let term = world.advance_while(clients[1].try_acquire(NAME)).await.unwrap();
    assert!(term.is_some(), "the grant that nobody heard of was undone or has ended");
}

#[tokio::test]
async fn twenty_instances_run_a_tick_once() {
    let world = World::new();
    let clients = clients(&world, 20).await;
    let runs = Arc::new(AtomicUsize::new(0));
    for hour in 1..=3 {
        let mut tasks = Vec::new();
        for tenure in &clients {
            let (tenure, runs) = (tenure.clone(), Arc::clone(&runs));
            tasks.push(tokio::spawn(async move {
                let work = |_term| async {
                    runs.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, io::Error>(())
                };
                tenure.once(NAME, Tick::every(HOURLY), work).await.unwrap()
            }));
        }
        let outcomes = world.advance_while(async {
            let mut outcomes = Vec::new();
            for task in tasks {
                outcomes.push(task.await.unwrap());
            }
            outcomes
        });
        let outcomes = outcomes.await;
        let ran =
            outcomes.iter().filter(|outcome| matches!(outcome, OnceOutcome::Ran(Ok(())))).count();
        assert_eq!((ran, runs.load(Ordering::SeqCst)), (1, hour), "{outcomes:?}");
        let late = world.advance_while(
            clients[19].once(NAME, Tick::every(HOURLY), |_| async { Err::<(), _>("must not run") }),
        );
        let late = late.await.unwrap();
        assert_eq!(
            late,
            OnceOutcome::AlreadyDone(TickOutcome::Succeeded),
            "a late one comes too late"
        );
        world.advance(HOURLY).await;
    }
}

#[tokio::test]
async fn others_wait_for_the_outcome_of_a_migration() {
    let world = World::new();
    let clients = clients(&world, 3).await;
    let migrate = |tenure: &Tenure, work: Duration, world_clock: Tenure| {
        let job = tenure.job("schema").tick(Tick::named("v7"));
        let job = job.wait_for_outcome(Duration::from_secs(60));
        tokio::spawn(async move {
            job.run(|term| async move {
                // Only the test's clock moves, so the wait is for an event of another election.
                let pace = world_clock.election("pace").start().await.unwrap();
                drop(pace.wait_for_leadership_within(work).await);
                assert!(term.is_valid(), "renewed while it runs");
                Err::<(), _>("column exists")
            })
            .await
        })
    };
    let blocker = world.client("blocker").await;
    let blocking = blocker.election("pace").start().await.unwrap();
    world.settle().await;
    assert!(blocking.is_leader());
    let tasks: Vec<_> = clients
        .iter()
        .map(|tenure| migrate(tenure, Duration::from_secs(30), tenure.clone()))
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(world.advance_while(task).await.unwrap().unwrap());
    }
    let ran = outcomes.iter().filter(|outcome| matches!(outcome, OnceOutcome::Ran(Err(_)))).count();
    let told = OnceOutcome::AlreadyDone(TickOutcome::Failed("column exists".to_owned()));
    let heard = outcomes.iter().filter(|outcome| **outcome == told).count();
    assert_eq!((ran, heard), (1, 2), "{outcomes:?}");
    assert!(world.elapsed() >= Duration::from_secs(30));
}

#[tokio::test]
async fn a_wait_for_an_outcome_ends() {
    let world = World::new();
    let clients = clients(&world, 2).await;
    let holder = world.advance_while(clients[0].try_acquire("schema")).await.unwrap().unwrap();
    let job = clients[1].job("schema").tick(Tick::named("v7"));
    let waiting =
        job.wait_for_outcome(Duration::from_secs(5)).run(|_| async { Ok::<_, Error>(()) });
    let error = world.advance_while(waiting).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    drop(holder);
}

#[tokio::test]
async fn a_wait_for_an_outcome_outlasts_an_outage() {
    let world = World::new();
    let clients = clients(&world, 2).await;
    let holder = world.advance_while(clients[0].try_acquire("schema")).await.unwrap().unwrap();
    let job = clients[1].job("schema").tick(Tick::named("v7"));
    let job = job.wait_for_outcome(Duration::from_secs(60));
    let waiting = tokio::spawn(job.run(|_| async { Ok::<_, Error>(()) }));
    world.advance(Duration::from_secs(3)).await;
    world.cut_off("web-1");
    world.advance(Duration::from_secs(20)).await;
    assert!(!waiting.is_finished(), "the store may come back");
    world.heal("web-1");
    drop(holder);
    let outcome = world.advance_while(waiting).await.unwrap().unwrap();
    assert_eq!(outcome, OnceOutcome::Ran(Ok(())));
}

#[tokio::test]
async fn a_wait_that_ends_without_a_store_says_so() {
    let world = World::new();
    let tenure = world.client("web-0").await;
    world.cut_off("web-0");
    let limit = Duration::from_secs(5);
    let job = tenure.job("schema").tick(Tick::named("v7")).wait_for_outcome(limit);
    let error = world.advance_while(job.run(|_| async { Ok::<_, Error>(()) })).await.unwrap_err();
    let is_told = |error: &Error| match error {
        Error::TimedOut { reason: Some(Reason::Store(error)), .. } => error.is_temporary(),
        _ => false,
    };
    assert!(is_told(&error), "{error}");
    assert!(world.elapsed() >= limit && world.elapsed() < limit * 3, "{:?}", world.elapsed());
}

#[tokio::test]
async fn one_that_runs_elsewhere_is_named() {
    let world = World::new();
    let clients = clients(&world, 2).await;
    let holder = world.advance_while(clients[0].try_acquire(NAME)).await.unwrap().unwrap();
    let tried = clients[1].job(NAME).run(|_| async { Ok::<_, Error>(()) });
    let outcome = world.advance_while(tried).await.unwrap();
    assert_eq!(outcome, OnceOutcome::RunningElsewhere { by: clients[0].id().clone() });
    drop(holder);
}

#[tokio::test]
async fn a_tick_that_crashed_runs_again_unless_that_is_refused() {
    let world = World::new();
    let clients = clients(&world, 2).await;
    // Its leadership is taken away in the middle: nobody finishes the tick.
    let crashing = clients[0].once(NAME, Tick::number(7), |_| async {
        world.advance(Duration::from_millis(20)).await;
        world.take_away(NAME);
        std::future::pending::<Result<(), Error>>().await
    });
    let crashed = world.advance_while(crashing).await.unwrap();
    assert!(matches!(crashed, OnceOutcome::Interrupted(Reason::Lost(_))), "{crashed:?}");

    let job = || clients[1].job(NAME).tick(Tick::number(7));
    let run = |_| async { Ok::<_, Error>(()) };
    let refused = world.advance_while(job().rerun_crashed(false).run(run)).await.unwrap();
    assert!(matches!(&refused, OnceOutcome::Unfinished { by, .. } if by == clients[0].id()));
    let again = world.advance_while(job().run(run)).await.unwrap();
    assert_eq!(again.ran().map(|result| result.is_ok()), Some(true));
    let done = world.advance_while(job().run(run)).await.unwrap();
    assert!(matches!(done, OnceOutcome::AlreadyDone(TickOutcome::Succeeded)), "{done:?}");
}

#[tokio::test]
async fn a_panic_counts_as_a_failed_run() {
    let world = World::new();
    let clients = clients(&world, 1).await;
    let panicking = clients[0].once(NAME, Tick::named("x"), |_| async {
        assert!(std::hint::black_box(false), "out of paper");
        Ok::<_, Error>(())
    });
    let outcome = world.advance_while(panicking).await.unwrap();
    assert!(matches!(&outcome, OnceOutcome::Panicked(words) if words.contains("out of paper")));
    let again = clients[0].once(NAME, Tick::named("x"), |_| async { Ok::<_, Error>(()) });
    let again = world.advance_while(again).await.unwrap();
    assert!(matches!(again, OnceOutcome::AlreadyDone(TickOutcome::Failed(_))), "{again:?}");
}

#[tokio::test]
async fn switched_off_a_job_runs_here() {
    let world = World::new();
    world.cut_off_everybody();
    let tenure = world.client("ada").await;
    world.cut_off_everybody();
    let job = tenure.job(NAME).enabled(false).tick(Tick::every(HOURLY));
    let outcome = world.advance_while(job.run(|_| async { Ok::<_, Error>(5) })).await.unwrap();
    assert_eq!(outcome, OnceOutcome::Ran(Ok(5)));
}

#[tokio::test]
async fn impossible_ticks_are_refused() {
    let world = World::new();
    let tenure = world.client("ada").await;
    let run = |_| async { Ok::<_, Error>(()) };
    for tick in [Tick::every(Duration::ZERO), Tick::named(""), Tick::named(&"x".repeat(300))] {
        let error = tenure.once(NAME, tick, run).await.unwrap_err();
        assert!(matches!(error, Error::Setting { setting: "tick", .. }), "{error}");
    }
    let error = tenure.job(NAME).wait_for_outcome(HOURLY).run(run).await.unwrap_err();
    assert!(matches!(error, Error::Setting { setting: "wait_for_outcome", .. }), "{error}");
}

#[tokio::test]
async fn a_job_that_ends_in_its_grace_during_shutdown_is_told_to_stop() {
    let world = World::new();
    let tenure = world.client("ada").await;
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let running = tokio::spawn({
        let tenure = tenure.clone();
        async move {
            let work = |term: tenure::Term| async move {
                begun.send(()).unwrap();
                term.wait_until_stopping().await;
                Ok::<_, Error>(())
            };
            tenure.once(NAME, Tick::number(1), work).await
        }
    });
    world.advance_while(has_begun).await.unwrap();
    world.advance_while(tenure.shutdown()).await;
    let outcome = running.await.unwrap().unwrap();
    assert!(matches!(outcome, OnceOutcome::Interrupted(Reason::Stopped)), "{outcome:?}");
    let late = tenure.once(NAME, Tick::number(2), |_| async { Ok::<_, Error>(()) }).await;
    assert_eq!(late.unwrap_err(), Error::Closed);
}

#[tokio::test]
async fn work_that_could_not_be_started_consumes_no_tick() {
    let world = World::new();
    let clients = clients(&world, 2).await;
    for tick in [Tick::every(HOURLY), Tick::number(1), Tick::named("v7")] {
        // Nobody reruns what may have half of its effects: what never started has none.
        let job = |client: &Tenure| client.job(NAME).tick(tick.clone()).rerun_crashed(false);
        let missing = job(&clients[0]).run_startable(|_term| async {
            Err::<Result<(), String>, _>(NotStarted("no such file".to_owned()))
        });
        let missing = world.advance_while(missing).await.unwrap();
        assert_eq!(missing, OnceOutcome::NotStarted("no such file".to_owned()));
        let healthy = job(&clients[1]).run(|_term| async { Ok::<_, String>(()) });
        let healthy = world.advance_while(healthy).await.unwrap();
        assert_eq!(healthy, OnceOutcome::Ran(Ok(())), "{tick:?}");
        let late = job(&clients[0]).run_startable(|_term| async {
            Err::<Result<(), String>, _>(NotStarted("not even tried".to_owned()))
        });
        let late = world.advance_while(late).await.unwrap();
        assert_eq!(late, OnceOutcome::AlreadyDone(TickOutcome::Succeeded));
    }
}

#[tokio::test]
async fn a_tick_whose_outcome_cannot_be_recorded_is_not_called_done() {
    let world = World::new();
    let clients = clients(&world, 2).await;
    let running = clients[0].once(NAME, Tick::number(1), |_term| async {
        world.cut_off("web-0");
        Ok::<_, Error>(())
    });
    let outcome = world.advance_while(running).await.unwrap();
    assert_eq!(outcome, OnceOutcome::Unrecorded(Ok(())));
    assert_eq!(outcome.ran(), None);
    let again = clients[1].once(NAME, Tick::number(1), |_| async { Ok::<_, Error>(()) });
    assert_eq!(world.advance_while(again).await.unwrap(), OnceOutcome::Ran(Ok(())));
}

#[tokio::test]
async fn each_length_of_a_period_is_a_count_of_its_own() {
    let world = World::new();
    let tenure = world.client("ada").await;
    for seconds in [1, 3600, 86_400] {
        let tick = Tick::every(Duration::from_secs(seconds));
        let once = tenure.once(NAME, tick, |_| async { Ok::<_, Error>(()) });
        assert_eq!(
            world.advance_while(once).await.unwrap(),
            OnceOutcome::Ran(Ok(())),
            "{seconds} s"
        );
    }
}
