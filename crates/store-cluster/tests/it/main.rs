//! Nodes among themselves, and packets and files of a real redis-server.

mod adopted;
mod claims;
mod config;
mod epochs;
mod heirs;
mod hostile;
mod real;
mod route;
mod town;
mod unsaved;
