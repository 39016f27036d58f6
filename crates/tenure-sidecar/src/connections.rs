//! Who is connected: how many there may be, and who has to go when there are more.
//!
//! A newcomer always gets in, so that a probe is never kept waiting by those who are there. The one
//! who has moved nothing for the longest time goes: of the same peer where that one has its share,
//! else of whoever has the most connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};

/// How many connections may be open at a time; fewer where fewer than four times as many files may
/// be open, because whoever serves them needs files, too.
pub const CONNECTIONS_MAX: usize = 256;
/// How many of them one peer may have: half, so that nobody can lock out all others. IPv6 addresses
/// of one network count as one peer.
pub const PEER_CONNECTIONS_MAX: usize = 128;

#[derive(Debug)]
pub(crate) struct Connections {
    open: Mutex<BTreeMap<u64, Open>>,
    /// Grows with every byte that moves and every connection: a clock without time.
    moves: AtomicU64,
    count: watch::Sender<usize>,
    limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    all: usize,
    of_peer: usize,
}

impl Limits {
    fn of_process() -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::with_files(files.unwrap_or(u64::MAX))
    }

    /// Where so many files may be open.
    fn with_files(files: u64) -> Self {
        let quarter = usize::try_from(files / 4).unwrap_or(usize::MAX).max(2);
        let all = CONNECTIONS_MAX.min(quarter);
        Limits { all, of_peer: PEER_CONNECTIONS_MAX.min(all.div_ceil(2)) }
    }
}

#[derive(Debug)]
struct Open {
    peer: Peer,
    moved_at: Arc<AtomicU64>,
    /// Dropped to end it.
    _end: oneshot::Sender<()>,
}

/// An address as far as it tells one party from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    /// Whoever may open the socket file.
    Local,
    V4([u8; 4]),
    V6Network([u16; 4]),
}

impl Peer {
    fn of(address: Option<IpAddr>) -> Self {
        let Some(address) = address else { return Peer::Local };
        match address.to_canonical() {
            IpAddr::V4(address) => Peer::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Peer::V6Network([a, b, c, d])
            }
        }
    }
}

/// A connection's place, freed by being dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    connections: Arc<Connections>,
    number: u64,
    moved_at: Arc<AtomicU64>,
}

impl ConnectionSlot {
    /// Something was read or written.
    pub(crate) fn moves(&self) {
        self.moved_at.store(self.connections.tick(), Ordering::Relaxed);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.remove(self.number);
    }
}

impl Connections {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Connections {
            open: Mutex::default(),
            moves: AtomicU64::new(0),
            count: watch::Sender::new(0),
            limits: Limits::of_process(),
        })
    }

    /// A place for a newcomer, and what resolves when it has to go. Those who come through the
    /// socket file have no address.
    pub(crate) fn enter(
        self: &Arc<Self>,
        address: Option<IpAddr>,
    ) -> (ConnectionSlot, oneshot::Receiver<()>) {
        let peer = Peer::of(address);
        let (end, ended) = oneshot::channel();
        let number = self.tick();
        let moved_at = Arc::new(AtomicU64::new(number));
        let mut open = self.lock();
        if let Some(slowest) = who_goes(&open, peer, self.limits) {
            open.remove(&slowest);
            tracing::debug!(target: "tenure", "sidecar: closed a slow connection to make room");
        }
        open.insert(number, Open { peer, moved_at: Arc::clone(&moved_at), _end: end });
        let count = open.len();
        drop(open);
        self.count.send_replace(count);
        (ConnectionSlot { connections: Arc::clone(self), number, moved_at }, ended)
    }

    /// Waits until nobody is connected.
    pub(crate) async fn all_gone(&self) {
        let mut count = self.count.subscribe();
        // The sender lives in what is borrowed here.
        let _ = count.wait_for(|count| *count == 0).await;
    }

    fn remove(&self, number: u64) {
        let mut open = self.lock();
        open.remove(&number);
        let count = open.len();
        drop(open);
        self.count.send_replace(count);
    }

    fn tick(&self) -> u64 {
        self.moves.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who makes room for a newcomer of `peer`; `None` while there is room.
fn who_goes(open: &BTreeMap<u64, Open>, peer: Peer, limits: Limits) -> Option<u64> {
    let mut shares: BTreeMap<Peer, usize> = BTreeMap::new();
    for connection in open.values() {
        *shares.entry(connection.peer).or_default() += 1;
    }
    let own_share = shares.get(&peer).copied().unwrap_or_default();
    let from = match () {
        () if own_share >= limits.of_peer => peer,
        () if open.len() >= limits.all => *shares.iter().max_by_key(|(_, n)| **n)?.0,
        () => return None,
    };
    let candidates = open.iter().filter(|(_, connection)| connection.peer == from);
    let slowest = candidates.min_by_key(|(_, c)| c.moved_at.load(Ordering::Relaxed));
    slowest.map(|(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entered = (ConnectionSlot, oneshot::Receiver<()>);

    fn is_gone(entered: &mut Entered) -> bool {
        entered.1.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn whoever_moved_nothing_for_the_longest_time_makes_room() {
        let connections = Connections::new();
        let peer = Some(IpAddr::from([127, 0, 0, 1]));
        let mut crowd: Vec<Entered> =
            (0..PEER_CONNECTIONS_MAX).map(|_| connections.enter(peer)).collect();
        crowd[0].0.moves();
        let mut probe = connections.enter(peer);
        assert!(!is_gone(&mut probe) && !is_gone(&mut crowd[0]), "those who move stay");
        assert!(is_gone(&mut crowd[1]));
        drop(crowd.remove(1));
        assert_eq!(*connections.count.borrow(), PEER_CONNECTIONS_MAX);
    }

    #[test]
    fn a_greedy_peer_pays_for_the_others() {
        let connections = Connections::new();
        let address = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        let mut modest: Vec<Entered> = (0..130).map(|n| connections.enter(address(n))).collect();
        let mut greedy: Vec<Entered> =
            (0..PEER_CONNECTIONS_MAX + 40).map(|_| connections.enter(address(200))).collect();
        assert_eq!(modest.iter_mut().map(is_gone).filter(|gone| *gone).count(), 0);
        let left = greedy.iter_mut().map(is_gone).filter(|gone| !gone).count();
        assert_eq!(left, CONNECTIONS_MAX - 130);
        let mut newcomer = connections.enter(address(201));
        assert!(!is_gone(&mut newcomer));
        assert_eq!(modest.iter_mut().map(is_gone).filter(|gone| *gone).count(), 0);
    }

    /// A wrapper that cannot open a file cannot see what is left of its program.
    #[test]
    fn connections_leave_files_to_whoever_serves_them() {
        assert_eq!(Limits::with_files(64), Limits { all: 16, of_peer: 8 });
        let most = Limits { all: CONNECTIONS_MAX, of_peer: PEER_CONNECTIONS_MAX };
        assert_eq!(Limits::with_files(u64::MAX), most);
        assert_eq!(Limits::with_files(0), Limits { all: 2, of_peer: 1 });
    }

    #[test]
    fn neighbours_in_ipv6_are_one_peer_and_mapped_addresses_are_what_they_map() {
        let of = |text: &str| Peer::of(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.7"), of("10.0.0.7"));
    }
}
