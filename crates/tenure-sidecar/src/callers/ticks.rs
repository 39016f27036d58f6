//! Ticks of jobs whose work runs in the caller: begin, keep, finish, and a look for anybody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure::{InstanceId, Job, NotStarted, OnceOutcome, Term, Tick, TickOutcome, TickState};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::asked::{Asked, check_name, failed, too_many, wait};
use super::hold::{COMMANDS_QUEUED_MAX, Held, Holder, Keep, ask};
use super::owner::{Lifeline, Owner, SILENCE_DEFAULT};
use crate::extract::{PathName, QueryWords};
use crate::json::Json;
use crate::routes::{fresh, refusal};
use crate::sidecar::Shared;

/// How many ticks may run or be waited for at a time.
const TICKS_MAX: usize = 64;

type Shares = State<Arc<Shared>>;
type Ran = Result<OnceOutcome<Result<(), String>>, tenure::Error>;

/// Which tick: one of the three.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Which {
    every_ms: Option<u64>,
    number: Option<u64>,
    named: Option<String>,
}

impl Which {
    fn tick(&self) -> Result<Tick, Response> {
        match (self.every_ms, self.number, &self.named) {
            (Some(period), None, None) => Ok(Tick::every(Duration::from_millis(period))),
            (None, Some(number), None) => Ok(Tick::number(number)),
            (None, None, Some(name)) => Ok(Tick::named(name)),
            _ => {
                let error = "say which tick with exactly one of every_ms, number and named";
                Err(refusal(StatusCode::BAD_REQUEST, "bad-setting", error))
            }
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begin {
    every_ms: Option<u64>,
    number: Option<u64>,
    named: Option<String>,
    owner: Option<String>,
    within_ms: Option<u64>,
    wait_ms: Option<u64>,
    ttl_ms: Option<u64>,
    rerun_crashed: Option<bool>,
    keep_outcome_ms: Option<u64>,
}

impl Begin {
    fn job(&self, shared: &Shared, name: &str, tick: Tick) -> Result<Job, Response> {
        let wait = wait(self.wait_ms)?;
        let mut job = shared.tenure.job(name).tick(tick);
        if !wait.is_zero() {
            job = job.wait_for_outcome(wait);
        }
        if let Some(ttl) = self.ttl_ms {
            job = job.ttl(Duration::from_millis(ttl));
        }
        if let Some(keep) = self.keep_outcome_ms {
            job = job.keep_outcome(Duration::from_millis(keep));
        }
        Ok(job.rerun_crashed(self.rerun_crashed.unwrap_or(true)))
    }
}

/// What became of the work, as its caller says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Ok,
    Failed,
    /// It had no effect, so the tick stays open.
    NotStarted,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finish {
    owner: String,
    result: Verdict,
    #[serde(default)]
    why: String,
}

#[derive(Debug)]
enum Command {
    Keep(oneshot::Sender<Option<Held>>),
    Finish { result: Verdict, why: String, reply: oneshot::Sender<Ran> },
}

#[derive(Clone, Debug)]
struct Entry {
    owner: Owner,
    tick: Tick,
    commands: mpsc::Sender<Command>,
}

#[derive(Debug, Default)]
pub(super) struct Ticks {
    /// By the name of the job: one tick of it runs at a time.
    running: Mutex<BTreeMap<String, Entry>>,
    /// Those that are waited for, too.
    count: Arc<()>,
}

impl Ticks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, name: &str, owner: &Owner) -> Option<Entry> {
        self.lock().get(name).filter(|entry| entry.owner == *owner).cloned()
    }

    /// A place among those that may run or wait.
    fn enter(&self) -> Result<Arc<()>, Response> {
        let place = Arc::clone(&self.count);
        // Itself and the one that stays here aside.
        match Arc::strong_count(&place) - 2 < TICKS_MAX {
            true => Ok(place),
            false => Err(too_many("ticks", TICKS_MAX)),
        }
    }
}

fn not_running(name: &str) -> Response {
    let error = format!(
        "no tick of {name:?} is run by this owner: it was finished or lost, and another instance \
         may run it; stop"
    );
    refusal(StatusCode::CONFLICT, "not-running", error)
}

// ---------------------------------------------------------------------- begin

/// Begins a tick, unless it has run or runs elsewhere.
pub(super) async fn begin(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(asked): Asked<Begin>,
) -> Response {
    match begin_or_refuse(&shared, &name, asked).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn begin_or_refuse(
    shared: &Arc<Shared>,
    name: &str,
    asked: Begin,
) -> Result<Response, Response> {
    check_name(name)?;
    let within = Lifeline::read(asked.within_ms)?.unwrap_or(SILENCE_DEFAULT);
    let owner = Owner::read_or_draw(asked.owner.as_deref())?;
    let which =
        Which { every_ms: asked.every_ms, number: asked.number, named: asked.named.clone() };
    let tick = which.tick()?;
    let job = asked.job(shared, name, tick.clone())?;
    if let Some(entry) = shared.callers.ticks.of(name, &owner) {
        return match entry.tick == tick {
            // The answer to the first request was lost.
            true => kept(name, &entry.commands, StatusCode::OK).await,
            false => {
                let error = format!("this owner runs another tick of {name:?}: finish that first");
                Err(refusal(StatusCode::CONFLICT, "other-tick", error))
            }
        };
    }
    let place = shared.callers.ticks.enter()?;
    let (began, begun) = oneshot::channel();
    let turn = CallersTurn {
        shared: Arc::downgrade(shared),
        name: name.to_owned(),
        owner,
        tick,
        within,
        began,
    };
    let running = tokio::spawn(async move {
        let ran = turn.run(job).await;
        drop(place);
        ran
    });
    // Whoever hangs up while it waits begins nothing.
    let mut waiting = AbortOnDrop(Some(running.abort_handle()));
    if let Ok(commands) = begun.await {
        waiting.0 = None;
        return kept(name, &commands, StatusCode::CREATED).await;
    }
    match running.await {
        Ok(Some(ran)) => not_begun(name, ran),
        _ => Err(not_running(name)),
    }
}

struct AbortOnDrop(Option<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

async fn kept(
    name: &str,
    commands: &mpsc::Sender<Command>,
    status: StatusCode,
) -> Result<Response, Response> {
    #[derive(Serialize)]
    struct Begun {
        state: &'static str,
        #[serde(flatten)]
        held: Held,
    }
    match ask(commands, Command::Keep).await.flatten() {
        Some(held) => Ok(fresh((status, Json(Begun { state: "begun", held })))),
        None => Err(not_running(name)),
    }
}

/// Why nothing runs here.
fn not_begun(name: &str, ran: Ran) -> Result<Response, Response> {
    let conflict = |code, error: String| Err(refusal(StatusCode::CONFLICT, code, error));
    match ran.map_err(|error| failed(&error))? {
        OnceOutcome::AlreadyDone(outcome) => Ok(fresh(Json(done(name, &outcome)))),
        OnceOutcome::RunningElsewhere { by } => {
            let error = format!("{by} is running it: ask again, or wait for it with wait_ms");
            conflict("running", error)
        }
        unfinished @ OnceOutcome::Unfinished { .. } => {
            let error = format!("{unfinished}; rerun_crashed would run it again");
            conflict("unfinished", error)
        }
        other => conflict("not-now", format!("{other}: ask again later")),
    }
}

fn done(name: &str, outcome: &TickOutcome) -> serde_json::Value {
    match outcome {
        TickOutcome::Succeeded => json!({ "name": name, "state": "done" }),
        TickOutcome::Failed(why) => json!({ "name": name, "state": "failed", "why": why }),
    }
}

// ---------------------------------------------------------------------- the task of a tick

/// One run of a tick for a caller.
struct CallersTurn {
    shared: Weak<Shared>,
    name: String,
    owner: Owner,
    tick: Tick,
    within: Duration,
    began: oneshot::Sender<mpsc::Sender<Command>>,
}

/// How the work in the caller ended.
enum End {
    Finished { result: Verdict, why: String, reply: oneshot::Sender<Ran> },
    Silent,
    Lost,
}

/// A tick that runs, known by its name until this is dropped.
struct Registered {
    shared: Weak<Shared>,
    name: String,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.callers.ticks.lock().remove(&self.name);
        }
    }
}

impl CallersTurn {
    /// Runs the job. `None` if its caller knows what became of it, or has fallen silent.
    async fn run(self, job: Job) -> Option<Ran> {
        let (fell_silent, silent) = oneshot::channel();
        let (finished, mut finishing) = oneshot::channel();
        let name = self.name.clone();
        let running = job.run_startable(async |term: Term| {
            match self.attend(term).await {
                End::Finished { result, why, reply } => {
                    let _ = finished.send(reply);
                    match result {
                        Verdict::Ok => Ok(Ok(())),
                        Verdict::Failed => Ok(Err(why)),
                        Verdict::NotStarted => Err(NotStarted(why)),
                    }
                }
                End::Lost => Ok(Err("lost".to_owned())),
                End::Silent => {
                    // Nothing is recorded of work that nobody heard the end of.
                    let _ = fell_silent.send(());
                    std::future::pending().await
                }
            }
        });
        let ran = tokio::select! {
            ran = running => ran,
            Ok(()) = silent => {
                tracing::warn!(target: "tenure", resource = name,
                    "sidecar: the program that ran the tick fell silent: it counts as unfinished");
                return None;
            }
        };
        match finishing.try_recv() {
            Ok(reply) => {
                let _ = reply.send(ran);
                None
            }
            Err(_) => Some(ran),
        }
    }

    /// Stands for the work: answers its caller until that one is done, silent, or has lost it.
    async fn attend(self, term: Term) -> End {
        let (sender, mut commands) = mpsc::channel(COMMANDS_QUEUED_MAX);
        let Some(callers) = self.shared.upgrade() else { return End::Lost };
        let entry =
            Entry { owner: self.owner.clone(), tick: self.tick.clone(), commands: sender.clone() };
        callers.callers.ticks.lock().insert(self.name.clone(), entry);
        drop(callers);
        let _registered = Registered { shared: self.shared.clone(), name: self.name.clone() };
        let mut holder =
            Holder::new(self.name.clone(), self.owner, self.within, term.token(), term.timing());
        let _ = self.began.send(sender);
        loop {
            tokio::select! {
                biased;
                () = term.wait_until_stopping() => {
                    commands.close();
                    holder.promises_end().await;
                    return End::Lost;
                }
                command = commands.recv() => match (command, self.shared.upgrade()) {
                    (Some(Command::Keep(reply)), Some(shared)) => {
                        let over = term.is_stopping();
                        let remaining = if over { Duration::ZERO } else { term.remaining() };
                        let _ = reply.send(holder.promise(remaining, &shared.callers));
                    }
                    (Some(Command::Finish { result, why, reply }), _) => {
                        return End::Finished { result, why, reply };
                    }
                    _ => return End::Silent,
                },
                () = holder.lifeline.ends() => return End::Silent,
            }
        }
    }
}

// ---------------------------------------------------------------------- keep, finish and look

/// The owner is alive.
pub(super) async fn keep(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(asked): Asked<Keep>,
) -> Response {
    let commands = match running(&shared, &name, &asked.owner) {
        Ok(commands) => commands,
        Err(refused) => return refused,
    };
    match kept(&name, &commands, StatusCode::OK).await {
        Ok(answer) | Err(answer) => answer,
    }
}

fn running(shared: &Shared, name: &str, owner: &str) -> Result<mpsc::Sender<Command>, Response> {
    let entry = shared.callers.ticks.of(name, &Owner::read(owner)?);
    entry.map(|entry| entry.commands).ok_or_else(|| not_running(name))
}

/// The work ended. The answer says whether the store has recorded that.
pub(super) async fn finish(
    State(shared): Shares,
    PathName(name): PathName,
    Asked(asked): Asked<Finish>,
) -> Response {
    let commands = match running(&shared, &name, &asked.owner) {
        Ok(commands) => commands,
        Err(refused) => return refused,
    };
    let Finish { result, why, .. } = asked;
    let finish = |reply| Command::Finish { result, why, reply };
    match ask(&commands, finish).await {
        Some(Ok(OnceOutcome::Ran(_) | OnceOutcome::NotStarted(_))) => {
            fresh(Json(json!({ "name": name, "result": result, "recorded": true })))
        }
        Some(Ok(OnceOutcome::Unrecorded(_))) => {
            let error = "the store could not record the outcome: the tick counts as unfinished";
            refusal(StatusCode::SERVICE_UNAVAILABLE, "unrecorded", error)
        }
        Some(Err(error)) => failed(&error),
        Some(Ok(_)) | None => not_running(&name),
    }
}

/// The state of a tick, for anybody.
pub(super) async fn look(
    State(shared): Shares,
    PathName(name): PathName,
    QueryWords(which): QueryWords<Which>,
) -> Response {
    match look_or_refuse(&shared, &name, &which).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn look_or_refuse(shared: &Shared, name: &str, which: &Which) -> Result<Response, Response> {
    check_name(name)?;
    let tick = which.tick()?;
    let observer = shared.tenure.observe(name).map_err(|error| failed(&error))?;
    let state = observer.tick(&tick).await.map_err(|error| failed(&error))?;
    let begun = |state: &str, by: &InstanceId| json!({ "name": name, "state": state, "by": by.to_string() });
    Ok(fresh(Json(match &state {
        TickState::Open => json!({ "name": name, "state": "open" }),
        TickState::Running { by } => begun("running", by),
        TickState::Done(outcome) => done(name, outcome),
        TickState::Unfinished { by, .. } => begun("unfinished", by),
        _ => json!({ "name": name, "state": "unknown" }),
    })))
}
