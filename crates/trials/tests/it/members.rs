//! Who takes part, as everybody sees it.

use std::time::Duration;

use tenure::{Member, Observer, Tenure, Token};
use testkit::{GENEROUS, RedisServer, wait_until};
use trials::clock;
use trials::record::Record;

use crate::instance::{Instance, token_in};
use crate::player::start;

const TTL: Duration = Duration::from_secs(2);

async fn member(observer: &Observer, name: &str) -> Option<Member> {
    let members = observer.members().await.unwrap();
    members.into_iter().find(|member| member.id.answers_to(name))
}

/// Looks until the member called `name` is as wished.
async fn wait_for_member(observer: &Observer, name: &str, is_so: impl Fn(&Member) -> bool) {
    let wait = async {
        while !member(observer, name).await.as_ref().is_some_and(&is_so) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(GENEROUS, wait).await.unwrap_or_else(|_| panic!("{name} never is so"));
}

#[tokio::test]
async fn everybody_beats_and_is_seen_with_all_it_told_about_itself() {
    let server = RedisServer::start();
    let ttl = Duration::from_millis(900);
    let ada = Tenure::builder().instance("ada").store(&server.url()).connect().await.unwrap();
    let bob = Tenure::builder().instance("bob").store(&server.url()).connect().await.unwrap();
    let builder = ada.election("job").ttl(ttl).fresh_store(true).priority(7).version("1.2.3");
    let mut on_ada =
        start(builder.metadata("address", "10.0.0.1:80").metadata("größe", "\"ü\"\n")).await;
    let token = on_ada.leads().await;
    let on_bob = start(bob.election("job").ttl(ttl).priority(-7).ready(false)).await;

    let observer = Tenure::connect(&server.url()).await.unwrap().observe("job").unwrap();
    wait_for_member(&observer, "bob", |_| true).await;
    let seen = observer.look().await.unwrap();
    let leader = seen.leadership.leader().unwrap();
    assert_eq!((&leader.id, leader.token.map(Token::get)), (ada.id(), Some(token)), "its role");
    let [of_ada, of_bob] =
        [member(&observer, "ada").await.unwrap(), member(&observer, "bob").await.unwrap()];
    assert_eq!((of_ada.record.priority, of_bob.record.priority), (7, -7));
    assert!(of_ada.record.ready && of_ada.ready_since.is_some());
    assert!(!of_bob.record.ready && of_bob.ready_since.is_none());
    assert_eq!(of_ada.record.version, "1.2.3");
    assert_eq!(of_ada.record.metadata["address"], "10.0.0.1:80");
    assert_eq!(of_ada.record.metadata["größe"], "\"ü\"\n");
    assert_eq!(of_bob.record.ttl, ttl);

    // The leader and the one that may not even lead: both are heard again and again.
    for before in [&of_ada, &of_bob] {
        wait_for_member(&observer, before.id.name(), |now| now.beat_at > before.beat_at).await;
    }
    on_bob.election.set_ready(true);
    wait_for_member(&observer, "bob", |bob| bob.record.ready).await;
    wait_until("the leader to see its rival", GENEROUS, || {
        on_ada.election.status().seen_members.len() == 2
    });
    on_bob.election.stop().await;
    assert_eq!(member(&observer, "bob").await, None, "who leaves is a member no more");
}

#[tokio::test]
async fn a_member_that_died_is_forgotten() {
    let server = RedisServer::start();
    let ttl = Duration::from_millis(400);
    let mut leader = Instance::start(&server.url(), "leader", ttl);
    leader.wait_for_work();
    let mut dead = Instance::start(&server.url(), "dead", ttl);
    let members = ["HLEN", "{tenure:job}:members"];
    wait_until("both members", GENEROUS, || server.cli(&members) == "2");

    dead.process.kill();
    let killed_at = clock::now();
    wait_until("the dead one to be forgotten", GENEROUS, || server.cli(&members) == "1");
    assert_eq!(server.cli(&["ZRANGE", "{tenure:job}:beats", "0", "-1"]), leader.id);
    let after = clock::now().since(killed_at);
    println!("forgotten {after:?} after its death, at leases of {ttl:?}");
    assert!(after > 3 * ttl, "a short silence must not cost membership: {after:?}");
}

#[test]
fn two_processes_under_one_name_never_both_lead_and_are_both_shown() {
    let server = RedisServer::start();
    let mut first = Instance::start(&server.url(), "web", TTL);
    let led = first.wait_for_work();
    let mut twin = Instance::start(&server.url(), "web", TTL);
    assert_ne!(first.id, twin.id);
    wait_until("both to be members", GENEROUS, || {
        let members = server.cli(&["HKEYS", "{tenure:job}:members"]);
        members.contains(&first.id) && members.contains(&twin.id)
    });

    // Killed and at once started again under the same name: not the one that led, nor its twin.
    first.process.kill();
    let killed_at = clock::now();
    let mut restarted = Instance::start(&server.url(), "web", TTL);
    let (first_id, leader) = (first.id.clone(), || server.cli(&["GET", "tenure:job"]));
    wait_until("another leader", GENEROUS, || !["", &first_id].contains(&leader().as_str()));
    let follower = if leader() == twin.id { &mut twin } else { &mut restarted };
    assert!(token_in(&follower.wait_for_work()) > token_in(&led), "tokens must grow");
    std::thread::sleep(TTL / 2);

    let mut record = Record::default();
    first.record_work(&mut record, killed_at);
    [twin, restarted].iter_mut().for_each(|i| i.record_work(&mut record, clock::now()));
    assert_eq!(record.len(), 2, "one term before and one after: {record:?}");
    assert_eq!(record.overlaps(), []);
    assert_eq!(record.token_disorder(), []);
}
