//! A server that nobody asks anything.

use std::thread::sleep;
use std::time::Duration;

use crate::report::Figures;
use crate::servers::{PerSide, cpu_us, resident_bytes, start};
use crate::{Result, Scale};

/// What the start leaves to be done shall not count.
const SETTLING: Duration = Duration::from_secs(1);
/// A thousandth of a core: what a system of this kind cannot tell from nothing.
const CPU_MS_PER_SECOND_MAX: f64 = 1.0;
const RESIDENT_MB_MAX: f64 = 10.0;

pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    let idle = PerSide::measure(|side| {
        let server = start(side)?;
        sleep(SETTLING);
        let before = cpu_us(&server)?;
        sleep(Duration::from_secs(scale.idle_seconds));
        let cpu_ms = (cpu_us(&server)? - before) / 1e3 / scale.idle_seconds as f64;
        Ok((cpu_ms, resident_bytes(&server)? / 1e6))
    })?;
    let (cpu_ms, megabytes) = idle.ours;
    let (their_cpu_ms, their_megabytes) = idle.theirs;
    let theirs = format!("{their_cpu_ms:.2} ms");
    figures.must("idle: CPU per second", (cpu_ms, "ms"), theirs, CPU_MS_PER_SECOND_MAX);
    let theirs = format!("{their_megabytes:.2} MB");
    figures.must("idle: resident memory", (megabytes, "MB"), theirs, RESIDENT_MB_MAX);
    Ok(())
}
