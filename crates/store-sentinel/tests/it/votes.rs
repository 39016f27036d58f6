//! Votes, epochs, the file, and time that stands still.

use std::time::Duration;

use store_replica::Moment;
use store_sentinel::{
    Configuration, DownAnswer, Draw, EventKind, FileOutcome, Output, Question, Sentinel, Timing,
    Vote,
};

use crate::story::{SERVERS, Story, address, id};

#[test]
fn a_vote_is_on_disk_before_it_is_told() {
    let mut story = Story::new("");
    let (answer, before) = story.is_asked("ann", 7);
    assert_eq!(answer.vote, Some(Vote { leader: id("ann"), epoch: 7 }));
    let file = before.iter().find_map(|output| match output {
        Output::Persist(text) => Some(text.clone()),
        _ => None,
    });
    let file = Configuration::parse(&file.expect("a file before the answer")).unwrap();
    assert_eq!((file.groups[0].leader_epoch, file.current_epoch), (7, 7));
}

#[test]
fn there_is_one_vote_in_an_epoch_even_across_a_restart() {
    let mut story = Story::new("");
    assert!(story.is_asked("ann", 7).0.vote.is_some());
    assert_eq!(story.is_asked("bob", 7).0.vote, Some(Vote { leader: id("ann"), epoch: 7 }));
    assert_eq!(story.is_asked("bob", 6).0.vote, Some(Vote { leader: id("ann"), epoch: 7 }));

    let configuration = story.sentinel.configuration();
    let draw = Draw::new(|_| 0);
    story.sentinel =
        Sentinel::new(Moment::from_ms(5), configuration, id("x"), Timing::default(), draw);
    story.now = Moment::from_ms(5);
    assert_eq!(story.sentinel.id(), &id("me"));
    assert_eq!(story.is_asked("bob", 7).0.vote, None);
    assert_eq!(story.is_asked("bob", 8).0.vote, Some(Vote { leader: id("bob"), epoch: 8 }));
}

/// What was answered and asked since the outputs were last cleared.
fn said(story: &Story, wanted: impl Fn(&Output) -> bool) -> usize {
    story.outputs.iter().filter(|output| wanted(output)).count()
}

fn answers(story: &Story) -> Vec<DownAnswer> {
    let answer = |output: &Output| match output {
        Output::Answer { answer, .. } => Some(answer.clone()),
        _ => None,
    };
    story.outputs.iter().filter_map(answer).collect()
}

#[test]
fn a_disk_that_hangs_delays_votes_and_hellos_but_no_pings() {
    let mut story = Story::new("");
    story.is_disk_hanging = true;
    story.hears_question("ann", 7);
    story.outputs.clear();
    story.pass(Duration::from_secs(60));
    let asked = |wanted: fn(&Question) -> bool| {
        said(&story, |output| matches!(output, Output::Send { question, .. } if wanted(question)))
    };
    assert!(asked(|it| *it == Question::Ping) >= 5 * 50, "five others, every second");
    assert!(asked(|it| *it == Question::Info) >= 3 * 5);
    assert_eq!(asked(|it| matches!(it, Question::Hello(_))), 0, "hellos tell of the epoch");
    assert!(answers(&story).is_empty() && !story.group().is_subjectively_down());
    assert_eq!(said(&story, |output| matches!(output, Output::Persist(_))), 0, "one at a time");

    story.disk_goes_on(FileOutcome::Written);
    let vote = Some(Vote { leader: id("ann"), epoch: 7 });
    assert_eq!(answers(&story), [DownAnswer { is_down: false, vote }]);
    story.outputs.clear();
    story.pass(Duration::from_secs(3));
    let is_hello =
        |output: &Output| matches!(output, Output::Send { question: Question::Hello(_), .. });
    assert!(said(&story, is_hello) >= 5);
}

#[test]
fn nobody_is_promoted_while_the_disk_hangs_or_fails() {
    for outcome in [None, Some(FileOutcome::Failed)] {
        let mut story = Story::new("");
        story.is_disk_hanging = true;
        story.silent.insert(SERVERS[0]);
        story.others_say_down(Some(Vote { leader: id("me"), epoch: 1 }));
        story.passes_until(EventKind::TryFailover);
        if let Some(outcome) = outcome {
            story.sentinel.handle_file(story.now, outcome);
        }
        story.passes_until(EventKind::PromotionTimedOut);
        assert_eq!(story.follows, [], "{outcome:?}");
        let asks_for_vote = |output: &Output| match output {
            Output::Send { question: Question::IsDown(asked), .. } => asked.candidate.is_some(),
            _ => false,
        };
        assert_eq!(said(&story, asks_for_vote), 0, "{outcome:?}");
    }
}

#[test]
fn a_vote_that_cannot_be_kept_is_not_given_then_or_later() {
    let mut story = Story::new("");
    story.is_disk_hanging = true;
    story.hears_question("ann", 7);
    story.sentinel.handle_file(story.now, FileOutcome::Failed);
    story.hears_question("ann", 7);
    let none = DownAnswer { is_down: false, vote: None };
    assert_eq!(answers(&story), [none.clone(), none]);
    story.outputs.clear();
    story.disk_goes_on(FileOutcome::Written);
    assert_eq!(story.is_asked("bob", 7).0.vote, Some(Vote { leader: id("ann"), epoch: 7 }));
}

#[test]
fn votes_of_another_epoch_elect_nobody() {
    let mut story = Story::new("");
    story.silent.insert(SERVERS[0]);
    story.others_say_down(Some(Vote { leader: id("me"), epoch: 9 }));
    story.passes_until(EventKind::TryFailover);
    assert_eq!(story.group().failover_epoch(), Some(1));
    story.hears("10.0.0.7,26379,ann,9,mymaster,10.0.0.1,6379,0");
    assert_eq!(story.sentinel.current_epoch(), 9);
    story.passes_until(EventKind::NotElected);
    assert!(!story.has_told(EventKind::ElectedLeader));
}

#[test]
fn a_failover_needs_a_quorum_that_says_down() {
    let mut story = Story::new("");
    story.silent.insert(SERVERS[0]);
    story.pass(Duration::from_secs(20));
    assert!(story.group().is_subjectively_down());
    assert!(!story.group().is_objectively_down() && !story.has_told(EventKind::TryFailover));
}

#[test]
fn nothing_is_decided_while_time_stood_still() {
    let mut story = Story::new("");
    story.silent.insert(SERVERS[0]);
    story.others_say_down(Some(Vote { leader: id("me"), epoch: 1 }));
    story.stand_still(Duration::from_secs(5));
    assert!(story.sentinel.is_tilted());
    story.pass(Duration::from_secs(29));
    assert!(!story.group().is_subjectively_down() && !story.has_told(EventKind::TryFailover));
    assert!(!story.is_asked("ann", 3).0.is_down);
    story.passes_until(EventKind::TryFailover);
    assert!(story.has_told(EventKind::TiltEnd));
}

#[test]
fn a_clock_that_goes_back_is_a_tilt_too() {
    let mut story = Story::new("");
    story.sentinel.handle_time(Moment::from_ms(999));
    assert!(story.sentinel.is_tilted());
}

#[test]
fn the_newer_configuration_wins() {
    let mut story = Story::new("sentinel config-epoch mymaster 4\n");
    story.hears("10.0.0.7,26379,ann,4,mymaster,10.0.0.1,6380,4");
    assert_eq!(story.group().address(), &address(6379));
    story.hears("10.0.0.7,26379,ann,5,mymaster,10.0.0.1,6380,5");
    assert_eq!(story.group().address(), &address(6380));
    assert_eq!(story.group().config_epoch(), 5);
    assert!(story.has_told(EventKind::SwitchPrimary));
    story.hears("10.0.0.7,26380,bob,5,mymaster,10.0.0.1,6379,4");
    assert_eq!(story.group().address(), &address(6380));

    let file = Configuration::parse(&story.file).unwrap();
    assert_eq!(file.groups[0].primary, address(6380));
    assert!(file.groups[0].replicas.contains(&address(6379)), "the old primary is remembered");
}

#[test]
fn a_vote_that_waited_for_the_disk_says_nothing_old_about_the_primary() {
    let mut story = Story::new("");
    story.silent.insert(SERVERS[0]);
    story.passes_until(EventKind::SubjectivelyDown);
    for is_still in [false, true] {
        story.is_disk_hanging = true;
        story.hears_question("ann", if is_still { 8 } else { 7 });
        story.outputs.clear();
        match is_still {
            true => story.stand_still(Duration::from_millis(2_500)),
            false => story.pass(Duration::from_millis(500)),
        }
        story.disk_goes_on(FileOutcome::Written);
        let told = answers(&story);
        assert!(told.len() == 1 && told[0].vote.is_some(), "{told:?}");
        assert_eq!(told[0].is_down, !is_still, "in TILT nobody is down");
    }
}

#[test]
fn a_disk_that_hangs_for_ever_keeps_a_limited_number_waiting() {
    let mut story = Story::new("");
    story.is_disk_hanging = true;
    for epoch in 1..=5_000 {
        story.hears_question("ann", epoch);
    }
    let answers = answers(&story);
    assert!((3_000..5_000).contains(&answers.len()), "{} are told", answers.len());
    assert!(answers.iter().all(|answer| answer.vote.is_none()), "that they get no vote");
}

#[test]
fn sentinels_are_found_and_ghosts_at_their_address_go() {
    let mut story = Story::new("");
    story.hears("10.0.0.7,26381,cid,0,mymaster,10.0.0.1,6379,0");
    assert_eq!(story.group().sentinels().count(), 3);
    story.hears("10.0.0.7,26381,new,0,mymaster,10.0.0.1,6379,0");
    assert!(story.has_told(EventKind::SentinelInvalidAddress));
    let names: Vec<&str> = story.group().sentinels().map(|id| id.as_str()).collect();
    assert_eq!(names, ["ann", "bob", "new"]);
    story.hears("10.0.0.7,26390,new,0,mymaster,10.0.0.1,6379,0");
    assert!(story.has_told(EventKind::SentinelAddressSwitch));
    assert_eq!(story.group().sentinels().count(), 3);
}

#[test]
fn a_group_that_is_monitored_anew_gives_no_second_vote_in_an_epoch() {
    let mut story = Story::new("");
    assert_eq!(story.is_asked("ann", 7).0.vote, Some(Vote { leader: id("ann"), epoch: 7 }));
    story.commands(&["remove", "mymaster"]);
    story.commands(&["monitor", "mymaster", "10.0.0.1", "6379", "2"]);
    assert_eq!(story.is_asked("bob", 7).0.vote, None);
    assert_eq!(story.is_asked("bob", 8).0.vote, Some(Vote { leader: id("bob"), epoch: 8 }));
}

#[test]
fn a_sentinel_whose_address_was_taken_is_asked_again_when_it_says_where_it_is() {
    let flags = |story: &mut Story| {
        story.pass(Duration::from_secs(1));
        let text = String::from_utf8(story.commands(&["sentinels", "mymaster"])).unwrap();
        let flags: Vec<_> = text.lines().skip_while(|line| *line != "flags").skip(2).collect();
        flags[0].to_owned()
    };
    let mut story = Story::new("");
    let ann_is = |port: u16| format!("10.0.0.7,{port},ann,0,mymaster,10.0.0.1,6379,0");
    let bob_is = |port: u16| format!("10.0.0.7,{port},bob,0,mymaster,10.0.0.1,6379,0");
    assert_eq!(flags(&mut story), "sentinel");
    story.hears(&bob_is(26379));
    assert!(flags(&mut story).ends_with("disconnected"));
    story.hears(&ann_is(26379));
    assert!(flags(&mut story).ends_with("disconnected"), "bob was heard there a moment ago");
    story.pass(Duration::from_secs(10));
    assert!(flags(&mut story).starts_with("s_down,"), "it is not asked, so it does not answer");
    story.hears(&ann_is(26379));
    assert_eq!(flags(&mut story), "sentinel", "bob says no more that it is there");
    story.hears(&ann_is(26390));
    assert_eq!(flags(&mut story), "sentinel");
}

/// Whether this sentinel is elected by the votes that it gets where `hellos` say others are.
fn is_elected_after(hellos: &[&str]) -> bool {
    is_elected_beside("", hellos)
}

/// The same where `extra` groups are watched, too.
fn is_elected_beside(extra: &str, hellos: &[&str]) -> bool {
    let mut story = Story::new(extra);
    for hello in hellos {
        story.hears(hello);
    }
    story.silent.insert(SERVERS[0]);
    // One other sentinel votes for this one, and the third does not answer.
    let vote = Some(Vote { leader: id("me"), epoch: 1 });
    story.answers.insert(26380, DownAnswer { is_down: true, vote });
    story.passes_until(EventKind::TryFailover);
    story.pass(Duration::from_secs(12));
    story.has_told(EventKind::ElectedLeader)
}

const CID: &str = "10.0.0.7,26381,cid,0,mymaster,10.0.0.1,6379,0";
const DAN: &str = "10.0.0.7,26382,dan,0,mymaster,10.0.0.1,6379,0";

#[test]
fn a_sentinel_that_takes_the_address_of_another_one_takes_no_vote_from_the_majority() {
    assert!(is_elected_after(&[]), "two of three");
    assert!(!is_elected_after(&[CID, DAN]), "two of five");
    let bob_moves = "10.0.0.7,26382,bob,0,mymaster,10.0.0.1,6379,0";
    let cid_moves = "10.0.0.7,26380,cid,0,mymaster,10.0.0.1,6379,0";
    assert!(!is_elected_after(&[CID, DAN, bob_moves, cid_moves]), "two of five, still");
    let dan_moves = "10.0.0.7,26380,dan,0,mymaster,10.0.0.1,6379,0";
    assert!(!is_elected_after(&[CID, DAN, cid_moves, dan_moves]), "and nobody votes twice");
}

#[test]
fn nobody_votes_twice_over_a_connection_that_another_group_uses() {
    let other = "sentinel monitor other 10.0.0.1 6380 2\n\
                 sentinel known-sentinel other 10.0.0.7 26380 bob\n";
    // Bob is gone, and still known in both groups; cid is in the first alone.
    let cid_moves = "10.0.0.7,26380,cid,0,mymaster,10.0.0.1,6379,0";
    assert!(!is_elected_beside(other, &[CID, DAN]), "two of five");
    assert!(!is_elected_beside(other, &[CID, DAN, cid_moves]), "two of five, still");
}

#[test]
fn a_sentinel_that_says_it_is_where_this_one_is_gives_no_votes() {
    let mut story = Story::new("");
    story.hears("10.0.0.9,26379,ann,0,mymaster,10.0.0.1,6379,0");
    story.hears("10.0.0.9,26379,bob,0,mymaster,10.0.0.1,6379,0");
    // Who asks there asks this sentinel.
    let vote = Some(Vote { leader: id("me"), epoch: 1 });
    story.answers.insert(26379, DownAnswer { is_down: true, vote });
    story.silent.insert(SERVERS[0]);
    story.pass(Duration::from_secs(15));
    assert!(!story.has_told(EventKind::ObjectivelyDown), "{:?}", story.told());
    let advice = story.outputs.iter().any(
        |output| matches!(output, Output::Advise(text) if text.contains("sentinel announce-ip")),
    );
    assert!(advice, "the operator is told");
    assert_eq!(story.group().sentinels().count(), 2, "it counts for the majority");
}

#[test]
fn what_others_said_before_a_tilt_does_not_count_after_it() {
    let mut story = Story::new("");
    story.silent.insert(SERVERS[0]);
    story.others_say_down(None);
    story.passes_until(EventKind::ObjectivelyDown);
    story.stand_still(Duration::from_secs(5));
    story.answers.clear();
    story.outputs.clear();
    story.pass(Duration::from_secs(31));
    assert!(story.group().is_subjectively_down());
    assert!(!story.group().is_objectively_down());
    assert!(!story.has_told(EventKind::TryFailover));
}

#[test]
fn names_that_others_say_are_looked_up_only_where_names_are_allowed() {
    let sentinels = |extra: &str, hello: &str| {
        let mut story = Story::new(extra);
        story.hears(hello);
        let primary = story.group().address().host.clone();
        (story.group().sentinels().count(), primary)
    };
    let somewhere = "somewhere.example,26379,cid,0,mymaster,10.0.0.1,6379,0";
    let elsewhere = "10.0.0.7,26379,ann,9,mymaster,elsewhere.example,6379,9";
    let allowed = "sentinel resolve-hostnames yes\n";
    let here = || "10.0.0.1".to_owned();
    assert_eq!(sentinels("", somewhere), (2, here()));
    assert_eq!(sentinels("", elsewhere), (2, here()));
    assert_eq!(sentinels(allowed, somewhere), (3, here()));
    assert_eq!(sentinels(allowed, elsewhere), (2, "elsewhere.example".to_owned()));
}

#[test]
fn the_name_of_a_connection_has_eight_characters_of_the_id() {
    let id = store_sentinel::RunId::parse(b"0123456789abcdef").unwrap();
    assert_eq!(format!("sentinel-{id:.8}-cmd"), "sentinel-01234567-cmd");
}
