//! `/events`: what happens, as it happens.
//!
//! Numbered entries of the journal come as `entry` and can be resumed by `Last-Event-ID`. The state
//! of a resource comes as `resource`, without an id: only the latest counts, so that a slow reader
//! skips what is outdated instead of having it queued.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use tokio::sync::watch;

use crate::routes::problem;
use crate::sidecar::Shared;
use crate::streams::{STREAMS_MAX, StreamSlot};
use crate::view::resource;
use crate::watched::Seen;

/// How often a silent stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How many entries are taken from the journal at a time.
const BATCH_MAX: usize = 64;
/// How many past entries a reader gets who does not say where it stopped.
const PAST_SHOWN: u64 = 50;

pub(crate) async fn events(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let Some(place) = shared.streams.enter() else {
        let error = format!("{STREAMS_MAX} streams are open already: close one, or try again");
        return problem(StatusCode::SERVICE_UNAVAILABLE, error);
    };
    let mark = headers.get("last-event-id").and_then(|mark| mark.to_str().ok());
    let follower = Follower::new(shared, place, mark);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let stream = Sse::new(follower.stream()).keep_alive(keep_alive);
    ([("cache-control", "no-store"), ("x-accel-buffering", "no")], stream).into_response()
}

/// One reader: where it is in the journal, and what it has not seen yet.
struct Follower {
    shared: Arc<Shared>,
    _place: StreamSlot,
    latest: watch::Receiver<u64>,
    seen: Vec<watch::Receiver<Seen>>,
    number: u64,
    /// Never more than a batch, and one line per resource.
    ready: VecDeque<Event>,
}

impl Follower {
    fn new(shared: Arc<Shared>, place: StreamSlot, mark: Option<&str>) -> Self {
        let journal = &shared.journal;
        let latest = journal.follow();
        let mut seen: Vec<_> = shared.resources.iter().map(|watched| watched.follow()).collect();
        seen.iter_mut().for_each(|seen| seen.mark_changed());
        let mut ready = VecDeque::new();
        let number = match mark.map(|mark| journal.number_of(mark)) {
            Some(Some(number)) => number,
            // Another life: what was between is lost, and the reader should know.
            Some(None) => {
                ready.push_back(json("restarted", &serde_json::json!({})));
                0
            }
            None => journal.latest().saturating_sub(PAST_SHOWN),
        };
        Follower { shared, _place: place, latest, seen, number, ready }
    }

    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut follower| async move {
            let event = follower.next().await;
            Some((Ok(event), follower))
        })
    }

    async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            self.fill();
            if self.ready.is_empty() {
                self.wait().await;
            }
        }
    }

    fn fill(&mut self) {
        self.latest.mark_unchanged();
        let since = self.shared.journal.since(self.number, BATCH_MAX);
        if since.missed > 0 {
            self.ready.push_back(json("missed", &serde_json::json!({ "count": since.missed })));
        }
        for entry in since.entries {
            self.number = entry.number;
            self.ready.push_back(json("entry", &*entry).id(self.shared.journal.mark(entry.number)));
        }
        let connection = self.shared.tenure.connection();
        for (watched, seen) in self.shared.resources.iter().zip(&mut self.seen) {
            if seen.has_changed().unwrap_or(false) {
                seen.mark_unchanged();
                self.ready.push_back(json("resource", &resource(watched, &connection)));
            }
        }
    }

    async fn wait(&mut self) {
        let changes: Vec<_> = self.seen.iter_mut().map(|seen| Box::pin(seen.changed())).collect();
        let changed = tokio::select! {
            _ = self.latest.changed() => None,
            // The senders live in what this reader holds, so none of these fails.
            (_, index, _) = futures_util::future::select_all(changes) => Some(index),
        };
        if let Some(index) = changed {
            // Waiting for it counts as having seen it; the next `fill` shall find it.
            self.seen[index].mark_changed();
        }
    }
}

fn json(kind: &str, data: &impl Serialize) -> Event {
    let event = Event::default().event(kind);
    match crate::json::text(data) {
        Ok(text) => event.data(text),
        // Our own types always have a JSON form.
        Err(_) => event.data("{}"),
    }
}
