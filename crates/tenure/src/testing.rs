//! Elections in memory for tests of your own code. The test controls time, outages and losses.
//!
//! The clients are real ones, each with its own thread and the same code as in production; only
//! the clock and the store are the test's. Nothing sleeps: an hour passes in milliseconds.
//!
//! ```
//! use std::time::Duration;
//! use tenure::testing::World;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let world = World::new();
//! let (ada, bob) = (world.client("ada").await, world.client("bob").await);
//! let on_ada = ada.election("nightly-report").start().await?;
//! world.settle().await;
//! assert!(on_ada.is_leader());
//! let on_bob = bob.election("nightly-report").start().await?;
//! world.settle().await;
//! assert!(!on_bob.is_leader());
//!
//! // Ada's network goes away: she stops before Bob begins.
//! world.cut_off("ada");
//! world.advance(Duration::from_secs(9)).await;
//! assert!(on_ada.is_leader() && !on_bob.is_leader());
//! world.advance(Duration::from_secs(2)).await;
//! assert!(!on_ada.is_leader() && on_bob.is_leader());
//!
//! // She comes back, and is a candidate again.
//! world.heal("ada");
//! world.make_leader("nightly-report", "ada").await;
//! assert!(on_ada.is_leader() && !on_bob.is_leader());
//! # Ok::<(), tenure::Error>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::memory_store::ForeignValue;
use tenure_core::protocol::{Call, Hint, HistoryKind, Outcome, Request};
use tenure_core::{InstanceId, Moment, Resource, Token};

use crate::clock::{Clock, ManualClock};
use crate::memory::{LinkState, MemoryBackend};
use crate::{Tenure, TenureBuilder};

/// Where the clock of a world begins: late enough for every subtraction.
const BEGINNING: Moment = Moment::from_nanos(1_000_000_000_000);
/// How often tasks of the test get a turn before the world counts as at rest.
const TURNS: usize = 16;
/// How often to look again, before a world that does not come to rest is abandoned.
const ROUNDS_MAX: usize = 10_000;
/// The pause between two looks at busy threads, and how many of them make ten seconds.
const LOOK_EVERY: Duration = Duration::from_micros(50);
const LOOKS_MAX: usize = 200_000;
/// How far time goes at once while something is waited for, and how far in total.
const STEP: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(600);
/// How often a client that lost touch may miss what was handed to it.
const HAND_OVERS_MAX: usize = 10;

/// A store in memory, a clock, and the clients that share both.
///
/// Meant for a test on one thread (`#[tokio::test]`, `tenure::blocking` or any other executor):
/// [`advance`](World::advance) then gives the test's own tasks their turns as well.
#[derive(Debug)]
pub struct World {
    clock: Arc<ManualClock>,
    store: MemoryBackend,
    links: Mutex<BTreeMap<String, Vec<MemoryBackend>>>,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// A world in which nothing has happened yet.
    pub fn new() -> Self {
        let clock = ManualClock::starting_at(BEGINNING);
        let store = MemoryBackend::on(Clock::Manual(Arc::clone(&clock)));
        World { clock, store, links: Mutex::default() }
    }

    /// A client called `name` with default settings. Panics when the name cannot be used.
    pub async fn client(&self, name: &str) -> Tenure {
        let client = self.builder(name).connect().await;
        client.unwrap_or_else(|error| panic!("no client {name:?}: {error}"))
    }

    /// A client called `name`, to be given settings before it connects.
    pub fn builder(&self, name: &str) -> TenureBuilder {
        let link = self.store.over_own_link();
        self.lock_links().entry(name.to_owned()).or_default().push(link.clone());
        Tenure::builder()
            .instance(name)
            .backend(Arc::new(link))
            .clock(Clock::Manual(Arc::clone(&self.clock)))
    }

    // ------------------------------------------------------------------ time

    /// How much time has passed in this world.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(BEGINNING)
    }

    /// Lets time pass, and everything happen that is due meanwhile.
    pub async fn advance(&self, time: Duration) {
        let target = self.clock.now() + time;
        loop {
            self.settle().await;
            let due = self.next_due();
            if due > target {
                break;
            }
            self.clock.set(due);
        }
        self.clock.set(target);
        self.settle().await;
    }

    /// Lets time pass as on a suspended host: nothing happens meanwhile, and everything due is
    /// late.
    pub async fn suspend(&self, time: Duration) {
        self.settle().await;
        self.clock.set(self.clock.now() + time);
    }

    /// Lets everything happen that can happen without time passing.
    pub async fn settle(&self) {
        for _ in 0..ROUNDS_MAX {
            let before = self.wait_for_rest();
            for _ in 0..TURNS {
                yield_once().await;
            }
            if self.rest() == Some(before) {
                return;
            }
        }
        panic!("the world does not come to rest: something in the test is busy all the time");
    }

    /// Lets time pass until `what` is true, and returns how much. Panics after ten minutes.
    pub async fn run_until(&self, mut what: impl FnMut() -> bool) -> Duration {
        let began_at = self.clock.now();
        self.settle().await;
        while !what() {
            assert!(self.clock.now().since(began_at) < PATIENCE, "it does not happen");
            self.advance(STEP).await;
        }
        self.clock.now().since(began_at)
    }

    // ------------------------------------------------------------------ faults

    /// Cuts the client off: its requests vanish, and it hears nothing.
    pub fn cut_off(&self, client: &str) {
        self.set_links(client, LinkState::Cut);
    }

    /// The client's requests arrive and take effect, but their answers vanish.
    pub fn lose_answers(&self, client: &str) {
        self.set_links(client, LinkState::AnswersLost);
    }

    /// The client reaches the store again.
    pub fn heal(&self, client: &str) {
        self.set_links(client, LinkState::Open);
    }

    /// Nobody reaches the store any more.
    pub fn cut_off_everybody(&self) {
        self.lock_links().values().flatten().for_each(|link| link.set_link(LinkState::Cut));
        self.rouse();
    }

    /// Everybody reaches the store again.
    pub fn heal_everybody(&self) {
        self.lock_links().values().flatten().for_each(|link| link.set_link(LinkState::Open));
        self.rouse();
    }

    /// Takes the leadership of `resource` away, as a deletion of its key would.
    pub fn take_away(&self, resource: &str) {
        let resource = resource_named(resource);
        let token = self.store.with_store(|store, now| {
            let token = store.token_of(now, &resource);
            store.delete(now, resource.key());
            token
        });
        self.have_leader_look(&resource, token);
    }

    /// Gives `resource` to a program that does not know Tenure's protocol, for `ttl`.
    pub fn give_to_stranger(&self, resource: &str, stranger: &str, ttl: Duration) {
        let resource = resource_named(resource);
        let token = self.store.with_store(|store, now| {
            let token = store.token_of(now, &resource);
            store.delete(now, resource.key());
            store.set_foreign(now, resource.key(), ForeignValue::Text(stranger), Some(ttl));
            token
        });
        self.have_leader_look(&resource, token);
    }

    /// The store loses all its data.
    pub fn flush_store(&self) {
        self.store.with_store(|store, _| store.flush());
    }

    /// Makes `client` the leader of `resource`, by an election or a hand-over, and lets as much
    /// time pass as that takes. Panics if it cannot be done.
    pub async fn make_leader(&self, resource: &str, client: &str) {
        let resource = resource_named(resource);
        let operator = self.client("operator").await;
        for _ in 0..HAND_OVERS_MAX {
            self.run_until(|| self.leader(&resource).is_some()).await;
            if self.leader(&resource).is_some_and(|leader| leader.answers_to(client)) {
                return;
            }
            let observer = operator.observe(resource.name()).expect("a name that was used before");
            let asking = observer.ask_to_hand_over(client);
            let asked = self.advance_while(asking).await;
            let asked = asked.unwrap_or_else(|error| panic!("{client:?} cannot lead: {error}"));
            assert!(asked.is_done(), "{client:?} cannot lead: {asked:?}");
        }
        panic!("{client:?} was handed {resource} several times and never took it");
    }

    /// Lets time pass until `future` is done, and then everything happen that needs no more time:
    /// for example, a successor learns that it leads.
    pub async fn advance_while<F: Future>(&self, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        let began_at = self.clock.now();
        loop {
            tokio::select! {
                biased;
                done = &mut future => {
                    self.settle().await;
                    return done;
                }
                () = self.advance(STEP) => {}
            }
            assert!(self.clock.now().since(began_at) < PATIENCE, "it is never done");
        }
    }

    /// Who has been granted `resource`. A successor for whom it is merely reserved has not.
    fn leader(&self, resource: &Resource) -> Option<InstanceId> {
        let call = Call {
            resource: resource.clone(),
            id: InstanceId::seen("world"),
            request: Request::History { count: 1 },
            timeout: PATIENCE,
            fleet_max_ttl: Duration::ZERO,
        };
        let (answer, _) = self.store.with_store(|store, now| store.execute(now, &call));
        let Outcome::History(entries) = answer.outcome else { return None };
        let latest = entries.into_iter().next()?;
        let holds = answer.view.holder.as_ref() == Some(&latest.id);
        (holds && latest.what == HistoryKind::Granted).then_some(latest.id)
    }

    /// Has the leader renew now rather than when it is due, so that it finds out at once.
    fn have_leader_look(&self, resource: &Resource, token: Option<Token>) {
        if let Some(token) = token {
            self.store.publish(resource, Hint::Wished { token });
        }
        self.rouse();
    }

    fn set_links(&self, client: &str, state: LinkState) {
        let links = self.lock_links();
        let links = links.get(client);
        let links = links.unwrap_or_else(|| panic!("there is no client {client:?} in this world"));
        links.iter().for_each(|link| link.set_link(state.clone()));
        self.rouse();
    }

    // ------------------------------------------------------------------ rest

    /// Has every driver look around: what was changed under them is not a message.
    fn rouse(&self) {
        self.clock.drivers().iter().for_each(|driver| driver.rouse());
    }

    /// When the next thing is due in any client.
    fn next_due(&self) -> Moment {
        let drivers = self.clock.drivers();
        let due = drivers.iter().filter_map(|driver| driver.rest().1);
        due.min().unwrap_or(Moment::NEVER)
    }

    /// How often drivers were woken, if all of them sleep.
    fn rest(&self) -> Option<u64> {
        let drivers = self.clock.drivers();
        let count = || {
            let asleep = drivers.iter().map(|driver| {
                let (wakes, sleeps_until) = driver.rest();
                sleeps_until.map(|_| wakes)
            });
            asleep.sum::<Option<u64>>()
        };
        // One that was seen asleep may have been woken by one that was looked at later.
        let first = count()?;
        (count() == Some(first)).then_some(first)
    }

    fn wait_for_rest(&self) -> u64 {
        for _ in 0..LOOKS_MAX {
            match self.rest() {
                Some(wakes) => return wakes,
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
        panic!("the threads of this world are busy for ten seconds");
    }

    fn lock_links(&self) -> MutexGuard<'_, BTreeMap<String, Vec<MemoryBackend>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn resource_named(name: &str) -> Resource {
    Resource::named(name).unwrap_or_else(|error| panic!("{error}"))
}

/// Lets other tasks of the same executor run.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
