//! Ports that no parallel test takes away, not even while their server is down.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::PathBuf;

/// Below the range from which the system takes the ports of outgoing connections. There, a client
/// that keeps reconnecting to a stopped server can be given the server's own port, connect to
/// itself, and so keep the server from coming back. Redis Cluster adds 10,000 for its own traffic,
/// which must stay below that range (32,768 on Linux), too.
const PORTS: Range<u16> = 11_000..22_000;

/// A loopback port held for this process until dropped, whether or not anything listens on it.
///
/// It is held by a locked file, so that all test processes on the machine see it and the system
/// frees it when a process dies.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    number: u16,
    _lock: File,
}

impl ReservedPort {
    pub(crate) fn reserve() -> Self {
        let folder = lock_folder();
        let count = usize::from(PORTS.end - PORTS.start);
        // Test processes start at different places, so that they rarely try the same port.
        let start = RandomState::new().hash_one(std::process::id()) as usize;
        for step in 0..count {
            let offset = start.wrapping_add(step) % count;
            let number = PORTS.start + u16::try_from(offset).expect("less than the range's length");
            if let Some(port) = Self::try_reserve(&folder, number) {
                return port;
            }
        }
        panic!("no port of {PORTS:?} is free on 127.0.0.1: end some servers");
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    fn try_reserve(folder: &std::path::Path, number: u16) -> Option<Self> {
        let lock = File::create(folder.join(number.to_string())).ok()?;
        lock.try_lock().ok()?;
        // Programs that know nothing of our locks may listen there.
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _lock: lock })
    }
}

fn lock_folder() -> PathBuf {
    // One folder per user: another user's files could not be opened.
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("testkit-ports-{user}"));
    if let Err(error) = fs::create_dir_all(&folder) {
        panic!("cannot create {}: {error}", folder.display());
    }
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_not_given_out_twice() {
        let port = ReservedPort::reserve();
        let folder = lock_folder();
        assert!(ReservedPort::try_reserve(&folder, port.number()).is_none());

        let number = port.number();
        drop(port);
        assert!(ReservedPort::try_reserve(&folder, number).is_some());
    }

    #[test]
    fn a_port_on_which_a_stranger_listens_is_passed_over() {
        let port = ReservedPort::reserve();
        let number = port.number();
        let _stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        drop(port);
        assert!(ReservedPort::try_reserve(&lock_folder(), number).is_none());
    }
}
