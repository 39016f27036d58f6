//! The number of a leader is its own until the guard has forgotten it.

use tenure_core::Moment;
use tenure_run::{
    Deadline, Ending, Leader, ListedChild, NumberedOrder, Order, Output, Pid, Reply, RunOutcome,
    Wrapper,
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

#[test]
fn a_term_that_never_ran_does_not_give_the_number_of_the_last_leader_away() {
    let mut wrapper = Wrapper::new();
    wrapper.keep_guard(at(0));
    wrapper.handle_reply(at(0), Reply::Ready);
    wrapper.begin(at(0), until(10_000));
    answer(&mut wrapper, 0);
    wrapper.handle_child_news(at(10));
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
