//! Sends each request to the node that has its slot, and follows when slots move.
//!
//! In: requests, each for one slot and with a deadline. Out: their replies, the state of the
//! cluster, and a home for every listener. One task owns everything:
//!
//! ```text
//! requests ─► owner of the slot ─► connection of that node ─► reply
//!    ▲  ▲                                                      │
//!    │  └── TRYAGAIN, after a pause ◄──────────────────────────┤
//!    └───── MOVED, ASK: there, at once ◄───────────────────────┘
//! ```
//! A redirection means that nothing was done, so the request may be sent again; whatever else goes
//! wrong is for the caller to judge, who has one request under way at a time.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;
use store_client::cluster::{Attempts, HOPS_MAX, Redirect, Slot, SlotMap, nodes_to_ask};
use tenure_core::{StoreError, StoreErrorKind};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::address::ClusterAddress;
use super::listener::ShardListeners;
use super::survey::{Known, survey};
use crate::backoff::Backoff;
use crate::connection::{CALLS_QUEUED_MAX, ConnectionOptions, Replies, SendMode};
use crate::dial::Route;
use crate::error;
use crate::node::Node;
use crate::request::Step;
use crate::transport::RequestConnections;
use tenure_backend::Connection;
use tenure_backend::clock::timer_now;

/// The least time between two surveys: many requests are sent on at once when a slot moves.
const SURVEY_GAP: Duration = Duration::from_millis(100);
/// How often the nodes are asked all the same: a node that nobody has asked for yet may be gone.
pub(super) const SURVEY_EVERY: Duration = Duration::from_secs(30);
/// The wait between surveys while a person has to act first.
const REFUSED_WAIT: Duration = Duration::from_secs(2);
/// How many requests are taken in one turn.
const REQUESTS_AT_ONCE: usize = 256;

/// Steps for the owner of a slot.
#[derive(Debug)]
pub(super) struct SlotRequest {
    pub(super) slot: Slot,
    pub(super) steps: Vec<Step>,
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    pub(super) done: oneshot::Sender<Result<Replies, StoreError>>,
    attempts: Attempts,
}

impl SlotRequest {
    pub(super) fn new(
        slot: Slot,
        steps: Vec<Step>,
        deadline: Instant,
        timeout: Duration,
        done: oneshot::Sender<Result<Replies, StoreError>>,
    ) -> Self {
        SlotRequest { slot, steps, deadline, timeout, done, attempts: Attempts::default() }
    }

    /// What it is about, for people.
    fn key(&self) -> Cow<'_, str> {
        let key = self.steps.first().and_then(|step| step.keys().next());
        key.map_or("nothing".into(), String::from_utf8_lossy)
    }

    fn end(self, outcome: Result<Replies, StoreError>) {
        // The caller may have given up; then nobody waits for it.
        let _ = self.done.send(outcome);
    }
}

enum Flight {
    Landed { request: SlotRequest, node: Node, outcome: Result<Replies, StoreError> },
    Rested(SlotRequest),
}

enum Surveying {
    At(Instant),
    Now(Pin<Box<dyn Future<Output = Result<SlotMap, StoreError>> + Send>>),
}

enum Event {
    Requests,
    Closed,
    Flight(Flight),
    Surveyed(Result<SlotMap, StoreError>),
    NodeChanged(Node, watch::Receiver<Connection>),
    EarsChanged,
}

/// A node whose connection has changed its state.
type Watched = Pin<Box<dyn Future<Output = Option<(Node, watch::Receiver<Connection>)>> + Send>>;

pub(super) struct Router {
    address: Arc<ClusterAddress>,
    options: ConnectionOptions,
    requests: mpsc::Receiver<SlotRequest>,
    listener: Arc<ShardListeners>,
    state: watch::Sender<Connection>,
    map: Option<SlotMap>,
    nodes: HashMap<Node, RequestConnections>,
    /// Those of them that were last heard to be down.
    seen_down: HashSet<Node>,
    watched: FuturesUnordered<Watched>,
    /// Requests from before anything is known about the cluster, in their order.
    waiting: VecDeque<SlotRequest>,
    in_flight: FuturesUnordered<Pin<Box<dyn Future<Output = Flight> + Send>>>,
    surveying: Surveying,
    surveyed_at: Instant,
    /// The time between two surveys that nobody asked for, give or take a quarter.
    survey_every: Duration,
    backoff: Backoff,
}

impl Router {
    pub(super) fn new(
        address: Arc<ClusterAddress>,
        survey_every: Duration,
        options: ConnectionOptions,
        requests: mpsc::Receiver<SlotRequest>,
        listener: Arc<ShardListeners>,
        state: watch::Sender<Connection>,
    ) -> Self {
        let now = timer_now();
        Router {
            address,
            options,
            requests,
            listener,
            state,
            map: None,
            nodes: HashMap::new(),
            seen_down: HashSet::new(),
            watched: FuturesUnordered::new(),
            waiting: VecDeque::new(),
            in_flight: FuturesUnordered::new(),
            surveying: Surveying::At(now),
            surveyed_at: now,
            survey_every,
            backoff: Backoff::default(),
        }
    }

    /// Ends after the other end of the queue and all requests.
    pub(super) async fn run(mut self) {
        let mut fresh = Vec::new();
        let mut is_closed = false;
        while !(is_closed && self.in_flight.is_empty() && self.waiting.is_empty()) {
            match self.next_event(&mut fresh, is_closed).await {
                Event::Requests => fresh.drain(..).for_each(|request| self.dispatch(request)),
                Event::Closed => is_closed = true,
                Event::Flight(Flight::Rested(request)) => self.dispatch(request),
                Event::Flight(Flight::Landed { request, node, outcome }) => {
                    self.land(request, &node, outcome);
                }
                Event::Surveyed(Ok(map)) => self.use_map(map),
                Event::Surveyed(Err(error)) => self.survey_failed(&error, is_closed),
                Event::NodeChanged(node, state) => self.look_at(node, state),
                Event::EarsChanged => self.place_listeners(),
            }
        }
    }

    async fn next_event(&mut self, fresh: &mut Vec<SlotRequest>, is_closed: bool) -> Event {
        let held = self.waiting.len() + self.in_flight.len();
        let takes_requests = !is_closed && held < CALLS_QUEUED_MAX;
        loop {
            tokio::select! {
                biased;
                Some(flight) = self.in_flight.next() => return Event::Flight(flight),
                surveyed = surveyed(&mut self.surveying, &self.address, self.map.as_ref()) => {
                    return Event::Surveyed(surveyed);
                }
                Some(watched) = self.watched.next() => {
                    if let Some((node, state)) = watched {
                        return Event::NodeChanged(node, state);
                    }
                }
                () = self.listener.changed() => return Event::EarsChanged,
                count = self.requests.recv_many(fresh, REQUESTS_AT_ONCE), if takes_requests => {
                    return if count == 0 { Event::Closed } else { Event::Requests };
                }
            }
        }
    }

    /// Sends an request to the owner of its slot.
    fn dispatch(&mut self, request: SlotRequest) {
        let Some(map) = &self.map else {
            let refused = match &*self.state.borrow() {
                Connection::Down(error) if !error.is_temporary() => Some(error.clone()),
                _ => None,
            };
            return match refused {
                Some(error) => request.end(Err(error)),
                None => self.waiting.push_back(request),
            };
        };
        match map.owner(request.slot).cloned() {
            Some(owner) => self.send(request, &owner, SendMode::Plain),
            None => {
                self.want_survey();
                let error = self.no_owner(&request);
                request.end(Err(error));
            }
        }
    }

    fn send(&mut self, mut request: SlotRequest, node: &Node, send_mode: SendMode) {
        let steps = std::mem::take(&mut request.steps);
        let (deadline, timeout) = (request.deadline, request.timeout);
        match self.lines(node) {
            Err(error) => request.end(Err(error)),
            Ok(lines) => {
                let replies = lines.carry_out(steps, deadline, timeout, send_mode);
                let node = node.clone();
                self.in_flight.push(Box::pin(async move {
                    Flight::Landed { request, node, outcome: replies.await }
                }));
            }
        }
    }

    fn lines(&mut self, node: &Node) -> Result<&RequestConnections, StoreError> {
        if !self.nodes.contains_key(node) {
            let route = self.route(node)?;
            let lines = RequestConnections::start(route, self.options.clone());
            self.watched.push(watched(node.clone(), lines.state().clone()));
            self.nodes.insert(node.clone(), lines);
        }
        Ok(&self.nodes[node])
    }

    fn route(&self, node: &Node) -> Result<Route, StoreError> {
        let route = Route::to(&self.address.node_at(node));
        route.map_err(|error| StoreError::unreachable(error.to_string()))
    }

    fn land(
        &mut self,
        mut request: SlotRequest,
        node: &Node,
        outcome: Result<Replies, StoreError>,
    ) {
        let mut replies = match outcome {
            Ok(replies) => replies,
            Err(error) => {
                // Where a node is known to be down, surveys follow each other anyway.
                if self.seen_down.is_empty() {
                    self.want_survey();
                }
                return request.end(Err(error));
            }
        };
        let redirection = |reply: &Value| match reply {
            Value::ServerError(said) => {
                Redirect::parse(said, node).map(|way| (way, error::from_reply(said)))
            }
            _ => None,
        };
        let Some((redirect, said)) = replies.values.first().and_then(redirection) else {
            // What follows the first is a courtesy, and comes again with the next request.
            replies.values.retain(|reply| redirection(reply).is_none());
            return request.end(Ok(replies));
        };
        request.steps = replies.steps;
        match redirect {
            Redirect::Moved { slot, to } => {
                if let Some(map) = &mut self.map {
                    map.learn(slot, &to);
                }
                self.want_survey();
                self.send_on(request, &to, SendMode::Plain);
            }
            Redirect::Ask { to, .. } => self.send_on(request, &to, SendMode::Asking),
            Redirect::TryAgain => self.rest(request, said),
            Redirect::Down => {
                self.want_survey();
                let error = self.down(&request, &said);
                request.end(Err(error));
            }
        }
    }

    fn send_on(&mut self, mut request: SlotRequest, to: &Node, send_mode: SendMode) {
        if !request.attempts.may_hop() {
            let slot = request.slot;
            return request.end(Err(StoreError::not_now(format!(
                "slot {slot} was sent from node to node {HOPS_MAX} times, last to {to}, for the \
                 nodes disagree about its owner; redis-cli --cluster check {to} tells more"
            ))));
        }
        self.send(request, to, send_mode);
    }

    /// The keys are on their way: tries again in a moment, if there is one left.
    fn rest(&mut self, mut request: SlotRequest, said: StoreError) {
        let until = timer_now() + request.attempts.rest();
        if until >= request.deadline {
            return request.end(Err(said));
        }
        self.in_flight.push(Box::pin(async move {
            tokio::time::sleep_until(until).await;
            Flight::Rested(request)
        }));
    }

    fn no_owner(&self, request: &SlotRequest) -> StoreError {
        let (slot, key) = (request.slot, request.key());
        StoreError::not_now(format!(
            "no node of {} serves slot {slot}, in which {key} lies",
            self.address
        ))
        .with_next_step("give it an owner (redis-cli --cluster fix HOST:PORT)")
    }

    fn down(&self, request: &SlotRequest, said: &StoreError) -> StoreError {
        let said = match said.kind() {
            StoreErrorKind::NotNow => said.message().to_owned(),
            _ => said.to_string(),
        };
        if said.contains("not served") {
            return self.no_owner(request);
        }
        let place = format!("{said} (slot {}, key {})", request.slot, request.key());
        match self.map.as_ref().and_then(SlotMap::gaps) {
            Some(gaps) => StoreError::not_now(format!("{place}: slots without an owner: {gaps}"))
                .with_next_step("give them one (redis-cli --cluster fix HOST:PORT)"),
            None => StoreError::not_now(place)
                .with_next_step("wait: it serves again once replicas have taken over"),
        }
    }

    fn want_survey(&mut self) {
        if let Surveying::At(at) = &mut self.surveying {
            *at = (*at).min(self.surveyed_at + SURVEY_GAP);
        }
    }

    fn use_map(&mut self, map: SlotMap) {
        self.surveyed_at = timer_now();
        let nodes = std::mem::take(&mut self.nodes);
        self.nodes = nodes.into_iter().filter(|(node, _)| map.is_owner(node)).collect();
        self.seen_down.retain(|node| self.nodes.contains_key(node));
        self.map = Some(map);
        let wait = match self.seen_down.is_empty() {
            false => self.backoff.next().max(SURVEY_GAP),
            true => {
                self.backoff.reset();
                // Not all clients at once.
                self.survey_every.mul_f64(0.75 + fastrand::f64() / 2.0)
            }
        };
        self.surveying = Surveying::At(self.surveyed_at + wait);
        let waiting: Vec<_> = self.waiting.drain(..).collect();
        waiting.into_iter().for_each(|request| self.dispatch(request));
        self.listener.readmit();
        self.place_listeners();
        self.tell_state();
    }

    fn survey_failed(&mut self, error: &StoreError, is_closed: bool) {
        self.surveyed_at = timer_now();
        let wait = match error.is_temporary() {
            true => self.backoff.next(),
            false => REFUSED_WAIT,
        };
        self.surveying = Surveying::At(self.surveyed_at + wait);
        if self.map.is_some() {
            return;
        }
        self.waiting.retain(|request| !request.done.is_closed());
        if is_closed || !error.is_temporary() {
            self.waiting.drain(..).for_each(|request| request.end(Err(error.clone())));
        }
        self.state.send_replace(Connection::Down(error.clone()));
    }

    fn look_at(&mut self, node: Node, mut state: watch::Receiver<Connection>) {
        let is_down = matches!(&*state.borrow_and_update(), Connection::Down(_));
        if !is_down {
            self.seen_down.remove(&node);
        } else if self.nodes.contains_key(&node) && self.seen_down.insert(node.clone()) {
            self.want_survey();
        }
        self.watched.push(watched(node, state));
        self.tell_state();
    }

    fn states(&self) -> impl Iterator<Item = Connection> {
        self.nodes.values().map(|lines| lines.state().borrow().clone())
    }

    /// The cluster is up as long as a node that is used is: elections on another one learn of its
    /// troubles by their own requests.
    fn tell_state(&self) {
        if self.map.is_none() {
            return;
        }
        let states: Vec<_> = self.states().collect();
        let down = states.iter().find(|state| matches!(state, Connection::Down(_)));
        let state = match down {
            Some(down) if !states.contains(&Connection::Up) => down.clone(),
            // Nodes were reached, or there would be no map.
            _ => Connection::Up,
        };
        self.state.send_if_modified(|known| {
            let has_changed = *known != state;
            *known = state;
            has_changed
        });
    }

    /// Gives every listener that has none a connection to the owner of its channel's slot.
    fn place_listeners(&mut self) {
        if self.listener.take_doubt() {
            self.want_survey();
        }
        let Some(map) = self.map.clone() else { return };
        let listener = Arc::clone(&self.listener);
        listener.place(&map, |node| {
            let route = self.route(node).ok()?;
            let lines_opened = self.lines(node).ok()?.lines_opened();
            Some((route, lines_opened, Arc::clone(&self.options.warnings)))
        });
    }
}

fn watched(node: Node, mut state: watch::Receiver<Connection>) -> Watched {
    Box::pin(async move {
        // It fails when the connection was given up: nobody is interested any more.
        state.changed().await.ok()?;
        Some((node, state))
    })
}

async fn surveyed(
    surveying: &mut Surveying,
    address: &Arc<ClusterAddress>,
    map: Option<&SlotMap>,
) -> Result<SlotMap, StoreError> {
    loop {
        match surveying {
            Surveying::At(at) => {
                tokio::time::sleep_until(*at).await;
                let nodes = nodes_to_ask(address.seeds(), map);
                let survey = survey(Arc::clone(address), nodes, Known::from(map));
                *surveying = Surveying::Now(Box::pin(survey));
            }
            Surveying::Now(survey) => return survey.await,
        }
    }
}
