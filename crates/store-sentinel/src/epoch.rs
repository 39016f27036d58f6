//! Which epochs are believed, and which one comes next.
//!
//! An epoch counts failovers. Whoever knows a greater one is believed, and there is no way back: an
//! epoch near the end of the numbers, from a broken file or a broken program, would leave none for
//! the next failover of anybody. So it is refused before it is taken down.

/// The greatest epoch that is believed whoever says it. Answers carry epochs as `i64`.
pub(crate) const EPOCH_MAX: u64 = i64::MAX as u64 - (1 << 32);

/// The greatest epoch in a file. A sentinel that was told `EPOCH_MAX` has counted on from there,
/// and must start again with what it wrote itself.
const IN_FILE_MAX: u64 = EPOCH_MAX + (1 << 31);

/// How far beyond `EPOCH_MAX` another sentinel may be ahead: those that were told `EPOCH_MAX` go on
/// counting together.
const AHEAD_MAX: u64 = 1 << 16;

/// The epoch of the next failover, if there is one left.
pub(crate) fn after(current: u64) -> Option<u64> {
    current.checked_add(1).filter(|next| i64::try_from(*next).is_ok())
}

/// Whether somebody else's epoch leaves room for failovers.
pub(crate) fn is_believed(current: u64, epoch: u64) -> bool {
    let is_near = epoch <= current.saturating_add(AHEAD_MAX) && i64::try_from(epoch).is_ok();
    epoch <= EPOCH_MAX || is_near
}

/// An epoch in a file. Fails with what to do about it.
pub(crate) fn parse(text: &str) -> Result<u64, &'static str> {
    let epoch: u64 = text.parse().map_err(|_| "needs a whole number")?;
    Some(epoch).filter(|epoch| *epoch <= IN_FILE_MAX).ok_or(
        "leaves no room for the epochs of later failovers; write the epochs from the file of \
         another sentinel here, or stop all sentinels and set all epochs in their files to 0",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_told_the_greatest_epoch_counts_on_and_is_believed_by_those_who_were() {
        let mut current = EPOCH_MAX;
        for _ in 0..3 {
            let next = after(current).unwrap();
            assert!(is_believed(current, next));
            assert_eq!(parse(&next.to_string()), Ok(next), "it starts again with its file");
            current = next;
        }
        assert!(!is_believed(0, current), "nobody else leaps there");
    }

    #[test]
    fn the_last_epoch_has_no_next_one() {
        assert_eq!(after(i64::MAX as u64), None);
        assert_eq!(after(u64::MAX), None);
        assert!(!is_believed(u64::MAX, u64::MAX));
    }
}
