//! Plays a script: unindented lines go in, indented lines are what came out.

use std::time::Duration;

use tenure_core::protocol::{Hint, Request};
use tenure_core::{
    AskId, Contest, Election, EventKind, Failback, InstanceId, Moment, Output, Resource, Settings,
    Timing, TimingSettings, Token,
};

use crate::replies;

pub(crate) struct Script {
    election: Election,
    asks: Vec<AskId>,
    out: String,
}

impl Script {
    /// The script's own text with the trace that it gives now.
    pub(crate) fn play(text: &str) -> String {
        let mut script: Option<Script> = None;
        let mut head = String::new();
        for line in text.lines().filter(|line| !line.starts_with("  ")) {
            match &mut script {
                Some(script) => script.line(line),
                None => {
                    head.push_str(line);
                    head.push('\n');
                    if let Some(words) = line.strip_prefix("instance") {
                        script = Some(Script::begin(words));
                    }
                }
            }
        }
        head + &script.expect("a script begins with `instance`").out
    }

    fn begin(words: &str) -> Script {
        let election = Election::new(settings(words), 7, Moment::ORIGIN);
        let mut script = Script { election, asks: Vec::new(), out: String::new() };
        script.drain();
        script
    }

    fn line(&mut self, line: &str) {
        if let Some((now, words)) = copied(line, &mut self.out) {
            self.input(now, &words);
            self.drain();
        }
    }

    fn input(&mut self, now: Moment, words: &[&str]) {
        let election = &mut self.election;
        match *words {
            ["listening"] => election.handle_listening(now),
            ["timeout"] => election.handle_timeout(now),
            ["work", state] => election.handle_work(now, state == "on"),
            ["ready", state] => election.set_ready(now, state == "on"),
            ["beat"] => election.beat(now),
            ["pause"] => election.stand_back(now),
            ["resume"] => election.contend_again(now),
            ["resign"] => election.resign(now),
            ["hand-over"] => election.hand_over(now, None),
            ["hand-over", to] => election.hand_over(now, Some(to)),
            ["renew"] => election.renew_now(now),
            ["stop"] => election.stop(now),
            ["hint", ref hint @ ..] => election.handle_hint(now, parse_hint(hint)),
            ["answer", ask, ref reply @ ..] => {
                let ask = self.asks[ask.parse::<usize>().unwrap() - 1];
                self.election.handle_reply(now, ask, replies::parse(reply));
            }
            _ => panic!("unknown input {words:?}"),
        }
    }

    fn drain(&mut self) {
        loop {
            let line = match self.election.poll_output() {
                Output::WaitUntil(until) => {
                    let leads = self.election.leads_until();
                    let leads = leads.map(|end| format!(", leads until {end:?}"));
                    self.out.push_str(&format!("  wait {until:?}{}\n", leads.unwrap_or_default()));
                    return;
                }
                Output::Ask { ask, request, timeout } => {
                    self.asks.push(ask);
                    format!("ask {}: {} within {timeout:?}", self.asks.len(), show(&request))
                }
                Output::Tell(event) => {
                    format!("tell {}: {}", event.number, show_event(&event.kind))
                }
            };
            self.out.push_str(&format!("  {line}\n"));
        }
    }
}

/// What stands behind `instance`.
pub(crate) fn settings(words: &str) -> Settings {
    let mut timing = TimingSettings::default();
    let value = |word: &str| word.split_once('=').map(|(_, value)| value.to_owned());
    let words: Vec<&str> = words.split_whitespace().collect();
    for word in &words {
        match word.split('=').next().unwrap() {
            "ttl" => timing.ttl = duration(&value(word).unwrap()),
            "fleet_min_ttl" => timing.fleet_min_ttl = Some(duration(&value(word).unwrap())),
            _ => {}
        }
    }
    let mut settings = Settings::new(
        Resource::named("job").unwrap(),
        InstanceId::seen("me"),
        Timing::new(&timing).unwrap(),
    );
    for word in &words {
        match word.split('=').next().unwrap() {
            "priority" => settings.priority = value(word).unwrap().parse().unwrap(),
            "beat" => settings.require_beat = Some(duration(&value(word).unwrap())),
            "failback" => settings.failback = Some(Failback::default()),
            "once" => settings.contest = Contest::OneShot,
            "unready" => settings.ready = false,
            "ttl" | "fleet_min_ttl" | "nodes" => {}
            other => panic!("unknown word {other:?}"),
        }
    }
    settings
}

pub(crate) fn parse_hint(words: &[&str]) -> Hint {
    match *words {
        ["released", token] => Hint::Released { token: Some(parse_token(token)) },
        ["granted", id, token, ttl] => Hint::Granted {
            id: InstanceId::seen(id),
            token: parse_token(token),
            ttl: duration(ttl),
        },
        ["transferred", token, to, claim_ttl] => Hint::Transferred {
            token: parse_token(token),
            to: InstanceId::seen(to),
            claim_ttl: duration(claim_ttl),
        },
        ["wished", token] => Hint::Wished { token: parse_token(token) },
        ["members"] => Hint::Members,
        ["pause-changed"] => Hint::PauseChanged,
        _ => panic!("unknown hint {words:?}"),
    }
}

pub(crate) fn show(request: &Request) -> String {
    match request {
        Request::Acquire(acquire) => {
            let members = if acquire.members { " members" } else { "" };
            let heal = acquire.heal.as_ref().map(|id| format!(" heal={id}")).unwrap_or_default();
            let floor = show_token(acquire.floor);
            format!("acquire attempt={} floor={floor}{members}{heal}", acquire.attempt)
        }
        Request::Renew { token, .. } => format!("renew {token:?}"),
        Request::Release { token, reason } => format!("release {token:?} {}", reason.as_str()),
        Request::Abandon { attempt } => format!("abandon attempt={attempt}"),
        Request::Transfer { token, to, claim_ttl } => {
            format!("transfer {token:?} to {to} claim_ttl={claim_ttl:?}")
        }
        Request::Observe { members } => format!("observe members={members}"),
        Request::Beat { record, members } => format!(
            "beat ready={} stalled={} departing={} members={members}",
            record.ready, record.stalled, record.departing
        ),
        Request::Refuse { token, reason } => format!("refuse {token:?} {reason:?}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

pub(crate) fn show_event(kind: &EventKind) -> String {
    match kind {
        EventKind::StateChanged { from, to, reason } => format!("{from} -> {to}: {reason}"),
        EventKind::LeaderSeen(None) => "leader seen: none".to_owned(),
        EventKind::LeaderSeen(Some(leader)) => {
            let foreign = if leader.foreign { " foreign" } else { "" };
            format!("leader seen: {} {}{foreign}", leader.id, show_token(leader.token))
        }
        EventKind::MembersSeen(members) => {
            let ids: Vec<_> = members.iter().map(|member| member.id.as_str()).collect();
            format!("members seen: {}", ids.join(" "))
        }
        EventKind::ElectionFailed { reason } => format!("election failed: {reason}"),
        EventKind::Acquired { token, ends_at } => format!("acquired {token:?} until {ends_at:?}"),
        EventKind::Renewed { token, ends_at } => format!("renewed {token:?} until {ends_at:?}"),
        EventKind::Lost { token, reason } => format!("lost {token:?}: {reason}"),
        EventKind::StopWork { token, by, reason } => {
            format!("stop work {token:?} by {by:?}: {reason}")
        }
        other => format!("{other:?}").to_lowercase(),
    }
}

/// `#0` for none.
pub(crate) fn show_token(token: Option<Token>) -> String {
    token.map_or("#0".to_owned(), |token| format!("{token:?}"))
}

pub(crate) fn parse_token(word: &str) -> Token {
    Token::new(word.strip_prefix('#').expect("#number").parse().unwrap()).unwrap()
}

pub(crate) fn duration(word: &str) -> Duration {
    if let Some(millis) = word.strip_suffix("ms") {
        Duration::from_millis(millis.parse().unwrap())
    } else {
        Duration::from_secs(word.strip_suffix('s').expect("a unit").parse().unwrap())
    }
}

/// Copies a line into the trace; what it says happens, and when, unless it is empty or a comment.
pub(crate) fn copied<'a>(line: &'a str, out: &mut String) -> Option<(Moment, Vec<&'a str>)> {
    out.push_str(line);
    out.push('\n');
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (at, words) = line.split_once(' ').expect("a moment and what happens");
    Some((moment(at), words.split_whitespace().collect()))
}

fn moment(word: &str) -> Moment {
    let seconds: f64 = word.parse().unwrap_or_else(|_| panic!("{word:?} is no moment"));
    Moment::from_nanos((seconds * 1e6).round() as u64 * 1_000)
}
