//! The stage of a case: one fresh resource, and instances that play on it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::protocol::{
    Acquire, Answer, Ballot, Call, CloseReason, MemberRecord, Outcome, Request, Token, View,
};
use tenure_core::{InstanceId, Resource};

use super::{Backend, Meddler};
use crate::backend::Subscription;
use crate::clock::timer_now;

/// A lease that outlasts every case.
pub(super) const LONG: Duration = Duration::from_secs(300);
/// A lease that a case waits for.
pub(super) const SHORT: Duration = Duration::from_millis(500);
/// How long an answer may take. It ends hung calls, it measures nothing.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a case waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Where a case happens.
pub(super) struct Stage {
    pub(super) resource: Resource,
    backends: [Arc<dyn Backend>; 2],
    meddler: Option<Arc<dyn Meddler>>,
}

impl Stage {
    pub(super) fn new(
        case: &str,
        backends: &[Arc<dyn Backend>; 2],
        meddler: Option<Arc<dyn Meddler>>,
    ) -> Self {
        let name =
            format!("conformance-{}-{:016x}", &case[..case.len().min(60)], fastrand::u64(..));
        let resource = Resource::named(&name).expect("case names are plain words");
        Stage { resource, backends: backends.clone(), meddler }
    }

    /// Three instances in two processes.
    pub(super) fn players(&self) -> [Player; 3] {
        [self.player("ada", 0), self.player("bob", 1), self.player("cleo", 0)]
    }

    fn player(&self, name: &str, process: usize) -> Player {
        let id = InstanceId::new(name, fastrand::u64(..)).expect("player names are plain words");
        let backend = Arc::clone(&self.backends[process]);
        Player { id, resource: self.resource.clone(), backend }
    }

    /// A subscription in the second process.
    pub(super) fn subscribe(&self) -> Subscription {
        self.backends[1].subscribe(&self.resource)
    }

    pub(super) fn meddler(&self) -> &dyn Meddler {
        self.meddler.as_deref().expect("cases about foreign data run with a meddler only")
    }
}

/// An instance. Its calls fail the case when the store gives no answer.
#[derive(Clone)]
pub(super) struct Player {
    pub(super) id: InstanceId,
    resource: Resource,
    backend: Arc<dyn Backend>,
}

impl Player {
    /// Queues a request and returns at once; the answer is awaited later.
    pub(super) fn begin(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<Answer, String>> + use<> {
        self.begin_within(request, CALL_TIMEOUT)
    }

    pub(super) fn begin_within(
        &self,
        request: Request,
        timeout: Duration,
    ) -> impl Future<Output = Result<Answer, String>> + use<> {
        let what = format!("{request:?}");
        let (resource, id) = (self.resource.clone(), self.id.clone());
        let calling = self.backend.call(Call {
            resource,
            id,
            request,
            timeout,
            fleet_max_ttl: Duration::ZERO,
        });
        async move { calling.await.map_err(|error| format!("no answer to {what}: {error}")) }
    }

    pub(super) async fn ask(&self, request: Request) -> Result<Answer, String> {
        self.begin(request).await
    }

    pub(super) async fn outcome(&self, request: Request) -> Result<Outcome, String> {
        Ok(self.ask(request).await?.outcome)
    }

    /// An attempt on a resource that the user vouches to be fresh.
    pub(super) async fn acquire(&self, attempt: u64, ttl: Duration) -> Result<Outcome, String> {
        self.outcome(Request::Acquire(attempt_of(attempt, ttl))).await
    }

    /// An attempt that must be granted.
    pub(super) async fn lead(&self, attempt: u64, ttl: Duration) -> Result<Token, String> {
        match self.acquire(attempt, ttl).await? {
            Outcome::Granted { token } => Ok(token),
            other => Err(format!("expected a grant to {}, got {other:?}", self.id.name())),
        }
    }

    /// Tries until it is granted, with a fresh attempt each time, and returns the outcomes before.
    pub(super) async fn lead_at_last(
        &self,
        acquire: &Acquire,
    ) -> Result<(Token, Vec<Outcome>), String> {
        let mut acquire = acquire.clone();
        let mut before = Vec::new();
        let tried = tokio::time::timeout(PATIENCE, async {
            loop {
                match self.outcome(Request::Acquire(acquire.clone())).await? {
                    Outcome::Granted { token } => return Ok(token),
                    other => before.push(other),
                }
                acquire.attempt += 1;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        match tried.await {
            Ok(token) => token.map(|token| (token, before)),
            Err(_) => Err(format!("no grant in {PATIENCE:?}, but {:?}", before.last())),
        }
    }

    pub(super) async fn renew(&self, token: Token, ttl: Duration) -> Result<Outcome, String> {
        self.outcome(Request::Renew { token, ttl, fleet_max_ttl: ttl }).await
    }

    pub(super) async fn release(&self, token: Token) -> Result<Outcome, String> {
        self.outcome(Request::Release { token, reason: CloseReason::Released }).await
    }

    pub(super) async fn transfer(
        &self,
        token: Token,
        to: &Player,
        claim_ttl: Duration,
    ) -> Result<Outcome, String> {
        self.outcome(Request::Transfer { token, to: to.id.clone(), claim_ttl }).await
    }

    pub(super) async fn view(&self) -> Result<View, String> {
        Ok(self.ask(Request::Observe { members: false }).await?.view)
    }

    /// Looks until `is_there`.
    pub(super) async fn see(
        &self,
        what: &str,
        is_there: impl Fn(&View) -> bool,
    ) -> Result<View, String> {
        let deadline = timer_now() + PATIENCE;
        loop {
            let view = self.view().await?;
            if is_there(&view) {
                return Ok(view);
            }
            if timer_now() > deadline {
                return Err(format!("{what} did not come in {PATIENCE:?}: {view:?}"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// A plain attempt on a fresh resource.
pub(super) fn attempt_of(attempt: u64, ttl: Duration) -> Acquire {
    Acquire {
        attempt,
        ttl,
        fleet_max_ttl: ttl,
        floor: None,
        fresh_store: true,
        age_counts: true,
        lock_delay: Duration::ZERO,
        heal: None,
        record: record(0, ttl),
        members: false,
        ballot: Ballot::Alone,
    }
}

pub(super) fn record(priority: i32, ttl: Duration) -> MemberRecord {
    MemberRecord { priority, ready: true, ttl, version: "1.2.3".into(), ..MemberRecord::default() }
}

/// A token that many above: for terms that nobody has.
pub(super) fn beyond(token: Token, by: u64) -> Token {
    Token::new(token.get() + by).expect("tokens are far below their bound")
}
