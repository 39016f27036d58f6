//! The same elections on plain threads.

use std::sync::Arc;
use std::time::Duration;

use tenure::{
    Error, HistoryKind, Leadership, MemoryBackend, OnceOutcome, Tenure, Tick, TickOutcome, Vacancy,
    blocking,
};

const NAME: &str = "nightly-report";

fn clients() -> [blocking::Tenure; 2] {
    let store = Arc::new(MemoryBackend::new());
    ["ada", "ops"].map(|name| {
        let builder = Tenure::builder().instance(name).backend(store.clone());
        blocking::Tenure::new(builder).unwrap()
    })
}

#[test]
fn a_job_runs_once_on_a_plain_thread() {
    let [ada, ops] = clients();
    let tick = Tick::named("v7");
    let ran = ada.once(NAME, tick.clone(), |term| {
        assert!(term.is_valid() && !term.is_stopping());
        Ok::<_, String>(42)
    });
    assert_eq!(ran.unwrap(), OnceOutcome::Ran(Ok(42)));
    let again = ops.run_job(ops.job(NAME).tick(tick), |_| Ok::<_, String>(43)).unwrap();
    assert_eq!(again, OnceOutcome::AlreadyDone(TickOutcome::Succeeded));
    let failed = ops.once(NAME, Tick::named("v8"), |_| Err::<(), _>("no disk".to_owned()));
    assert_eq!(failed.unwrap(), OnceOutcome::Ran(Err("no disk".to_owned())));
}

#[test]
fn an_operator_without_a_runtime_can_do_what_others_can() {
    let [ada, ops] = clients();
    let observer = ops.observe(NAME).unwrap();
    observer.pause(Duration::from_secs(600)).unwrap();
    assert!(ada.try_acquire(NAME).unwrap().is_none(), "nobody gets a term meanwhile");
    observer.resume().unwrap();

    let election = ada.start(ada.election(NAME)).unwrap();
    let term = election.wait_for_leadership().unwrap();
    let mut changes = observer.changes().unwrap();
    let seen = changes.next().unwrap().unwrap();
    assert_eq!(seen.leadership.leader().unwrap().token, Some(term.token()));
    assert_eq!(observer.look().unwrap().leadership.leader(), seen.leadership.leader());
    assert_eq!(observer.members().unwrap().len(), 1);
    assert_eq!(observer.history(1).unwrap()[0].what, HistoryKind::Granted);

    let refused = observer.clear("a test").unwrap_err();
    assert!(matches!(refused, Error::HolderAlive { .. }), "{refused}");
    drop(term);
    election.stand_back();
    assert!(observer.ask_to_resign().unwrap().is_done());
    assert!(!election.is_leader());
    observer.force_clear("a test").unwrap();
    let vacant = observer.leader().unwrap();
    assert!(matches!(vacant, Leadership::Vacant(Vacancy::Quarantine { .. })), "{vacant:?}");
    ada.shutdown();
}
