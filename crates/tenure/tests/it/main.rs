//! Everything about the library that needs a real server.

mod broken;
mod conformance;
