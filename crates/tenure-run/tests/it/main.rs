//! Seeded worlds around the two machines.
