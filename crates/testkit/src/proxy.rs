//! A TCP proxy on loopback that does to connections what bad networks do.
//!
//! What comes in: connections of clients, and faults by call, by script or by seed. What goes out:
//! connections to one server, and a record of what passed. One thread owns all sockets and never
//! blocks on one; whatever a test asks for is done by that thread, and the asking call returns when
//! it is done: no byte read later escapes a new rule.

mod pipe;
mod relay;
mod rule;
mod script;
mod traffic;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use rule::{Cut, Direction, Door, Rule};
pub use script::{Script, What, When};
pub use traffic::{Mark, Piece, Traffic};

use crate::{RedisServer, wait_until};
use relay::{Order, Relay};

/// A proxy in front of one server. It listens on a port of its own and ends with its value, and all
/// its connections with it.
///
/// ```
/// use testkit::proxy::{Direction, Proxy, Rule};
/// use testkit::RedisServer;
///
/// let server = RedisServer::start();
/// let proxy = Proxy::in_front_of(&server);
/// let url = server.url_at(proxy.port()); // for the client under test
/// proxy.set_rule(Direction::ToClient, Rule::Swallow); // from now on, replies are lost
/// # assert!(url.starts_with("redis://127.0.0.1:"));
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    orders: Option<mpsc::Sender<Order>>,
    wake: UnixStream,
    relay: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy in front of a server of the kit.
    ///
    /// # Panics
    /// When the system gives no socket or thread.
    #[must_use]
    pub fn in_front_of(server: &RedisServer) -> Self {
        Self::to(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())))
    }

    /// A proxy in front of whatever listens, or will listen, at `target`.
    ///
    /// # Panics
    /// When the system gives no socket or thread.
    #[must_use]
    pub fn to(target: SocketAddr) -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        listener.set_nonblocking(true).expect("a fresh socket takes options");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (wake, woken) = UnixStream::pair().expect("a test process may open a socket pair");
        for end in [&wake, &woken] {
            end.set_nonblocking(true).expect("a fresh socket takes options");
        }
        let (orders, received) = mpsc::channel();
        let relay = thread::Builder::new()
            .name("testkit-proxy".into())
            .spawn(move || Relay::new(listener, target).run(&received, woken))
            .expect("a test process may start a thread");
        Self { address, orders: Some(orders), wake, relay: Some(relay) }
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port where clients connect, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets what happens to the bytes of one direction, on all connections, present and future.
    pub fn set_rule(&self, direction: Direction, rule: Rule) {
        self.apply(What::Rule(direction, rule));
    }

    /// Sets the rule of both directions.
    pub fn set_rules(&self, rule: Rule) {
        self.apply(What::BothRules(rule));
    }

    /// Makes all well again: everything is passed on, new connections are accepted, a script that
    /// runs is given up.
    pub fn heal(&self) {
        self.run_script(Script::default());
        self.set_rules(Rule::Forward);
        self.set_door(Door::Open);
    }

    /// Ends all present connections.
    pub fn cut(&self, cut: Cut) {
        self.apply(What::Cut(cut));
    }

    /// Says what becomes of new connections.
    pub fn set_door(&self, door: Door) {
        self.apply(What::Door(door));
    }

    /// Does one thing that a script could do, now.
    pub fn apply(&self, what: What) {
        self.on_relay(move |relay| relay.apply(what));
    }

    /// Connects new clients to another server; present connections stay where they are.
    pub fn set_target(&self, target: SocketAddr) {
        self.on_relay(move |relay| relay.set_target(target));
    }

    /// Runs a script from now on, in place of the one that runs.
    pub fn run_script(&self, script: Script) {
        self.on_relay(|relay| relay.set_script(script));
    }

    /// Waits until the script has taken its last step.
    ///
    /// # Panics
    /// When it has not within `bound`.
    #[track_caller]
    pub fn wait_for_script(&self, bound: Duration) {
        wait_until("the proxy's script to end", bound, || {
            self.on_relay(|relay| relay.is_script_finished())
        });
    }

    /// How many connections were accepted or refused so far.
    #[must_use]
    pub fn connections_accepted(&self) -> u64 {
        self.on_relay(|relay| relay.accepted())
    }

    /// How many connections there are now.
    #[must_use]
    pub fn connections_open(&self) -> usize {
        self.on_relay(|relay| relay.open())
    }

    /// How many bytes were passed on or swallowed so far.
    #[must_use]
    pub fn bytes_moved(&self, direction: Direction) -> u64 {
        self.on_relay(move |relay| relay.moved(direction))
    }

    /// A mark at the present end of the traffic.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.on_relay(|relay| relay.traffic.mark())
    }

    /// All that was sent in one direction so far, whether or not it was passed on.
    #[must_use]
    pub fn traffic(&self, direction: Direction) -> Traffic {
        self.traffic_since(Mark::default(), direction)
    }

    /// What was sent in one direction since the mark.
    #[must_use]
    pub fn traffic_since(&self, mark: Mark, direction: Direction) -> Traffic {
        self.on_relay(move |relay| relay.traffic.since(mark, direction))
    }

    /// Runs `work` on the proxy's thread and returns its result.
    fn on_relay<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Relay) -> T + Send + 'static,
    ) -> T {
        let (answer, result) = mpsc::channel();
        let order: Order = Box::new(move |relay| {
            // The asking thread waits below, so somebody takes it.
            let _ = answer.send(work(relay));
        });
        let orders = self.orders.as_ref().expect("orders end only with the proxy");
        orders.send(order).expect("the proxy's thread runs as long as its value");
        self.wake();
        result.recv().expect("the proxy's thread runs as long as its value")
    }

    fn wake(&self) {
        // When the pipe is full, the thread has enough to wake up for.
        let _ = (&self.wake).write(&[0]);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders = None;
        self.wake();
        let outcome = self.relay.take().map(JoinHandle::join);
        // A second panic while one unwinds would abort and hide the first.
        if let Some(Err(panic)) = outcome
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
