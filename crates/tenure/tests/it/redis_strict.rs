//! Mode `strict`: what the replicas do not have is not held.

use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::{StoreError, StoreErrorKind};

use tenure::backend::Connection;
use tenure::backend::redis::RedisBackend;
use tenure::fence::{FencedError, FencedValue, FencedWrite};
use tenure::{Election, EventKind, Leadership, Reason, Role, Tenure, Token, Vacancy};
use tenure_core::protocol::{Acquire, HistoryKind, Outcome, Request, TickId, TickOutcome};
use testkit::{GENEROUS, RedisServer, wait_until};

use crate::actor::{Actor, attempt_of, is_granted};

/// One that begins to feed a replica at once.
fn start_master() -> RedisServer {
    RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]).start()
}

fn replica_of(master: &RedisServer) -> RedisServer {
    let port = master.port().to_string();
    let replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start();
    wait_until("the replica to be in step", GENEROUS, || {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
    });
    replica
}

fn strict(server: &RedisServer, replicas: u32) -> String {
    format!("{}/0?mode=strict&replicas={replicas}", server.url())
}

#[tokio::test]
async fn a_grant_without_its_replicas_is_no_grant() {
    let master = start_master();
    let mut replica = replica_of(&master);
    let ada = Actor::at(&strict(&master, 1), "job");
    replica.pause();
    // Where the replica must answer, it gets the time that it takes on a busy machine.
    let error = ada.within(Duration::from_secs(2)).acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotNow, "{error:?}");
    let text = error.message();
    assert!(text.contains("0 of 1 replicas"), "{text}");
    // The master wrote it down all the same; the same attempt finds it once the replica is back.
    assert_eq!(master.cli(&["GET", "tenure:job"]), ada.id.as_str());
    replica.resume();
    let acquire = attempt_of(1, Duration::from_secs(60));
    let request = Request::Acquire(acquire);
    let mut answer = ada.ask(request.clone()).await;
    for _ in 0..20 {
        if is_granted(&answer) {
            break;
        }
        answer = ada.ask(request.clone()).await;
    }
    let Outcome::Granted { token } = answer.unwrap().outcome else { panic!("not granted") };
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    // More replicas than there are: nothing is ever held.
    let bob = Actor::at(&strict(&master, 2), "other").within(Duration::from_secs(1));
    assert_eq!(bob.acquire(1).await.unwrap_err().kind(), StoreErrorKind::NotNow);
}

#[tokio::test]
async fn a_leader_without_replicas_steps_down_and_comes_back() {
    let master = start_master();
    let mut replica = replica_of(&master);
    let tenure = Tenure::connect(&strict(&master, 1)).await.unwrap();
    let election =
        tenure.election("job").ttl(Duration::from_secs(1)).fresh_store(true).start().await.unwrap();
    let leading = || election.status().role == Role::Leader;
    wait_until("a leader", GENEROUS, leading);
    let first = election.term().unwrap().token();
    replica.pause();
    wait_until("its end", GENEROUS, || !election.is_leader());
    // On a busy machine a try may end before the answer is there.
    wait_until("its reason", GENEROUS, || {
        format!("{:?}", election.status()).contains("0 of 1 replicas")
    });
    replica.resume();
    wait_until("a leader again", GENEROUS, leading);
    assert!(election.term().unwrap().token() > first);
}

/// How often the server was asked to wait for replicas.
fn waits(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

async fn candidate(tenure: &Tenure, name: &str, ttl: Duration) -> Election {
    tenure.election(name).ttl(ttl).fresh_store(true).start().await.unwrap()
}

/// The terms in the history, oldest first.
async fn terms(tenure: &Tenure) -> Vec<Token> {
    let history = tenure.observe("job").unwrap().history(100).await.unwrap();
    let granted = history.iter().rev().filter(|entry| entry.what == HistoryKind::Granted);
    granted.filter_map(|entry| entry.token).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_looks_on_sees_that_replicas_do_not_confirm() {
    let master = start_master();
    let _there = replica_of(&master);
    let mut missing = replica_of(&master);
    let tenure = Tenure::connect(&strict(&master, 2)).await.unwrap();
    let election = candidate(&tenure, "job", Duration::from_secs(1)).await;
    wait_until("a leader", GENEROUS, || election.is_leader());
    let first = election.term().unwrap().token();
    let looker = Tenure::connect(&strict(&master, 2)).await.unwrap();
    let observer = looker.observe("job").unwrap();
    wait_until_async("the leader is seen", async || {
        observer.leader().await.unwrap().leader().is_some_and(|leader| leader.token == Some(first))
    })
    .await;

    missing.pause();
    wait_until_async("the truth is seen", async || {
        matches!(observer.leader().await.unwrap(),
            Leadership::Vacant(Vacancy::Unconfirmed { by, .. }) if by == *election.id())
    })
    .await;
    assert!(!election.is_leader());
    assert_eq!(terms(&looker).await, [first], "a term that nobody has");
    let members = observer.look().await.unwrap().members;
    assert!(members.iter().any(|member| member.id == *election.id()), "{members:?}");

    missing.resume();
    wait_until("a leader again", GENEROUS, || election.is_leader());
    let second = election.term().unwrap().token();
    wait_until_async("the term is told", async || terms(&looker).await == [first, second]).await;
    assert_eq!(observer.leader().await.unwrap().leader().unwrap().token, Some(second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_that_dies_unconfirmed_leaves_no_term_behind() {
    let master = start_master();
    let mut replica = replica_of(&master);
    replica.pause();
    let ada = Actor::at(&strict(&master, 1), "job").within(Duration::from_millis(400));
    let ttl = Duration::from_millis(500);
    ada.ask(Request::Acquire(attempt_of(1, ttl))).await.unwrap_err();
    replica.resume();
    let tenure = Tenure::connect(&strict(&master, 1)).await.unwrap();
    let bob = candidate(&tenure, "job", Duration::from_secs(5)).await;
    wait_until("bob leads", GENEROUS, || bob.is_leader());
    let token = bob.term().unwrap().token();
    wait_until_async("the term is told", async || terms(&tenure).await == [token]).await;
    let history = tenure.observe("job").unwrap().history(10).await.unwrap();
    assert_eq!(history.len(), 1, "{history:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_replica_is_never_called_a_silent_store() {
    let master = start_master();
    let _there = replica_of(&master);
    let mut missing = replica_of(&master);
    let tenure = Tenure::connect(&strict(&master, 2)).await.unwrap();
    // Long enough that a busy machine is not taken for a stopped one; two of them, so that one
    // waits behind the other.
    let ttl = Duration::from_secs(9);
    missing.pause();
    let elections = [candidate(&tenure, "job", ttl).await, candidate(&tenure, "other", ttl).await];
    let mut events = elections[0].events();
    let observer = tenure.observe("job").unwrap();
    let mut failures = 0;
    while failures < 4 {
        // Looks from the same client all the while; none of them is held up.
        assert!(matches!(
            observer.leader().await.unwrap(),
            Leadership::Vacant(Vacancy::Free | Vacancy::Unconfirmed { .. })
        ));
        assert_eq!(tenure.connection(), Connection::Up);
        if let EventKind::ElectionFailed { reason } = &events.next().await.unwrap().unwrap().kind {
            let Reason::Store(error) = reason else { panic!("{reason}") };
            assert_eq!(error.kind(), StoreErrorKind::NotNow, "{error}");
            let text = error.message();
            assert!(text.contains("of 2 replicas confirmed"), "{text}");
            failures += 1;
        }
    }
}

#[tokio::test]
async fn whoever_only_looks_waits_for_no_replica() {
    let master = start_master();
    let mut replica = replica_of(&master);
    replica.pause();
    let tenure = Tenure::connect(&strict(&master, 1)).await.unwrap();
    let leadership = tenure.observe("job").unwrap().leader().await.unwrap();
    assert_eq!(leadership, Leadership::Vacant(Vacancy::Free));
    tenure.observe("job").unwrap().history(10).await.unwrap();
    assert_eq!(waits(&master), 0);
}

async fn wait_until_async(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..GENEROUS.as_millis() / 20 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not within {GENEROUS:?}");
}

#[tokio::test]
async fn however_old_a_server_is_a_missing_record_is_waited_out() {
    let master = start_master();
    let _replica = replica_of(&master);
    let ttl = Duration::from_millis(100);
    wait_until("the server to be older than any lease", GENEROUS, || {
        let info = master.cli(&["INFO", "server"]);
        let age = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        age.is_some_and(|age| age.trim().parse::<u64>().unwrap() > 2)
    });
    let attempt = || Request::Acquire(Acquire { fresh_store: false, ..attempt_of(1, ttl) });
    let ada = Actor::at(&master.url(), "available");
    assert!(is_granted(&ada.ask(attempt()).await), "nothing speaks against it");
    // A flush leaves the same emptiness behind, and a leader that believes in its lease.
    let bob = Actor::at(&strict(&master, 1), "strict");
    let answer = bob.ask(attempt()).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Quarantine { .. }), "{answer:?}");
}

#[tokio::test]
async fn the_mode_shows_in_the_address() {
    let address = "redis://127.0.0.1:1/0?mode=strict&replicas=2";
    let backend = RedisBackend::open(address).unwrap();
    assert_eq!(tenure::backend::Backend::describe(&backend), address);
    let error = RedisBackend::open("redis://127.0.0.1:1?mode=strict").unwrap_err();
    assert!(error.to_string().contains("replicas"), "{error}");
}

/// Requests that promise something are errors while the replica does not answer, and done once it
/// does.
async fn are_promised_only_with_their_replica(
    asked: &[(&Actor, &Request)],
    replica: &mut RedisServer,
) {
    replica.pause();
    let hasty = asked.iter().map(|(actor, ask)| async {
        let error = actor.within(Duration::from_secs(2)).ask((*ask).clone()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotNow, "{error:?}");
        assert!(error.message().contains("0 of 1"), "{error:?}");
    });
    join_all(hasty).await;
    replica.resume();
    join_all(asked.iter().map(|(actor, ask)| is_done(actor, ask))).await;
}

async fn is_done(actor: &Actor, ask: &Request) {
    for _ in 0..20 {
        match actor.ask(ask.clone()).await {
            Ok(answer) => {
                let done = matches!(answer.outcome, Outcome::Done | Outcome::TickRuns);
                assert!(done, "{ask:?}: {answer:?}");
                return;
            }
            Err(error) => assert!(error.is_temporary(), "{error:?}"),
        }
    }
    panic!("never done: {ask:?}");
}

#[tokio::test]
async fn whatever_is_promised_has_reached_the_replica() {
    let master = start_master();
    let mut replica = replica_of(&master);
    let hour = Duration::from_secs(3600);
    let clear = Request::Clear { reason: "test".into(), quarantine: Duration::from_secs(1) };
    let operator = [Request::Pause { lasts: hour }, Request::Resume, clear];
    let mut stories = vec![(Actor::at(&strict(&master, 1), "operator"), operator.to_vec())];
    stories[0].0.lead(1).await;
    let period = TickId::Period { number: 7, period: hour };
    for tick in [period, TickId::Number(7), TickId::Named("v7".into())] {
        let ada = Actor::at(&strict(&master, 1), &format!("job-{}", stories.len()));
        let token = ada.lead(1).await;
        let reopen = Request::TickReopen { token, tick: tick.clone() };
        let begin = Request::TickBegin { token, tick: tick.clone(), rerun_crashed: false };
        let outcome = TickOutcome::Succeeded;
        let finish = Request::TickFinish { token, tick, outcome, keep: hour };
        stories.push((ada, vec![begin.clone(), reopen, begin, finish]));
    }
    // One request of each story at a time: all wait for the replica in the same seconds.
    for step in 0..4 {
        let asked = stories.iter().filter_map(|(ada, story)| Some((ada, story.get(step)?)));
        are_promised_only_with_their_replica(&asked.collect::<Vec<_>>(), &mut replica).await;
    }
}

#[tokio::test]
async fn a_tick_that_is_done_stays_done_after_a_failover() {
    let mut master = start_master();
    let replica = replica_of(&master);
    let tenure = Tenure::builder().store(&strict(&master, 1)).fresh_store(true);
    let tenure = tenure.connect().await.unwrap();
    for round in 1..=20 {
        let work = |_| async { Ok::<_, String>(()) };
        let run = || tenure.once("job", tenure::Tick::number(round), work);
        let mut once = run().await;
        // On a busy machine the replica may be late; then nothing was promised.
        while matches!(&once, Err(tenure::Error::Store(error)) if error.kind() == StoreErrorKind::NotNow)
        {
            once = run().await;
        }
        let done = tenure::OnceOutcome::AlreadyDone(TickOutcome::Succeeded);
        let once = once.unwrap();
        assert!(
            once == tenure::OnceOutcome::Ran(Ok(())) || once == done,
            "round {round}: {once:?}"
        );
    }
    master.kill();
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(replica.cli(&["HGET", "{tenure:job}:ticks", "done"]), "20");
    let other = Tenure::builder().store(&replica.url()).fresh_store(true).connect().await.unwrap();
    let again = other.once("job", tenure::Tick::number(20), |_| async { Ok::<_, String>(()) });
    let done = tenure::OnceOutcome::AlreadyDone(TickOutcome::Succeeded);
    assert_eq!(again.await.unwrap(), done);
}

#[tokio::test]
async fn a_tick_that_the_replica_does_not_know_of_is_not_called_done() {
    let master = start_master();
    let mut replica = replica_of(&master);
    let tenure = Tenure::builder().store(&strict(&master, 1)).fresh_store(true);
    let tenure = tenure.connect().await.unwrap();
    let mut once = tenure::OnceOutcome::NotNow(tenure::Reason::LeaseEnded);
    // On a busy machine the replica may be late even with the grant.
    for _ in 0..10 {
        replica.resume();
        let job = tenure.job("job").tick(tenure::Tick::number(1)).ttl(Duration::from_secs(6));
        let work = |_| {
            replica.pause();
            async { Ok::<_, String>(()) }
        };
        let Ok(outcome) = job.run(work).await else { continue };
        once = outcome;
        if !matches!(once, tenure::OnceOutcome::NotNow(_) | tenure::OnceOutcome::Interrupted(_)) {
            break;
        }
    }
    assert_eq!(once, tenure::OnceOutcome::Unrecorded(Ok(())));
    assert_eq!(master.cli(&["HGET", "{tenure:job}:ticks", "done"]), "1", "it alone has it");
}

#[tokio::test]
async fn a_fence_that_the_replica_does_not_have_is_no_fence() {
    let master = start_master();
    let mut replica = replica_of(&master);
    let backend = RedisBackend::open(&strict(&master, 1)).unwrap();
    let value = FencedValue::new("report").unwrap();
    let token = |number| Token::new(number).unwrap();
    let set = |text: &'static [u8]| FencedWrite::Set { value: text, ttl: None };
    value.write_through(&backend, token(1), set(b"one"), GENEROUS).await.unwrap();
    assert_eq!(replica.cli(&["GET", value.fence_key()]), "1");
    replica.pause();
    let patience = Duration::from_secs(2);
    let refused = value.write_through(&backend, token(2), set(b"two"), patience).await;
    assert!(
        matches!(&refused, Err(FencedError::Store(error)) if error.message().contains("0 of 1")),
        "{refused:?}"
    );
    replica.resume();
    let mut written = Err(FencedError::Store(StoreError::not_now(String::new())));
    for _ in 0..20 {
        written = value.write_through(&backend, token(2), set(b"two"), GENEROUS).await;
        if written.is_ok() {
            break;
        }
    }
    assert_eq!(written, Ok(()));
    assert_eq!(replica.cli(&["GET", value.fence_key()]), "2");
    let stale = value.write_through(&backend, token(1), set(b"late"), GENEROUS).await;
    assert!(matches!(stale, Err(FencedError::Stale(_))), "{stale:?}");
}
