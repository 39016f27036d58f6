//! A primary dies or stands still, and all sentinels end up with one address.

use testkit::{GENEROUS, SentinelGroup, wait_for, wait_until};

use super::{hurry, own, real};

/// Everybody names `master`, it says so itself, and the servers in `followers` follow it.
fn settles(group: &SentinelGroup, master: usize, followers: &[usize]) {
    let address = format!("127.0.0.1\n{}", group.servers[master].port());
    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelGroup::MASTER];
    wait_until("all sentinels to name one address", GENEROUS, || {
        group.sentinels.iter().all(|sentinel| sentinel.cli(&words) == address)
    });
    let port = format!("slave\n127.0.0.1\n{}\nconnected", group.servers[master].port());
    wait_until("all servers to follow it", GENEROUS, || {
        let roles = followers.iter().map(|at| group.servers[*at].role());
        roles.into_iter().all(|role| role.is_some_and(|role| role.starts_with(&port)))
    });
}

fn others(group: &SentinelGroup, master: usize, gone: &[usize]) -> Vec<usize> {
    (0..group.servers.len()).filter(|at| *at != master && !gone.contains(at)).collect()
}

#[test]
fn own_sentinels_replace_a_killed_primary_and_take_it_back_as_a_replica() {
    let mut group = SentinelGroup::start_mixed(&real(3), &own(3));
    hurry(&group);
    group.wait_until_heard();
    group.servers[0].kill();
    let new = group.wait_for_another_master(0);
    settles(&group, new, &others(&group, new, &[0]));

    group.servers[0].restart();
    settles(&group, new, &others(&group, new, &[]));

    // One that lost its file hears of the present state, and the others of its new name.
    let id = group.sentinels[2].cli(&["SENTINEL", "MYID"]);
    group.sentinels[2].restart_without_memory();
    assert_ne!(group.sentinels[2].cli(&["SENTINEL", "MYID"]), id);
    settles(&group, new, &[]);
    wait_until("the old name to be forgotten", GENEROUS, || {
        group.sentinels.iter().all(|one| one.field("num-other-sentinels") == "2")
    });

    // One that restarts with its file knows everything at once.
    let id = group.sentinels[1].cli(&["SENTINEL", "MYID"]);
    group.sentinels[1].restart();
    assert_eq!(group.sentinels[1].cli(&["SENTINEL", "MYID"]), id);
    settles(&group, new, &[]);
}

#[test]
fn own_and_real_sentinels_vote_together_over_own_and_real_servers() {
    let servers = [own(1), real(1), own(1)].concat();
    let mut group = SentinelGroup::start_mixed(&servers, &[own(2), real(1)].concat());
    hurry(&group);
    group.wait_until_heard();
    group.servers[0].pause();
    let new = group.wait_for_another_master(0);
    settles(&group, new, &others(&group, new, &[0]));
    group.servers[0].resume();
    settles(&group, new, &others(&group, new, &[]));

    // The real one leads, and ours follow; then the other way round.
    let mut before = new;
    for leader in [2, 0] {
        // One that comes to nothing is not tried again by itself.
        let new = wait_for("another master by hand", GENEROUS, || {
            group.sentinels[leader].cli(&["SENTINEL", "FAILOVER", SentinelGroup::MASTER]);
            group.master().filter(|new| *new != before)
        });
        settles(&group, new, &others(&group, new, &[]));
        before = new;
    }
}

#[test]
fn two_real_sentinels_and_one_of_ours_replace_a_primary() {
    let mut group = SentinelGroup::start_mixed(&own(2), &[real(2), own(1)].concat());
    group.wait_until_heard();
    // Neither of the real ones alone is a majority.
    group.sentinels[0].kill();
    group.servers[0].kill();
    let new = group.wait_for_another_master(0);
    assert_eq!(new, 1);
    let epochs = group.sentinels[1..].iter().map(|one| one.field("config-epoch"));
    assert!(epochs.into_iter().all(|epoch| epoch != "0"));
}
