//! Nodes among themselves, and packets and files of a real redis-server.

mod adopted;
mod config;
mod epochs;
mod hostile;
mod real;
mod route;
mod town;
