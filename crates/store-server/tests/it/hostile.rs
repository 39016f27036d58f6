//! Clients that do harm.
