//! Any command goes to the node that has its keys.

use std::time::Duration;

use store_client::redis::{self, AsyncCommands, Cmd};
use store_client::{ClusterClient, ClusterError, pipelined};
use testkit::{ClusterGroup, GENEROUS, wait_until};

use super::count;

#[tokio::test(flavor = "current_thread")]
async fn every_kind_of_command_finds_the_node_that_has_its_keys() {
    let group = ClusterGroup::start().steady();
    let mut client = ClusterClient::connect(&group.url()).await.unwrap();
    plain_commands_and_pipelines(&mut client).await;
    commands_with_keys_in_odd_places(&client).await;
    transactions(&mut client).await;
    commands_that_block(&client).await;
    commands_without_keys(&client).await;
    what_cannot_be(&client).await;
    reads_from_replicas(&group).await;
    // None of all that was sent to a wrong node.
    assert_eq!(super::told(&group, "MOVED"), 0);
}

async fn plain_commands_and_pipelines(client: &mut ClusterClient) {
    for number in 0..100 {
        let _: () = client.set(format!("key:{number}"), number).await.unwrap();
    }
    let sum: u32 = {
        let mut sum = 0;
        for number in 0..100 {
            sum += client.get::<_, u32>(format!("key:{number}")).await.unwrap();
        }
        sum
    };
    assert_eq!(sum, 4950);
    let counting = (0..3000).map(|number| Cmd::incr(format!("many:{}", number % 300), 1));
    assert!(client.query_all(counting).await.iter().all(Result::is_ok));
    let commands = (0..300).map(|number| match number {
        7 => redis::cmd("NOSUCH"),
        _ => Cmd::get(format!("many:{number}")),
    });
    let mut failed = Vec::new();
    let done = pipelined(client, commands, 100, |number, outcome| match outcome {
        Ok(value) => assert_eq!(value, redis::Value::BulkString(b"10".to_vec())),
        Err(_) => failed.push(number),
    });
    assert_eq!(done.await.unwrap().done, 299);
    assert_eq!(failed, [7]);
}

async fn commands_with_keys_in_odd_places(client: &ClusterClient) {
    let mut script = redis::cmd("EVAL");
    script.arg("return redis.call('SET', KEYS[1], ARGV[1])").arg(1).arg("scripted").arg("yes");
    client.query::<()>(&script).await.unwrap();
    let scripted: String = client.query(&Cmd::get("scripted")).await.unwrap();
    assert_eq!(scripted, "yes");
    let mut add = redis::cmd("XADD");
    client.query::<String>(add.arg("stream").arg("1-1").arg("a").arg("b")).await.unwrap();
    let mut read = redis::cmd("XREAD");
    read.arg("COUNT").arg(1).arg("STREAMS").arg("stream").arg("0");
    assert!(matches!(client.query(&read).await.unwrap(), redis::Value::Array(_)));
    let mut usage = redis::cmd("OBJECT");
    let encoding: String = client.query(usage.arg("ENCODING").arg("scripted")).await.unwrap();
    assert_eq!(encoding, "embstr");
    let mut union = redis::cmd("ZUNION");
    let none: Vec<String> = client.query(union.arg(1).arg("no-such-set")).await.unwrap();
    assert!(none.is_empty());
}

async fn transactions(client: &mut ClusterClient) {
    let mut transfer = redis::pipe();
    transfer.atomic().decr("{account}:left", 5).incr("{account}:right", 5);
    let balances: (i64, i64) = transfer.query_async(client).await.unwrap();
    assert_eq!(balances, (-5, 5));
    let mut astray = redis::pipe();
    astray.atomic().set("a", 1).set("b", 2);
    let error = astray.query_async::<()>(client).await.unwrap_err();
    assert!(matches!(ClusterError::of(&error), Some(ClusterError::CrossSlot { .. })), "{error}");
}

async fn commands_that_block(client: &ClusterClient) {
    let mut take = redis::cmd("BLPOP");
    take.arg("queue").arg(0);
    let taking = client.query::<(String, String)>(&take);
    let giving = async {
        // It goes to the same node and does not wait behind the one that blocks.
        client.query::<i64>(redis::cmd("LPUSH").arg("queue").arg("job")).await.unwrap()
    };
    let (taken, _) = tokio::join!(taking, giving);
    assert_eq!(taken.unwrap(), ("queue".into(), "job".into()));
}

async fn commands_without_keys(client: &ClusterClient) {
    assert_eq!(client.query::<String>(&redis::cmd("PING")).await.unwrap(), "PONG");
    let sizes = client.query_primaries(&redis::cmd("DBSIZE")).await;
    assert_eq!(sizes.len(), ClusterGroup::MASTERS);
    for (node, size) in sizes {
        assert!(matches!(size, Ok(redis::Value::Int(1..))), "{node}: {size:?}");
    }
}

async fn what_cannot_be(client: &ClusterClient) {
    let mut several = redis::cmd("MGET");
    let error = client.query::<()>(several.arg("a").arg("b")).await.unwrap_err();
    assert!(error.to_string().contains("hash to the same slot"), "{error}");
    let error = client.query::<()>(&redis::cmd("MULTI")).await.unwrap_err();
    assert!(matches!(error, ClusterError::NotShared(..)), "{error}");
    let error = client.query::<()>(redis::cmd("NOSUCH").arg("a")).await.unwrap_err();
    assert!(error.to_string().contains("unknown command"), "{error}");
    let error = client.query::<u64>(&Cmd::get("scripted")).await.unwrap_err();
    assert!(matches!(error, ClusterError::Type(_)), "{error}");
    let told = redis::RedisError::from(ClusterError::Unavailable("nobody".into()));
    assert!(ClusterError::of(&told).is_some(), "{told:?}");
}

async fn reads_from_replicas(group: &ClusterGroup) {
    let reads = |place| count(group, place, "commandstats", "cmdstat_get:calls=");
    let of_replicas = || (ClusterGroup::MASTERS..group.len()).map(reads).sum::<u64>();
    assert_eq!(of_replicas(), 0, "nobody asked for old answers");
    // A node tells of a replica once it has heard that it has data.
    let replicas = || ClusterGroup::MASTERS..group.len();
    let tells = |place: usize| {
        let slots = group.server(place).cli(&["CLUSTER", "SLOTS"]);
        let mut ports = replicas().map(|replica| group.server(replica).port().to_string());
        ports.all(|port| slots.lines().any(|line| *line == port))
    };
    wait_until("every node to tell of all replicas", GENEROUS, || (0..group.len()).all(tells));
    for place in 0..ClusterGroup::MASTERS {
        assert!(group.server(place).has_replicas_in_step(1));
    }
    let client = ClusterClient::connect(&group.url()).await.unwrap();
    let replicas = client.reading_from_replicas();
    for number in 0..100 {
        let key = format!("key:{number}");
        let value: u32 = replicas.query(&Cmd::get(&key)).await.unwrap();
        assert_eq!(value, number);
        replicas.query::<()>(&Cmd::set(&key, number)).await.unwrap();
    }
    assert_eq!(of_replicas(), 100);
}

#[tokio::test(flavor = "current_thread")]
async fn a_login_counts_for_all_nodes_and_a_lost_idle_connection_is_made_again() {
    let secret = "s3cret";
    let group =
        ClusterGroup::start_with(|builder| builder.password(secret).args(["--masterauth", secret]))
            .steady();
    let address = group.url().replace("://", "://:s3cret@");
    let client = ClusterClient::connect(&address).await.unwrap();
    for number in 0..30 {
        client.query::<()>(&Cmd::set(format!("key:{number}"), number)).await.unwrap();
    }
    for place in 0..ClusterGroup::MASTERS {
        group.server(place).cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
    // The ends of the connections are seen as soon as this task waits.
    tokio::time::sleep(Duration::from_millis(200)).await;
    for number in 0..30 {
        let value: u32 = client.query(&Cmd::get(format!("key:{number}"))).await.unwrap();
        assert_eq!(value, number);
    }
    let refused = ClusterClient::connect(&group.url()).await.unwrap_err().to_string();
    assert!(refused.contains("NOAUTH"), "{refused}");
    let wrong = ClusterClient::connect(&group.url().replace("://", "://:c4nary@")).await;
    let wrong = wrong.unwrap_err().to_string();
    assert!(!wrong.contains("c4nary") && !wrong.is_empty(), "{wrong}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_is_no_node_of_a_cluster_is_refused() {
    let server = testkit::RedisServer::start();
    let error = ClusterClient::connect(&server.url()).await.unwrap_err().to_string();
    assert!(error.contains("cluster support disabled"), "{error}");
}
