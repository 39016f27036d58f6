//! A suite is believed once it has caught broken designs: each of these breaks one rule of a
//! store that keeps them all, and must be found out.

use std::sync::Arc;

use tenure::backend::conformance::{self, Report};
use tenure::backend::redis::RedisBackend;
use tenure::backend::{Backend, Calling, Connection, Subscription};
use tenure_core::Resource;
use tenure_core::protocol::{Answer, Call, CloseReason, Outcome, Request, Token, View};
use testkit::RedisServer;
use tokio::sync::watch;

/// Which rule is broken.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    /// Renews whatever term the caller's id holds.
    RenewIgnoresToken,
    /// Says that it undid an attempt, and did not.
    ForgetsAbandon,
    /// Counts every resource's terms as the first.
    ReusesTokens,
    /// Hands over by plain release: anybody may take it.
    ReservesNothing,
    /// Takes a third party's release for the holder's.
    AnyoneReleases,
    /// Grants in the middle of a pause.
    IgnoresPause,
    /// Never tells anybody anything.
    IsMute,
}

#[derive(Debug)]
struct Broken {
    flaw: Flaw,
    sound: Arc<dyn Backend>,
}

impl Backend for Broken {
    fn call(&self, call: Call) -> Calling {
        let sound = Arc::clone(&self.sound);
        match (self.flaw, &call.request) {
            (Flaw::ForgetsAbandon, Request::Abandon { .. }) => {
                answer(Outcome::Abandoned { was_granted: false })
            }
            (Flaw::IgnoresPause, Request::Pause { .. }) => answer(Outcome::Done),
            (Flaw::RenewIgnoresToken, Request::Renew { ttl, .. }) => {
                let ttl = *ttl;
                Box::pin(async move {
                    let look = with(&call, Request::Observe { members: false });
                    match sound.call(look).await?.view.token {
                        Some(token) => {
                            let renew = Request::Renew { token, ttl, fleet_max_ttl: ttl };
                            sound.call(with(&call, renew)).await
                        }
                        None => sound.call(call).await,
                    }
                })
            }
            (Flaw::ReservesNothing, Request::Transfer { token, .. }) => {
                let (token, reason) = (*token, CloseReason::HandedOver);
                Box::pin(async move {
                    let released = sound.call(with(&call, Request::Release { token, reason }));
                    let mut answer = released.await?;
                    if answer.outcome == Outcome::Released {
                        let token = Token::new(token.get() + 1).unwrap();
                        answer.outcome = Outcome::Transferred { token };
                    }
                    Ok(answer)
                })
            }
            (Flaw::AnyoneReleases, Request::Release { .. }) => Box::pin(async move {
                let look = with(&call, Request::Observe { members: false });
                let holder = sound.call(look).await?.view.holder;
                let id = holder.unwrap_or_else(|| call.id.clone());
                sound.call(Call { id, ..call }).await
            }),
            (Flaw::ReusesTokens, Request::Acquire(_)) => Box::pin(async move {
                let mut answer = sound.call(call).await?;
                if let Outcome::Granted { token } = &mut answer.outcome {
                    *token = Token::new(1).unwrap();
                }
                Ok(answer)
            }),
            _ => sound.call(call),
        }
    }

    fn subscribe(&self, resource: &Resource) -> Subscription {
        match self.flaw {
            Flaw::IsMute => Subscription::channel().1,
            _ => self.sound.subscribe(resource),
        }
    }

    fn connection(&self) -> watch::Receiver<Connection> {
        self.sound.connection()
    }

    fn describe(&self) -> String {
        format!("{:?}", self.flaw)
    }
}

fn with(call: &Call, request: Request) -> Call {
    Call { request, ..call.clone() }
}

fn answer(outcome: Outcome) -> Calling {
    let answer = Answer { outcome, view: View::default(), warnings: Vec::new() };
    Box::pin(std::future::ready(Ok(answer)))
}

async fn report_on(flaw: Flaw, case: &str, server: &RedisServer) -> Report {
    let sound = Arc::new(RedisBackend::open(&server.url()).unwrap());
    let make = || {
        let sound = Arc::clone(&sound) as Arc<dyn Backend>;
        Arc::new(Broken { flaw, sound }) as Arc<dyn Backend>
    };
    conformance::check_case(make, case).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_broken_store_is_found_out() {
    let server = RedisServer::start();
    let caught_by = [
        (Flaw::RenewIgnoresToken, "a_renewal_under_another_token_touches_nothing"),
        (Flaw::ForgetsAbandon, "an_attempt_abandoned_before_it_arrives_is_refused"),
        (Flaw::ReusesTokens, "tokens_grow_from_term_to_term"),
        (Flaw::ReservesNothing, "a_successor_claims_what_was_handed_over"),
        (Flaw::AnyoneReleases, "a_release_by_another_instance_touches_nothing"),
        (Flaw::IgnoresPause, "a_pause_grants_no_new_term"),
        (Flaw::IsMute, "hints_tell_what_happens"),
    ];
    for (flaw, case) in caught_by {
        let report = report_on(flaw, case, &server).await;
        assert_eq!(report.failed().len(), 1, "{flaw:?} was not found out by {case}: {report}");
        let unrelated = report_on(flaw, "whoever_leaves_is_gone", &server).await;
        assert_eq!(unrelated.passed().len(), 1, "{flaw:?} breaks everything: {unrelated}");
    }
}
