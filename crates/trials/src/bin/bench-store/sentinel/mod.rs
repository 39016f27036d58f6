//! Our sentinels beside redis-sentinel: how long a failover takes, and what watching costs.
//!
//! The servers below are real ones on both sides, so that nothing but the sentinels differs.

mod failover;
mod idle;

use crate::report::Figures;
use crate::{Result, Scale};

pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    idle::measure(scale, figures)?;
    failover::measure(scale, figures)
}
