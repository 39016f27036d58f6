//! One instance on one resource, for tests that talk to a backend directly.

use std::sync::Arc;
use std::time::Duration;

use tenure::backend::Backend;
use tenure::backend::redis::RedisBackend;
use tenure_core::protocol::{
    Acquire, Answer, Ballot, Call, CloseReason, MemberRecord, Outcome, Request, Token,
};
use tenure_core::{InstanceId, Resource, StoreError};

/// A lease that outlasts every test.
pub(crate) const LONG: Duration = Duration::from_secs(300);
/// How long a call may take where nothing is wrong.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

/// An instance.
#[derive(Clone)]
pub(crate) struct Actor {
    pub(crate) id: InstanceId,
    pub(crate) resource: Resource,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) timeout: Duration,
}

impl Actor {
    pub(crate) fn new(name: &str, resource: &str, backend: Arc<dyn Backend>) -> Self {
        let id = InstanceId::new(name, fastrand::u64(..)).unwrap();
        Actor { id, resource: Resource::named(resource).unwrap(), backend, timeout: PATIENT }
    }

    pub(crate) fn at(url: &str, resource: &str) -> Self {
        Self::new("ada", resource, Arc::new(RedisBackend::open(url).unwrap()))
    }

    /// Another instance over the same connection.
    pub(crate) fn beside(&self, name: &str) -> Self {
        let id = InstanceId::new(name, fastrand::u64(..)).unwrap();
        Actor { id, ..self.clone() }
    }

    pub(crate) fn within(&self, timeout: Duration) -> Self {
        Actor { timeout, ..self.clone() }
    }

    pub(crate) async fn ask(&self, request: Request) -> Result<Answer, StoreError> {
        let (resource, id) = (self.resource.clone(), self.id.clone());
        let (timeout, fleet_max_ttl) = (self.timeout, Duration::ZERO);
        self.backend.call(Call { resource, id, request, timeout, fleet_max_ttl }).await
    }

    pub(crate) async fn acquire(&self, attempt: u64) -> Result<Answer, StoreError> {
        self.ask(Request::Acquire(attempt_of(attempt, LONG))).await
    }

    pub(crate) async fn lead(&self, attempt: u64) -> Token {
        match self.acquire(attempt).await {
            Ok(Answer { outcome: Outcome::Granted { token }, .. }) => token,
            other => panic!("no grant but {other:?}"),
        }
    }

    pub(crate) async fn renew(&self, token: Token) -> Result<Answer, StoreError> {
        self.ask(Request::Renew { token, ttl: LONG, fleet_max_ttl: LONG }).await
    }

    pub(crate) async fn release(&self, token: Token) -> Result<Answer, StoreError> {
        self.ask(Request::Release { token, reason: CloseReason::Released }).await
    }

    /// Tries until `is_there`, each time with a new attempt.
    pub(crate) async fn acquire_until(
        &self,
        what: &str,
        acquire: Acquire,
        is_there: impl Fn(&Result<Answer, StoreError>) -> bool,
    ) -> Result<Answer, StoreError> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let mut acquire = acquire;
        loop {
            let answer = self.ask(Request::Acquire(acquire.clone())).await;
            if is_there(&answer) {
                return answer;
            }
            assert!(tokio::time::Instant::now() < deadline, "{what} did not come: {answer:?}");
            acquire.attempt += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) fn attempt_of(attempt: u64, ttl: Duration) -> Acquire {
    Acquire {
        attempt,
        ttl,
        fleet_max_ttl: ttl,
        floor: None,
        fresh_store: true,
        age_counts: true,
        lock_delay: Duration::ZERO,
        heal: None,
        record: MemberRecord { ready: true, ttl, ..MemberRecord::default() },
        members: false,
        ballot: Ballot::Alone,
    }
}

pub(crate) fn is_granted(answer: &Result<Answer, StoreError>) -> bool {
    matches!(answer, Ok(Answer { outcome: Outcome::Granted { .. }, .. }))
}
