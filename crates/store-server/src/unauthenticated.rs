//! Clients that have not shown yet who they are: they have not agreed on TLS, or not logged in.
//!
//! Anybody can become one, so there are only so many at once, and only so many from one network.
//! When there is no room left the oldest one goes: logging in takes a moment, so whoever means to
//! does it long before its turn comes, whoever else keeps connecting.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use store_engine::{Origin, ServerState, SessionId, session_flag};

use crate::clients::Clients;

/// All of them. Each may hold a mebibyte before it is refused, and cost a signature.
const NEWCOMERS_MAX: usize = 1000;
/// From one network, this machine aside: more than one turn accepts, so that a crowd which logs
/// in at once comes through.
const PER_NETWORK_MAX: usize = 512;
/// What a household or a machine gets of IPv6: whoever has one address has all of these.
const NETWORK_BITS: u32 = 64;

/// Those who may be newcomers still, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct UnauthenticatedClients(VecDeque<(SessionId, Option<IpAddr>)>);

impl UnauthenticatedClients {
    /// One more comes from there: the one that has to go for it, if there is no room. `is_new`
    /// tells of those who are newcomers still.
    pub(crate) fn make_room(
        &mut self,
        origin: &Origin,
        is_new: impl Fn(SessionId) -> bool,
    ) -> Option<SessionId> {
        if self.0.len() < PER_NETWORK_MAX {
            return None;
        }
        self.0.retain(|(id, _)| is_new(*id));
        let network = remote_network(origin);
        let is_same = |(_, other): &(SessionId, Option<IpAddr>)| *other == network;
        let from_there = self.0.iter().filter(|newcomer| is_same(newcomer)).count();
        if network.is_some() && from_there >= PER_NETWORK_MAX {
            let oldest = self.0.iter().position(is_same)?;
            return self.0.remove(oldest).map(|(id, _)| id);
        }
        if self.0.len() < NEWCOMERS_MAX { None } else { self.oldest(is_new) }
    }

    /// The one that came first: it goes when there is no room for anybody.
    pub(crate) fn oldest(&mut self, is_new: impl Fn(SessionId) -> bool) -> Option<SessionId> {
        loop {
            let (id, _) = self.0.pop_front()?;
            if is_new(id) {
                return Some(id);
            }
        }
    }

    pub(crate) fn add(&mut self, id: SessionId, origin: &Origin) {
        self.0.push_back((id, remote_network(origin)));
    }
}

/// Whether a session has yet to show who it is.
pub(crate) fn is_new(state: &ServerState, clients: &Clients, id: SessionId) -> bool {
    let session = state.sessions.get(id);
    clients.of(id).is_some_and(|client| client.stream.is_handshaking())
        || session.is_some_and(|session| session.has(session_flag::NEEDS_AUTH))
}

/// The network that another machine belongs to; with IPv4 its address.
fn remote_network(origin: &Origin) -> Option<IpAddr> {
    let address = origin.address.parse::<SocketAddr>().ok().filter(|_| !origin.is_local)?;
    Some(match address.ip().to_canonical() {
        IpAddr::V6(address) => {
            let shift = Ipv6Addr::BITS - NETWORK_BITS;
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> shift << shift))
        }
        address => address,
    })
}

#[cfg(test)]
mod tests {
    use store_engine::{Config, Engine, Identity, NoPlatform};

    use super::*;

    fn from(address: &str) -> Origin {
        Origin { address: address.to_owned(), ..Origin::default() }
    }

    struct Door {
        unauthenticated: UnauthenticatedClients,
        engine: Engine,
    }

    impl Door {
        fn new() -> Self {
            let platform = Box::new(NoPlatform);
            let engine = Engine::new(Config::default(), Identity::default(), 1, platform);
            Self { unauthenticated: UnauthenticatedClients::default(), engine }
        }

        /// Lets `count` in, and tells who had to go.
        fn fill(&mut self, origin: &Origin, count: usize) -> Vec<u64> {
            let mut gone = Vec::new();
            for _ in 0..count {
                gone.extend(self.unauthenticated.make_room(origin, |_| true).map(|id| id.number));
                let id = self.engine.open_session(0, origin.clone());
                self.unauthenticated.add(id, origin);
            }
            gone
        }
    }

    #[test]
    fn a_network_that_is_full_makes_room_for_itself_and_leaves_the_others_alone() {
        let mut door = Door::new();
        assert_eq!(door.fill(&from("192.0.2.2:1"), 1), []);
        assert_eq!(door.fill(&from("192.0.2.1:1"), PER_NETWORK_MAX), []);
        assert_eq!(door.fill(&from("192.0.2.1:1"), 2), [2, 3]);
        assert_eq!(door.fill(&from("192.0.2.2:1"), 10), []);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let mut door = Door::new();
        for number in 0..PER_NETWORK_MAX {
            assert_eq!(door.fill(&from(&format!("[2001:db8::{number:x}]:1")), 1), []);
        }
        assert_eq!(door.fill(&from("[2001:db8::ffff:1]:1"), 1), [1]);
        assert_eq!(door.fill(&from("[2001:db8:0:1::1]:1"), 1), []);
    }

    #[test]
    fn when_all_places_are_taken_the_oldest_goes() {
        let mut door = Door::new();
        let here = Origin { is_local: true, ..from("127.0.0.1:1") };
        assert_eq!(door.fill(&here, NEWCOMERS_MAX), []);
        assert_eq!(door.fill(&here, 2), [1, 2]);
        assert_eq!(door.fill(&from("192.0.2.1:1"), 1), [3]);
        // Whoever has logged in or left makes room.
        assert_eq!(door.unauthenticated.make_room(&here, |_| false), None);
        assert_eq!(door.fill(&here, 1), []);
    }
}
