//! Memory per key: 16-byte keys, 8-byte values, at sizes where a table might be at its worst.

use crate::Result;
use crate::report::Figures;
use crate::servers::{Expiry, PerSide, Side, info, insert, resident_bytes, start};

const FIRST_KEYS: usize = 600_000;
const LAST_KEYS: usize = 1_200_000;
/// By how much used_memory and resident memory may differ.
const DISAGREEMENT_MAX: f64 = 0.25;

/// Bytes per key at the worst size.
#[derive(Clone, Copy, Default)]
struct Worst {
    used: f64,
    resident: f64,
    disagreement: f64,
}

struct Kind {
    words: &'static str,
    expiry: Expiry,
    used_max: f64,
    resident_max: f64,
}

const KINDS: [Kind; 2] = [
    Kind { words: "without TTL", expiry: Expiry::Never, used_max: 60.0, resident_max: 75.0 },
    Kind { words: "with TTL", expiry: Expiry::Tomorrow, used_max: 76.0, resident_max: 95.0 },
];

pub(crate) fn measure(figures: &mut Figures) -> Result {
    for Kind { words, expiry, used_max, resident_max } in KINDS {
        let worst = PerSide::measure(|side| worst(side, expiry))?;
        let (ours, theirs) = (worst.ours, worst.theirs);
        let what = format!("bytes per key {words}: used_memory");
        figures.must(&what, (ours.used, ""), format!("{:.2}", theirs.used), used_max);
        let what = format!("bytes per key {words}: resident");
        figures.must(&what, (ours.resident, ""), format!("{:.2}", theirs.resident), resident_max);
        let what = format!("{words}: difference of the two");
        let theirs = format!("{:.2}", theirs.disagreement);
        figures.must(&what, (ours.disagreement, ""), theirs, DISAGREEMENT_MAX);
    }
    Ok(())
}

fn worst(side: Side, expiry: Expiry) -> Result<Worst> {
    let server = start(side)?;
    let used_at_first = info(&server, "memory", "used_memory")?;
    let resident_at_first = resident_bytes(&server)?;
    let (mut worst, mut present, mut keys) = (Worst::default(), 0, FIRST_KEYS);
    while keys <= LAST_KEYS {
        insert(&server, present..keys, expiry)?;
        let used = (info(&server, "memory", "used_memory")? - used_at_first) / keys as f64;
        let resident = (resident_bytes(&server)? - resident_at_first) / keys as f64;
        worst.used = worst.used.max(used);
        worst.resident = worst.resident.max(resident);
        worst.disagreement = worst.disagreement.max((resident / used - 1.0).abs());
        present = keys;
        keys += keys / 10;
    }
    Ok(worst)
}
