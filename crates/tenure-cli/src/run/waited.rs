//! How long this process was kept waiting.

use std::time::Duration;

/// How long the first thread of this process has waited for a processor since it was started; none
/// where the system does not count that.
pub(super) fn waited_for_processor() -> Duration {
    let counted = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let waited = counted.split(' ').nth(1).and_then(|waited| waited.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}
