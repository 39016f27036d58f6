//! What programs hold over HTTP: elections, locks, ticks.

mod elections;
mod locks;
mod ticks;

use tenure_sidecar::Sidecar;
use testkit::{GENEROUS, wait_until};

use crate::stage::{Served, Stage};

pub(crate) const ADA: &str = "ada-0123456789abcdef";
pub(crate) const BOB: &str = "bob-0123456789abcdef";

/// A sidecar that nothing is configured for.
pub(crate) fn empty(stage: &Stage, name: &str) -> Served {
    let served = stage.serve(Sidecar::builder(stage.client(name)).may_be_empty(true));
    wait_until("the store answers", GENEROUS, || served.get("/ticks/any?named=none").status == 200);
    served
}

/// The word for what was wrong.
pub(crate) fn code(answer: &crate::http::Answer) -> (u16, String) {
    let body = answer.json();
    assert!(body["error"].as_str().is_some_and(|error| error.len() > 10), "{answer:?}");
    (answer.status, body["code"].as_str().unwrap_or_default().to_owned())
}

pub(crate) fn said(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}
