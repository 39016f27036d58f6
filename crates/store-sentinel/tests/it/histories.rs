//! A replica with the data of another history than the primary's comes last.

use std::time::Duration;

use store_sentinel::{EventKind, Vote};

use crate::story::{SERVERS, Server, Story, id};

/// The primary restarts with a new history, and 6380 follows it. 6381, which would be chosen by
/// priority and by offset, has not synchronised since.
fn restarted() -> Story {
    let mut story = Story::new("");
    let stale = server(&mut story, 6381);
    (stale.offset, stale.priority) = (461_665, 10);
    server(&mut story, SERVERS[0]).history = "second";
    story.comes_back(SERVERS[0]);
    server(&mut story, 6380).history = "second";
    story
}

fn server(story: &mut Story, port: u16) -> &mut Server {
    story.servers.get_mut(&port).expect("a server")
}

/// Who is promoted when the primary goes.
fn chosen(mut story: Story) -> u16 {
    story.silent.insert(SERVERS[0]);
    story.others_say_down(Some(Vote { leader: id("me"), epoch: 1 }));
    story.passes_until(EventKind::SendPromotion);
    story.pass(Duration::from_millis(200));
    story.follows[0].0
}

#[test]
fn a_replica_of_an_older_history_comes_last_whatever_its_offset_and_priority() {
    let mut story = restarted();
    story.pass(Duration::from_secs(12));
    assert_eq!(chosen(story), 6380);
}

#[test]
fn the_history_behind_a_new_connection_is_asked_for_at_once() {
    let mut story = restarted();
    story.pass(Duration::from_secs(2));
    assert_eq!(chosen(story), 6380);
}

#[test]
fn a_replica_of_an_older_history_is_promoted_when_there_is_no_other() {
    let mut story = restarted();
    server(&mut story, 6380).priority = 0;
    story.pass(Duration::from_secs(12));
    assert_eq!(chosen(story), 6381);
}

#[test]
fn a_replica_that_has_the_start_of_the_new_history_is_ranked_by_its_data() {
    let starts = |end: u64| {
        let mut story = restarted();
        server(&mut story, SERVERS[0]).second = ("first", end);
        story.pass(Duration::from_secs(12));
        chosen(story)
    };
    assert_eq!(starts(461_666), 6381);
    assert_eq!(starts(461_665), 6380, "it has bytes that the primary has not");
}

#[test]
fn a_server_that_tells_no_history_is_ranked_by_its_data() {
    for silent in [SERVERS[0], 6381] {
        let mut story = restarted();
        server(&mut story, silent).history = "";
        story.pass(Duration::from_secs(12));
        assert_eq!(chosen(story), 6381, "{silent}");
    }
}

#[test]
fn a_primary_that_went_before_it_told_its_new_history_leaves_only_offsets() {
    let mut story = Story::new("");
    server(&mut story, 6380).offset = 2_000;
    // It is back for a moment, and only 6380 has reached it.
    story.silent.insert(SERVERS[0]);
    server(&mut story, 6380).history = "second";
    assert_eq!(chosen(story), 6380);
}

/// The primary restarts twice. 6381 is cut off with the first history; 6380 tells of the second one
/// after the primary has told of the third, because nobody has told it yet that its link is gone.
fn restarted_twice(is_second_told: bool) -> Story {
    let mut story = Story::new("");
    server(&mut story, 6381).offset = 461_665;
    if is_second_told {
        server(&mut story, SERVERS[0]).history = "second";
        story.comes_back(SERVERS[0]);
        story.pass(Duration::from_millis(300));
    }
    server(&mut story, SERVERS[0]).history = "third";
    story.comes_back(SERVERS[0]);
    story.pass(Duration::from_millis(300));
    // It is gone again before it is asked once more.
    story.silent.insert(SERVERS[0]);
    server(&mut story, 6380).history = "second";
    story.pass(Duration::from_secs(11));
    story
}

#[test]
fn a_replica_that_tells_of_a_history_which_the_primary_has_left_says_nothing_new() {
    let mut story = restarted_twice(true);
    server(&mut story, 6380).history = "third";
    assert_eq!(chosen(story), 6380);
}

#[test]
fn a_history_that_a_replica_has_left_for_the_newest_is_an_older_one() {
    let mut story = restarted_twice(false);
    // 6381 has come as far as 6380, and is cut off again.
    server(&mut story, 6381).history = "second";
    server(&mut story, 6380).history = "third";
    assert_eq!(chosen(story), 6380);
}

#[test]
fn where_two_histories_may_be_the_newest_a_replica_of_neither_comes_last() {
    assert_eq!(chosen(restarted_twice(false)), 6380);
}

#[test]
fn what_the_primary_tells_again_is_newer_than_what_a_replica_told_before() {
    let mut story = restarted_twice(false);
    story.comes_back(SERVERS[0]);
    story.pass(Duration::from_secs(11));
    let other = server(&mut story, 6381);
    (other.history, other.is_link_up) = ("second", false);
    server(&mut story, 6380).history = "third";
    assert_eq!(chosen(story), 6380);
}

#[test]
fn after_a_failover_the_history_of_the_new_primary_counts() {
    let mut story = Story::new("");
    let promoted = server(&mut story, 6380);
    (promoted.history, promoted.second, promoted.priority) = ("second", ("first", 1_001), 1);
    story.silent.insert(SERVERS[0]);
    story.others_say_down(Some(Vote { leader: id("me"), epoch: 1 }));
    story.passes_until(EventKind::ReconfigureSent);
    let follower = server(&mut story, 6381);
    (follower.is_link_up, follower.history) = (true, "second");
    story.passes_until(EventKind::SwitchPrimary);
    // The old primary is back as a replica that has not synchronised, and has more of the old data.
    let old = server(&mut story, SERVERS[0]);
    (old.follows, old.is_link_up, old.offset) = (Some(6380), false, 9_000);
    story.comes_back(SERVERS[0]);
    story.pass(Duration::from_secs(60));
    story.follows.clear();
    story.outputs.clear();
    story.silent.insert(6380);
    story.others_say_down(Some(Vote { leader: id("me"), epoch: 2 }));
    story.passes_until(EventKind::SendPromotion);
    story.pass(Duration::from_millis(200));
    assert_eq!(story.follows[0], (6381, None));
}
