//! Nodes among themselves, and packets and files of a real redis-server.

mod config;
mod epochs;
mod hostile;
mod real;
mod route;
mod town;
