//! Clusters under load, for longer than in the tests: see `cargo xtask trial cluster`.

use std::process::{Command, ExitCode};
use std::time::Duration;

use testkit::{ClusterGroup, ServerProgram};
use trials::cluster_load::{
    How, Operator, ProgramWriters, Writers, Written, all_of, judge, lose_a_master, mixed,
    orphan_a_master, roll,
};

const USAGE: &str = "cluster-load [--clients N] [--rounds N] [--program WORD…]";
const USAGE_CODE: u8 = 64;
/// How long a node that was killed is waited for.
const MISSED_AFTER: Duration = Duration::from_secs(5);
/// Slots that are moved at a time.
const SLOTS: usize = 60;

struct Options {
    clients: usize,
    rounds: usize,
    /// Writes in place of our own clients.
    program: Vec<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(USAGE_CODE);
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Option<Options> {
    let mut options = Options { clients: 50, rounds: 1, program: Vec::new() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--clients" => options.clients = words.next()?.parse().ok()?,
            "--rounds" => options.rounds = words.next()?.parse().ok()?,
            "--program" => options.program = words.by_ref().cloned().collect(),
            _ => return None,
        }
    }
    Some(options)
}

fn run(options: &Options) -> Result<(), String> {
    let own = ServerProgram::own();
    for round in 1..=options.rounds {
        println!("round {round}: three nodes of ours and three of redis-server");
        load_mixed(options, &own)?;
        if !options.program.is_empty() {
            // What they do when a connection breaks is their own affair.
            continue;
        }
        println!("round {round}: masters that are lost");
        lose(&own)?;
        println!("round {round}: every node of six of ours is restarted");
        let mut group = all_of(&own).steady();
        let writers = Writers::start(&group, options.clients)?;
        let all: Vec<usize> = (0..group.len()).collect();
        roll(&mut group, &all, &|what| println!("  {what}"));
        report(&group, &writers.finish()?)?;
    }
    Ok(())
}

/// No primary breaks, so nothing is lost.
fn load_mixed(options: &Options, own: &ServerProgram) -> Result<(), String> {
    let mut group = mixed(own).steady();
    let written = match &options.program[..] {
        [] => {
            let writers = Writers::start(&group, options.clients)?;
            operate(&mut group);
            writers.finish()?
        }
        [program, words @ ..] => {
            let mut command = Command::new(program);
            command.args(words);
            let writers = ProgramWriters::start(command, &group, options.clients);
            operate(&mut group);
            writers.finish()?
        }
    };
    report(&group, &written)
}

fn operate(group: &mut ClusterGroup) {
    let tell = |what: &str| println!("  {what}");
    let operator = Operator::new(group, &tell);
    operator.fail_over(&group.masters());
    operator.move_slots(SLOTS);
    orphan_a_master(group, &tell);
    // Back to the other kind, where there is one.
    Operator::new(group, &tell).fail_over(&group.masters());
}

fn report(group: &ClusterGroup, written: &Written) -> Result<(), String> {
    println!("  {written}");
    judge(group, written)?;
    println!("  all keys are what was acknowledged");
    Ok(())
}

fn lose(own: &ServerProgram) -> Result<(), String> {
    let mut group = mixed(own);
    // Only those are to be missed that are killed, however busy the machine.
    group.bear_silence_for(MISSED_AFTER);
    for how in [How::Killed, How::TakenOver, How::Killed, How::TakenOver] {
        for shard in 0..ClusterGroup::MASTERS {
            group.wait_until_whole();
            group.wait_until_heard();
            let master = group.masters()[shard];
            let loss = lose_a_master(&mut group, master, how)?;
            println!("  {how:?}: node {master}: {loss}");
        }
    }
    Ok(())
}
