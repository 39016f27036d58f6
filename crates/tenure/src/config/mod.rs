//! Configuration: one loader for programs that use this library and for the command.
//!
//! In: a file (TOML or JSON; YAML and HCL with their features), the environment, and values that
//! the program sets itself. Out: a [`Config`] that was checked as a whole, and the origin of every
//! value. `docs/configuration.md` lists the settings.
//!
//! ```text
//! defaults < file < [profile.NAME] of the file < TENURE_… variables < arguments
//! ```
//! ```no_run
//! # async fn example() -> Result<(), tenure::Error> {
//! let tenure = tenure::Tenure::from_file("tenure.toml").await?; // and that is all, mostly
//!
//! let config = tenure::config::Config::from_file("tenure.toml")?;
//! for setting in config.settings() {
//!     println!("{setting}"); // store.url = redis://***@db.internal/0 (TENURE_STORE)
//! }
//! # Ok(()) }
//! ```

mod belonging;
mod connect;
mod election;
mod environment;
mod format;
mod hooks;
mod layers;
mod loader;
mod origin;
mod problem;
mod reference;
mod resolve;
mod schema;
mod sidecar;
mod store;
mod url;
mod value;
mod variables;

pub use election::ElectionConfig;
pub use format::Format;
pub use hooks::{HooksConfig, WebhookConfig};
pub use loader::Loader;
pub use origin::{FilePosition, Origin};
pub use problem::{ConfigError, Problem};
pub use reference::{KnownSetting, known_settings};
pub use resolve::{Config, Setting, Warning};
pub use sidecar::SidecarConfig;
pub use store::StoreConfig;
