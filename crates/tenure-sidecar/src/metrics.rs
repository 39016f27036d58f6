//! `/metrics`: read at the moment of the scrape, so that a number is never older than its answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tenure::Role;

use crate::sidecar::Shared;
use crate::watched::{Reach, Watched};

/// What OpenMetrics calls itself.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const ROLES: [Role; 7] = [
    Role::Unknown,
    Role::Standby,
    Role::Candidate,
    Role::Leader,
    Role::Suspect,
    Role::Yielding,
    Role::Stopped,
];

/// All metrics, as text.
pub(crate) fn render(shared: &Arc<Shared>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(Arc::clone(shared))));
    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    Ok(page)
}

#[derive(Debug)]
struct Scrape(Arc<Shared>);

type Encoded = Result<(), fmt::Error>;
/// The value of one resource; `None` leaves it out.
type Read<T> = fn(&Watched) -> Option<T>;

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        self.gauges(&mut encoder)?;
        self.counters(&mut encoder)?;
        self.roles(&mut encoder)?;
        self.durations(&mut encoder)?;
        self.sidecar(&mut encoder)
    }
}

impl Scrape {
    fn gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let gauges: [(&str, &str, Read<f64>); 11] = [
            ("leader_election_master_status", "1 while this instance leads", |w| {
                w.election.as_ref()?;
                Some(yes(w.own().leads))
            }),
            ("tenure_leader_known", "1 if somebody leads, by a lease that is not over", |w| {
                Some(yes(w.known_leader(&w.seen(), &w.own()).is_some()))
            }),
            ("tenure_token", "The token of the term that runs; none while that is unknown", |w| {
                w.known_leader(&w.seen(), &w.own())?.token.map(|token| token.get() as f64)
            }),
            ("tenure_lease_seconds", "How long a lease lasts without renewal", |w| {
                Some(w.status()?.timing.ttl().as_secs_f64())
            }),
            ("tenure_lease_remaining_seconds", "What is left of this instance's lease", |w| {
                Some(w.status()?.remaining.unwrap_or_default().as_secs_f64())
            }),
            ("tenure_renewal_age_seconds", "Time since the last grant or renewal", |w| {
                Some(w.renewal_age()?.as_secs_f64())
            }),
            ("tenure_members", "Members that the store lists", |w| {
                Some(w.seen().current()?.members.len() as f64)
            }),
            ("tenure_members_ready", "Members that are ready to lead", |w| {
                let seen = w.seen();
                Some(seen.current()?.members.iter().filter(|member| member.record.ready).count()
                    as f64)
            }),
            (
                "tenure_store_round_trip_seconds",
                "How long the last request for the state took",
                |w| {
                    let seen = w.seen();
                    Some(seen.round_trip.filter(|_| seen.error.is_none())?.as_secs_f64())
                },
            ),
            ("tenure_seen_age_seconds", "Time since the store last showed who leads", |w| {
                Some(w.seen().age()?.as_secs_f64())
            }),
            ("tenure_paused", "1 while an operator has paused the election", |w| {
                Some(yes(w.seen().current()?.paused_for.is_some()))
            }),
        ];
        for (name, help, read) in gauges {
            self.family(encoder, name, help, MetricType::Gauge, read, |mut metric, value| {
                metric.encode_gauge(&value)
            })?;
        }
        Ok(())
    }

    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let counters: [(&str, &str, Read<u64>); 7] = [
            ("tenure_terms", "Terms begun by this instance", |w| Some(w.status()?.counts.terms)),
            ("tenure_terms_ended", "Terms of this instance that ended", |w| {
                Some(w.status()?.counts.ends)
            }),
            ("tenure_losses", "Terms that this instance lost", |w| Some(w.status()?.counts.losses)),
            ("tenure_renewals", "Renewals that succeeded", |w| Some(w.status()?.counts.renewals)),
            ("tenure_renewals_failed", "Renewals that failed", |w| {
                Some(w.status()?.counts.renewals_failed)
            }),
            ("tenure_attempts_failed", "Attempts that did not lead to a term", |w| {
                Some(w.status()?.counts.attempts_failed)
            }),
            ("tenure_leader_changes", "New terms that were seen, of any instance", |w| {
                Some(w.seen().leader_changes)
            }),
        ];
        for (name, help, read) in counters {
            self.family(encoder, name, help, MetricType::Counter, read, |mut metric, value| {
                metric.encode_counter::<NoLabelSet, u64, u64>(&value, None)
            })?;
        }
        Ok(())
    }

    /// One metric with a value for each resource that has one.
    fn family<T>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        metric_type: MetricType,
        read: Read<T>,
        write: fn(MetricEncoder<'_>, T) -> Encoded,
    ) -> Encoded {
        let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
        for watched in self.0.resources().iter() {
            if let Some(value) = read(watched) {
                write(family.encode_family(&[("name", watched.name())])?, value)?;
            }
        }
        Ok(())
    }

    fn roles(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "1 for the role that this instance has";
        let mut family = encoder.encode_descriptor("tenure_role", help, None, MetricType::Gauge)?;
        for watched in self.0.resources().iter() {
            let Some(status) = watched.status() else { continue };
            for role in ROLES {
                let labels = [("name", watched.name()), ("role", role.as_str())];
                family.encode_family(&labels)?.encode_gauge(&yes(status.role == role))?;
            }
        }
        Ok(())
    }

    fn durations(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Choose = fn(&Watched) -> &prometheus_client::metrics::histogram::Histogram;
        let histograms: [(&str, &str, Choose); 2] = [
            ("tenure_renewal_duration_seconds", "How long renewals took", |w| &w.renewal_seconds),
            ("tenure_term_duration_seconds", "How long terms lasted", |w| &w.term_seconds),
        ];
        for (name, help, choose) in histograms {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for watched in self.0.resources().iter().filter(|watched| watched.election.is_some()) {
                choose(watched).encode(family.encode_family(&[("name", watched.name())])?)?;
            }
        }
        Ok(())
    }

    /// What concerns no single resource.
    fn sidecar(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let connection = self.0.tenure.connection();
        let up = self.0.resources().iter().all(|watched| watched.reach(&connection) == Reach::Up);
        single(encoder, "tenure_store_up", "1 while the store answers", &NO_LABELS, yes(up))?;
        let streams = self.0.streams.count() as f64;
        single(encoder, "tenure_event_streams", "Open streams of events", &NO_LABELS, streams)?;
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        single(encoder, "tenure_build_info", "The version, as a label", &version, 1.0)?;

        let help = "Hooks by outcome";
        let mut family =
            encoder.encode_descriptor("tenure_hooks", help, None, MetricType::Counter)?;
        self.0.hooks.each_tally(|name, hook, tally| {
            let outcomes = [
                ("done", &tally.done),
                ("retried", &tally.retried),
                ("failed", &tally.failed),
                ("superseded", &tally.superseded),
            ];
            for (outcome, count) in outcomes {
                let labels = [("name", name), ("hook", hook), ("outcome", outcome)];
                let count = count.load(Ordering::Relaxed);
                let mut metric = family.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, u64, u64>(&count, None)?;
            }
            Ok(())
        })
    }
}

const NO_LABELS: [(&str, &str); 0] = [];

fn single(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    labels: &impl EncodeLabelSet,
    value: f64,
) -> Encoded {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    family.encode_family(labels)?.encode_gauge(&value)
}

fn yes(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}
