//! Locks that programs take, keep and release.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use tenure::LockGuard;
use tokio::sync::{mpsc, oneshot, watch};

use super::asked::{Asked, LENGTH_MAX, check_length, check_name, failed, too_many, wait};
use super::hold::{COMMANDS_QUEUED_MAX, Held, Holder, Keep, ask};
use super::owner::{Lifeline, Owner, SILENCE_DEFAULT};
use crate::clock;
use crate::extract::{PathName, QueryWords};
use crate::json::Json;
use crate::routes::{fresh, refusal};
use crate::sidecar::Shared;

/// How many locks may be held or tried at a time.
const LOCKS_MAX: usize = 256;
/// How many callers may wait at a time for locks that others hold here.
const WAITERS_MAX: usize = 64;

type Shares = State<Arc<Shared>>;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Acquire {
    owner: Option<String>,
    within_ms: Option<u64>,
    wait_ms: Option<u64>,
    ttl_ms: Option<u64>,
    lock_delay_ms: Option<u64>,
}

#[derive(Debug)]
enum Command {
    Keep(oneshot::Sender<Option<Held>>),
    Release(oneshot::Sender<Result<(), tenure::Error>>),
}

#[derive(Clone, Debug)]
enum Entry {
    /// A caller tries or waits for it.
    Tried,
    Held {
        owner: Owner,
        commands: mpsc::Sender<Command>,
    },
}

#[derive(Debug, Default)]
pub(super) struct Locks {
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Tells those who wait that an entry is gone.
    freed: watch::Sender<()>,
    waiters: AtomicUsize,
}

impl Locks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, name: &str) {
        self.lock().remove(name);
        self.freed.send_replace(());
    }

    /// What `owner` holds.
    fn of(&self, name: &str, owner: &str) -> Result<mpsc::Sender<Command>, Response> {
        let owner = Owner::read(owner)?;
        match self.lock().get(name) {
            Some(Entry::Held { owner: known, commands }) if *known == owner => Ok(commands.clone()),
            _ => Err(not_held(name)),
        }
    }
}

fn not_held(name: &str) -> Response {
    let error = format!(
        "the lock {name:?} is not held by this owner: it was released or lost, and another may \
         have worked since; stop, then acquire it again"
    );
    refusal(StatusCode::CONFLICT, "not-held", error)
}

fn held_by_another(name: &str) -> Response {
    let error = format!("the lock {name:?} is held: ask again, or wait for it with wait_ms");
    refusal(StatusCode::CONFLICT, "held", error)
}

/// A lock that a caller tries here; free again when this is dropped.
struct Slot<'a> {
    locks: &'a Locks,
    name: &'a str,
    is_filled: bool,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if !self.is_filled {
            self.locks.remove(self.name);
        }
    }
}

struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    fn enter(waiters: &'a AtomicUsize) -> Result<Self, Response> {
        let entered = waiters.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            (count < WAITERS_MAX).then_some(count + 1)
        });
        entered.map_err(|_| too_many("callers that wait for locks", WAITERS_MAX))?;
        Ok(Waiter(waiters))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

// ---------------------------------------------------------------------- acquire

/// Takes a lock, at once or within a bound.
pub(super) async fn acquire(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(asked): Asked<Acquire>,
) -> Response {
    match acquire_or_refuse(&shared, &name, asked).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn acquire_or_refuse(
    shared: &Arc<Shared>,
    name: &str,
    asked: Acquire,
) -> Result<Response, Response> {
    check_name(name)?;
    check_length("lock_delay_ms", asked.lock_delay_ms, LENGTH_MAX)?;
    let within = Lifeline::read(asked.within_ms)?.unwrap_or(SILENCE_DEFAULT);
    let owner = Owner::read_or_draw(asked.owner.as_deref())?;
    let until = clock::now() + wait(asked.wait_ms)?;
    let locks = &shared.callers.locks;
    let mut place = match turn(locks, name, &owner, until).await? {
        Turn::Slot(place) => place,
        Turn::Holds(commands) => return kept(name, &commands, StatusCode::OK).await,
    };
    let guard = take(shared, name, &asked, until).await?;
    let commands = hold(shared, name, owner, within, guard);
    place.is_filled = true;
    kept(name, &commands, StatusCode::CREATED).await
}

/// Whose turn it is among the callers of this sidecar: to the store they are one.
enum Turn<'a> {
    /// This caller's.
    Slot(Slot<'a>),
    /// It holds the lock already: its last request was answered, and the answer was lost.
    Holds(mpsc::Sender<Command>),
}

async fn turn<'a>(
    locks: &'a Locks,
    name: &'a str,
    owner: &Owner,
    until: Instant,
) -> Result<Turn<'a>, Response> {
    let mut freed = locks.freed.subscribe();
    let mut waiter = None;
    loop {
        freed.mark_unchanged();
        {
            let mut entries = locks.lock();
            match entries.get(name) {
                Some(Entry::Held { owner: known, commands }) if known == owner => {
                    return Ok(Turn::Holds(commands.clone()));
                }
                Some(_) => {}
                None if entries.len() >= LOCKS_MAX => return Err(too_many("locks", LOCKS_MAX)),
                None => {
                    entries.insert(name.to_owned(), Entry::Tried);
                    return Ok(Turn::Slot(Slot { locks, name, is_filled: false }));
                }
            }
        }
        if clock::now() >= until {
            return Err(held_by_another(name));
        }
        if waiter.is_none() {
            waiter = Some(Waiter::enter(&locks.waiters)?);
        }
        let _ = tokio::time::timeout_at(until.into(), freed.changed()).await;
    }
}

/// Takes the lock from the store.
async fn take(
    shared: &Shared,
    name: &str,
    asked: &Acquire,
    until: Instant,
) -> Result<LockGuard, Response> {
    let mut lock = shared.tenure.lock(name);
    if let Some(ttl) = asked.ttl_ms {
        lock = lock.ttl(Duration::from_millis(ttl));
    }
    if let Some(delay) = asked.lock_delay_ms {
        lock = lock.lock_delay(Duration::from_millis(delay));
    }
    let left = until.saturating_duration_since(clock::now());
    let taken = match left.is_zero() {
        true => lock.try_acquire().await,
        false => lock.acquire_within(left).await.map(Some),
    };
    taken.map_err(|error| failed(&error))?.ok_or_else(|| held_by_another(name))
}

async fn kept(
    name: &str,
    commands: &mpsc::Sender<Command>,
    status: StatusCode,
) -> Result<Response, Response> {
    match ask(commands, Command::Keep).await.flatten() {
        Some(held) => Ok(fresh((status, Json(held)))),
        None => Err(not_held(name)),
    }
}

// ---------------------------------------------------------------------- the task of a lock

/// Keeps a lock for its owner until that one releases it, falls silent, or it is lost.
fn hold(
    shared: &Arc<Shared>,
    name: &str,
    owner: Owner,
    within: Duration,
    guard: LockGuard,
) -> mpsc::Sender<Command> {
    let (sender, commands) = mpsc::channel(COMMANDS_QUEUED_MAX);
    let (token, timing) = (guard.token(), guard.timing());
    // Before its task, which removes it: the lock may be lost at once.
    let entry = Entry::Held { owner: owner.clone(), commands: sender.clone() };
    shared.callers.locks.lock().insert(name.to_owned(), entry);
    let holder = Holder::new(name.to_owned(), owner, within, token, timing);
    let shared = Arc::downgrade(shared);
    tokio::spawn(keep_lock(shared, holder, guard, commands));
    sender
}

async fn keep_lock(
    shared: Weak<Shared>,
    mut holder: Holder,
    mut guard: LockGuard,
    mut commands: mpsc::Receiver<Command>,
) {
    let mut told = None;
    loop {
        tokio::select! {
            biased;
            () = guard.wait_until_lost() => {
                // Nobody else gets it before the last promise is over.
                commands.close();
                holder.promises_end().await;
                break;
            }
            command = commands.recv() => match (command, shared.upgrade()) {
                (Some(Command::Keep(reply)), Some(shared)) => {
                    let remaining = if guard.is_held() { guard.remaining() } else { Duration::ZERO };
                    let _ = reply.send(holder.promise(remaining, &shared.callers));
                }
                (Some(Command::Release(reply)), _) => {
                    told = Some(reply);
                    break;
                }
                // The sidecar is gone.
                _ => break,
            },
            () = holder.lifeline.ends() => {
                tracing::warn!(target: "tenure", resource = holder.name,
                    "sidecar: the holder of the lock fell silent: it is released");
                break;
            }
        }
    }
    commands.close();
    let released = guard.release().await;
    if let Some(shared) = shared.upgrade() {
        shared.callers.locks.remove(&holder.name);
    }
    if let Some(reply) = told {
        let _ = reply.send(released);
    }
}

// ---------------------------------------------------------------------- keep and release

/// The owner is alive.
pub(super) async fn keep(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(asked): Asked<Keep>,
) -> Response {
    let commands = match shared.callers.locks.of(&name, &asked.owner) {
        Ok(commands) => commands,
        Err(refused) => return refused,
    };
    match kept(&name, &commands, StatusCode::OK).await {
        Ok(answer) | Err(answer) => answer,
    }
}

#[derive(Deserialize)]
pub(super) struct OwnerWord {
    owner: String,
}

/// Releases the lock. The answer says whether it was held until then.
pub(super) async fn release(
    State(shared): Shares,
    PathName(name): PathName,
    QueryWords(words): QueryWords<OwnerWord>,
) -> Response {
    let commands = match shared.callers.locks.of(&name, &words.owner) {
        Ok(commands) => commands,
        Err(refused) => return refused,
    };
    match ask(&commands, Command::Release).await {
        Some(Ok(())) => fresh(Json(json!({ "name": name, "released": true }))),
        Some(Err(tenure::Error::NotHeld { .. })) | None => not_held(&name),
        Some(Err(error)) => failed(&error),
    }
}
