//! The election state machine.
