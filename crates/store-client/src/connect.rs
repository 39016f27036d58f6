//! TCP connections by name, for whoever must go on where no thread can be started.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// How many names are looked up at once in this process: each has a thread, which a resolver that
/// hangs keeps for as long as it does.
const LOOKUPS_MAX: usize = 64;

/// A global by nature: so are the threads of a process.
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// Opens a stream to a host and port. A name is looked up each time.
///
/// It fails where no thread can be started for that, as at a limit on processes: what tokio offers
/// panics there, and a task that keeps a connection would be gone for good.
pub async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => look_up(host, port).await?,
    };
    TcpStream::connect(&addresses[..]).await
}

async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let place = LookupPlace::take()?;
    let (tell, told) = oneshot::channel();
    let name = host.to_owned();
    let started = thread::Builder::new().name("lookup".into()).spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
        drop(place);
        // Whoever asked may have given up.
        let _ = tell.send(found);
    });
    started.map_err(|error| {
        let next = "check the limits here (ulimit -u, and the container's on processes)";
        io::Error::other(format!("no thread to look up {host:?}: {error}; {next}"))
    })?;
    told.await.unwrap_or_else(|_| Err(io::Error::other("the look-up ended early")))
}

/// One of the look-ups at a time.
struct LookupPlace;

impl LookupPlace {
    fn take() -> io::Result<Self> {
        let place = LookupPlace;
        if LOOKUPS.fetch_add(1, Ordering::Relaxed) >= LOOKUPS_MAX {
            let why = format!("{LOOKUPS_MAX} look-ups of names have no answer");
            return Err(io::Error::other(format!("{why}; check the resolver of this host")));
        }
        Ok(place)
    }
}

impl Drop for LookupPlace {
    fn drop(&mut self) {
        LOOKUPS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn names_and_numbers_lead_to_the_same_place() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            assert_eq!(connect_tcp(host, port).await.unwrap().peer_addr().unwrap().port(), port);
        }
        assert!(connect_tcp("no-such-host.invalid", port).await.is_err());
        assert!(connect_tcp("", port).await.is_err());
    }

    #[test]
    fn look_ups_that_hang_have_a_bound() {
        let places: Vec<_> = std::iter::from_fn(|| LookupPlace::take().ok()).collect();
        assert!(!places.is_empty() && places.len() <= LOOKUPS_MAX);
        assert!(LookupPlace::take().is_err());
        drop(places);
        assert!(LookupPlace::take().is_ok());
    }
}
