//! A bounded slice of `cargo xtask trial cluster`.

use testkit::ServerProgram;
use trials::cluster_load::{How, Operator, Writers, all_of, judge, lose_a_master, mixed, roll};

const CLIENTS: usize = 20;
/// Slots that are moved at a time.
const SLOTS: usize = 8;

fn tell(what: &str) {
    println!("{what}");
}

#[test]
fn an_operator_of_a_cluster_of_both_kinds_loses_no_write_and_doubles_none() {
    let group = mixed(&ServerProgram::own()).steady();
    let writers = Writers::start(&group, CLIENTS).unwrap();
    let operator = Operator::new(&group, &tell);
    // From ours to a real one, and the other way round.
    operator.fail_over(&[0, 1]);
    operator.move_slots(SLOTS);
    writers.wait_for_more(1000);
    let written = writers.finish().unwrap();
    println!("{written}");
    judge(&group, &written).unwrap();
}

#[test]
fn only_writes_behind_the_offset_of_the_promoted_replica_are_lost() {
    let mut group = mixed(&ServerProgram::own());
    // The first master is ours and its replica real; the second the other way round.
    for (master, how) in [(0, How::Killed), (1, How::TakenOver)] {
        group.wait_until_heard();
        let loss = lose_a_master(&mut group, master, how).unwrap();
        println!("{how:?}: {loss}");
        assert!(loss.acknowledged > 0);
        assert!(how == How::TakenOver || loss.lost > 0, "the replica lagged");
    }
}

#[test]
fn all_nodes_of_a_shard_of_ours_are_restarted_and_no_write_is_lost() {
    let mut group = all_of(&ServerProgram::own()).steady();
    let writers = Writers::start(&group, CLIENTS).unwrap();
    roll(&mut group, &[0, 3], &tell);
    writers.wait_for_more(1000);
    let written = writers.finish().unwrap();
    println!("{written}");
    judge(&group, &written).unwrap();
}
