//! Where files live: a folder as the formats see it, real or simulated.
