//! Work that runs only while this instance leads.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tenure_core::text::escaped;

use crate::state::ElectionState;
use crate::term::Phase;
use crate::{Election, Error, Term};

/// How long an instance whose work panicked holds back, doubling from the first to the second.
const BACK_OFF_MIN: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// How the work of one term ended.
pub(crate) enum Ended<T> {
    /// By itself.
    Returned(T),
    /// Because it had to.
    Stopped,
    Panicked(String),
}

impl Election {
    /// Runs `work` whenever this instance leads, once per term.
    ///
    /// When `work` returns by itself, the election is stopped, the term is released, and the value
    /// of `work` is returned. When the term ends, [`Term::wait_until_stopping`] and
    /// [`Term::cancellation`] tell `work`, and its future is dropped at the end of its grace; a
    /// value that it returns after it was told to stop is dropped, too, because it was interrupted.
    /// When it panics, the term is released and this instance holds back for a while. In both cases
    /// it contends again, and `work` never runs twice at a time.
    ///
    /// Fails if the election has been stopped.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{MemoryBackend, Tenure};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let tenure = Tenure::builder().backend(Arc::new(MemoryBackend::new())).connect().await?;
    /// let election = tenure.election("nightly-report").start().await?;
    /// let written_under = election.run_while_leader(|term| async move { term.token() }).await?;
    /// println!("written under {written_under}");
    /// # Ok::<(), tenure::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn run_while_leader<F, Fut, T>(&self, mut work: F) -> Result<T, Error>
    where
        F: FnMut(Term) -> Fut,
        Fut: Future<Output = T>,
    {
        let mut failures = 0;
        loop {
            let term = self.wait_for_leadership().await?;
            match run_term(term, &mut work).await {
                Ended::Returned(value) => {
                    self.stop().await;
                    return Ok(value);
                }
                Ended::Stopped => failures = 0,
                Ended::Panicked(why) => {
                    self.hold_back_after_panic(&why, failures).await;
                    failures += 1;
                }
            }
        }
    }

    /// Releases the term and takes none for a while, so that another instance may try. Dropping the
    /// future ends that while at once.
    pub(crate) async fn hold_back_after_panic(&self, why: &str, failures: u32) {
        self.state().wish(|wishes| {
            wishes.backs_off = true;
            wishes.work_failed = Some(why.to_owned());
        });
        let _contends_again = ContendsAgain(self.state());
        let (resource, id) = (self.resource().name(), self.id().as_str());
        let detail = escaped(why, usize::MAX);
        tracing::error!(target: "tenure", resource, id, reason = "work-failed", %detail,
            "leader: work panicked");
        let pause = BACK_OFF_MIN.saturating_mul(1 << failures.min(16)).min(BACK_OFF_MAX);
        tokio::select! {
            // Without a client there is nothing to hold back from.
            _ = self.client().sleep(pause) => {}
            () = self.state().stopped() => {}
        }
    }
}

/// Ends a back-off when it is dropped: otherwise one that was cancelled would never end.
struct ContendsAgain<'a>(&'a ElectionState);

impl Drop for ContendsAgain<'_> {
    fn drop(&mut self) {
        self.0.wish(|wishes| wishes.backs_off = false);
    }
}

/// Runs `work` under one term and is done only when nothing of it is left. What has to stop by
/// the clock is not begun, and what ended after that does not count as done.
pub(crate) async fn run_term<F, Fut, T>(term: Term, work: &mut F) -> Ended<T>
where
    F: FnMut(Term) -> Fut,
    Fut: Future<Output = T>,
{
    // Held until the work is gone, whatever the work does with its own guard.
    let held = term.double();
    if held.is_stopping() {
        return Ended::Stopped;
    }
    let begun = catch_unwind(AssertUnwindSafe(|| Box::pin(work(term))));
    let mut running = match begun {
        Ok(running) => running,
        Err(panic) => return Ended::Panicked(words_of(&*panic)),
    };
    let polled = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => std::task::Poll::Ready(Err(panic)),
    });
    let returned = tokio::select! {
        biased;
        returned = polled => Some(returned),
        () = held.state().reaches(Phase::CutOff) => None,
    };
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(running)));
    match (returned, dropped) {
        (Some(Err(panic)), _) | (_, Err(panic)) => Ended::Panicked(words_of(&*panic)),
        (Some(Ok(value)), Ok(())) if !held.is_stopping() => Ended::Returned(value),
        _ => Ended::Stopped,
    }
}

/// What a panic said.
pub(crate) fn words_of(panic: &(dyn Any + Send)) -> String {
    const WORDS_MAX: usize = 200;
    let words = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (None, Some(words)) => words.as_str(),
        (None, None) => "a panic without words",
    };
    words.chars().take(WORDS_MAX).collect()
}
