//! HyperLogLog: how many distinct elements were added, within about one percent.
//!
//! The value is a string that clients may GET and SET, so nothing in it is believed.

use store_types::hyperloglog::{self, Form, Registers};
use store_types::{Damaged, Limits};

use super::collection::count_further;
use super::prelude::*;

pub(super) const TABLE: &[Command] = &[
    Command::new("pfadd", AtLeast(2), WRITE | GROWS | FAST, pfadd)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .categories(category::HYPERLOGLOG)
        .docs(Group::HyperLogLog, "2.8.9", "O(1)", "Adds elements to a HyperLogLog.")
        .arguments("key#k@0 ?*element#s"),
    Command::new("pfcount", AtLeast(2), READ | MAY_REPLICATE, pfcount)
        .keys(&[KeySpec::all(1, RW | ACCESS)])
        .categories(category::HYPERLOGLOG)
        .docs(Group::HyperLogLog, "2.8.9", "O(1)", "How many distinct elements were added.")
        .arguments("*key#k@0"),
    Command::new("pfdebug", Exactly(3), WRITE | GROWS | ADMIN | SYSTEM, pfdebug)
        .keys(&[KeySpec::one(2, RW | ACCESS)])
        .categories(category::HYPERLOGLOG)
        .docs(Group::HyperLogLog, "2.8.9", "O(1)", "Looks inside a HyperLogLog.")
        .arguments("subcommand#s key#k@0"),
    Command::new("pfmerge", AtLeast(2), WRITE | GROWS, pfmerge)
        .keys(&[KeySpec::one(1, RW | ACCESS | INSERT), KeySpec::all(2, RO | ACCESS)])
        .categories(category::HYPERLOGLOG)
        .docs(Group::HyperLogLog, "2.8.9", "O(N)", "Merges several HyperLogLogs into one.")
        .arguments("destkey#k@0 *sourcekey#k@1"),
    Command::new("pfselftest", Exactly(1), ADMIN | SYSTEM, pfselftest)
        .categories(category::HYPERLOGLOG)
        .docs(Group::HyperLogLog, "2.8.9", "O(1)", "Tests the estimates on made-up elements."),
];

const NOT_ONE: CommandError =
    CommandError::text("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPTED: CommandError = CommandError::text("INVALIDOBJ Corrupted HLL object detected");

fn corrupted(_: Damaged) -> CommandError {
    CORRUPTED
}

/// The form of the value at a key, looked at with a write in mind; `None` without the key.
fn form_at(cx: &mut Context<'_>, key: &[u8]) -> Result<Option<Form>, CommandError> {
    match cx.db.peek_string(key)? {
        Some(text) => hyperloglog::form(text.bytes(&mut [0; 20])).map(Some).ok_or(NOT_ONE),
        None => Ok(None),
    }
}

fn pfadd(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    // A new key is a change, and so is every element that moves a register.
    let mut changes = usize::from(form_at(cx, key)?.is_none());
    let limits = &cx.server.limits;
    let mut result = Ok(());
    cx.db.edit_string(key, |value| {
        if value.is_empty() {
            *value = hyperloglog::new();
        }
        result = add_all(value, request, limits).map(|changed| changes += changed);
        if changes > 0 && result.is_ok() {
            hyperloglog::mark_stale(value);
        }
    });
    result?;
    if changes > 0 {
        cx.db.changed(event_class::STRING, "pfadd", key);
        count_further(cx, changes - 1);
    }
    cx.reply.integer(i64::from(changes > 0));
    Ok(())
}

fn add_all(
    value: &mut Vec<u8>,
    request: Request<'_>,
    limits: &Limits,
) -> Result<usize, CommandError> {
    let mut changes = 0;
    for element in request.args_from(2) {
        changes += usize::from(hyperloglog::add(value, element, limits).map_err(corrupted)?);
    }
    Ok(changes)
}

fn pfcount(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if request.len() > 2 {
        let (registers, _) = merge_all(cx, request)?;
        cx.reply.integer(registers.count() as i64);
        return Ok(());
    }
    let key = request.arg(1);
    let Some(text) = cx.db.read_string(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let mut scratch = [0; 20];
    let value = text.bytes(&mut scratch);
    hyperloglog::form(value).ok_or(NOT_ONE)?;
    let cached = hyperloglog::cached_count(value);
    let count = match cached {
        Some(count) => count,
        None => hyperloglog::count(value).map_err(corrupted)?,
    };
    cx.reply.integer(count as i64);
    if cached.is_none() {
        cx.db.edit_string(key, |value| hyperloglog::cache_count(value, count));
        cx.db.dirty += 1;
        cx.db.signal_modified(key);
        cx.propagate_instead(&[b"PFCOUNT", key]);
    } else {
        // OBJECT ENCODING calls it raw from now on.
        cx.db.edit_string(key, |_| {});
    }
    Ok(())
}

/// The registers of all keys together, and the form in which to write them.
fn merge_all(
    cx: &mut Context<'_>,
    request: Request<'_>,
) -> Result<(Registers, Form), CommandError> {
    let (mut registers, mut form) = (Registers::new(), Form::Sparse);
    for key in request.args_from(1) {
        let Some(text) = cx.db.read_string(key)? else { continue };
        let mut scratch = [0; 20];
        let value = text.bytes(&mut scratch);
        if hyperloglog::form(value).ok_or(NOT_ONE)? == Form::Dense {
            form = Form::Dense;
        }
        registers.merge(value).map_err(corrupted)?;
    }
    Ok((registers, form))
}

fn pfmerge(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (registers, form) = merge_all(cx, request)?;
    let key = request.arg(1);
    let limits = &cx.server.limits;
    let mut result = Ok(());
    cx.db.edit_string(key, |value| {
        if value.is_empty() {
            *value = hyperloglog::new();
        }
        result = registers.write_to(value, form, limits).map_err(corrupted);
    });
    result?;
    cx.db.changed(event_class::STRING, "pfadd", key);
    cx.reply.ok();
    Ok(())
}

fn pfdebug(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (word, key) = (request.arg(1), request.arg(2));
    let Some(form) = form_at(cx, key)? else {
        return Err(CommandError::text("ERR The specified key does not exist"));
    };
    // OBJECT ENCODING calls it raw from now on, whatever is asked for.
    cx.db.edit_string(key, |_| {});
    if is_word(word, "GETREG") {
        make_dense(cx, key, form)?;
        let Some(text) = cx.db.peek_string(key)? else { return Ok(()) };
        let registers = Registers::of(text.bytes(&mut [0; 20])).map_err(corrupted)?;
        cx.reply.array(registers.as_slice().len());
        registers.as_slice().iter().for_each(|count| cx.reply.integer(i64::from(*count)));
    } else if is_word(word, "DECODE") {
        let Some(text) = cx.db.peek_string(key)? else { return Ok(()) };
        let runs = hyperloglog::describe_runs(text.bytes(&mut [0; 20]));
        let runs = runs.ok_or(CommandError::text("ERR HLL encoding is not sparse"))?;
        cx.reply.bulk(runs.as_bytes());
    } else if is_word(word, "ENCODING") {
        cx.reply.simple(if form == Form::Dense { "dense" } else { "sparse" });
    } else if is_word(word, "TODENSE") {
        make_dense(cx, key, form)?;
        cx.reply.integer(i64::from(form == Form::Sparse));
    } else {
        let text = [b"ERR Unknown PFDEBUG subcommand '", word, b"'"].concat();
        return Err(CommandError::new(text));
    }
    Ok(())
}

fn make_dense(cx: &mut Context<'_>, key: &[u8], form: Form) -> CommandResult {
    let mut result = Ok(());
    if form == Form::Sparse {
        cx.db.edit_string(key, |value| result = hyperloglog::to_dense(value).map_err(corrupted));
        cx.db.dirty += u64::from(result.is_ok());
    }
    result
}

/// Elements that the self test adds: enough for both forms, done in milliseconds.
const TESTED_ELEMENTS: u64 = 20_000;
/// How far off an estimate may be: six times the standard error of 0.81 %.
const ERROR_MAX: f64 = 0.05;

fn pfselftest(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let limits = &cx.server.limits;
    let (mut value, mut dense) = (hyperloglog::new(), hyperloglog::new());
    hyperloglog::to_dense(&mut dense).map_err(corrupted)?;
    for number in 1..=TESTED_ELEMENTS {
        for value in [&mut value, &mut dense] {
            hyperloglog::add(value, &number.to_le_bytes(), limits).map_err(corrupted)?;
        }
        if number.is_power_of_two() || number == TESTED_ELEMENTS {
            let count = hyperloglog::count(&value).map_err(corrupted)?;
            let same = hyperloglog::count(&dense).map_err(corrupted)? == count;
            let error = (count as f64 - number as f64).abs();
            if !same || error > (number as f64 * ERROR_MAX).max(1.0) {
                let text = format!("TESTFAILED {count} counted of {number}, equal forms: {same}");
                return Err(CommandError::new(text));
            }
        }
    }
    cx.reply.ok();
    Ok(())
}
