//! An instance in a process of its own, as a test sees it.

use std::process::Command;
use std::time::Duration;

use tenure_core::Moment;
use testkit::{GENEROUS, Process, WallClock};
use trials::record::{Acting, Record};

pub(crate) struct Instance {
    pub(crate) process: Process,
    pub(crate) id: String,
    lines: Vec<Line>,
}

/// One thing the instance said: when, and in which words.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) at: Moment,
    pub(crate) text: String,
}

impl Instance {
    pub(crate) fn start(store: &str, name: &str, ttl: Duration) -> Self {
        Self::start_with(store, name, ttl, &[])
    }

    pub(crate) fn start_with(store: &str, name: &str, ttl: Duration, more: &[&str]) -> Self {
        Self::spawn(command(store, name, ttl, more))
    }

    /// One whose wall clock the test moves.
    pub(crate) fn start_under(clock: &WallClock, store: &str, name: &str, ttl: Duration) -> Self {
        let mut command = command(store, name, ttl, &[]);
        clock.govern(&mut command);
        Self::spawn(command)
    }

    fn spawn(command: Command) -> Self {
        let mut instance =
            Instance { process: Process::spawn(command), id: String::new(), lines: Vec::new() };
        let started = instance.wait_for("started");
        instance.id = started.text.rsplit(' ').next().unwrap().to_owned();
        instance
    }

    /// Waits for a line that begins with `words`, from now on.
    pub(crate) fn wait_for(&mut self, words: &str) -> Line {
        loop {
            let line = parse(&self.process.next_line(GENEROUS));
            self.lines.push(line.clone());
            if line.text.starts_with(words) {
                return line;
            }
        }
    }

    /// Waits for a line that begins with each of these, from now on. Two threads say them, in
    /// whichever order.
    pub(crate) fn wait_for_both(&mut self, words: [&str; 2]) -> [Line; 2] {
        let mut found = [None, None];
        loop {
            let line = self.wait_for("");
            for (words, found) in words.iter().zip(&mut found) {
                if found.is_none() && line.text.starts_with(words) {
                    *found = Some(line.clone());
                }
            }
            if let [Some(one), Some(other)] = &found {
                return [one.clone(), other.clone()];
            }
        }
    }

    pub(crate) fn wait_for_work(&mut self) -> Line {
        self.wait_for("work-begin")
    }

    /// Waits until work has begun and the watching thread has seen it, in whichever order.
    pub(crate) fn wait_until_watched(&mut self) -> Line {
        let (mut work, mut watched) = (None, false);
        loop {
            let line = self.wait_for("");
            watched |= line.text == "is-leader true";
            work = work.or(line.text.starts_with("work-begin").then_some(line));
            if let (Some(work), true) = (&work, watched) {
                return work.clone();
            }
        }
    }

    /// Everything said so far and until the process says no more.
    pub(crate) fn all_lines(&mut self) -> &[Line] {
        while let Some(line) = self.process.try_next_line(Duration::from_millis(50)) {
            self.lines.push(parse(&line));
        }
        &self.lines
    }

    /// Adds the stretches in which work ran to `record`; work that never ended did so `at_latest`.
    pub(crate) fn record_work(&mut self, record: &mut Record, at_latest: Moment) {
        let id = self.id.clone();
        let mut begun: Option<(u64, Moment)> = None;
        let mut stretch = |(token, from): (u64, Moment), until| {
            let (resource, who) = ("job".to_owned(), id.clone());
            record.add(Acting { resource, who, token: Some(token), from, until });
        };
        for line in self.all_lines().to_vec() {
            match line.text.split_whitespace().collect::<Vec<_>>()[..] {
                ["work-begin", token] => begun = Some((token.parse().unwrap(), line.at)),
                ["work-end", _] => stretch(begun.take().unwrap(), line.at),
                _ => {}
            }
        }
        if let Some(open) = begun {
            stretch(open, at_latest);
        }
    }
}

fn command(store: &str, name: &str, ttl: Duration, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trial-instance"));
    command.args(["--store", store, "--id", name, "--ttl-ms"]);
    command.arg(ttl.as_millis().to_string()).args(more);
    command
}

fn parse(line: &str) -> Line {
    let (at, text) = line.split_once(' ').unwrap();
    Line { at: Moment::from_nanos(at.parse().unwrap()), text: text.to_owned() }
}

/// The token that stands at the end of a line.
pub(crate) fn token_in(line: &Line) -> u64 {
    line.text.rsplit(' ').next().unwrap().parse().unwrap()
}
