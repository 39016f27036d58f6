//! What may be wrong with a PostgreSQL server that keeps elections.

use std::time::Duration;

use tenure_postgres::{Mode, PostgresHost, PostgresUrl, Survey, Verify};

use super::parse;
use crate::clock;
use crate::doctor::{Code, Finding};
use crate::exit::Failure;
use crate::output::plain;
use crate::run::block_on;
use crate::store_options::blame_on;

/// A round trip from which leases of some seconds are renewed late now and then.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(50);
/// How far the server's wall clock may be off before history is hard to read.
const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(2);
/// Which part of its connections may be in use before others find none.
const CONNECTIONS_PERCENT_MAX: usize = 90;

/// What is wrong with the server behind an address, and its version.
pub(crate) fn examine(address: &str) -> Result<(Vec<Finding>, String), Failure> {
    let url = parse(address)?;
    let survey = block_on(async { Ok(tenure_postgres::survey(&url).await) })?;
    let survey = survey.map_err(|error| blame_on(&url.to_string(), error.into()))?;
    let about = url.to_string();
    let found = findings(&url, &survey).into_iter().map(|found| found.about(&about)).collect();
    Ok((found, format!("postgresql {}", plain(&survey.version))))
}

fn findings(url: &PostgresUrl, survey: &Survey) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(rights(survey));
    found.extend(persistence(survey));
    found.extend(standbys(url, survey));
    found.extend(access(url));
    found.extend(load(survey));
    found.extend(pooler(survey));
    found
}

fn rights(survey: &Survey) -> Option<Finding> {
    let missing = survey.missing_rights.join(", ");
    let what = format!("this login may not {missing}");
    let next = "run, as the owner of the schema: GRANT tenure_member TO LOGIN";
    (!missing.is_empty()).then(|| Finding::new(Code::Acl, what, next))
}

fn setting<'a>(survey: &'a Survey, name: &str) -> &'a str {
    survey.settings.get(name).map_or("", String::as_str)
}

fn persistence(survey: &Survey) -> Option<Finding> {
    let off = ["fsync", "full_page_writes"].into_iter().find(|name| setting(survey, name) == "off");
    let name = off?;
    let what = format!("{name} is off: a crash of the machine loses or damages leases and history");
    Some(Finding::new(Code::NoPersistence, what, &format!("ALTER SYSTEM SET {name} = on")))
}

fn standbys(url: &PostgresUrl, survey: &Survey) -> Option<Finding> {
    let names = setting(survey, "synchronous_standby_names");
    match (url.mode, survey.standbys) {
        (Mode::Strict, _) if names.is_empty() => {
            let what = "mode=strict, and synchronous_standby_names is empty: nobody can lead";
            let next = "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (STANDBY)'";
            Some(Finding::new(Code::FewReplicas, what, next))
        }
        (Mode::Strict, Some((count, 0))) => {
            let what =
                format!("mode=strict, and none of {count} standbys is one that commits wait for");
            let next = "start the standbys that synchronous_standby_names asks for";
            Some(Finding::new(Code::FewReplicas, what, next))
        }
        (Mode::Available, Some((0, _))) => {
            let what = "no standby follows this server: while it is down nobody leads";
            let next = "nothing, if that is meant; otherwise attach one";
            Some(Finding::new(Code::SingleNode, what, next))
        }
        (Mode::Available, Some(_)) => {
            let what = "grants do not wait for standbys: an old primary that is cut off and a \
                        promoted standby may each have a leader";
            let next = "set synchronous_standby_names on the server and mode=strict in the address";
            Some(Finding::new(Code::SplitBrainRisk, what, next))
        }
        _ => None,
    }
}

fn access(url: &PostgresUrl) -> Option<Finding> {
    let is_remote = |host: &PostgresHost| match host {
        PostgresHost::Unix { .. } => false,
        PostgresHost::Tcp { host, .. } => {
            let address = host.parse::<std::net::IpAddr>();
            host != "localhost" && !address.is_ok_and(|address| address.is_loopback())
        }
    };
    let is_unchecked = url.tls.verify < Verify::Authority;
    (is_unchecked && url.hosts.iter().any(is_remote)).then(|| {
        let what = "the server's certificate is not checked, so anybody on the network path can \
                    read and change everything";
        Finding::new(Code::NoTls, what, "write sslmode=verify-full in the address")
    })
}

fn load(survey: &Survey) -> Vec<Finding> {
    let mut found = Vec::new();
    let (open, most) = survey.connections;
    if most > 0 && open * 100 >= most * CONNECTIONS_PERCENT_MAX {
        let what = format!("{open} of {most} connections are in use: more instances find none");
        let next = "raise max_connections, or put a pooler in front of the server";
        found.push(Finding::new(Code::ManyConnections, what, next));
    }
    if survey.round_trip > ROUND_TRIP_MAX {
        let what = format!("a round trip takes {} ms", survey.round_trip.as_millis());
        let next = "choose longer ttls, or a server that is nearer";
        found.push(Finding::new(Code::SlowStore, what, next));
    }
    let offset = Duration::from_micros(survey.clock.abs_diff(clock::unix_us()));
    if offset > CLOCK_OFFSET_MAX {
        let what = format!("the server's clock is {} s away from ours", offset.as_secs());
        let next = "set both by NTP: elections do not need it, readers of history do";
        found.push(Finding::new(Code::ClockOffset, what, next));
    }
    found
}

fn pooler(survey: &Survey) -> Option<Finding> {
    let what = "a pooler is in between, so no notifications come: a successor hears of a release \
                up to half a second later";
    let next = "nothing, if that is soon enough; otherwise name the server itself in the address";
    (!survey.is_direct).then(|| Finding::new(Code::NoNotifications, what, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(address: &str, change: impl FnOnce(&mut Survey)) -> Vec<&'static str> {
        let url = PostgresUrl::parse(address).unwrap();
        let mut survey = Survey::default();
        survey.is_direct = true;
        survey.clock = clock::unix_us();
        change(&mut survey);
        findings(&url, &survey).iter().map(|found| found.code.word()).collect()
    }

    #[test]
    fn each_trouble_has_its_word_and_a_sound_server_none() {
        let set = |name: &'static str, value: &'static str| {
            move |survey: &mut Survey| {
                survey.settings.insert(name.to_owned(), value.to_owned());
            }
        };
        let here = "postgres://a@localhost/a";
        assert!(codes(here, |_| {}).is_empty());
        assert_eq!(codes(here, set("fsync", "off")), ["no-persistence"]);
        assert_eq!(codes(here, |survey| survey.is_direct = false), ["no-notifications"]);
        assert_eq!(codes(here, |survey| survey.connections = (95, 100)), ["many-connections"]);
        assert_eq!(codes(here, |survey| survey.standbys = Some((0, 0))), ["single-node"]);
        assert_eq!(codes(here, |survey| survey.standbys = Some((2, 0))), ["split-brain-risk"]);
        assert_eq!(codes(here, |survey| survey.missing_rights = vec!["x".to_owned()]), ["acl"]);
        assert_eq!(codes(here, |survey| survey.clock = 1), ["clock-offset"]);
        assert_eq!(codes("postgres://a@db.internal/a", |_| {}), ["no-tls"]);
        assert!(codes("postgres://a@db.internal/a?sslmode=verify-full", |_| {}).is_empty());
        let strict = "postgres://a@localhost/a?mode=strict";
        assert_eq!(codes(strict, |_| {}), ["few-replicas"]);
        assert!(codes(strict, set("synchronous_standby_names", "x")).is_empty());
    }
}
