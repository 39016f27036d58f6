//! Plays a script of rounds: what one instance asks several nodes, and what their answers come to.
//!
//! A script begins with `nodes 3`, and its lines are requests and answers; or with
//! `instance ttl=10s nodes=3`, and an election asks.

use std::time::Duration;

use tenure_core::protocol::{
    Acquire, Answer, Ballot, CloseReason, Hint, LostWhy, MemberRecord, Outcome, Request,
};
use tenure_core::quorum::{HintCount, Quorum, Round, RoundOutput};
use tenure_core::{AskId, Election, InstanceId, Moment, Output, ServerTime, StoreError, Token};

use crate::replies;
use crate::script::{copied, parse_hint, parse_token, settings, show, show_event, show_token};

/// What a node's clock shows unless `shows=` says otherwise.
const CLOCK: ServerTime = ServerTime(50);
/// How long a round lasts that no election began.
const TIMEOUT: Duration = Duration::from_millis(500);
const TTL: Duration = Duration::from_secs(10);

pub(crate) struct Rounds {
    quorum: Quorum,
    election: Option<Election>,
    /// All rounds there were, with the question of the election that each answers.
    rounds: Vec<(Round, Option<AskId>)>,
    /// Round, node and step of each request to a node.
    asks: Vec<(usize, usize, u32)>,
    hints: HintCount,
    out: String,
}

impl Rounds {
    /// The script's own text with the trace that it gives now.
    pub(crate) fn play(text: &str) -> String {
        let mut rounds: Option<Rounds> = None;
        let mut head = String::new();
        for line in text.lines().filter(|line| !line.starts_with("  ")) {
            if let Some(rounds) = &mut rounds {
                rounds.line(line);
                continue;
            }
            head.push_str(line);
            head.push('\n');
            rounds = match line.split_once(' ') {
                Some(("nodes", count)) => Some(Rounds::begin(count, None)),
                Some(("instance", words)) => {
                    let (_, count) = words.split_once("nodes=").expect("how many nodes");
                    let election = Election::new(settings(words), 7, Moment::ORIGIN);
                    Some(Rounds::begin(count, Some(election)))
                }
                _ => None,
            };
        }
        head + &rounds.expect("a script begins with `nodes` or `instance`").out
    }

    fn begin(count: &str, election: Option<Election>) -> Rounds {
        let quorum = Quorum::of(count.parse().unwrap()).unwrap();
        let (hints, out) = (HintCount::new(quorum), String::new());
        Rounds { quorum, election, rounds: Vec::new(), asks: Vec::new(), hints, out }
    }

    fn line(&mut self, line: &str) {
        if let Some((now, words)) = copied(line, &mut self.out) {
            self.input(now, &words);
            self.drain(now);
        }
    }

    fn input(&mut self, now: Moment, words: &[&str]) {
        match (words, &mut self.election) {
            (["answer", ask, reply @ ..], _) => {
                let (round, node, step) = self.asks[ask.parse::<usize>().unwrap() - 1];
                let reply = replies::parse_at(CLOCK, reply);
                self.rounds[round].0.handle_reply(now, node, step, reply);
            }
            (["late"], _) => self.rounds.last_mut().unwrap().0.handle_timeout(),
            (["hear", node, hint @ ..], _) => self.hear(now, node, parse_hint(hint)),
            (["listening"], Some(election)) => election.handle_listening(now),
            (["timeout"], Some(election)) => election.handle_timeout(now),
            (_, None) => self.ask(now, request(words), TIMEOUT, None),
            _ => panic!("unknown input {words:?}"),
        }
    }

    fn hear(&mut self, now: Moment, node: &str, hint: Hint) {
        let node = node.parse::<usize>().unwrap() - 1;
        let Some(hint) = self.hints.hear(node, hint) else { return };
        self.print(&format!("hint: {hint:?}"));
        if let Some(election) = &mut self.election {
            election.handle_hint(now, hint);
        }
    }

    fn ask(&mut self, now: Moment, request: Request, timeout: Duration, ask: Option<AskId>) {
        self.rounds.push((Round::new(self.quorum, request, now, timeout), ask));
    }

    /// Lets everything come out that is there now.
    fn drain(&mut self, now: Moment) {
        loop {
            while let Some((at, output)) = self.next_round_output() {
                self.carry_out(now, at, output);
            }
            let Some(election) = &mut self.election else { return };
            match election.poll_output() {
                Output::Ask { ask, request, timeout } => {
                    self.print(&format!("asks: {}", show(&request)));
                    self.ask(now, request, timeout, Some(ask));
                }
                Output::Tell(event) => self.print(&format!("tell: {}", show_event(&event.kind))),
                Output::WaitUntil(until) => {
                    let leads = election.leads_until();
                    let leads = leads.map(|end| format!(", leads until {end:?}"));
                    return self.print(&format!("wait {until:?}{}", leads.unwrap_or_default()));
                }
            }
        }
    }

    fn next_round_output(&mut self) -> Option<(usize, RoundOutput)> {
        let mut rounds = self.rounds.iter_mut().enumerate();
        rounds.find_map(|(at, (round, _))| Some((at, round.poll_output()?)))
    }

    fn carry_out(&mut self, now: Moment, at: usize, output: RoundOutput) {
        match output {
            RoundOutput::Ask { node, step, request } => {
                self.asks.push((at, node, step));
                let number = self.asks.len();
                self.print(&format!("ask {number}: node {} {}", node + 1, show_to_node(&request)));
            }
            RoundOutput::Tell { node, request } => {
                self.print(&format!("tell node {}: {}", node + 1, show_to_node(&request)));
            }
            RoundOutput::Done(verdict) => {
                self.print(&format!("done: {}", show_verdict(&verdict)));
                let ask = self.rounds[at].1;
                if let (Some(election), Some(ask)) = (&mut self.election, ask) {
                    election.handle_reply(now, ask, verdict);
                }
            }
        }
    }

    fn print(&mut self, line: &str) {
        self.out.push_str(&format!("  {line}\n"));
    }
}

fn request(words: &[&str]) -> Request {
    match *words {
        ["acquire", attempt] => acquire(attempt, None),
        ["acquire", attempt, floor] => acquire(attempt, Some(parse_token(floor))),
        ["renew", token] => {
            Request::Renew { token: parse_token(token), ttl: TTL, fleet_max_ttl: TTL }
        }
        ["release", token] => {
            Request::Release { token: parse_token(token), reason: CloseReason::Released }
        }
        ["transfer", token, to] => {
            let (token, to) = (parse_token(token), InstanceId::seen(to));
            Request::Transfer { token, to, claim_ttl: Duration::from_secs(1) }
        }
        ["observe"] => Request::Observe { members: false },
        _ => panic!("unknown request {words:?}"),
    }
}

fn acquire(attempt: &str, floor: Option<Token>) -> Request {
    Request::Acquire(Acquire {
        attempt: attempt.parse().unwrap(),
        ttl: TTL,
        fleet_max_ttl: TTL,
        floor,
        fresh_store: false,
        age_counts: true,
        lock_delay: Duration::ZERO,
        heal: None,
        record: MemberRecord::default(),
        members: false,
        ballot: Ballot::Alone,
    })
}

fn show_to_node(request: &Request) -> String {
    match request {
        Request::Acquire(Acquire { attempt, ballot, age_counts, .. }) => {
            let age = if *age_counts { ", by its age" } else { "" };
            match ballot {
                Ballot::Alone => format!("acquire attempt={attempt}{age}"),
                Ballot::Propose => format!("propose attempt={attempt}{age}"),
                Ballot::Settle(token) => format!("settle {token:?} attempt={attempt}{age}"),
            }
        }
        Request::Adopt { token, .. } => format!("adopt {token:?}"),
        Request::PassOn { token, to, .. } => format!("pass {token:?} on to {to}"),
        other => show(other),
    }
}

fn show_verdict(verdict: &Result<Answer, StoreError>) -> String {
    let Answer { outcome, view, .. } = match verdict {
        Ok(answer) => answer,
        Err(error) => return format!("error: {error}"),
    };
    let outcome = match outcome {
        Outcome::Granted { token } => format!("granted {token:?}"),
        Outcome::Contested { why } => format!("contested: {why}"),
        Outcome::Lost(LostWhy::HeldBy(id)) => format!("lost to {id}"),
        other => format!("{other:?}").to_lowercase(),
    };
    let token = show_token(view.token);
    let holder = view.holder.as_ref().map(|id| format!(", held by {id} {token}"));
    let left = view.pttl.map(|pttl| format!(" for {pttl:?}"));
    let partial = if view.partial { ", not everywhere" } else { "" };
    format!("{outcome}{}{}{partial}", holder.unwrap_or_default(), left.unwrap_or_default())
}
