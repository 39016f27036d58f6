//! How many clients find their store again, and how fast they come.

use testkit::RedisServer;
use tokio::runtime::Runtime;
use trials::storm::{Outage, Storm, ride_out};

use crate::report::Report;
use crate::{Result, Scale};

pub(crate) fn measure(runtime: &Runtime, scale: &Scale, report: &mut Report) -> Result {
    for (name, outage) in [
        ("reconnecting after an outage", Outage::WITHIN_THE_LEASE),
        ("the same, after all leases have ended", Outage::BEYOND_THE_LEASE),
        ("the same, after all members seemed gone", Outage::BEYOND_MEMBERSHIP),
    ] {
        eprintln!("taking the store away from {} clients…", scale.clients);
        let mut server = RedisServer::start();
        // Clients that do not come back are a figure, too, and the others are still to be measured.
        let figures = match runtime.block_on(ride_out(&mut server, scale.clients, outage)) {
            Ok(storm) => figures(&storm),
            Err(error) => format!("{} clients: **{error}**", scale.clients),
        };
        report.note(name, figures, "–".into());
    }
    Ok(())
}

fn figures(storm: &Storm) -> String {
    format!(
        "{} clients back within {:.2} s, busiest {} connections/s (bound {}), {:.1} each; \
         leader {} after {:.2} s (bound {:.2} s)",
        storm.clients,
        storm.took.as_secs_f64(),
        storm.busiest_per_second,
        storm.busiest_bound,
        storm.connections as f64 / storm.clients as f64,
        if storm.leader_stayed { "unchanged" } else { "again" },
        storm.leader_after.as_secs_f64(),
        storm.leader_bound.as_secs_f64(),
    )
}
