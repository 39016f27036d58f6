//! Clients that have not shown yet who they are: they have not agreed on TLS, or not logged in.
//!
//! Anybody can become one, so there are only so many at once, and only so many from one address:
//! those who can log in find a place, whoever else keeps connecting.

use std::net::{IpAddr, SocketAddr};

use store_engine::{Origin, ServerState, SessionId, session_flag};

use crate::client::Client;

/// All of them. Each may hold a mebibyte before it is refused, and cost a signature.
const NEWCOMERS_MAX: usize = 1000;
/// From one address, this machine aside: more than one turn accepts, so that a crowd which logs
/// in at once comes through.
const PER_ADDRESS_MAX: usize = 512;

/// Those who may be newcomers still.
#[derive(Debug, Default)]
pub(crate) struct Newcomers(Vec<(SessionId, Option<IpAddr>)>);

impl Newcomers {
    /// Whether one more may come from there. `is_new` tells of those who are newcomers still.
    pub(crate) fn have_room(
        &mut self,
        origin: &Origin,
        is_new: impl Fn(SessionId) -> bool,
    ) -> bool {
        if self.0.len() < PER_ADDRESS_MAX {
            return true;
        }
        self.0.retain(|(id, _)| is_new(*id));
        let address = remote_address(origin);
        let is_same = |(_, other): &&(SessionId, Option<IpAddr>)| *other == address;
        let from_there = self.0.iter().filter(is_same).count();
        self.0.len() < NEWCOMERS_MAX && (address.is_none() || from_there < PER_ADDRESS_MAX)
    }

    pub(crate) fn add(&mut self, id: SessionId, origin: &Origin) {
        self.0.push((id, remote_address(origin)));
    }
}

/// Whether a session has yet to show who it is.
pub(crate) fn is_new(state: &ServerState, clients: &[Option<Box<Client>>], id: SessionId) -> bool {
    let client = clients.get(id.slot()).and_then(Option::as_ref);
    let session = state.sessions.get(id);
    client.is_some_and(|client| client.session == id && client.stream.is_handshaking())
        || session.is_some_and(|session| session.has(session_flag::NEEDS_AUTH))
}

/// The address of another machine.
fn remote_address(origin: &Origin) -> Option<IpAddr> {
    let address = origin.address.parse::<SocketAddr>().ok().filter(|_| !origin.is_local)?;
    Some(address.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use store_engine::{Config, Engine, Identity, NoHost};

    use super::*;

    fn from(address: &str) -> Origin {
        Origin { address: address.to_owned(), ..Origin::default() }
    }

    /// Adds as many as come in, up to `count`.
    fn fill(
        newcomers: &mut Newcomers,
        engine: &mut Engine,
        origin: &Origin,
        count: usize,
    ) -> usize {
        let comes = |_: &usize| {
            let has_room = newcomers.have_room(origin, |_| true);
            if has_room {
                newcomers.add(engine.open_session(0, origin.clone()), origin);
            }
            has_room
        };
        (0..count).take_while(comes).count()
    }

    #[test]
    fn one_address_leaves_room_for_others_and_all_together_have_a_limit() {
        let host = Box::new(NoHost);
        let mut engine = Engine::new(Config::default(), Identity::default(), 1, host);
        let mut newcomers = Newcomers::default();
        let (crowd, other) = (from("192.0.2.1:1"), from("192.0.2.2:1"));
        assert_eq!(fill(&mut newcomers, &mut engine, &crowd, 10_000), PER_ADDRESS_MAX);
        let here = Origin { is_local: true, ..from("127.0.0.1:1") };
        assert_eq!(fill(&mut newcomers, &mut engine, &here, 100), 100);
        let left = NEWCOMERS_MAX - PER_ADDRESS_MAX - 100;
        assert_eq!(fill(&mut newcomers, &mut engine, &other, 10_000), left);
        assert_eq!(fill(&mut newcomers, &mut engine, &here, 1), 0);
        // Whoever has logged in or left makes room.
        assert!(newcomers.have_room(&crowd, |_| false));
    }
}
