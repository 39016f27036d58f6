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

use crate::clock;
use crate::routes::problem;
use crate::sidecar::{Resources, Shared};
use crate::streams::{STREAMS_MAX, StreamSlot};
use crate::view::resource;
use crate::watched::{Seen, Watched};

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
    resources: watch::Receiver<Resources>,
    seen: Vec<(Arc<Watched>, watch::Receiver<Seen>)>,
    number: u64,
    /// Never more than a batch, and one line per resource.
    ready: VecDeque<Event>,
}

impl Follower {
    fn new(shared: Arc<Shared>, place: StreamSlot, mark: Option<&str>) -> Self {
        let journal = &shared.journal;
        let latest = journal.follow();
        let mut resources = shared.follow_resources();
        resources.mark_changed();
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
        Follower { shared, _place: place, latest, resources, seen: Vec::new(), number, ready }
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
        self.fill_resources();
        let connection = self.shared.tenure.connection();
        for (watched, seen) in &mut self.seen {
            if seen.has_changed().unwrap_or(false) {
                seen.mark_unchanged();
                self.ready.push_back(json("resource", &resource(watched, &connection)));
            }
        }
    }

    /// Follows what is watched since, and says what is not watched any more.
    fn fill_resources(&mut self) {
        if !self.resources.has_changed().unwrap_or(false) {
            return;
        }
        let resources = Arc::clone(&self.resources.borrow_and_update());
        let is_there = |known: &Arc<Watched>| resources.iter().any(|new| Arc::ptr_eq(new, known));
        self.seen.retain(|(watched, _)| {
            let stays = is_there(watched);
            if !stays {
                // A reader may get an older answer that still has it after this.
                let as_of_ms = clock::running_ms();
                let gone = serde_json::json!({ "name": watched.name(), "as_of_ms": as_of_ms });
                self.ready.push_back(json("gone", &gone));
            }
            stays
        });
        for watched in resources.iter() {
            if !self.seen.iter().any(|(known, _)| Arc::ptr_eq(known, watched)) {
                let mut seen = watched.follow();
                seen.mark_changed();
                self.seen.push((Arc::clone(watched), seen));
            }
        }
        self.seen.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
    }

    async fn wait(&mut self) {
        let changes: Vec<_> =
            self.seen.iter_mut().map(|(_, seen)| Box::pin(seen.changed())).collect();
        let any = async move {
            match changes.is_empty() {
                true => std::future::pending().await,
                // The senders live in what this reader holds, so none of these fails.
                false => futures_util::future::select_all(changes).await.1,
            }
        };
        let changed = tokio::select! {
            _ = self.latest.changed() => None,
            _ = self.resources.changed() => {
                self.resources.mark_changed();
                None
            }
            index = any => Some(index),
        };
        if let Some(index) = changed {
            // Waiting for it counts as having seen it; the next `fill` shall find it.
            self.seen[index].1.mark_changed();
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
