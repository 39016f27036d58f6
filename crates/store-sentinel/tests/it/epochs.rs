//! Epochs that would leave none for later failovers.

use std::time::Duration;

use store_sentinel::{Configuration, EventKind, FailoverRefused, Output, Vote};

use crate::story::{SERVERS, Story, address, file, id};

/// The greatest epoch that is believed whoever says it.
const EPOCH_MAX: u64 = i64::MAX as u64 - (1 << 32);

/// What the operator was told about epochs.
fn advice(story: &Story) -> Vec<String> {
    let advice = story.outputs.iter().filter_map(|output| match output {
        Output::Advise(text) => Some(text.clone()),
        _ => None,
    });
    advice.filter(|text| text.contains("epoch")).collect()
}

/// The primary is lost, and this sentinel replaces it in this epoch.
fn fails_over(story: &mut Story, epoch: u64) {
    story.silent.insert(SERVERS[0]);
    story.others_say_down(Some(Vote { leader: id("me"), epoch }));
    story.passes_until(EventKind::SwitchPrimary);
    assert_eq!(story.group().config_epoch(), epoch);
}

#[test]
fn a_hello_with_an_epoch_near_the_end_stops_no_failover() {
    for (current, config) in [(u64::MAX, 0), (0, u64::MAX), (EPOCH_MAX + 1, EPOCH_MAX + 1)] {
        let mut story = Story::new("");
        story.hears(&format!("10.0.0.7,26379,ann,{current},mymaster,10.0.0.1,6380,{config}"));
        assert_eq!(story.sentinel.current_epoch(), 0);
        assert_eq!(story.group().address(), &address(6379), "its configuration is not taken");
        let told = advice(&story);
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("ann at 10.0.0.7:26379") && told[0].contains("Stop that"));
        fails_over(&mut story, 1);
    }
}

#[test]
fn a_candidate_with_an_epoch_near_the_end_gets_no_vote_and_stops_no_failover() {
    for (candidate, shown) in [("ann", "ann at 10.0.0.7:26379"), ("eve", "with the id eve")] {
        for epoch in [EPOCH_MAX + 1, i64::MAX as u64, u64::MAX - 1, u64::MAX] {
            let mut story = Story::new("");
            assert_eq!(story.is_asked(candidate, epoch).0.vote, None);
            assert_eq!(story.sentinel.current_epoch(), 0);
            assert!(story.is_asked("bob", 1).0.vote.is_some(), "others get one");
            let mut story = Story::new("");
            story.hears_question(candidate, epoch);
            assert!(advice(&story)[0].contains(shown), "{:?}", advice(&story));
            fails_over(&mut story, 1);
        }
    }
}

#[test]
fn the_greatest_epoch_that_is_believed_leaves_room_for_failovers() {
    let mut story = Story::new("");
    story.hears(&format!("10.0.0.7,26379,ann,{EPOCH_MAX},mymaster,10.0.0.1,6379,0"));
    assert!(story.is_asked("bob", EPOCH_MAX + 1).0.vote.is_some(), "others count on as well");
    fails_over(&mut story, EPOCH_MAX + 2);
    assert_eq!(advice(&story), [""; 0]);
    Configuration::parse(&story.file).expect("it starts again with its file");
}

#[test]
fn an_epoch_that_is_refused_is_told_once_a_minute() {
    let mut story = Story::new("");
    let hello = format!("10.0.0.7,26379,ann,{},mymaster,10.0.0.1,6379,0", u64::MAX);
    for _ in 0..60 {
        story.hears(&hello);
        story.pass(Duration::from_secs(2));
    }
    assert_eq!(advice(&story).len(), 2);
}

#[test]
fn an_epoch_near_the_end_in_the_file_is_refused_with_its_line_and_what_to_do() {
    for setting in ["current-epoch", "config-epoch mymaster", "leader-epoch mymaster"] {
        for epoch in [u64::MAX, i64::MAX as u64, i64::MAX as u64 - 1] {
            let text = file(&format!("sentinel {setting} {epoch}\n"));
            let error = Configuration::parse(&text).unwrap_err();
            assert_eq!(error.line, text.lines().count());
            let said = error.to_string();
            assert!(said.contains("no room") && said.contains("another sentinel"), "{said}");
        }
    }
}

#[test]
fn a_failover_is_beyond_every_epoch_that_the_file_or_a_hello_knows() {
    let lines = "sentinel config-epoch mymaster 8\nsentinel leader-epoch mymaster 9\n";
    fails_over(&mut Story::new(lines), 10);
    let mut story = Story::new("");
    story.hears("10.0.0.7,26379,ann,0,mymaster,10.0.0.1,6379,12");
    fails_over(&mut story, 13);
}

#[test]
fn when_the_epochs_are_used_up_the_operator_is_told() {
    let mut story = Story::new("");
    let mut epoch = EPOCH_MAX;
    while story.sentinel.current_epoch() < i64::MAX as u64 {
        story.hears(&format!("10.0.0.7,26379,ann,{epoch},mymaster,10.0.0.1,6379,0"));
        epoch = (epoch + (1 << 16)).min(i64::MAX as u64);
    }
    story.outputs.clear();
    let refused = story.sentinel.start_failover(story.now, "mymaster");
    assert_eq!(refused, Err(FailoverRefused::NoEpoch));
    story.silent.insert(SERVERS[0]);
    story.others_say_down(None);
    story.passes_until(EventKind::ObjectivelyDown);
    story.pass(Duration::from_secs(30));
    assert_eq!(advice(&story).len(), 1, "not with every tick");
    assert!(advice(&story)[0].contains("nobody can replace mymaster"));
}
