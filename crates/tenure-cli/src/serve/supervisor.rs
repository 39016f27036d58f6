//! `supervised`: telling systemd that we are ready.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use anyhow::bail;
use store_engine::{Config, Supervision};
use store_server::LogLevel;

use super::log::Logger;

/// Where systemd wants to be told.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Who started us and waits to hear that we are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supervisor {
    Nobody,
    Systemd,
}

impl Supervisor {
    /// As `supervised` says. Fails for a kind that is not supported.
    pub(super) fn of(config: &Config) -> anyhow::Result<Self> {
        let is_there = std::env::var_os(VARIABLE).is_some();
        match config.settings().process.supervised {
            Supervision::Upstart => {
                bail!("supervised upstart is not supported: use systemd, auto or no")
            }
            Supervision::Systemd | Supervision::Auto if is_there => Ok(Self::Systemd),
            _ => Ok(Self::Nobody),
        }
    }

    pub(super) fn is_absent(self) -> bool {
        self == Self::Nobody
    }

    pub(super) fn tell_ready(self, logger: &Logger) {
        let Some(place) = std::env::var_os(VARIABLE).filter(|_| self == Self::Systemd) else {
            return;
        };
        if let Err(error) = notify(&place) {
            logger.log(LogLevel::Warning, &format!("Cannot tell systemd: {error}"));
        }
    }
}

fn notify(place: &OsStr) -> io::Result<()> {
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(b"STATUS=Ready to accept connections\nREADY=1\n", &address).map(drop)
}
