//! The thread behind a client: it awaits and copies; it decides nothing.
//!
//! In: messages of handles, replies and signals of the backend, and time. Each goes to the state
//! machine of its election; what that puts out is carried out in order. One thread with a runtime
//! of its own serves all elections of a client, so that a blocked application cannot stop renewals.

mod entry;
mod inbox;
mod sleepers;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::protocol::{Call, Request};
use tenure_core::{AskId, Contest, Election as Machine, Moment, Output, Settings, StoreError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

use crate::Error;
use crate::alarm::TaskAlarm;
use crate::backend::{Backend, Calling, ConnectError, Connecting, Connection, Signal};
use crate::clock::Clock;
use crate::identity;
use crate::state::ElectionState;

pub(crate) use entry::Policy;
use entry::{Entry, PendingAsk, Purpose};
pub(crate) use inbox::{ElectionKey, Inbox, Message, Reply};
use sleepers::Sleepers;

/// After how many messages the driver looks for what is due: a rush must not delay renewals.
const LOOK_AT_TIME_EVERY: usize = 128;
/// How much room for messages is kept after a rush.
const BATCH_KEPT_MAX: usize = 256;
/// The rest between two looks at a machine whose moment does not move on.
const REST_MIN: Duration = Duration::from_millis(1);

/// An election on its way to the driver.
pub(crate) struct Starting {
    pub(crate) state: Arc<ElectionState>,
    pub(crate) settings: Settings,
    pub(crate) backend: Arc<dyn Backend>,
    /// Whether the backend is the client's own, whose connection the driver watches.
    pub(crate) shares_connection: bool,
    pub(crate) policy: Policy,
}

/// The elections of a client by key, so that none is entered twice.
pub(crate) type Registry = Arc<Mutex<HashMap<String, Arc<ElectionState>>>>;

/// Makes a backend inside the driver's runtime.
pub(crate) type Connector = Box<dyn FnOnce() -> Connecting + Send>;

/// Starts a driver. Ready once its backend is set up, or with the reason why it cannot be.
pub(crate) async fn start(
    connector: Connector,
    clock: Clock,
    registry: Registry,
) -> Result<(Arc<Inbox>, Arc<dyn Backend>), Error> {
    let inbox = Inbox::new();
    if let Clock::Manual(clock) = &clock {
        clock.wake_on_change(&inbox);
    }
    let (ready, is_ready) = oneshot::channel();
    let thread_inbox = Arc::clone(&inbox);
    let started = std::thread::Builder::new().name("tenure".into()).spawn(move || {
        run_thread(connector, clock, registry, thread_inbox, ready);
    });
    if let Err(error) = started {
        return Err(no_thread("driver thread", &error));
    }
    let backend = is_ready.await.map_err(|_| Error::Closed)??;
    Ok((inbox, backend))
}

/// A thread cannot be started: as a rule the user, or the container, has too many already.
pub(crate) fn no_thread(setting: &'static str, error: &std::io::Error) -> Error {
    let step = "check the limits here (ulimit -u, and the container's on processes)";
    Error::Setting { setting, why: format!("{error}: {step}") }
}

fn run_thread(
    connector: Connector,
    clock: Clock,
    registry: Registry,
    inbox: Arc<Inbox>,
    ready: oneshot::Sender<Result<Arc<dyn Backend>, Error>>,
) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let why = format!("the runtime does not start: {error}");
            let _ = ready.send(Err(Error::Setting { setting: "driver thread", why }));
            return;
        }
    };
    runtime.block_on(async {
        let backend = match connect(connector).await {
            Ok(backend) => backend,
            Err(error) => {
                inbox.die();
                let _ = ready.send(Err(Error::Connect(error)));
                return;
            }
        };
        let driver = Driver::new(clock, registry, inbox, &backend);
        if ready.send(Ok(backend)).is_ok() {
            driver.run().await;
        }
    });
    end_runtime(runtime);
}

async fn connect(connector: Connector) -> Result<Arc<dyn Backend>, ConnectError> {
    connector().await
}

/// A name look-up that hangs must not keep the thread.
fn end_runtime(runtime: Runtime) {
    runtime.shutdown_background();
}

struct Driver {
    clock: Clock,
    inbox: Arc<Inbox>,
    registry: Registry,
    connection: watch::Receiver<Connection>,
    /// Boxed: a growing table must not copy them, nor keep room for ones that are not there.
    elections: HashMap<ElectionKey, Box<Entry>>,
    keys: u64,
    seeds: u64,
    /// The highest attempt number used by any election of this client.
    attempts: u64,
    /// When each election has to be looked at next; one moment per election.
    timers: BTreeSet<(Moment, ElectionKey)>,
    sleepers: Sleepers,
    alarm: TaskAlarm,
}

impl Driver {
    fn new(
        clock: Clock,
        registry: Registry,
        inbox: Arc<Inbox>,
        backend: &Arc<dyn Backend>,
    ) -> Self {
        let seeds = match clock {
            Clock::System => identity::nonce(),
            // What a test moves by hand shall go the same way each time.
            Clock::Manual(_) => 0,
        };
        Driver {
            clock,
            inbox,
            registry,
            connection: backend.connection(),
            elections: HashMap::new(),
            keys: 0,
            seeds,
            attempts: 0,
            timers: BTreeSet::new(),
            sleepers: Sleepers::default(),
            alarm: TaskAlarm::new(),
        }
    }

    async fn run(mut self) {
        let mut batch = VecDeque::new();
        loop {
            self.inbox.take_all(&mut batch);
            for (number, message) in batch.drain(..).enumerate() {
                self.handle(message);
                if number % LOOK_AT_TIME_EVERY == LOOK_AT_TIME_EVERY - 1 {
                    self.look_at_time();
                }
            }
            batch.shrink_to(BATCH_KEPT_MAX);
            self.look_at_connection();
            self.look_at_time();
            if self.elections.is_empty() && self.inbox.is_closed() {
                return;
            }
            self.sleep().await;
        }
    }

    async fn sleep(&mut self) {
        let wakes_at = self.wakes_at();
        if !self.inbox.fall_asleep(wakes_at) {
            // Connections live in this runtime, too: let them have a turn.
            return tokio::task::yield_now().await;
        }
        let (inbox, connection, alarm) = (&self.inbox, &mut self.connection, &self.alarm);
        let idle = matches!(self.clock, Clock::Manual(_)) || wakes_at == Moment::NEVER;
        tokio::select! {
            () = inbox.filled() => {}
            Ok(()) = connection.changed() => connection.mark_changed(),
            () = alarm.wait_until(wakes_at), if !idle => {}
        }
        self.inbox.wake_up();
    }

    fn wakes_at(&self) -> Moment {
        let election = self.timers.first().map_or(Moment::NEVER, |(at, _)| *at);
        election.min(self.sleepers.wakes_at())
    }

    // ------------------------------------------------------------------ what comes in

    fn handle(&mut self, message: Message) {
        match message {
            Message::Start(starting) => self.begin(*starting),
            Message::Woken(election) => self.grant_wishes(election),
            Message::Reply { election, ask, reply } => self.deliver(election, ask, *reply),
            Message::Signal { election, signal } => self.hear(election, signal),
            Message::Call { backend, call, reply } => carry_out(&*backend, *call, reply),
            Message::Subscribe { backend, resource, reply } => {
                // Whoever asked may be gone; the subscription then ends with the drop.
                let _ = reply.send(backend.subscribe(&resource));
            }
            Message::Sleep { until, wake } => self.sleepers.add(until, wake),
        }
    }

    fn begin(&mut self, starting: Starting) {
        self.keys += 1;
        self.seeds = self.seeds.wrapping_add(1);
        let key = ElectionKey(self.keys);
        let Starting { state, settings, backend, shares_connection, policy } = starting;
        let resource = settings.resource.clone();
        let is_single = settings.contest == Contest::OneShot;
        let mut machine = Machine::new(settings, self.seeds, self.clock.now());
        machine.number_attempts_after(self.attempts);
        state.adopt(key);
        let connection = match shares_connection {
            true => self.connection.borrow().clone(),
            false => Connection::Up,
        };
        state.status.update(|status| {
            status.connection = connection;
            true
        });
        let mut entry =
            Entry::new(machine, state, Arc::clone(&backend), shares_connection, policy, is_single);
        entry.listen(&resource, key, &self.inbox);
        self.elections.insert(key, Box::new(entry));
        self.grant_wishes(key);
    }

    fn grant_wishes(&mut self, key: ElectionKey) {
        let Some(entry) = self.elections.get_mut(&key) else { return };
        let mut wishes = entry.state.take_wishes();
        let stands_back = entry.standing_back_changed(&wishes);
        let hand_overs = entry.take_hand_overs(&mut wishes);
        self.turn(key, |machine, now| {
            match stands_back {
                Some(true) => machine.stand_back(now),
                Some(false) => machine.contend_again(now),
                None => {}
            }
            entry::grant(machine, now, wishes, hand_overs);
        });
    }

    fn deliver(&mut self, key: ElectionKey, ask: AskId, reply: Reply) {
        let Some(entry) = self.elections.get_mut(&key) else { return };
        let Some(purpose) = entry.settle(ask, &reply) else { return };
        self.turn(key, |machine, now| machine.handle_reply(now, ask, reply));
        if let (Purpose::Renewal, Some(entry)) = (purpose, self.elections.get(&key)) {
            entry.announce_renewal();
        }
    }

    fn hear(&mut self, key: ElectionKey, signal: Signal) {
        match signal {
            Signal::Listening => self.turn(key, |machine, now| machine.handle_listening(now)),
            Signal::Hint(hint) => self.turn(key, |machine, now| machine.handle_hint(now, hint)),
            // Timers find out what hints would have told; the connection says why.
            Signal::Deaf => {}
        }
    }

    fn look_at_connection(&mut self) {
        if !self.connection.has_changed().unwrap_or(false) {
            return;
        }
        let connection = self.connection.borrow_and_update().clone();
        let sharing = self.elections.iter().filter(|(_, entry)| entry.shares_connection);
        let keys: Vec<ElectionKey> = sharing.map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(entry) = self.elections.get(&key) {
                entry.state.status.update(|status| {
                    status.connection = connection.clone();
                    true
                });
            }
            if let Connection::Down(error) = &connection {
                let error = error.clone();
                self.turn(key, |machine, now| machine.handle_unreachable(now, error));
            }
        }
    }

    fn look_at_time(&mut self) {
        let now = self.clock.now();
        let due: Vec<ElectionKey> =
            self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| *key).collect();
        for key in due {
            self.wake(key);
        }
        self.sleepers.wake(now);
    }

    fn wake(&mut self, key: ElectionKey) {
        let now = self.clock.now();
        let Some(entry) = self.elections.get_mut(&key) else { return };
        entry.cut_off_when_due(now);
        // The connection may know better than the time that passed why there is no answer.
        let known = match &*self.connection.borrow() {
            Connection::Down(why) if entry.shares_connection => Some(why.clone()),
            _ => None,
        };
        for (ask, waited) in entry.overdue_asks(now) {
            let error = known.clone().unwrap_or(StoreError::timed_out(waited));
            self.deliver(key, ask, Err(error));
        }
        self.turn(key, |machine, now| machine.handle_timeout(now));
    }

    // ------------------------------------------------------------------ one turn of one election

    /// Passes one input to an election's machine and carries out what it puts out, in order.
    fn turn(&mut self, key: ElectionKey, input: impl FnOnce(&mut Machine, Moment)) {
        let Some(entry) = self.elections.get_mut(&key) else { return };
        let (outputs, wakes_at) = entry.advance(&self.clock, input);
        entry.act_on(&outputs);
        let mut stopped = false;
        for output in outputs {
            match output {
                Output::Ask { ask, request, timeout } => self.ask(key, ask, request, timeout),
                Output::Tell(event) => {
                    let Some(entry) = self.elections.get_mut(&key) else { return };
                    stopped |= entry.tell(event);
                }
                Output::WaitUntil(_) => {}
            }
        }
        match stopped {
            true => self.finish(key),
            false => self.set_timer(key, wakes_at),
        }
    }

    fn ask(&mut self, key: ElectionKey, ask: AskId, request: Request, timeout: Duration) {
        let Some(entry) = self.elections.get_mut(&key) else { return };
        if entry.keeps_back(&request) {
            return;
        }
        if let Request::Acquire(acquire) = &request {
            self.attempts = self.attempts.max(acquire.attempt);
        }
        let deadline = self.clock.now() + timeout;
        let mut pending = PendingAsk::new(ask, &request, deadline, timeout);
        let call = Call {
            resource: entry.state.resource.clone(),
            id: entry.state.id.clone(),
            request,
            timeout,
            fleet_max_ttl: entry.fleet_max_ttl(),
        };
        match begin_call(&*entry.backend, call) {
            Begun::Answered(reply) => {
                let reply = Box::new(reply);
                self.inbox.post(Message::Reply { election: key, ask, reply });
            }
            Begun::UnderWay(calling) => {
                let inbox = Arc::clone(&self.inbox);
                let task = tokio::spawn(async move {
                    let reply = Box::new(calling.await);
                    inbox.post(Message::Reply { election: key, ask, reply });
                });
                pending.task = Some(task.abort_handle());
            }
        }
        entry.asks.push(pending);
    }

    fn set_timer(&mut self, key: ElectionKey, wakes_at: Moment) {
        let Some(entry) = self.elections.get_mut(&key) else { return };
        let earliest = self.clock.now() + REST_MIN;
        let wakes_at = entry.wakes_at(wakes_at.max(earliest));
        if entry.timer == wakes_at {
            return;
        }
        self.timers.remove(&(entry.timer, key));
        entry.timer = wakes_at;
        if wakes_at != Moment::NEVER {
            self.timers.insert((wakes_at, key));
        }
    }

    fn finish(&mut self, key: ElectionKey) {
        let Some(mut entry) = self.elections.remove(&key) else { return };
        self.timers.remove(&(entry.timer, key));
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let registered = registry.get(entry.state.resource.key());
        if registered.is_some_and(|state| Arc::ptr_eq(state, &entry.state)) {
            registry.remove(entry.state.resource.key());
        }
        drop(registry);
        entry.finish();
    }
}

impl Drop for Driver {
    /// Whatever ends the driver, no handle may go on believing in it.
    fn drop(&mut self) {
        self.inbox.die();
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.drain().for_each(|(_, state)| state.orphan());
        drop(registry);
        self.elections.drain().for_each(|(_, entry)| entry.state.orphan());
    }
}

enum Begun {
    Answered(Reply),
    UnderWay(Calling),
}

/// Queues a call. One that is answered on the spot needs no task; a backend that panics is a
/// backend that does not answer.
fn begin_call(backend: &dyn Backend, call: Call) -> Begun {
    let begun = catch_unwind(AssertUnwindSafe(|| {
        let mut calling = backend.call(call);
        match calling.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => Begun::Answered(reply),
            Poll::Pending => Begun::UnderWay(calling),
        }
    }));
    begun.unwrap_or_else(|_| {
        Begun::Answered(Err(StoreError::unexpected("the backend panicked".to_owned())))
    })
}

/// Carries out a call for a handle, for as long as that waits for it.
fn carry_out(backend: &dyn Backend, call: Call, mut reply: oneshot::Sender<Reply>) {
    match begin_call(backend, call) {
        // Whoever asked may be gone.
        Begun::Answered(answer) => drop(reply.send(answer)),
        Begun::UnderWay(calling) => {
            tokio::spawn(async move {
                tokio::select! {
                    answer = calling => drop(reply.send(answer)),
                    () = reply.closed() => {}
                }
            });
        }
    }
}
