//! Instances of elections whose requests a test makes itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::backend::Backend;
use tenure_core::protocol::{
    Acquire, Answer, Ballot, Call, CloseReason, MemberRecord, Outcome, Request,
};
use tenure_core::{InstanceId, Resource, StoreError, Token};
use tenure_postgres::{PostgresBackend, PostgresUrl};
use testkit::PostgresServer;

/// Makes elections possible on a server.
pub(crate) async fn install(server: &PostgresServer) {
    let url = PostgresUrl::parse(&server.url()).unwrap();
    tenure_postgres::install(&url).await.unwrap();
}

/// A term, and when it began for whoever has it.
pub(crate) struct Term {
    pub(crate) asked_at: Instant,
    pub(crate) granted_at: Instant,
    pub(crate) token: Token,
}

/// An instance in a process of its own.
pub(crate) struct Player {
    backend: Arc<PostgresBackend>,
    id: InstanceId,
    resource: Resource,
    attempt: u64,
    ttl: Duration,
    /// How long an answer may take. It ends hung calls, it measures nothing.
    pub(crate) timeout: Duration,
}

impl Player {
    pub(crate) fn new(name: &str, address: &str, ttl: Duration) -> Self {
        Player {
            backend: Arc::new(PostgresBackend::open(address).unwrap()),
            id: InstanceId::new(name, 7).unwrap(),
            resource: Resource::named("report").unwrap(),
            attempt: 0,
            ttl,
            timeout: Duration::from_secs(20),
        }
    }

    pub(crate) async fn ask_within(
        &self,
        request: Request,
        timeout: Duration,
    ) -> Result<Answer, StoreError> {
        let (resource, id, fleet_max_ttl) = (self.resource.clone(), self.id.clone(), self.ttl);
        self.backend.call(Call { resource, id, request, timeout, fleet_max_ttl }).await
    }

    pub(crate) async fn ask(&self, request: Request) -> Result<Answer, StoreError> {
        self.ask_within(request, self.timeout).await
    }

    /// A fresh attempt, as somebody makes who knows of no earlier term.
    pub(crate) async fn acquire(&mut self, fresh_store: bool) -> Result<Outcome, StoreError> {
        self.attempt += 1;
        let record = MemberRecord { ready: true, ttl: self.ttl, ..MemberRecord::default() };
        let acquire = Acquire {
            attempt: self.attempt,
            ttl: self.ttl,
            fleet_max_ttl: self.ttl,
            floor: None,
            fresh_store,
            age_counts: true,
            lock_delay: Duration::ZERO,
            heal: None,
            record,
            members: false,
            ballot: Ballot::Alone,
        };
        Ok(self.ask(Request::Acquire(acquire)).await?.outcome)
    }

    /// Leads at once.
    pub(crate) async fn lead(&mut self) -> Token {
        match self.acquire(true).await {
            Ok(Outcome::Granted { token }) => token,
            other => panic!("{}: {other:?}", self.id),
        }
    }

    /// Tries until it leads; returns what kept it from it, too.
    pub(crate) async fn lead_at_last(&mut self) -> (Term, Vec<Outcome>) {
        let (began_at, mut before, mut trouble) = (Instant::now(), Vec::new(), None);
        loop {
            let asked_at = Instant::now();
            match self.acquire(false).await {
                Ok(Outcome::Granted { token }) => {
                    return (Term { asked_at, granted_at: Instant::now(), token }, before);
                }
                Ok(other) => before.push(other),
                // The server may be starting, or its data on the way back.
                Err(error) => trouble = Some(error),
            }
            let is_long = began_at.elapsed() > testkit::GENEROUS;
            assert!(!is_long, "nothing but {:?} and {trouble:?}", before.last());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn renew(&self, token: Token) -> Result<Outcome, StoreError> {
        let renew = Request::Renew { token, ttl: self.ttl, fleet_max_ttl: self.ttl };
        Ok(self.ask(renew).await?.outcome)
    }

    pub(crate) async fn release(&self, token: Token) -> Outcome {
        let release = Request::Release { token, reason: CloseReason::Released };
        self.ask(release).await.unwrap().outcome
    }
}
