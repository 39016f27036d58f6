//! The tasks behind a sidecar: one that looks at each resource, and one that listens to each
//! election this instance takes part in.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Event, EventKind, Events, Observation, Role, ServerTime, Status, Token, Vacancy};
use tokio::sync::Notify;

use crate::hooks::{Happening, Hooks, Turn};
use crate::journal::{EntryDetails, Journal};
use crate::streams::Streams;
use crate::view::unknown;
use crate::watched::{Seen, Watched};

/// How often to look while nobody watches.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often at the least and at the most while somebody does.
const LOOK_EVERY_WATCHED: (Duration, Duration) =
    (Duration::from_millis(250), Duration::from_secs(1));
/// The shortest pause between two looks, however many reasons there are.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(20);
/// The store ends a lease on a whole millisecond: looking at the very one finds it still there.
const EXPIRY_GRAIN: Duration = Duration::from_millis(3);
/// With less left than this a lease is waited for to end.
const LEASE_LEFT_MIN: Duration = Duration::from_millis(200);
/// Longer than any look takes: then there is nothing to doubt.
const DOUBT_MAX: Duration = Duration::from_secs(3600);
/// How soon to follow changes again after that failed.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// Tells when the store says that something changed.
pub(crate) async fn follow_changes(watched: Arc<Watched>, changed: Arc<Notify>) {
    loop {
        if let Ok(mut changes) = watched.observer.changes().await {
            while let Ok(_) | Err(tenure::Error::Store(_)) = changes.next().await {
                changed.notify_one();
            }
        }
        tokio::time::sleep(FOLLOW_AGAIN).await;
    }
}

/// Looks at a resource whenever there is a reason to, and writes down what changed.
pub(crate) async fn keep_looking(
    watched: Arc<Watched>,
    changed: Arc<Notify>,
    journal: Arc<Journal>,
    streams: Arc<Streams>,
) {
    let mut before = Seen::default();
    // Whether the journal says that nobody can tell who leads.
    let mut was_unknown = false;
    loop {
        match was_unknown {
            true => watched.look().await,
            false => was_unknown = look_or_doubt(&watched, &journal).await,
        }
        let seen = watched.seen();
        write_down(&journal, &watched, &before, &seen, was_unknown);
        was_unknown &= watched.is_unknown(&seen);
        let every = if streams.any() { while_watched(&seen) } else { LOOK_EVERY };
        let pause = every.min(before_the_end(&seen).unwrap_or(every));
        before = seen;
        tokio::time::sleep(LOOK_PAUSE_MIN).await;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = changed.notified() => {}
            () = watched.look_soon.notified() => {}
            () = streams.arrival() => {}
        }
    }
}

/// Looks, and says meanwhile that nobody can tell who leads once that is so: a store that does not
/// answer must not keep an old truth alive. Returns whether it said so.
async fn look_or_doubt(watched: &Watched, journal: &Journal) -> bool {
    let mut looking = std::pin::pin!(watched.look());
    let left = {
        let seen = watched.seen();
        let believed = seen.believed_for().unwrap_or(DOUBT_MAX);
        believed.saturating_sub(seen.age().unwrap_or_default())
    };
    tokio::select! {
        () = &mut looking => return doubt(watched, journal),
        () = tokio::time::sleep(left.min(DOUBT_MAX) + EXPIRY_GRAIN) => {}
    }
    let doubts = doubt(watched, journal);
    watched.nudge();
    looking.await;
    doubts
}

/// Writes down that nobody can tell who leads, if that is so.
fn doubt(watched: &Watched, journal: &Journal) -> bool {
    let Some(unknown) = unknown(watched, &watched.seen()) else { return false };
    journal.add(
        watched.name(),
        EntryDetails { kind: "unknown", text: unknown.text, ..EntryDetails::default() },
    );
    true
}

/// When to look again so that a lease is seen renewed before the one that is known is over.
fn before_the_end(seen: &Seen) -> Option<Duration> {
    let left = seen.remaining().filter(|left| !left.is_zero())?;
    Some(if left > LEASE_LEFT_MIN { left * 2 / 3 } else { left + EXPIRY_GRAIN })
}

/// Often enough to see a short lease renewed.
fn while_watched(seen: &Seen) -> Duration {
    let (least, most) = LOOK_EVERY_WATCHED;
    seen.leader_ttl().map_or(most, |ttl| (ttl / 6).clamp(least, most))
}

/// What a person who observes would call a change.
fn write_down(
    journal: &Journal,
    watched: &Watched,
    before: &Seen,
    after: &Seen,
    was_unknown: bool,
) {
    let add = |what: EntryDetails| journal.add(watched.name(), what);
    match (&before.error, &after.error) {
        (None, Some(error)) => {
            add(EntryDetails {
                kind: "store-lost",
                text: error.clone(),
                ..EntryDetails::default()
            });
        }
        (Some(_), None) => {
            let text = "the store answers again".to_owned();
            add(EntryDetails { kind: "store-back", text, ..EntryDetails::default() });
        }
        _ => {}
    }
    let Some(seen) = &after.observation else { return };
    let earlier = before.observation.as_deref();
    let leader = |o: &Observation| o.leadership.leader().map(|l| (l.id.clone(), l.token));
    let own = watched.status().and_then(|status| status.token);
    let is_over = seen.leadership.leader().is_some_and(|leader| watched.has_left(leader));
    let is_old_news = is_over || leader(seen).is_none() && is_overtaken(seen.server_time, own);
    let is_known_again = was_unknown && !watched.is_unknown(after);
    if (earlier.map(leader) != Some(leader(seen)) || is_known_again) && !is_old_news {
        add(new_leader(seen, after));
    }
    if let Some(earlier) = earlier {
        write_members(earlier, seen, add);
        write_requests(earlier, seen, add);
    }
}

/// Whether the store answered a look before it granted our own term: a term's number is not below
/// the store's clock at its grant.
fn is_overtaken(looked_at: ServerTime, own: Option<Token>) -> bool {
    own.is_some_and(|token| looked_at < ServerTime(token.get()))
}

fn new_leader(seen: &Observation, after: &Seen) -> EntryDetails {
    let Some(leader) = seen.leadership.leader() else {
        let tenure::Leadership::Vacant(vacancy) = &seen.leadership else {
            unreachable!("without a leader there is a vacancy")
        };
        let text = format!("nobody leads: {}", vacancy_text(vacancy));
        // On its way to a successor is no news to worry about.
        let is_reserved = matches!(vacancy, Vacancy::Reserved { .. });
        return EntryDetails {
            kind: if is_reserved { "reserved" } else { "vacant" },
            text,
            reason: Some(vacancy_word(vacancy)),
            ..EntryDetails::default()
        };
    };
    let token = leader.token.map(Token::get);
    let gap = after.terms.last().filter(|term| Some(term.token) == token);
    let gap_ms = gap.and_then(|term| term.gap_ms);
    let text = match gap_ms {
        Some(gap) => format!("{} leads, {gap} ms after the term before", leader.id.name()),
        None => format!("{} leads", leader.id.name()),
    };
    EntryDetails {
        kind: "leads",
        text,
        token,
        id: Some(leader.id.to_string()),
        took_ms: gap_ms.map(|gap| gap as f64),
        ..EntryDetails::default()
    }
}

fn write_members(earlier: &Observation, seen: &Observation, add: impl Fn(EntryDetails)) {
    let entry = |kind, id: &tenure::InstanceId, verb: &str| EntryDetails {
        kind,
        text: format!("{} {verb}", id.name()),
        id: Some(id.to_string()),
        ..EntryDetails::default()
    };
    for member in &seen.members {
        match earlier.members.iter().find(|known| known.id == member.id) {
            None => add(entry("joined", &member.id, "joined")),
            Some(known) if known.record.ready != member.record.ready => {
                let verb = if member.record.ready { "is ready" } else { "is not ready" };
                add(entry("readiness", &member.id, verb));
            }
            Some(_) => {}
        }
    }
    for known in &earlier.members {
        if !seen.members.iter().any(|member| member.id == known.id) {
            add(entry("left", &known.id, "left"));
        }
    }
}

fn write_requests(earlier: &Observation, seen: &Observation, add: impl Fn(EntryDetails)) {
    if earlier.paused_for.is_some() != seen.paused_for.is_some() {
        let (kind, text) = match seen.paused_for {
            Some(left) => ("paused", format!("paused by an operator for up to {left:?}")),
            None => ("resumed", "resumed".to_owned()),
        };
        add(EntryDetails { kind, text, ..EntryDetails::default() });
    }
    if earlier.wish != seen.wish
        && let Some(wish) = &seen.wish
    {
        let (by, token) = (wish.by.name(), wish.token.map(Token::get));
        let text = match (&wish.kind, &wish.refused) {
            (_, Some(why)) => format!("refused: {why}"),
            (tenure::WishKind::Resign, None) => format!("{by} asks to resign"),
            (tenure::WishKind::HandOver { to }, None) => {
                format!("{by} asks to hand over to {to}")
            }
        };
        add(EntryDetails { kind: "asked", text, token, ..EntryDetails::default() });
    }
}

/// A stable word for why nobody leads.
pub(crate) fn vacancy_word(vacancy: &Vacancy) -> &'static str {
    match vacancy {
        Vacancy::Quarantine { .. } => "quarantine",
        Vacancy::Paused { .. } => "paused",
        Vacancy::Reserved { .. } => "reserved",
        Vacancy::Unconfirmed { .. } => "unconfirmed",
        _ => "free",
    }
}

pub(crate) fn vacancy_text(vacancy: &Vacancy) -> String {
    match vacancy {
        Vacancy::Quarantine { why, .. } => {
            format!("an earlier leader may still believe in its lease: {why}")
        }
        Vacancy::Paused { .. } => "an operator paused the election".to_owned(),
        Vacancy::Reserved { to, .. } => format!("it is reserved for {}", to.name()),
        Vacancy::Unconfirmed { by, .. } => format!(
            "{} was granted it, but fewer replicas than mode strict asks for have confirmed that: \
             attach the missing ones (INFO replication)",
            by.name()
        ),
        _ => "the next candidate may lead".to_owned(),
    }
}

/// Takes over what an election of this instance tells, and tells the hooks.
pub(crate) async fn listen(
    watched: Arc<Watched>,
    mut events: Events,
    journal: Arc<Journal>,
    hooks: Arc<Hooks>,
    release: Release,
) {
    let mut listener =
        Listener { watched, journal, hooks, release, leads_under: None, holding: None };
    listener.catch_up();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => listener.hear(&event),
            Err(lagged) => {
                let text = lagged.to_string();
                listener.add(EntryDetails { kind: "lagged", text, ..EntryDetails::default() });
                listener.catch_up();
            }
        }
    }
}

/// When a term is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// At once; hooks are told beside it.
    AtOnce,
    /// When hooks on loss have ended, or the grace for stopping is over.
    AfterHooks,
}

struct Listener {
    watched: Arc<Watched>,
    journal: Arc<Journal>,
    hooks: Arc<Hooks>,
    release: Release,
    /// The term that the hooks know of.
    leads_under: Option<Token>,
    /// What keeps the term from being released before the hooks were told.
    holding: Option<Holding>,
}

/// A task that ends with its value.
struct Holding(tokio::task::AbortHandle);

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells the hooks as soon as work has to stop, and releases the term when they have ended.
async fn hold(term: tenure::Term, hooks: Arc<Hooks>, id: String) {
    term.wait_until_stopping().await;
    let reason = term.stop_reason().map_or("unknown", |reason| reason.code());
    let (name, token) = (term.resource().name().to_owned(), term.token().get());
    let loss = Happening { turn: Turn::Loss, name: name.clone(), id, token, reason };
    hooks.tell(&Arc::new(loss));
    tokio::select! {
        () = hooks.loss_told(&name, token) => {}
        () = term.wait_until_over() => {}
    }
}

impl Listener {
    /// Events from before we listened, or that were dropped: the status has their outcome.
    fn catch_up(&mut self) {
        let Some(status) = self.watched.status() else { return };
        match status.token {
            Some(token) if self.leads_under != Some(token) => {
                self.watched.note_grant();
                self.gained(&status, token);
            }
            None if self.leads_under.is_some() => self.lost(&status, "unknown"),
            _ => {}
        }
        if status.role != Role::Unknown {
            self.watched.note_answer();
        }
    }

    fn hear(&mut self, event: &Event) {
        let Some(status) = self.watched.status() else { return };
        match &event.kind {
            EventKind::Acquired { token, .. } if self.leads_under != Some(*token) => {
                self.watched.note_grant();
                self.gained(&status, *token);
            }
            EventKind::Renewed { ends_at, .. } => {
                // The deadline counts from the sending, so the two readings tell how long it took.
                let took = status.timing.ends_at(event.at, status.timing.ttl()).since(*ends_at);
                self.watched.note_renewal(took);
            }
            EventKind::Lost { token, reason } if self.leads_under == Some(*token) => {
                self.watched.note_loss();
                self.lost(&status, reason.code());
            }
            EventKind::LeaderSeen(_) | EventKind::MembersSeen(_) => self.watched.note_answer(),
            EventKind::StateChanged { to, .. } if *to != Role::Unknown => {
                self.watched.note_answer();
            }
            _ => {}
        }
        if let Some(what) = what(&event.kind) {
            self.add(what);
        }
        // Its own standing may have changed though the store shows nothing new, or nothing at all.
        self.watched.nudge();
        if !matches!(event.kind, EventKind::Renewed { .. } | EventKind::ElectionFailed { .. }) {
            self.watched.look_soon.notify_one();
        }
    }

    fn gained(&mut self, status: &Status, token: Token) {
        self.leads_under = Some(token);
        let reason = if status.enabled { "granted" } else { "disabled" };
        if self.release == Release::AtOnce {
            return self.tell_hooks(status, Turn::Gain, Some(token), reason);
        }
        let term = self.watched.election.as_ref().and_then(tenure::Election::term);
        // Over already: a gain told now could no longer be taken back in time.
        let Some(term) = term.filter(|term| term.token() == token) else { return };
        self.tell_hooks(status, Turn::Gain, Some(token), reason);
        // Not before: on another thread it would tell of the loss first.
        let holding = hold(term, Arc::clone(&self.hooks), status.id.to_string());
        self.holding = Some(Holding(tokio::spawn(holding).abort_handle()));
    }

    fn lost(&mut self, status: &Status, reason: &'static str) {
        let token = self.leads_under.take();
        self.tell_hooks(status, Turn::Loss, token, reason);
    }

    fn tell_hooks(&self, status: &Status, turn: Turn, token: Option<Token>, reason: &'static str) {
        let token = token.map_or(0, Token::get);
        let name = self.watched.name().to_owned();
        let id = status.id.to_string();
        self.hooks.tell(&Arc::new(Happening { turn, name, id, token, reason }));
    }

    fn add(&self, what: EntryDetails) {
        self.journal.add(self.watched.name(), what);
    }
}

/// What an event means to a reader; `None` for what the looks tell better.
fn what(kind: &EventKind) -> Option<EntryDetails> {
    let what = match kind {
        // A standby tries whenever a lease may be over; that it was not is no news.
        EventKind::StateChanged { from: Role::Standby, to: Role::Candidate, .. }
        | EventKind::StateChanged { from: Role::Candidate, to: Role::Standby, .. } => return None,
        EventKind::StateChanged { from, to, reason } => EntryDetails {
            kind: "role",
            text: format!("this instance: {from} → {to} ({reason})"),
            reason: Some(reason.code()),
            ..EntryDetails::default()
        },
        EventKind::Acquired { token, .. } => EntryDetails {
            kind: "gained",
            text: format!("this instance leads under token {token}"),
            token: Some(token.get()),
            ..EntryDetails::default()
        },
        EventKind::StopWork { token, reason, .. } => EntryDetails {
            kind: "stopping",
            text: format!("work stops: {reason}"),
            reason: Some(reason.code()),
            token: Some(token.get()),
            ..EntryDetails::default()
        },
        EventKind::Overrun { token } => EntryDetails {
            kind: "overrun",
            text: "work was still running at the end of its grace".to_owned(),
            token: Some(token.get()),
            ..EntryDetails::default()
        },
        EventKind::Lost { token, reason } => EntryDetails {
            kind: "lost",
            text: format!("this instance no longer leads: {reason}"),
            reason: Some(reason.code()),
            token: Some(token.get()),
            ..EntryDetails::default()
        },
        EventKind::HandedOver { token, to } => EntryDetails {
            kind: "handed-over",
            text: format!("handed over to {}", to.name()),
            token: Some(token.get()),
            id: Some(to.to_string()),
            ..EntryDetails::default()
        },
        EventKind::HandOverRefused { why } => EntryDetails {
            kind: "refused",
            text: format!("no hand-over: {why}"),
            ..EntryDetails::default()
        },
        EventKind::Warning(text) => {
            EntryDetails { kind: "warning", text: text.clone(), ..EntryDetails::default() }
        }
        _ => return None,
    };
    Some(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_from_before_our_own_grant_is_no_news() {
        let own = Token::new(2_000);
        assert!(is_overtaken(ServerTime(1_999), own));
        assert!(!is_overtaken(ServerTime(2_001), own), "the key vanished since");
        assert!(!is_overtaken(ServerTime(1_999), None));
    }
}
