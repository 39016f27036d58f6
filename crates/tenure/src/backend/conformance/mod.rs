//! The contract of [`Backend`] as a test suite that every store must pass.
//!
//! In: a function that makes backends for one store. Out: a report of named cases. The cases use
//! real time, fresh resource names and generous limits; they may run beside anything else on the
//! same store.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use tenure::backend::{Backend, conformance, redis::RedisBackend};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let make = || Arc::new(RedisBackend::open("redis://127.0.0.1").unwrap()) as Arc<dyn Backend>;
//! conformance::check(make).await.assert_passed();
//! # Ok(()) }
//! ```

mod admin;
mod hand_over;
mod lease;
mod meddling;
mod members;
mod nodes;
mod player;
mod ticks;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::Resource;

use self::player::Stage;
use super::Backend;

/// What a case found out: nothing wrong, or what.
type Verdict = Result<(), String>;
type Running = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// A named claim about a store.
struct Case {
    name: &'static str,
    run: fn(Stage) -> Running,
}

/// Lists async functions of this module as cases under their own names.
macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        pub(super) const CASES: &[super::Case] =
            &[$(super::Case { name: stringify!($name), run: |stage| Box::pin($name(stage)) }),+];
    };
}

/// Fails the case unless the claim holds, telling what was found instead.
macro_rules! ensure {
    ($claim:expr, $($found:tt)+) => {
        if !$claim {
            return Err(format!($($found)+));
        }
    };
}

/// Fails the case unless the value has the expected shape; yields what the shape names.
macro_rules! shaped {
    ($value:expr, $shape:pat $(if $guard:expr)? => $result:expr) => {
        match $value {
            $shape $(if $guard)? => $result,
            other => {
                return Err(format!("expected {}, got {other:?}", stringify!($shape)));
            }
        }
    };
    ($value:expr, $shape:pat $(if $guard:expr)?) => {
        shaped!($value, $shape $(if $guard)? => ())
    };
}

use {cases, ensure, shaped};

/// The cases that need nothing but the backend.
const EVERYWHERE: &[&[Case]] =
    &[lease::CASES, hand_over::CASES, admin::CASES, members::CASES, ticks::CASES];

/// The longest that a case may take: it only ends hung ones.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);

/// What other programs may do to a store's data. A backend whose data can be reached in other ways
/// implements this, so that the cases about foreign data can run.
pub trait Meddler: Send + Sync {
    /// Makes `holder` the holder of the resource, as a program would that knows nothing of Tenure;
    /// without `ttl` for ever.
    fn take(&self, resource: &Resource, holder: &str, ttl: Option<Duration>) -> Meddling;

    /// Removes the holder and nothing else.
    fn remove_holder(&self, resource: &Resource) -> Meddling;

    /// Removes everything that is known about the resource.
    fn forget(&self, resource: &Resource) -> Meddling;

    /// Puts something at the resource's key that cannot be a holder.
    fn obstruct(&self, resource: &Resource) -> Meddling;

    /// Whether what [`obstruct`](Self::obstruct) put there is still there, unchanged.
    fn is_obstructed(&self, resource: &Resource) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

/// What the methods of [`Meddler`] return.
pub type Meddling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs all cases that need nothing but the backend. `make` is called twice: the two backends act
/// as two processes.
pub async fn check(make: impl Fn() -> Arc<dyn Backend>) -> Report {
    run(&make, None, EVERYWHERE, |_| true).await
}

/// Runs the cases about nodes of a quorum, which not every store supports.
pub async fn check_node(make: impl Fn() -> Arc<dyn Backend>) -> Report {
    run(&make, None, &[nodes::CASES], |_| true).await
}

/// Runs all cases, including those about foreign data, except those named in `left_out`: for a
/// backend that documents why they cannot apply to it.
///
/// # Panics
/// If there is no case of such a name.
pub async fn check_with(
    make: impl Fn() -> Arc<dyn Backend>,
    meddler: impl Meddler + 'static,
    left_out: &[&str],
) -> Report {
    for name in left_out {
        let mut known = EVERYWHERE.iter().copied().flatten().chain(meddling::CASES);
        assert!(known.any(|case| case.name == *name), "there is no case {name} to leave out");
    }
    run(&make, Some(Arc::new(meddler)), EVERYWHERE, |case| !left_out.contains(&case)).await
}

/// Runs the case of this name only, for a backend that is being developed.
pub async fn check_case(make: impl Fn() -> Arc<dyn Backend>, name: &str) -> Report {
    run(&make, None, EVERYWHERE, |case| case == name).await
}

async fn run(
    make: &dyn Fn() -> Arc<dyn Backend>,
    meddler: Option<Arc<dyn Meddler>>,
    suite: &[&'static [Case]],
    is_wanted: impl Fn(&str) -> bool,
) -> Report {
    let backends = [make(), make()];
    let meddled = if meddler.is_some() { meddling::CASES } else { &[] };
    let wanted = suite.iter().copied().flatten().chain(meddled).filter(|c| is_wanted(c.name));
    let running = wanted.map(|case| {
        let stage = Stage::new(case.name, &backends, meddler.clone());
        async move {
            let ended = tokio::time::timeout(CASE_TIMEOUT, (case.run)(stage)).await;
            let verdict = ended.unwrap_or_else(|_| Err(format!("no end in {CASE_TIMEOUT:?}")));
            (case.name, verdict)
        }
    });
    let skipped = if meddler.is_none() { meddling::CASES } else { &[] };
    Report {
        verdicts: join_all(running).await,
        skipped: skipped.iter().map(|case| case.name).filter(|name| is_wanted(name)).collect(),
    }
}

/// The results of the suite.
#[derive(Clone, Debug)]
pub struct Report {
    verdicts: Vec<(&'static str, Verdict)>,
    skipped: Vec<&'static str>,
}

impl Report {
    /// The cases that hold.
    pub fn passed(&self) -> Vec<&'static str> {
        self.verdicts.iter().filter(|(_, verdict)| verdict.is_ok()).map(|(name, _)| *name).collect()
    }

    /// The cases that do not hold, and what was found instead.
    pub fn failed(&self) -> Vec<(&'static str, &str)> {
        self.verdicts
            .iter()
            .filter_map(|(name, verdict)| Some((*name, verdict.as_ref().err()?.as_str())))
            .collect()
    }

    /// The cases that could not be run.
    pub fn skipped(&self) -> &[&'static str] {
        &self.skipped
    }

    /// Panics with all failures if there are any.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.failed().is_empty(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failed();
        writeln!(f, "{} of {} cases hold", self.passed().len(), self.verdicts.len())?;
        for (name, found) in failed {
            writeln!(f, "FAILED {name}: {found}")?;
        }
        for name in &self.skipped {
            writeln!(f, "skipped {name}")?;
        }
        Ok(())
    }
}
