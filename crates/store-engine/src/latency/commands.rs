//! LATENCY: what took how long.

use std::fmt::Write;

use crate::commands::prelude::*;
use crate::latency::EventSamples;
use crate::registry::RowId;

pub(crate) const TABLE: &[Command] = &[Command::container("latency", LATENCY_SUBCOMMANDS).docs(
    Group::Server,
    "2.8.13",
    "O(1)",
    "Latency statistics.",
)];

const PLAIN: u32 = ADMIN | NO_SCRIPT | LOADING | STALE;
const OF_ALL_NODES: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

const LATENCY_SUBCOMMANDS: &[Command] = &[
    Command::new("doctor", Exactly(2), PLAIN, latency_doctor).tips(OF_ALL_NODES).docs(
        Group::Server,
        "2.8.13",
        "O(1)",
        "A report about latency, in words.",
    ),
    Command::new("graph", Exactly(3), PLAIN, latency_graph)
        .tips(OF_ALL_NODES)
        .docs(Group::Server, "2.8.13", "O(1)", "The latency of an event, as a drawing.")
        .arguments("event#s"),
    Command::new("help", Exactly(2), LOADING | STALE, latency_help).docs(
        Group::Server,
        "2.8.13",
        "O(1)",
        "What the subcommands do.",
    ),
    Command::new("histogram", AtLeast(2), PLAIN, latency_histogram)
        .tips(OF_ALL_NODES)
        .docs(Group::Server, "7.0.0", "O(N)", "How long commands took.")
        .arguments("?*command#s"),
    Command::new("history", Exactly(3), PLAIN, latency_history)
        .tips(OF_ALL_NODES)
        .docs(Group::Server, "2.8.13", "O(1)", "When an event was slow, and how slow.")
        .arguments("event#s"),
    Command::new("latest", Exactly(2), PLAIN, latency_latest).tips(OF_ALL_NODES).docs(
        Group::Server,
        "2.8.13",
        "O(1)",
        "When each event was last slow.",
    ),
    Command::new("reset", AtLeast(2), PLAIN, latency_reset)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Server, "2.8.13", "O(1)", "Forgets latency statistics.")
        .arguments("?*event#s"),
];

fn latency_latest(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let events = cx.server.latency.events();
    cx.reply.array(events.len());
    for (name, event) in events {
        let (at_s, milliseconds) = event.samples.back().copied().unwrap_or_default();
        cx.reply.array(4);
        cx.reply.bulk(name.as_bytes());
        cx.reply.integer(at_s as i64);
        cx.reply.integer(milliseconds as i64);
        cx.reply.integer(event.longest_ms as i64);
    }
    Ok(())
}

fn latency_history(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let Some(event) = cx.server.latency.event(request.arg(2)) else {
        cx.reply.array(0);
        return Ok(());
    };
    cx.reply.array(event.samples.len());
    for (at_s, milliseconds) in &event.samples {
        cx.reply.array(2);
        cx.reply.integer(*at_s as i64);
        cx.reply.integer(*milliseconds as i64);
    }
    Ok(())
}

fn latency_reset(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let forgotten = match request.len() {
        2 => cx.server.latency.forget_all(),
        _ => request.args_from(2).filter(|name| cx.server.latency.forget(name)).count(),
    };
    cx.reply.count(forgotten);
    Ok(())
}

fn latency_histogram(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let registry = &cx.server.registry;
    let wanted: Vec<RowId> = match request.len() {
        2 => registry.ids().collect(),
        _ => request
            .args_from(2)
            .filter_map(|name| registry.find_full(name))
            .flat_map(|row| std::iter::once(row).chain(registry.subcommands(row)))
            .collect(),
    };
    let begun = cx.reply.begin();
    let mut count = 0;
    for row in wanted {
        let row = registry.row(row);
        let Some(histogram) = &row.histogram else { continue };
        let bounds = histogram.cumulative();
        count += 1;
        cx.reply.bulk(row.full_name.as_bytes());
        cx.reply.map(2);
        cx.reply.bulk(b"calls");
        cx.reply.integer(histogram.total() as i64);
        cx.reply.bulk(b"histogram_usec");
        cx.reply.map(bounds.len());
        for (bound, up_to) in bounds {
            cx.reply.integer(bound as i64);
            cx.reply.integer(up_to as i64);
        }
    }
    cx.reply.end_map(begun, count);
    Ok(())
}

/// Columns of a drawing, so that it fits a terminal.
const COLUMNS_MAX: usize = 80;

fn latency_graph(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let name = String::from_utf8_lossy(request.arg(2)).into_owned();
    let Some(event) = cx.server.latency.event(request.arg(2)) else {
        let text = format!("ERR No samples available for event '{name}'");
        return Err(CommandError::new(text));
    };
    let text = draw(&name, event, cx.db.now_ms() / 1000);
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// A column per sample: its height, and below how long ago it was.
fn draw(name: &str, event: &EventSamples, now_s: u64) -> String {
    const LEVELS: &[u8] = b"_ox#";
    let samples: Vec<(u64, u64)> =
        event.samples.iter().rev().take(COLUMNS_MAX).rev().copied().collect();
    let high = samples.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
    let low = samples.iter().map(|(_, ms)| *ms).min().unwrap_or(0);
    let longest = event.longest_ms;
    let mut text = format!("{name} - high {high} ms, low {low} ms (all time high {longest} ms)\n");
    text.push_str(&"-".repeat(COLUMNS_MAX));
    text.push('\n');
    let rows = LEVELS.len() as u64;
    let level = |ms: u64| (ms - low) * (rows - 1) / (high - low).max(1);
    for row in (0..rows).rev() {
        let mark = |(_, ms): &(u64, u64)| match level(*ms) {
            of if of == row => char::from(LEVELS[row as usize]),
            of if of > row => '|',
            _ => ' ',
        };
        text.extend(samples.iter().map(mark));
        text.push('\n');
    }
    let labels: Vec<Vec<char>> = samples
        .iter()
        .map(|(at_s, _)| ago(now_s.saturating_sub(*at_s)).chars().collect())
        .collect();
    let depth = labels.iter().map(Vec::len).max().unwrap_or(0);
    text.push('\n');
    for line in 0..depth {
        text.extend(labels.iter().map(|label| label.get(line).copied().unwrap_or(' ')));
        text.push('\n');
    }
    text
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn latency_doctor(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let mut text = String::new();
    let threshold = cx.server.config.settings().logs.latency_over_ms;
    if threshold == 0 && cx.server.latency.events().len() == 0 {
        text.push_str(
            "Nothing is watched: set latency-monitor-threshold to the milliseconds from which \
             on an event counts as slow.\n",
        );
    } else if cx.server.latency.events().len() == 0 {
        text.push_str("Nothing took longer than latency-monitor-threshold allows.\n");
    }
    for (name, event) in cx.server.latency.events() {
        let (count, sum) =
            (event.samples.len() as u64, event.samples.iter().map(|(_, ms)| ms).sum::<u64>());
        let longest = event.longest_ms;
        let average = sum / count.max(1);
        writeln!(
            text,
            "{name}: {count} times slow, {average} ms on average, {longest} ms at worst."
        )
        .expect("writing to a string cannot fail");
    }
    if cx.server.latency.event(b"command").is_some() {
        text.push_str("SLOWLOG GET shows which requests these were.\n");
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn latency_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    crate::commands::help::reply(
        cx,
        "LATENCY",
        &[
            ("DOCTOR", "A report about latency, in words."),
            ("GRAPH <event>", "The latency of an event, as a drawing."),
            ("HISTORY <event>", "When an event was slow, and how slow."),
            ("LATEST", "When each event was last slow."),
            ("RESET [<event> ...]", "Forget what took long."),
            ("HISTOGRAM [<command> ...]", "How long commands took."),
        ],
    );
    Ok(())
}
