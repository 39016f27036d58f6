//! What an application is offered, one story per feature on a real server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::backend::Backend;
use tenure::backend::redis::{Login, RedisBackend, Stream};
use tenure::blocking::wait;
use tenure::{
    Election, EventKind, Leadership, OnceOutcome, Role, Tenure, Tick, TickOutcome, Token, Vacancy,
};
use testkit::{GENEROUS, RedisServer, wait_until};

use crate::instance::Instance;
use crate::player::{join, start};

const TTL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(20);

async fn clients(url: &str, count: usize) -> Vec<Tenure> {
    let mut clients = Vec::new();
    for index in 0..count {
        let builder = Tenure::builder().instance(&format!("n{index}")).store(url).ttl(TTL);
        clients.push(builder.fresh_store(true).connect().await.unwrap());
    }
    clients
}

#[tokio::test]
async fn the_first_leader_needs_one_try() {
    let server = RedisServer::start();
    let monitor = server.monitor();
    let mut player = join(&server.url(), "first", LONG).await;
    player.leads().await;
    let asked = monitor.requests();
    let tries = asked.iter().filter(|line| line.words.to_lowercase().contains("\"eval"));
    // EVALSHA, and EVAL when the server does not know the script yet.
    assert!(tries.clone().count() <= 2, "{:#?}", tries.collect::<Vec<_>>());
    assert_eq!(player.election.status().counts.attempts_failed, 0);
}

#[tokio::test]
async fn listeners_hear_everything_in_order_and_a_failing_one_harms_nobody() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(&server.url()).await.unwrap();
    let (heard, heard_twice) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (all, some) = (Arc::clone(&heard), Arc::clone(&heard_twice));
    let builder = tenure.election("job").ttl(TTL).fresh_store(true);
    let election = builder
        .on_event(move |event| all.lock().unwrap().push((event.number, event.kind.clone())))
        .on_event(|_| panic!("a listener that fails"))
        .on_event_async(|_| std::future::pending())
        .start()
        .await
        .unwrap();
    let handle = election.on_event(move |_| {
        some.fetch_add(1, Ordering::SeqCst);
    });
    let handle = handle.unwrap();
    wait_until("a few renewals", GENEROUS, || election.status().counts.renewals >= 2);
    drop(handle);
    let before = heard_twice.load(Ordering::SeqCst);
    assert!(before > 0);
    election.resign().await;
    election.stop().await;

    wait_until("the last event", GENEROUS, || {
        let heard = heard.lock().unwrap();
        matches!(heard.last(), Some((_, EventKind::StateChanged { to: Role::Stopped, .. })))
    });
    let heard = heard.lock().unwrap();
    assert!(heard.iter().map(|(number, _)| *number).eq(1..=heard.len() as u64), "{heard:#?}");
    let place = |is_it: fn(&EventKind) -> bool| heard.iter().position(|(_, kind)| is_it(kind));
    let became = place(|kind| matches!(kind, EventKind::StateChanged { to: Role::Leader, .. }));
    let acquired = place(|kind| matches!(kind, EventKind::Acquired { .. }));
    let lost = place(|kind| matches!(kind, EventKind::Lost { .. }));
    assert!(became < acquired && acquired < lost && became.is_some(), "{heard:#?}");
    // One call may have been under way when it was unregistered.
    assert!(heard_twice.load(Ordering::SeqCst) <= before + 1, "called after it was unregistered");
}

#[tokio::test]
async fn a_named_tick_runs_once_and_everyone_else_learns_how_it_ended() {
    let server = RedisServer::start();
    let url = server.url();
    tokio::join!(
        migrate(&url, "adds-a-column", None),
        migrate(&url, "drops-a-table", Some("no such table"))
    );
}

/// Eight instances want the same migration.
async fn migrate(url: &str, name: &'static str, fails: Option<&'static str>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let outcomes = clients(url, 8).await.into_iter().map(|tenure| {
        let runs = Arc::clone(&runs);
        tokio::spawn(async move {
            let job = tenure.job(name).tick(Tick::named("once-and-for-all"));
            let work = |_term| async move {
                runs.fetch_add(1, Ordering::SeqCst);
                // Longer than the lease: it is renewed meanwhile.
                tokio::time::sleep(TTL + TTL / 4).await;
                fails.map_or(Ok(()), Err)
            };
            job.wait_for_outcome(GENEROUS).run(work).await.unwrap()
        })
    });
    let expected = fails.map_or(TickOutcome::Succeeded, |why| TickOutcome::Failed(why.into()));
    let mut ran = 0;
    for outcome in outcomes.collect::<Vec<_>>() {
        match outcome.await.unwrap() {
            OnceOutcome::Ran(result) => {
                ran += 1;
                assert_eq!(result.err(), fails);
            }
            OnceOutcome::AlreadyDone(outcome) => assert_eq!(outcome, expected),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!((ran, runs.load(Ordering::SeqCst)), (1, 1), "{name}");
}

#[tokio::test]
async fn a_numbered_tick_runs_once_however_many_want_it_and_whenever_they_come() {
    const TICKS: u64 = 20;
    let server = RedisServer::start();
    let fleet = clients(&server.url(), 6).await;
    let runs = AtomicUsize::new(0);
    for tick in 0..TICKS {
        let want = |tenure: Tenure| {
            let runs = &runs;
            async move {
                let work = |_| async {
                    runs.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, String>(())
                };
                let _whoever_ran = tenure.once("cron", Tick::number(tick), work).await.unwrap();
            }
        };
        // All at once, so short that some look before it is done and try when it is; then one that
        // comes when nobody leads any more.
        futures_util::future::join_all(fleet.iter().cloned().map(want)).await;
        want(fleet[0].clone()).await;
        assert_eq!(runs.load(Ordering::SeqCst) as u64, tick + 1, "one run per tick");
    }
    assert_eq!(server.cli(&["EXISTS", "tenure:cron"]), "0", "given back after each");
}

#[tokio::test]
async fn a_single_try_gives_a_guard_that_knows_its_time_and_gives_back_what_it_holds() {
    let server = RedisServer::start();
    let fleet = clients(&server.url(), 2).await;
    let term = fleet[0].try_acquire("report").await.unwrap().unwrap();
    assert!(fleet[0].is_leader("report") && !fleet[1].is_leader("report"));
    assert!(fleet[1].try_acquire("report").await.unwrap().is_none(), "it is held");
    assert_eq!(server.cli(&["HGET", "{tenure:report}:meta", "token"]), term.token().to_string());
    assert!(term.remaining() > Duration::ZERO && term.remaining() <= TTL);
    assert!(term.ensure(TTL / 2).await, "a renewal makes enough time");
    assert!(!term.ensure(TTL * 2).await, "no lease is that long");
    assert!(term.renew().await);
    let first = term.token();
    term.resign().await;
    assert_eq!(server.cli(&["EXISTS", "tenure:report"]), "0");
    let next = fleet[1].try_acquire("report").await.unwrap().unwrap();
    assert!(next.token() > first);
}

#[tokio::test]
async fn who_looks_on_is_told_that_nobody_leads_and_why() {
    let mut server = RedisServer::start();
    let onlooker = Tenure::connect(&server.url()).await.unwrap();
    let look = async || onlooker.observe("job").unwrap().leader().await;
    assert_eq!(look().await, Ok(Leadership::Vacant(Vacancy::Free)));
    let mut leader = join(&server.url(), "leader", LONG).await;
    let token = leader.leads().await;
    let Ok(Leadership::Led { leader: seen, remaining: Some(left) }) = look().await else {
        panic!("somebody leads");
    };
    assert_eq!((seen.token.map(Token::get), seen.foreign), (Some(token), false));
    assert!(left <= LONG && left > Duration::ZERO);

    onlooker.observe("job").unwrap().pause(LONG).await.unwrap();
    leader.election.stop().await;
    assert!(matches!(look().await, Ok(Leadership::Vacant(Vacancy::Paused { .. }))));
    onlooker.observe("job").unwrap().resume().await.unwrap();
    server.cli(&["SET", "tenure:job", "somebody-else", "PX", "60000"]);
    let seen = look().await.unwrap().leader().cloned().unwrap();
    assert_eq!((seen.id.as_str(), seen.foreign), ("somebody-else", true));
    onlooker.observe("job").unwrap().force_clear("it hangs").await.unwrap();
    assert!(matches!(look().await, Ok(Leadership::Vacant(Vacancy::Quarantine { .. }))));
    // Not knowing is not "nobody".
    server.kill();
    assert!(matches!(look().await, Err(tenure::Error::Store(_))));
    server.restart();
    let back = wait_for_ok(&onlooker).await;
    assert_eq!(back, Leadership::Vacant(Vacancy::Free));
}

async fn wait_for_ok(onlooker: &Tenure) -> Leadership {
    let wait = async {
        loop {
            if let Ok(seen) = onlooker.observe("job").unwrap().leader().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(GENEROUS, wait).await.unwrap()
}

#[tokio::test]
async fn work_that_stops_beating_is_found_out_and_shown_and_another_leads() {
    let server = RedisServer::start();
    let tenure = Tenure::builder().instance("sick").store(&server.url()).connect().await.unwrap();
    let builder = tenure.election("job").ttl(TTL).fresh_store(true);
    let mut sick = start(builder.require_beat(Duration::from_secs(1))).await;
    sick.leads().await;
    let mut healthy = join(&server.url(), "healthy", TTL).await;
    healthy.fails("held").await;
    let beating = std::time::Instant::now();
    while beating.elapsed() < Duration::from_secs(2) {
        sick.election.beat();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(sick.election.is_leader(), "it beat all the time");

    assert_eq!(sick.loses().await.code(), "work-stalled");
    healthy.leads().await;
    let observer = healthy_view(&server).await;
    let stalled = |name: &str| {
        let members = wait(observer.members()).unwrap();
        members.iter().any(|member| member.id.answers_to(name) && member.record.stalled)
    };
    wait_until("the sickness to be shown", GENEROUS, || stalled("sick"));
    assert!(!stalled("healthy"));
    assert_eq!(sick.election.status().reason.code(), "work-stalled");

    sick.election.beat();
    healthy.election.stop().await;
    sick.leads().await;
}

async fn healthy_view(server: &RedisServer) -> tenure::Observer {
    Tenure::connect(&server.url()).await.unwrap().observe("job").unwrap()
}

#[tokio::test]
async fn without_its_store_an_instance_says_why_it_does_not_lead_and_recovers() {
    let mut server = RedisServer::start();
    let mut player = join(&server.url(), "player", TTL).await;
    player.leads().await;
    server.kill();
    player.loses().await;
    wait_until("the reason", GENEROUS, || {
        let status = player.election.status();
        status.role == Role::Unknown && status.reason.code() == "store"
    });
    let status = player.election.status();
    assert!(!player.election.is_leader() && status.token.is_none() && status.remaining.is_none());
    let down = format!("{:?}", status.connection);
    assert!(down.starts_with("Down"), "{down}");
    server.restart();
    player.leads().await;
}

#[test]
fn a_loss_ends_the_process_with_the_chosen_code_and_a_stop_does_not() {
    let server = RedisServer::start();
    let exits = ["--exit-on-loss", "17"];
    let mut leader = Instance::start_with(&server.url(), "leader", TTL, &exits);
    leader.wait_for_work();
    server.cli(&["DEL", "tenure:job"]);
    assert_eq!(leader.process.wait(GENEROUS).code(), Some(17));

    let mut leader = Instance::start_with(&server.url(), "leader", TTL, &exits);
    leader.wait_for_work();
    leader.process.terminate();
    assert_eq!(leader.process.wait(GENEROUS).code(), Some(0));
}

/// Three ways to bring one's own connection, and no runtime of the application's at all.
#[test]
fn an_own_client_an_own_connector_and_no_runtime_will_do() {
    let server = RedisServer::start();
    let (url, port) = (server.url(), server.port());
    let with_client = Tenure::builder().connector(move || {
        Box::pin(async move {
            let client = redis::Client::open(url).expect("a valid address");
            Ok(Arc::new(RedisBackend::with_client(client)) as Arc<dyn Backend>)
        })
    });
    let with_streams = Tenure::builder().connector(move || {
        let connector = move || async move {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
            std::io::Result::Ok(Box::new(stream) as Box<dyn Stream>)
        };
        Box::pin(async move {
            let backend = RedisBackend::with_connector(connector, Login::default());
            Ok(Arc::new(backend) as Arc<dyn Backend>)
        })
    });
    let (first, second) =
        (wait(with_client.connect()).unwrap(), wait(with_streams.connect()).unwrap());
    let lead = |tenure: &Tenure| -> Election {
        wait(tenure.election("job").ttl(LONG).fresh_store(true).start()).unwrap()
    };
    let on_first = lead(&first);
    let term = wait(on_first.wait_for_leadership_within(GENEROUS)).unwrap();
    let on_second = lead(&second);
    let second_waits = wait(on_second.wait_for_leadership_within(Duration::from_millis(200)));
    assert!(matches!(second_waits, Err(tenure::Error::TimedOut { .. })), "{second_waits:?}");
    let token = term.token();
    wait(term.resign());
    let next = wait(on_second.wait_for_leadership_within(GENEROUS)).unwrap();
    assert!(next.token() > token, "one store behind both");
}

#[tokio::test]
async fn ten_losses_and_gains_leave_no_connection_behind() {
    let server = RedisServer::start();
    let mut player = join(&server.url(), "player", Duration::from_millis(600)).await;
    player.leads().await;
    let connections = || {
        let info = server.cli(&["INFO", "clients"]);
        let line = info.lines().find_map(|line| line.strip_prefix("connected_clients:")).unwrap();
        line.trim().parse::<usize>().unwrap()
    };
    let before = connections();
    for _ in 0..10 {
        server.cli(&["SET", "tenure:job", "a-rival", "PX", "30"]);
        player.loses().await;
        player.leads().await;
    }
    assert_eq!(connections(), before);
    assert_eq!(player.election.status().counts.losses, 10);
}
