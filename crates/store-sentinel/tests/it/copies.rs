//! Two sentinels with one id, as after a disk was copied.

use std::time::Duration;

use store_sentinel::{EventKind, Output, Vote};

use crate::story::{SERVERS, Story, id};

/// A hello of a copy of this sentinel.
const COPY: &str = "10.0.0.8,26379,me,0,mymaster,10.0.0.1,6379,0";

/// What the operator was told of ids.
fn advice(story: &Story) -> Vec<&str> {
    let advice = story.outputs.iter().filter_map(|output| match output {
        Output::Advise(text) => Some(text.as_str()),
        _ => None,
    });
    advice.filter(|text| text.contains("the id")).collect()
}

#[test]
fn a_copy_of_this_sentinel_is_told_to_the_operator_once() {
    let mut story = Story::new("");
    story.hears("10.0.0.9,26379,me,0,mymaster,10.0.0.1,6379,0");
    assert_eq!(advice(&story), [""; 0], "its own hellos come back");
    for _ in 0..3 {
        story.hears(COPY);
    }
    assert_eq!(advice(&story).len(), 1);
    assert!(advice(&story)[0].contains("10.0.0.8:26379") && advice(&story)[0].contains("myid"));
}

#[test]
fn a_sentinel_with_a_copy_gives_no_vote_until_the_copy_is_gone_for_a_while() {
    let mut story = Story::new("");
    story.hears(COPY);
    assert_eq!(story.is_asked("ann", 7).0.vote, None, "the copy may vote for bob");
    story.pass(Duration::from_secs(150));
    assert_eq!(story.is_asked("ann", 8).0.vote, None);
    story.pass(Duration::from_secs(60));
    assert_eq!(story.is_asked("ann", 9).0.vote, Some(Vote { leader: id("ann"), epoch: 9 }));
    story.hears(COPY);
    assert_eq!(advice(&story).len(), 2, "it is told when one comes again");
}

#[test]
fn a_sentinel_with_a_copy_leads_no_failover_but_when_an_operator_wants_it() {
    for is_seen_late in [false, true] {
        let mut story = Story::new("");
        story.silent.insert(SERVERS[0]);
        if !is_seen_late {
            story.hears(COPY);
        }
        story.others_say_down(None);
        story.passes_until(EventKind::ObjectivelyDown);
        if is_seen_late {
            story.passes_until(EventKind::TryFailover);
            story.hears(COPY);
        }
        story.others_say_down(Some(Vote { leader: id("me"), epoch: 1 }));
        story.pass(Duration::from_secs(30));
        assert!(!story.has_told(EventKind::ElectedLeader), "votes for the copy look the same");
        assert_eq!(story.has_told(EventKind::TryFailover), is_seen_late);
    }
    let mut story = Story::new("");
    story.hears(COPY);
    story.sentinel.start_failover(story.now, "mymaster").expect("somebody can take over");
    story.passes_until(EventKind::SwitchPrimary);
}

#[test]
fn two_others_with_one_id_count_as_one_and_are_told_to_the_operator() {
    let mut story = Story::new("");
    for _ in 0..5 {
        story.hears("10.0.0.5,26379,ann,0,mymaster,10.0.0.1,6379,0");
        story.hears("10.0.0.7,26379,ann,0,mymaster,10.0.0.1,6379,0");
        story.pass(Duration::from_secs(2));
    }
    assert_eq!(story.group().sentinels().count(), 2, "ann and bob");
    assert_eq!(advice(&story).len(), 1);
    assert!(advice(&story)[0].contains("count as one"));

    let mut moved = Story::new("");
    moved.hears("10.0.0.5,26379,ann,0,mymaster,10.0.0.1,6379,0");
    moved.pass(Duration::from_secs(90));
    moved.hears("10.0.0.7,26379,ann,0,mymaster,10.0.0.1,6379,0");
    assert_eq!(advice(&moved), [""; 0], "it has moved, and later back");
}
