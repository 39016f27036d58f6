//! Bad input: a typed error that names the thing and the next step, and a store left as it was.

use std::time::Duration;
use tenure::{ElectionBuilder, Error, StoreErrorKind, Tenure, Tick};
use testkit::RedisServer;
use trials::clock;

use crate::player::{join, start};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A server with somebody's data, and a way to tell whether anything in it has changed.
struct Witness {
    server: RedisServer,
    before: String,
}

impl Witness {
    fn new(prepare: &[&[&str]]) -> Self {
        let server = RedisServer::builder().args(["--enable-debug-command", "yes"]).start();
        server.cli(&["SET", "somebody", "else"]);
        prepare.iter().for_each(|words| {
            server.cli(words);
        });
        let before = digest(&server);
        Witness { server, before }
    }

    fn assert_unchanged(&self, by: &str) {
        assert_eq!(digest(&self.server), self.before, "{by} changed the store");
    }
}

fn digest(server: &RedisServer) -> String {
    server.cli(&["DEBUG", "DIGEST"])
}

/// The text must hold all the parts: the thing and what to do.
#[track_caller]
fn assert_says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} should contain {part:?}");
    }
    assert!(!text.contains('\n') && text.len() < 400, "not one line: {text:?}");
}

type Change = fn(ElectionBuilder) -> ElectionBuilder;

#[tokio::test]
async fn impossible_timings_name_the_rule_they_break() {
    let witness = Witness::new(&[]);
    let tenure = Tenure::connect(&witness.server.url()).await.unwrap();
    let cases: [(Change, &[&str]); 8] = [
        (|e| e.ttl(Duration::ZERO), &["ttl is 0s", "between 300ms and"]),
        (|e| e.ttl(millis(299)), &["ttl is 299ms", "between 300ms and"]),
        (|e| e.ttl(seconds(1_000_000)), &["ttl", "between 300ms and"]),
        (|e| e.ttl(Duration::from_micros(500_500)), &["whole milliseconds", "round it"]),
        (|e| e.renew_every(Duration::ZERO), &["renew_every is zero", "leave it out"]),
        (|e| e.renew_every(seconds(10)), &["renew_every 10s", "lengthen ttl, or shorten"]),
        (|e| e.stop_grace(millis(1)), &["stop_grace 1ms", "lengthen it"]),
        (|e| e.fleet_max_ttl(seconds(1)), &["fleet_max_ttl 1s", "at least this instance's ttl"]),
    ];
    for (change, parts) in cases {
        let error = change(tenure.election("job")).start().await.unwrap_err();
        assert!(matches!(error, Error::Timing(_)), "{error:?}");
        assert_says(&error, parts);
        let error = change(tenure.election("job")).try_acquire().await.unwrap_err();
        assert_says(&error, parts);
    }
    let on_the_client = Tenure::builder().store(&witness.server.url()).ttl(millis(5));
    let error = on_the_client.connect().await.unwrap_err();
    assert!(matches!(error, Error::Timing(_)), "{error:?}");
    assert_says(&error, &["must lie between"]);
    witness.assert_unchanged("a bad timing");
}

#[tokio::test]
async fn names_that_cannot_be_used_are_refused_everywhere() {
    let witness = Witness::new(&[]);
    let url = witness.server.url();
    let tenure = Tenure::connect(&url).await.unwrap();
    let long = "x".repeat(600);
    let cases: [(&str, &[&str]); 6] = [
        ("", &["resource name is empty", "give it"]),
        (&long, &["600 bytes", "the limit is", "shorten it"]),
        ("two words", &["' '", "use"]),
        ("line\nbreak", &["'\\n'", "use"]),
        ("a}b", &["hash tag", "remove the braces"]),
        ("a{}b", &["hash tag", "remove the braces"]),
    ];
    for (name, parts) in cases {
        let errors = [
            tenure.election(name).start().await.unwrap_err(),
            tenure.try_acquire(name).await.unwrap_err(),
            tenure.observe(name).unwrap_err(),
            tenure
                .once(name, Tick::number(1), |_| async { Ok::<_, String>(()) })
                .await
                .unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Name(_)), "{name:?}: {error:?}");
            assert_says(&error, parts);
        }
    }
    let error = tenure.election("job").key("a}b").start().await.unwrap_err();
    assert!(matches!(error, Error::Name(_)), "{error:?}");
    assert_says(&error, &["hash tag"]);
    for instance in ["", "a b", "a\u{1b}[31m", &"x".repeat(200)] {
        let error = Tenure::builder().store(&url).instance(instance).connect().await.unwrap_err();
        assert!(matches!(error, Error::Name(_)), "{instance:?}: {error:?}");
        assert_says(&error, &["instance name"]);
    }
    let error = Tenure::builder().store(&url).prefix("a}").connect().await.unwrap_err();
    assert_says(&error, &["hash tag", "remove the braces"]);
    witness.assert_unchanged("a bad name");
}

#[tokio::test]
async fn addresses_that_are_not_understood_say_what_to_write() {
    let cases: [(&str, &[&str]); 8] = [
        ("carrier-pigeon://roof", &["carrier-pigeon", "write redis://"]),
        ("", &["no scheme", "write redis://"]),
        ("localhost:6379", &["redis://localhost:6379"]),
        ("cache:6380,password=x,ssl=true", &["rediss://:PASSWORD@cache:6380/0"]),
        ("redis-sentinel://host", &["redis+sentinel://host1,host2/master-name", "did you mean"]),
        ("redis://host:port", &["port is not a number from 1 to 65535"]),
        ("redis://host/db", &["database"]),
        ("redis://host?pool=9", &["unknown option \"pool\""]),
    ];
    for (address, parts) in cases {
        let error = Tenure::connect(address).await.unwrap_err();
        assert!(matches!(error, Error::Connect(_)), "{address}: {error:?}");
        assert_says(&error, parts);
    }
}

#[tokio::test]
async fn settings_out_of_bounds_are_refused() {
    let witness = Witness::new(&[]);
    let tenure = Tenure::connect(&witness.server.url()).await.unwrap();
    let cases: [(Change, &[&str]); 3] = [
        (|e| e.metadata("a", &"x".repeat(5000)), &["metadata", "4096", "shorten it"]),
        (|e| e.version(&"1.".repeat(100)), &["version", "shorten it"]),
        (|e| e.require_beat(millis(1)), &["require_beat", "lengthen it"]),
    ];
    for (change, parts) in cases {
        assert_says(&change(tenure.election("job")).start().await.unwrap_err(), parts);
    }
    let ticks: [(Tick, &[&str]); 3] = [
        (Tick::named(""), &["tick", "give it one"]),
        (Tick::named(&"x".repeat(300)), &["tick", "shorten it"]),
        (Tick::every(Duration::ZERO), &["tick", "lengthen it"]),
    ];
    for (tick, parts) in ticks {
        let once = tenure.once("job", tick, |_| async { Ok::<_, String>(()) }).await;
        assert_says(&once.unwrap_err(), parts);
    }
    for lasts in [Duration::ZERO, seconds(u64::MAX / 2)] {
        assert_says(
            &tenure.observe("job").unwrap().pause(lasts).await.unwrap_err(),
            &["pause", "choose"],
        );
    }
    witness.assert_unchanged("a setting out of bounds");
}

#[tokio::test]
async fn a_refused_login_says_so_in_every_call_and_what_to_do() {
    let server = RedisServer::builder()
        .acl("user default off\nuser admin on >admin allcommands allkeys allchannels")
        .login("admin", "admin")
        .start();
    server.cli(&["SET", "somebody", "else"]);
    let address = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port());
    let cases = [
        ("admin:wrong@", ["login is refused", "check user and password"]),
        ("nobody:admin@", ["login is refused", "check user and password"]),
        ("", ["NOAUTH", "redis://user:password@host"]),
    ];
    for (login, parts) in cases {
        let builder = Tenure::builder().store(&address(login)).ttl(seconds(1));
        let tenure = builder.connect().await.unwrap();
        let error = tenure.try_acquire("job").await.unwrap_err();
        assert!(
            matches!(&error, Error::Store(why) if why.kind() == StoreErrorKind::Denied),
            "{login}: {error:?}"
        );
        assert_says(&error, &parts);
        let error = tenure.observe("job").unwrap().leader().await.unwrap_err();
        assert_says(&error, &parts);
        let mut player = start(tenure.election("job").fresh_store(true)).await;
        let reason = player.fails("store").await.to_string();
        assert!(reason.contains(parts[0]), "{reason}");
        assert!(!player.election.is_leader());
    }
    assert_eq!(server.cli(&["DBSIZE"]), "1", "nothing was written");
}

#[tokio::test]
async fn a_closed_port_is_told_soon_with_its_address_and_what_to_do() {
    let mut server = RedisServer::start();
    server.kill();
    // A try that waited for its time to pass would take a sixth of this.
    let builder = Tenure::builder().store(&server.url()).ttl(seconds(120));
    let tenure = builder.connect().await.unwrap();
    let began_at = clock::now();
    let address = format!("127.0.0.1:{}", server.port());
    let parts = ["store unreachable", &address, "nothing listens there: start the store"];
    for _ in 0..2 {
        assert_says(&tenure.try_acquire("job").await.unwrap_err(), &parts);
        assert_says(&tenure.observe("job").unwrap().leader().await.unwrap_err(), &parts);
    }
    assert!(clock::now().since(began_at) < seconds(15), "{:?}", clock::now().since(began_at));
    let waited = start(tenure.election("lasting")).await;
    let waited = waited.election.wait_for_leadership_within(millis(500)).await.unwrap_err();
    assert!(matches!(waited, Error::TimedOut { reason: Some(_), .. }), "{waited}");
}

#[tokio::test]
async fn foreign_data_in_the_way_is_named_and_left_as_it_is() {
    let (key, meta) = ("tenure:job", "{tenure:job}:meta");
    let cases: [(&[&str], &[&str]); 7] = [
        (&["HSET", key, "thread-1", "1"], &[key, "hash"]),
        (&["RPUSH", key, "a"], &[key, "list"]),
        (&["SADD", key, "a"], &[key, "set"]),
        (&["ZADD", key, "1", "a"], &[key, "zset"]),
        (&["XADD", key, "*", "a", "b"], &[key, "stream"]),
        (&["SET", meta, "mine"], &[meta, "string"]),
        (&["HSET", meta, "v", "2"], &[meta, "version 2"]),
    ];
    for (write, parts) in cases {
        let witness = Witness::new(&[write]);
        let builder = Tenure::builder().store(&witness.server.url()).fresh_store(true);
        let tenure = builder.connect().await.unwrap();
        let mut errors = vec![
            tenure.try_acquire("job").await.unwrap_err(),
            tenure
                .once("job", Tick::number(1), |_| async { Ok::<_, String>(()) })
                .await
                .unwrap_err(),
            tenure.observe("job").unwrap().pause(seconds(1)).await.unwrap_err(),
            tenure.observe("job").unwrap().force_clear("why").await.unwrap_err(),
        ];
        // Who leads is told by the key alone, whatever stands beside it.
        let (seen, asked) = (
            tenure.observe("job").unwrap().leader().await,
            tenure.observe("job").unwrap().ask_to_resign().await,
        );
        match parts[0] == key {
            true => errors.extend([seen.unwrap_err(), asked.unwrap_err()]),
            false => assert!(seen.is_ok() && asked.is_ok(), "{write:?}: {seen:?}, {asked:?}"),
        }
        for error in errors {
            assert!(matches!(error, Error::Conflict { .. }), "{write:?}: {error:?}");
            assert_says(&error, parts);
            assert_says(&error, &["choose another key, or remove it yourself"]);
        }
        let mut player = start(tenure.election("job")).await;
        player.fails("conflict").await;
        player.election.stop().await;
        witness.assert_unchanged(&format!("an election beside {write:?}"));
    }
}

/// Nobody leads by it, and operators can still act.
#[tokio::test]
async fn a_token_far_ahead_of_the_clock_is_named_and_grants_nothing() {
    let meta = "{tenure:job}:meta";
    let server = RedisServer::start();
    server.cli(&["HSET", meta, "v", "1", "token", "9007199254740990"]);
    let builder = Tenure::builder().store(&server.url()).fresh_store(true);
    let tenure = builder.connect().await.unwrap();
    for error in [
        tenure.try_acquire("job").await.unwrap_err(),
        tenure.once("job", Tick::number(1), |_| async { Ok::<_, String>(()) }).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
        assert_says(&error, &[meta, "year ahead", "choose another key, or remove it yourself"]);
    }
    tenure.observe("job").unwrap().pause(seconds(1)).await.unwrap();
}

#[tokio::test]
async fn somebody_elses_lease_is_waited_for_and_not_touched() {
    let server = RedisServer::start();
    server.cli(&["SET", "tenure:job", "somebody-else", "PX", "600000"]);
    let mut player = join(&server.url(), "player", seconds(1)).await;
    let reason = player.fails("held").await.to_string();
    assert!(reason.contains("somebody-else"), "{reason}");
    tokio::time::sleep(millis(1500)).await;
    player.election.stop().await;
    assert_eq!(server.cli(&["GET", "tenure:job"]), "somebody-else");
    assert!(server.cli(&["PTTL", "tenure:job"]).parse::<u64>().unwrap() > 500_000);
}
