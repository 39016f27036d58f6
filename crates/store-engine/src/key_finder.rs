//! Finds the keys among the arguments of a request, by the table.

use store_resp::{Request, parse_integer};

use crate::command::{Begin, Command, Find, KeySpec, access};

/// A key among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundKey {
    /// Which argument.
    pub arg: usize,
    /// What is done with it: bits of [`access`].
    pub access: u32,
}

/// The keys of a request. `None` when its arguments make no sense; deny access then.
pub fn keys_of(command: &Command, request: Request<'_>) -> Option<Vec<FoundKey>> {
    if let Some(find_keys) = command.find_keys {
        return find_keys(request);
    }
    let mut keys = by_specs(command.keys, request)?;
    if let Some(find_access) = command.find_access {
        let access = find_access(request);
        keys.iter_mut().for_each(|key| key.access = access);
    }
    Some(keys)
}

/// The arguments whose slots decide where a request belongs, appended: keys, or channels that only
/// look like keys. Those of a request that makes no sense are none: it is refused where it runs.
pub(crate) fn slot_keys_of<'r>(command: &Command, request: Request<'r>, slots: &mut Vec<&'r [u8]>) {
    let mut found = Vec::new();
    let is_channel = |spec: &KeySpec| spec.access & access::NOT_KEY != 0;
    if command.keys.iter().any(is_channel) {
        for spec in command.keys {
            if find(spec, request, &mut found).is_none() {
                return;
            }
        }
    } else {
        found = keys_of(command, request).unwrap_or_default();
    }
    slots.extend(found.iter().filter_map(|key| request.get(key.arg)));
}

/// The keys that the specifications find. Where a command has options, what looks like one may be
/// the value of another, so those commands find their keys themselves.
pub(crate) fn by_specs(specs: &[KeySpec], request: Request<'_>) -> Option<Vec<FoundKey>> {
    let mut keys = Vec::new();
    for spec in specs {
        if spec.access & access::NOT_KEY == 0 {
            find(spec, request, &mut keys)?;
        }
    }
    Some(keys)
}

fn find(spec: &KeySpec, request: Request<'_>, keys: &mut Vec<FoundKey>) -> Option<()> {
    let Some(first) = begin(spec.begin, request) else { return Some(()) };
    let (first, last, step) = match spec.find {
        Find::Unknown => return Some(()),
        Find::Range { last, step, limit } => {
            let last = match last {
                0.. => first + last as usize,
                // A limit shares what is left between keys and something else.
                _ if limit > 1 => first + ((request.len() - first) / limit).checked_sub(1)?,
                _ => request.len().checked_sub(last.unsigned_abs() as usize)?,
            };
            (first, last, step)
        }
        Find::Counted => {
            let count = parse_integer(request.get(first)?).filter(|count| *count >= 0)?;
            if count == 0 {
                return Some(());
            }
            (first + 1, first.checked_add(usize::try_from(count).ok()?)?, 1)
        }
    };
    if last >= request.len() {
        return None;
    }
    keys.extend((first..=last).step_by(step).map(|arg| FoundKey { arg, access: spec.access }));
    Some(())
}

fn begin(begin: Begin, request: Request<'_>) -> Option<usize> {
    match begin {
        Begin::Index(index) => Some(index),
        Begin::Unknown => None,
        Begin::Keyword(word, from) => {
            let is_word = |at: &usize| request.arg(*at).eq_ignore_ascii_case(word.as_bytes());
            let found = if from >= 0 {
                (from as usize..request.len()).find(is_word)
            } else {
                (1..=request.len().checked_sub(from.unsigned_abs() as usize)?).rev().find(is_word)
            };
            found.map(|at| at + 1)
        }
    }
}

/// First key, last key and step as COMMAND tells them, zeros where that is too simple.
pub(crate) fn simple_range(command: &Command) -> (i64, i64, i64) {
    let Some(spec) = command.keys.first() else { return (0, 0, 0) };
    match (spec.begin, spec.find) {
        (Begin::Index(first), Find::Range { last, step, .. }) => {
            let first = first as i64;
            let mut range = (first, if last >= 0 { first + last } else { last }, step as i64);
            // Further keys right behind widen the range.
            for next in &command.keys[1..] {
                match (next.begin, next.find) {
                    (Begin::Index(index), Find::Range { last, step: 1, .. })
                        if range.2 == 1 && range.1 >= 0 && index as i64 == range.1 + 1 =>
                    {
                        range.1 = if last >= 0 { index as i64 + last } else { last };
                    }
                    _ => break,
                }
            }
            range
        }
        _ => (0, 0, 0),
    }
}

/// Whether the simple range does not tell all keys.
pub(crate) fn is_movable(command: &Command) -> bool {
    command.keys.iter().any(|spec| {
        !matches!((spec.begin, spec.find), (Begin::Index(_), Find::Range { .. }))
            || spec.access & access::INCOMPLETE != 0
    })
}

#[cfg(test)]
mod tests;
