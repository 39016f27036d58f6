//! `always-show-logo`: what tools that start redis-server look for the process id in.

use store_engine::REDIS_VERSION;

/// The lines of the logo. Port 0 stands for none.
pub(super) fn text(port: u16, mode: &str) -> String {
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    format!(
        "\n\
         \x20     |\\  /|      Tenure {version} (Redis {REDIS_VERSION}) 64 bit\n\
         \x20     | \\/ |\n\
         \x20     |____|      Running in {mode} mode\n\
         \x20                 Port: {port}\n\
         \x20                 PID: {pid}\n"
    )
}
