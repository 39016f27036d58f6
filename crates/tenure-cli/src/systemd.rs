//! What systemd hears of a service that it started as `Type=notify`: ready, stopping, and with
//! `WatchdogSec=` again and again that it is alive.
//!
//! Datagrams go to the socket that `NOTIFY_SOCKET` names, as sd_notify(3) describes them.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// Where systemd wants to be told.
const VARIABLE: &str = "NOTIFY_SOCKET";
/// How often a word is tried, and how long in between, where systemd has not read the last ones.
const TRIES_MAX: u32 = 100;
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// The manager that started this process and wants to hear of it.
#[derive(Debug)]
pub(crate) struct Systemd {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How long it waits for a sign of life before it ends the service.
    watchdog: Option<Duration>,
}

impl Systemd {
    /// `None` where nobody wants to be told. Fails for a socket that cannot be used.
    pub(crate) fn of_environment() -> io::Result<Option<Self>> {
        let Some(place) = std::env::var_os(VARIABLE).filter(|place| !place.is_empty()) else {
            return Ok(None);
        };
        let named = |name| std::env::var(name).ok();
        let watchdog = watchdog(named("WATCHDOG_USEC"), named("WATCHDOG_PID"));
        let told = |error: io::Error| {
            let place = crate::output::plain(&place.to_string_lossy());
            io::Error::new(error.kind(), format!("{VARIABLE}={place}: {error}"))
        };
        Self::at(&place, watchdog).map(Some).map_err(told)
    }

    /// Whether somebody wants to be told.
    pub(crate) fn is_there() -> bool {
        std::env::var_os(VARIABLE).is_some()
    }

    fn at(place: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match place.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(place)?,
            _ => {
                let why = "neither a whole path nor an abstract socket (@NAME)";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Systemd { socket, address, watchdog })
    }

    /// It serves from now on; `status` is a line for `systemctl status`.
    pub(crate) fn ready(&self, status: &str) -> io::Result<()> {
        self.tell(&format!("READY=1\nSTATUS={}\n", crate::output::plain(status)))
    }

    /// It was asked to end, and does.
    pub(crate) fn stopping(&self) -> io::Result<()> {
        self.tell("STOPPING=1\nSTATUS=Stopping\n")
    }

    /// A sign of life. It waits for nobody: the next one comes soon.
    pub(crate) fn alive(&self) -> io::Result<()> {
        self.send("WATCHDOG=1\n")
    }

    /// How often to give a sign of life: twice as often as is asked for.
    pub(crate) fn alive_every(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    fn tell(&self, words: &str) -> io::Result<()> {
        for _ in 1..TRIES_MAX {
            match self.send(words) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(TRY_AGAIN);
                }
                told => return told,
            }
        }
        self.send(words)
    }

    fn send(&self, words: &str) -> io::Result<()> {
        self.socket.send_to_addr(words.as_bytes(), &self.address).map(drop)
    }
}

/// Tells systemd, if it is there, that this process serves, and from now on that the runtime of
/// the caller turns. What cannot be told is logged: the service goes on.
pub(crate) fn introduce(status: &str) -> Option<Arc<Systemd>> {
    let systemd = match Systemd::of_environment() {
        Ok(systemd) => Arc::new(systemd?),
        Err(error) => {
            tracing::warn!(target: "tenure", %error, "systemd cannot be told that this is ready");
            return None;
        }
    };
    if let Err(error) = systemd.ready(status) {
        tracing::warn!(target: "tenure", %error, "systemd cannot be told that this is ready");
    }
    if let Some(every) = systemd.alive_every() {
        let systemd = Arc::clone(&systemd);
        tokio::spawn(async move {
            loop {
                // When it could not be told, the next one may be.
                let _ = systemd.alive();
                tokio::time::sleep(every).await;
            }
        });
    }
    Some(systemd)
}

/// The time of the watchdog, if it is for this process.
fn watchdog(micros: Option<String>, pid: Option<String>) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| pid == std::process::id().to_string());
    let micros = micros.filter(|_| is_ours)?.parse().ok()?;
    Some(Duration::from_micros(micros)).filter(|limit| !limit.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_of_another_process_is_none_of_our_business() {
        let of = |micros: &str, pid: Option<&str>| {
            watchdog(Some(micros.to_owned()), pid.map(str::to_owned))
        };
        let own = std::process::id().to_string();
        assert_eq!(of("30000000", Some(&own)), Some(Duration::from_secs(30)));
        assert_eq!(of("30000000", None), Some(Duration::from_secs(30)));
        assert_eq!(of("30000000", Some("1")), None);
        for nonsense in ["", "0", "-1", "soon"] {
            assert_eq!(of(nonsense, None), None, "{nonsense}");
        }
        assert_eq!(watchdog(None, None), None);
    }

    #[test]
    fn a_socket_is_a_whole_path_or_an_abstract_name() {
        let at = |place: &str| Systemd::at(OsStr::new(place), None);
        assert!(at("/run/systemd/notify").is_ok() && at("@notify").is_ok());
        for wrong in ["notify", "vsock:2:1234", "./notify"] {
            assert_eq!(at(wrong).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{wrong}");
        }
        assert!(at(&format!("/{}", "x".repeat(200))).is_err(), "longer than a path may be");
    }
}
