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
