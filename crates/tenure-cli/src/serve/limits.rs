//! What the process asks of the system: descriptors, small pages, processors.

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use store_engine::Config;
use store_server::LogLevel;

use super::log::Logger;

/// Descriptors for files and listeners, besides those of clients.
pub(crate) const DESCRIPTORS_KEPT: u64 = 32;

pub(super) fn apply(config: &mut Config, logger: &Logger) -> anyhow::Result<()> {
    allow_descriptors(config, logger)?;
    keep_pages_small(config, logger);
    choose_processors(&config.settings().process.processors)
}

/// Asks for as many descriptors as `maxclients` needs; where there are fewer, fewer clients are
/// served.
fn allow_descriptors(config: &mut Config, logger: &Logger) -> anyhow::Result<()> {
    let clients_max = config.settings().clients.count_max as u64;
    let wanted = clients_max + DESCRIPTORS_KEPT;
    let raised = raise_descriptors(wanted);
    if raised >= wanted {
        return Ok(());
    }
    let served = raised.saturating_sub(DESCRIPTORS_KEPT);
    if served == 0 {
        bail!("the limit of {raised} open files leaves none for clients: raise it (ulimit -n)");
    }
    let setting = Config::find("maxclients").context("there is a setting maxclients")?;
    config.set(setting, &[&served.to_string()]).map_err(anyhow::Error::msg)?;
    let text = format!(
        "maxclients has been reduced from {clients_max} to {served}: only {raised} files may be \
         open (ulimit -n)"
    );
    logger.log(LogLevel::Warning, &text);
    Ok(())
}

/// Asks for `wanted` descriptors, and returns how many this process may have.
pub(crate) fn raise_descriptors(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let allowed = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    if allowed(limit.current) >= wanted {
        return allowed(limit.current);
    }
    let within = wanted.min(allowed(limit.maximum));
    // As root the upper limit can be raised, too.
    let maximum = Some(wanted.max(allowed(limit.maximum))).filter(|max| *max < u64::MAX);
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })
        .map(|()| wanted)
        .or_else(|_| {
            let limit = Rlimit { current: Some(within), maximum: limit.maximum };
            setrlimit(Resource::Nofile, limit).map(|()| within)
        })
        .unwrap_or(allowed(limit.current))
}

/// Lifts a limit as far as this process may. Returns what is left of it.
pub(crate) fn lift(resource: Resource) -> Option<u64> {
    let limit = getrlimit(resource);
    limit.current?;
    // As root the upper limit can be lifted, too.
    let _ = setrlimit(resource, Rlimit { current: None, maximum: None })
        .or_else(|_| setrlimit(resource, Rlimit { current: limit.maximum, ..limit }));
    getrlimit(resource).current
}

/// Filling a page of two megabytes with zeros stalls the loop for milliseconds, so the setting
/// `disable-thp` keeps the system from using such pages. Only the program may decide this; its
/// allocator has begun without them, or an idle server would hold four megabytes of zeros.
fn keep_pages_small(config: &Config, logger: &Logger) {
    let is_disabled = config.settings().process.avoids_huge_pages;
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(is_disabled) {
        logger.log(LogLevel::Warning, &format!("Cannot change the use of huge pages: {error}"));
    }
}

/// `server_cpulist`, such as `0,2-4` or `0-6:2`; threads that start later are bound as well.
fn choose_processors(list: &str) -> anyhow::Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for part in list.split(',') {
        let range = processors(part).filter(|range| range.1 < CpuSet::MAX_CPU && range.2 > 0);
        let (first, last, step) =
            range.with_context(|| format!("server_cpulist: '{part}' is not a processor"))?;
        (first..=last).step_by(step).for_each(|number| set.set(number));
    }
    sched_setaffinity(None, &set).with_context(|| format!("server_cpulist {list} cannot be used"))
}

/// First, last and step of `3`, `2-4` or `0-6:2`.
fn processors(part: &str) -> Option<(usize, usize, usize)> {
    let (range, step) = part.split_once(':').unwrap_or((part, "1"));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?, step.trim().parse().ok()?))
}
