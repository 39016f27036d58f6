//! FAILOVER, from both ends.

use std::time::Duration;

use store_replica::{
    Address, FailoverError, FailoverPhase, FailoverRequest, LinkPhase, Output, Role, SessionId,
};

use crate::pair::{SESSION, Server, address};

const ID: &str = "0123456789abcdef0123456789abcdef01234567";

fn target() -> Address {
    Address { host: "replica".to_owned(), port: 7 }
}

fn primary_with_replica() -> Server {
    let mut primary = Server::with_delay_zero(1);
    primary.core.set_peer(primary.now, SESSION, "replica");
    primary.full_sync(SESSION);
    primary
}

#[test]
fn the_role_is_handed_over_when_a_replica_has_everything() {
    let mut primary = primary_with_replica();
    let offset = primary.write(0, "<a>");
    primary.core.start_failover(primary.now, FailoverRequest::default()).unwrap();
    assert_eq!(primary.outputs().last(), Some(&Output::PauseWrites));
    primary.ask(SESSION, &format!("REPLCONF ACK {offset}"));
    assert!(primary.outputs().contains(&Output::Become(Role::Replica(target()))));
    let id = primary.core.history().id();
    primary.shake_hands();
    let asked = primary.sent();
    assert!(asked.contains(&format!("PSYNC|$40|{id}|")) && asked.ends_with("FAILOVER|"), "{asked}");
    primary.hear(&format!("+CONTINUE {ID}\r\n"));
    assert!(primary.outputs().contains(&Output::Unpause));
    assert_eq!(primary.core.failover_phase(), FailoverPhase::None);
    assert_eq!(primary.core.link_phase(), Some(LinkPhase::Connected));
}

#[test]
fn a_replica_takes_over_from_its_own_primary_alone() {
    let mut replica = Server::with_delay_zero(2);
    replica.connect();
    replica.hear(&format!("+FULLRESYNC {ID} 100\r\n$4\r\nDATA"));
    replica.core.handle_loaded(replica.now, Some(0));
    replica.outputs();
    let stranger = "f".repeat(40);
    replica.ask(SESSION, &format!("PSYNC {stranger} 101 FAILOVER"));
    assert!(replica.replies().contains("replid must match my replid."));
    replica.ask(SESSION, &format!("PSYNC {ID} 101 FAILOVER"));
    let outputs = replica.outputs();
    let role = outputs.iter().position(|output| *output == Output::Become(Role::Primary)).unwrap();
    let answer = outputs.iter().position(|output| matches!(output, Output::Reply { .. })).unwrap();
    assert!(role < answer, "it is a primary before it says so");
    replica.ask(SessionId(2), &format!("PSYNC {ID} 101 FAILOVER"));
    assert!(replica.replies().contains("can't be sent to a master."));
}

#[test]
fn a_refusal_gives_the_role_back() {
    let mut primary = primary_with_replica();
    primary.core.start_failover(primary.now, FailoverRequest::default()).unwrap();
    primary.shake_hands();
    primary.hear("-ERR PSYNC FAILOVER replid must match my replid.\r\n");
    let outputs = primary.outputs();
    assert!(outputs.contains(&Output::Become(Role::Primary)) && outputs.contains(&Output::Unpause));
    assert!(primary.core.is_primary());
}

/// The answer to PSYNC FAILOVER was lost, and the target says then that it is a primary.
fn unanswered() -> Server {
    let mut primary = primary_with_replica();
    primary.core.start_failover(primary.now, FailoverRequest::default()).unwrap();
    primary.shake_hands();
    primary.core.handle_link_down(primary.now);
    primary.pass(1_000);
    primary.outputs();
    primary.shake_hands();
    primary.outputs();
    primary.hear("-ERR PSYNC FAILOVER can't be sent to a master.\r\n");
    let asked = primary.sent();
    assert!(asked.contains("PSYNC") && !asked.contains("FAILOVER"), "{asked}");
    primary
}

#[test]
fn an_answer_that_was_lost_does_not_make_two_primaries() {
    let mut primary = unanswered();
    primary.hear(&format!("+CONTINUE {ID}\r\n"));
    assert!(!primary.core.is_primary(), "it did take over when it was asked first");
    assert!(primary.outputs().contains(&Output::Unpause));
}

#[test]
fn a_target_that_came_back_as_a_stranger_is_not_followed() {
    let mut primary = unanswered();
    let history = *primary.core.history();
    primary.hear(&format!("+FULLRESYNC {ID} 0\r\n$4\r\nDATA"));
    assert!(primary.core.is_primary(), "its data is not ours: it never took over");
    assert!(primary.outputs().contains(&Output::Unpause));
    assert_eq!(primary.core.history().offset(), history.offset(), "nothing was given up");
}

/// A primary that hands over to whom it does not reach, until its time of 1,500 ms is over.
fn out_of_time(come_so_far: impl FnOnce(&mut Server)) -> Server {
    let mut primary = primary_with_replica();
    let timeout = Some(Duration::from_millis(1_500));
    let request = FailoverRequest { timeout, ..FailoverRequest::default() };
    primary.core.start_failover(primary.now, request).unwrap();
    assert_eq!(primary.core.failover_phase(), FailoverPhase::InProgress);
    come_so_far(&mut primary);
    primary.pass(1_400);
    assert_eq!(primary.core.failover_phase(), FailoverPhase::InProgress);
    primary.outputs();
    primary.pass(200);
    primary
}

#[test]
fn a_target_that_is_not_reached_in_time_leaves_the_old_primary_in_charge() {
    let silent = |primary: &mut Server| primary.core.handle_link_up(primary.now);
    let refusing = |primary: &mut Server| primary.core.handle_link_down(primary.now);
    for come_so_far in [silent, refusing, |_: &mut Server| {}] {
        let mut primary = out_of_time(come_so_far);
        assert!(primary.core.is_primary());
        assert!(primary.outputs().contains(&Output::Unpause));
    }
}

#[test]
fn a_target_that_was_asked_may_have_taken_over_whatever_the_time() {
    let asked = |primary: &mut Server| primary.shake_hands();
    let lost = |primary: &mut Server| {
        primary.shake_hands();
        primary.core.handle_link_down(primary.now);
    };
    for come_so_far in [asked, lost] {
        let primary = out_of_time(come_so_far);
        assert_eq!(primary.core.failover_phase(), FailoverPhase::InProgress);
        assert!(!primary.core.is_primary());
    }
}

#[test]
fn time_and_force_decide_about_a_replica_that_lacks_something() {
    for is_forced in [false, true] {
        let mut primary = primary_with_replica();
        primary.write(0, "<a>");
        let timeout = Some(Duration::from_millis(500));
        let request = FailoverRequest { to: Some(target()), is_forced, timeout };
        primary.core.start_failover(primary.now, request).unwrap();
        primary.pass(499);
        assert_eq!(primary.core.failover_phase(), FailoverPhase::WaitSync);
        primary.pass(1);
        let phase = primary.core.failover_phase();
        let expected = if is_forced { FailoverPhase::InProgress } else { FailoverPhase::None };
        assert_eq!(phase, expected);
        assert_eq!(primary.core.is_primary(), !is_forced);
        assert_eq!(primary.outputs().contains(&Output::Unpause), !is_forced);
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let mut primary = Server::with_delay_zero(1);
    let start = |server: &mut Server, request| server.core.start_failover(server.now, request);
    let any = FailoverRequest::default();
    assert_eq!(start(&mut primary, any.clone()), Err(FailoverError::NoReplicas));
    assert_eq!(primary.core.abort_failover(primary.now), Err(FailoverError::NotRunning));
    let mut primary = primary_with_replica();
    let to = Some(address());
    let unknown = FailoverRequest { to: to.clone(), ..any.clone() };
    assert_eq!(start(&mut primary, unknown), Err(FailoverError::UnknownTarget));
    let forced = FailoverRequest { to, is_forced: true, timeout: None };
    assert_eq!(start(&mut primary, forced), Err(FailoverError::ForceNeedsBoth));
    primary.write(0, "<a>");
    start(&mut primary, any.clone()).unwrap();
    assert_eq!(start(&mut primary, any.clone()), Err(FailoverError::Running));
    primary.ask(SessionId(5), "PSYNC ? -1");
    assert!(primary.replies().contains("Can't SYNC while failing over"));
    primary.core.abort_failover(primary.now).unwrap();
    assert!(primary.outputs().contains(&Output::Unpause));
    let mut replica = Server::with_delay_zero(2);
    replica.connect();
    assert_eq!(start(&mut replica, any), Err(FailoverError::NotPrimary));
}

#[test]
fn a_target_that_goes_away_ends_it() {
    let mut primary = primary_with_replica();
    primary.write(0, "<a>");
    primary.core.start_failover(primary.now, FailoverRequest::default()).unwrap();
    primary.core.handle_session_closed(primary.now, SESSION);
    assert_eq!(primary.core.failover_phase(), FailoverPhase::None);
    assert!(primary.core.is_primary());
}

#[test]
fn an_operator_who_decides_otherwise_leaves_nobody_paused() {
    for is_promoted in [true, false] {
        let mut primary = primary_with_replica();
        primary.core.start_failover(primary.now, FailoverRequest::default()).unwrap();
        assert_eq!(primary.core.failover_phase(), FailoverPhase::InProgress);
        primary.outputs();
        match is_promoted {
            true => primary.core.promote(primary.now),
            false => _ = primary.core.follow(primary.now, address()),
        }
        assert_eq!(primary.core.failover_phase(), FailoverPhase::None);
        assert!(primary.outputs().contains(&Output::Unpause), "promoted: {is_promoted}");
    }
}
