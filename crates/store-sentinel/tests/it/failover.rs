//! Whole failovers, and which replica is chosen.

use std::time::Duration;

use store_sentinel::{EventKind, FailoverRefused, Output, Question, Vote};

use crate::story::{SERVERS, Story, address, id};

fn elected(extra: &str) -> Story {
    let mut story = Story::new(extra);
    story.silent.insert(SERVERS[0]);
    story.others_say_down(Some(Vote { leader: id("me"), epoch: 1 }));
    story
}

#[test]
fn a_failover_goes_through_its_steps() {
    let mut story = elected("");
    story.passes_until(EventKind::ReconfigureSent);
    assert_eq!(story.group().address(), &address(6380), "told as soon as it is promoted");
    story.servers.get_mut(&6381).unwrap().is_link_up = true;
    story.passes_until(EventKind::SwitchPrimary);
    let expected = [
        "+sdown",
        "+odown",
        "+new-epoch",
        "+try-failover",
        "+vote-for-leader",
        "+elected-leader",
        "+failover-state-select-slave",
        "+selected-slave",
        "+failover-state-send-slaveof-noone",
        "+failover-state-wait-promotion",
        "-role-change",
        "+promoted-slave",
        "+failover-state-reconf-slaves",
        "+slave-reconf-sent",
        "+slave-reconf-inprog",
        "+slave-reconf-done",
        "+failover-end",
        "+switch-master",
        "+slave",
        "+slave",
    ];
    assert_eq!(story.told(), expected);
    assert_eq!(story.follows, [(6380, None), (6381, Some(6380))]);
    assert_eq!(story.group().config_epoch(), 1);
}

#[test]
fn a_promotion_is_on_disk_before_a_hello_tells_of_it() {
    let mut story = elected("");
    story.passes_until(EventKind::PromotedReplica);
    story.pass(Duration::from_millis(200));
    let is_told = |output: &Output| {
        matches!(output, Output::Send { question: Question::Hello(text), .. }
            if text.ends_with(",10.0.0.1,6380,1"))
    };
    let is_kept = |output: &Output| matches!(output, Output::Persist(text) if text.contains("monitor mymaster 10.0.0.1 6380"));
    let told_at = story.outputs.iter().position(is_told).unwrap();
    let kept_at = story.outputs.iter().position(is_kept).unwrap();
    assert!(kept_at < told_at);
}

#[test]
fn an_old_primary_that_comes_back_becomes_a_replica() {
    let mut story = elected("");
    story.passes_until(EventKind::ReconfigureSent);
    story.servers.get_mut(&6381).unwrap().is_link_up = true;
    story.passes_until(EventKind::SwitchPrimary);
    story.comes_back(SERVERS[0]);
    story.passes_until(EventKind::ConvertToReplica);
    assert_eq!(story.follows.last(), Some(&(6379, Some(6380))));
}

#[test]
fn priority_goes_before_data_and_data_before_names() {
    let chosen = |change: fn(&mut Story)| {
        let mut story = Story::new("");
        change(&mut story);
        // Reports are as old as ten seconds while all is well.
        story.pass(Duration::from_secs(12));
        story.silent.insert(SERVERS[0]);
        story.others_say_down(Some(Vote { leader: id("me"), epoch: 1 }));
        story.passes_until(EventKind::SendPromotion);
        story.pass(Duration::from_millis(200));
        story.follows[0].0
    };
    assert_eq!(chosen(|_| {}), 6380);
    assert_eq!(chosen(|story| story.servers.get_mut(&6381).unwrap().offset = 1_001), 6381);
    assert_eq!(
        chosen(|story| {
            story.servers.get_mut(&6381).unwrap().offset = 1_001;
            story.servers.get_mut(&6380).unwrap().priority = 99;
        }),
        6380
    );
    assert_eq!(chosen(|story| story.servers.get_mut(&6380).unwrap().priority = 0), 6381);
}

#[test]
fn a_replica_that_lost_its_primary_long_ago_is_not_promoted() {
    let mut story = elected("");
    for port in &SERVERS[1..] {
        let server = story.servers.get_mut(port).unwrap();
        (server.is_link_up, server.link_down_s) = (false, 60);
    }
    story.passes_until(EventKind::NoGoodReplica);
    assert!(story.follows.is_empty());
}

/// Whether a replica would be promoted that has said for how long it has been without its primary,
/// and nothing for a while since. Twenty seconds, and those since the primary is down, are allowed.
fn is_promoted_after(link_down_s: u64) -> bool {
    let mut story = Story::new("");
    for port in &SERVERS[1..] {
        let server = story.servers.get_mut(port).expect("a server");
        (server.is_link_up, server.link_down_s) = (false, link_down_s);
    }
    story.silent.insert(SERVERS[0]);
    story.passes_until(EventKind::SubjectivelyDown);
    story.pass(Duration::from_millis(1_500));
    story.silent.extend(&SERVERS[1..]);
    story.pass(Duration::from_millis(1_500));
    story.sentinel.start_failover(story.now, "mymaster").is_ok()
}

#[test]
fn a_replica_is_without_its_primary_for_longer_the_older_its_report_is() {
    assert!(is_promoted_after(20));
    assert!(!is_promoted_after(22));
    assert!(!is_promoted_after(u64::MAX));
}

#[test]
fn a_replica_that_does_not_obey_ends_the_failover() {
    let mut story = elected("");
    story.servers.get_mut(&6380).unwrap().obeys = false;
    story.passes_until(EventKind::PromotionTimedOut);
    assert_eq!(story.group().failover_step(), None);
    assert_eq!(story.group().address(), &address(6379));
}

#[test]
fn an_operator_needs_no_votes_but_somebody_to_take_over() {
    let mut story = Story::new("");
    assert_eq!(story.sentinel.start_failover(story.now, "x"), Err(FailoverRefused::UnknownName));
    story.sentinel.start_failover(story.now, "mymaster").unwrap();
    assert_eq!(story.sentinel.start_failover(story.now, "mymaster"), Err(FailoverRefused::Running));
    story.passes_until(EventKind::PromotedReplica);
}

#[test]
fn a_reset_after_the_promotion_does_not_go_back_to_the_old_primary() {
    let mut story = elected("");
    story.passes_until(EventKind::PromotedReplica);
    assert_eq!((story.group().address(), story.group().config_epoch()), (&address(6380), 1));
    story.commands(&["reset", "*"]);
    assert_eq!((story.group().address(), story.group().config_epoch()), (&address(6380), 1));
    assert!(story.has_told(EventKind::SwitchPrimary), "{:?}", story.told());
    assert!(story.file.contains("monitor mymaster 10.0.0.1 6380"), "{}", story.file);
}

#[test]
fn nobody_is_sent_to_a_primary_that_is_being_replaced() {
    let mut story = Story::new("");
    let stray = story.servers.get_mut(&6381).unwrap();
    (stray.follows, stray.obeys, stray.priority) = (Some(6399), false, 200);
    story.silent.insert(SERVERS[0]);
    // Long enough that it would be put right, if there were a primary to follow.
    story.pass(Duration::from_secs(25));
    story.others_say_down(Some(Vote { leader: id("me"), epoch: 1 }));
    story.passes_until(EventKind::ReconfigureSent);
    story.comes_back(SERVERS[0]);
    story.pass(Duration::from_secs(5));
    assert!(!story.has_told(EventKind::FixReplica));
    assert_eq!(story.follows, [(6380, None), (6381, Some(6380))]);
}
