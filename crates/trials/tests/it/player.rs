//! An instance in the test's own process, with all its events from the first.

use std::time::Duration;

use tenure::{Election, ElectionBuilder, EventKind, Events, Reason, Tenure};
use testkit::GENEROUS;

/// One instance on the resource `job`.
pub(crate) struct Player {
    pub(crate) election: Election,
    pub(crate) events: Events,
}

pub(crate) async fn join(url: &str, name: &str, ttl: Duration) -> Player {
    let tenure = Tenure::builder().instance(name).store(url).connect().await.unwrap();
    start(tenure.election("job").ttl(ttl).fresh_store(true)).await
}

/// Starts an election with settings of its own.
pub(crate) async fn start(mut builder: ElectionBuilder) -> Player {
    let events = builder.events();
    Player { election: builder.start().await.unwrap(), events }
}

impl Player {
    /// Waits for the first event that `pick` wants.
    pub(crate) async fn hears<T>(
        &mut self,
        what: &str,
        mut pick: impl FnMut(&EventKind) -> Option<T>,
    ) -> T {
        let wait = async {
            loop {
                let event = self.events.next().await.unwrap().unwrap();
                if let Some(found) = pick(&event.kind) {
                    return found;
                }
            }
        };
        tokio::time::timeout(GENEROUS, wait).await.unwrap_or_else(|_| panic!("never heard {what}"))
    }

    pub(crate) async fn leads(&mut self) -> u64 {
        self.hears("acquired", |kind| match kind {
            EventKind::Acquired { token, .. } => Some(token.get()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn loses(&mut self) -> Reason {
        self.hears("lost", |kind| match kind {
            EventKind::Lost { reason, .. } => Some(reason.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn renews(&mut self) {
        let renewed = |kind: &EventKind| matches!(kind, EventKind::Renewed { .. }).then_some(());
        self.hears("renewed", renewed).await;
    }

    pub(crate) async fn warned(&mut self) -> String {
        self.hears("a warning", |kind| match kind {
            EventKind::Warning(text) => Some(text.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn fails(&mut self, code: &str) -> Reason {
        self.hears(code, |kind| match kind {
            EventKind::ElectionFailed { reason } if reason.code() == code => Some(reason.clone()),
            _ => None,
        })
        .await
    }
}
