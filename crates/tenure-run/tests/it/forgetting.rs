//! The end of a program and its guard: the number of a leader is its own until the guard has
//! forgotten it, and the guard is heard out about an end that may be its work.

use tenure_core::Moment;
use tenure_run::{
    Deadline, Ending, GuardTrouble, Leader, ListedChild, NumberedOrder, Order, Output, Pid, Reply,
    RunOutcome, Wrapper,
};

fn at(milliseconds: u64) -> Moment {
    Moment::from_nanos(milliseconds * 1_000_000)
}

fn until(milliseconds: u64) -> Deadline {
    Deadline { kill_at: at(milliseconds), ends_at: at(milliseconds + 100) }
}

fn leader() -> Pid {
    Pid::new(40).unwrap()
}

fn outputs(wrapper: &mut Wrapper) -> Vec<Output> {
    std::iter::from_fn(|| wrapper.poll_output()).collect()
}

/// Answers every order but `Forget`, whose number is returned, and shows a leader that has ended.
fn answer(wrapper: &mut Wrapper, now: u64) -> (Vec<Output>, Option<u64>) {
    let (mut seen, mut forget) = (Vec::new(), None);
    while let Some(output) = wrapper.poll_output() {
        match output {
            Output::Order(NumberedOrder { number, order: Order::Forget }) => forget = Some(number),
            Output::Order(order) => wrapper.handle_reply(at(now), Reply::Took(order.number)),
            Output::LookAtLeader(_) => {
                wrapper.handle_leader(at(now), Leader::Ended(Ending::Exited(0)));
            }
            Output::ListChildren => {
                let (started, is_helper) = (Some(1), false);
                let child = ListedChild { pid: leader(), started, has_ended: true, is_helper };
                wrapper.handle_children(at(now), Some(&[child]));
            }
            Output::ListStrays(_) => wrapper.handle_strays(at(now), Some(&[])),
            Output::Fork => wrapper.handle_forked(at(now), leader()),
            Output::OpenGate => wrapper.handle_executed(at(now)),
            _ => {}
        }
        seen.push(output);
    }
    (seen, forget)
}

/// A program runs, and news of a child has come.
fn with_an_end_to_look_at() -> Wrapper {
    let mut wrapper = Wrapper::new();
    wrapper.keep_guard(at(0));
    wrapper.handle_reply(at(0), Reply::Ready);
    wrapper.begin(at(0), until(10_000));
    answer(&mut wrapper, 0);
    wrapper.handle_child_news(at(10));
    wrapper
}

#[test]
fn a_term_that_never_ran_does_not_give_the_number_of_the_last_leader_away() {
    let mut wrapper = with_an_end_to_look_at();
    let (seen, forget) = answer(&mut wrapper, 10);
    assert!(seen.contains(&Output::Over(RunOutcome::ByItself(Ending::Exited(0)))), "{seen:?}");

    // The next term waits for the guard, and is over before that answers.
    wrapper.begin(at(20), until(10_000));
    wrapper.handle_cut_off(at(30));
    let (mut seen, _) = answer(&mut wrapper, 30);
    assert!(seen.contains(&Output::Over(RunOutcome::NeverRan)), "{seen:?}");
    for now in [100, 200, 290] {
        wrapper.handle_child_news(at(now));
        wrapper.handle_time(at(now));
        seen.extend(answer(&mut wrapper, now).0);
    }
    assert!(!seen.contains(&Output::Reap(leader())), "the guard may still kill by it: {seen:?}");

    wrapper.handle_reply(at(295), Reply::Took(forget.unwrap()));
    assert!(outputs(&mut wrapper).contains(&Output::Reap(leader())));
}

const KILLED: Ending = Ending::Signalled(9);

/// A program that runs, and ends by SIGKILL long before its deadline; what its guard has to answer.
fn killed_early() -> (Wrapper, u64) {
    let mut wrapper = with_an_end_to_look_at();
    let mut asked = None;
    for now in 10..40 {
        wrapper.handle_time(at(now));
        let (outcome, number) = look(&mut wrapper, now);
        assert_eq!(outcome, None, "the guard has not been heard out");
        assert!(asked.is_none() || number.is_none(), "it is asked once");
        asked = asked.or(number);
    }
    (wrapper, asked.expect("the guard is asked"))
}

/// Shows that the leader was killed and that nothing is left. How the program ended, and the last
/// order, which is not answered.
fn look(wrapper: &mut Wrapper, now: u64) -> (Option<RunOutcome>, Option<u64>) {
    let (mut outcome, mut asked) = (None, None);
    while let Some(output) = wrapper.poll_output() {
        match output {
            Output::Order(NumberedOrder { number, order: Order::Until(_) }) => asked = Some(number),
            Output::LookAtLeader(_) => wrapper.handle_leader(at(now), Leader::Ended(KILLED)),
            Output::ListChildren => {
                let (started, is_helper) = (Some(1), false);
                let child = ListedChild { pid: leader(), started, has_ended: true, is_helper };
                wrapper.handle_children(at(now), Some(&[child]));
            }
            Output::Over(it) => outcome = Some(it),
            _ => {}
        }
    }
    (outcome, asked)
}

#[test]
fn the_guards_word_that_it_killed_is_waited_for() {
    let (mut wrapper, asked) = killed_early();
    wrapper.handle_reply(at(40), Reply::Killed);
    wrapper.handle_reply(at(40), Reply::Took(asked));
    wrapper.handle_time(at(80));
    assert_eq!(look(&mut wrapper, 80).0, Some(RunOutcome::WithItsTerm(Some(KILLED))));
}

#[test]
fn a_guard_that_killed_nobody_leaves_the_end_to_the_program() {
    let (mut wrapper, asked) = killed_early();
    wrapper.handle_reply(at(40), Reply::Took(asked));
    wrapper.handle_time(at(80));
    assert_eq!(look(&mut wrapper, 80).0, Some(RunOutcome::ByItself(KILLED)));
}

#[test]
fn a_guard_that_is_gone_is_not_waited_for() {
    let (mut wrapper, _) = killed_early();
    wrapper.handle_guard_trouble(at(40), GuardTrouble::Ended);
    wrapper.handle_time(at(80));
    assert_eq!(look(&mut wrapper, 80).0, Some(RunOutcome::ByItself(KILLED)));
}
