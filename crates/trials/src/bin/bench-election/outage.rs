//! How many clients find their store again, and how fast they come.

use testkit::RedisServer;
use tokio::runtime::Runtime;
use trials::storm::ride_out;

use crate::report::Report;
use crate::{Outcome, Scale};

pub(crate) fn measure(runtime: &Runtime, scale: &Scale, report: &mut Report) -> Outcome {
    eprintln!("taking the store away from {} clients…", scale.clients);
    let mut server = RedisServer::start();
    let storm = runtime.block_on(ride_out(&mut server, scale.clients))?;
    let each = storm.connections as f64 / storm.clients as f64;
    let figures = format!(
        "{} clients back within {:.2} s, busiest {}/s, {each:.1} connections each, leader {}",
        storm.clients,
        storm.took.as_secs_f64(),
        storm.busiest_per_second,
        if storm.leader_stayed { "unchanged" } else { "changed" },
    );
    report.note("reconnecting after an outage", figures, "–".into());
    Ok(())
}
