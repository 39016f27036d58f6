//! The proxy's own thread: one loop that owns all sockets.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::pipe::{Flushed, Pipe};
use super::rule::{Cut, Direction, Door, PerDirection, Rule};
use super::script::{Progress, RunningScript, Script, What};
use super::traffic::{Piece, TrafficLog};

/// More than a test with hundreds of clients needs; further ones are refused.
const CONNECTIONS_MAX: usize = 4_096;

/// More than a socket's buffer holds. A sender that goes on regardless is reset in the end.
const UNREAD_READS_MAX: usize = 4_096;

/// Work that the loop does between two looks at its sockets.
pub(super) type Order = Box<dyn FnOnce(&mut Relay) + Send>;

/// All that the loop owns.
pub(super) struct Relay {
    listener: TcpListener,
    target: SocketAddr,
    rules: PerDirection<Rule>,
    door: Door,
    connections: Vec<Connection>,
    accepted: u64,
    moved: PerDirection<u64>,
    script: Option<RunningScript>,
    pub(super) traffic: TrafficLog,
}

struct Connection {
    number: u64,
    sockets: Sockets,
    pipes: PerDirection<Pipe>,
    cut: Option<Cut>,
}

struct Sockets {
    client: TcpStream,
    server: TcpStream,
}

/// What a place in the list of polled sockets stands for.
#[derive(Clone, Copy)]
enum Watched {
    Wake,
    Listener,
    /// The socket from which this direction reads, of the connection with this index.
    Source(usize, Direction),
    /// A socket with something to write to it: all of those are tried after each wait.
    Sink,
}

impl Relay {
    pub(super) fn new(listener: TcpListener, target: SocketAddr) -> Self {
        Self {
            listener,
            target,
            rules: PerDirection::default(),
            door: Door::default(),
            connections: Vec::new(),
            accepted: 0,
            moved: PerDirection::default(),
            script: None,
            traffic: TrafficLog::default(),
        }
    }

    /// Runs until the sender of `orders` is dropped. A byte on `wake` announces an order.
    pub(super) fn run(mut self, orders: &mpsc::Receiver<Order>, mut wake: UnixStream) {
        loop {
            let ready = self.wait(&wake);
            for watched in ready {
                match watched {
                    Watched::Wake => drain(&mut wake),
                    Watched::Listener => self.accept_all(),
                    Watched::Source(index, direction) => self.read(index, direction),
                    Watched::Sink => {}
                }
            }
            self.settle();
            loop {
                match orders.try_recv() {
                    Ok(order) => order(&mut self),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return,
                }
                // Between two orders, so that even a rule that is replaced at once took effect.
                self.settle();
            }
        }
    }

    /// Waits until a socket can be worked on or a moment comes.
    fn wait(&self, wake: &UnixStream) -> Vec<Watched> {
        let now = Instant::now();
        let mut watched = vec![Watched::Wake];
        let mut polled = vec![PollFd::new(wake, PollFlags::IN)];
        let mut wakes_at = self.script.as_ref().and_then(RunningScript::wakes_at);
        for (index, connection) in self.connections.iter().enumerate() {
            for direction in Direction::BOTH {
                let (rule, pipe) = (self.rules[direction], &connection.pipes[direction]);
                let (source, sink) = connection.sockets.ends(direction);
                // Only sockets with a wish are polled: a closed one would report its end for ever.
                if pipe.wants_to_read(rule) {
                    watched.push(Watched::Source(index, direction));
                    polled.push(PollFd::new(source, PollFlags::IN));
                }
                match pipe.wants_to_write_at(rule, now) {
                    Some(at) if at <= now => {
                        watched.push(Watched::Sink);
                        polled.push(PollFd::new(sink, PollFlags::OUT));
                    }
                    Some(at) => wakes_at = Some(wakes_at.map_or(at, |other| other.min(at))),
                    None => {}
                }
            }
        }
        // Last: a new connection can make a script cut the others, whose indexes stand above.
        watched.push(Watched::Listener);
        polled.push(PollFd::new(&self.listener, PollFlags::IN));
        let timeout = wakes_at.map(|at| timespec(at.saturating_duration_since(now)));
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the proxy cannot wait for its sockets: {error}"),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        watched.into_iter().zip(&polled).filter(|(_, fd)| is_ready(fd)).map(|(w, _)| w).collect()
    }

    fn accept_all(&mut self) {
        while let Ok((client, _)) = self.listener.accept() {
            self.accepted += 1;
            self.admit(client);
            // A step may wait for exactly this connection.
            self.run_script();
        }
    }

    fn admit(&mut self, client: TcpStream) {
        if self.door == Door::Refuse || self.connections.len() >= CONNECTIONS_MAX {
            return reset(client);
        }
        match connect(self.target, &client) {
            Ok(server) => self.connections.push(Connection {
                number: self.accepted,
                sockets: Sockets { client, server },
                pipes: PerDirection::default(),
                cut: None,
            }),
            Err(_) => reset(client),
        }
    }

    fn read(&mut self, index: usize, direction: Direction) {
        let rule = self.rules[direction];
        let connection = &mut self.connections[index];
        let (source, _) = connection.sockets.ends(direction);
        if let Some(bytes) = connection.pipes[direction].read(source, rule) {
            let piece = Piece { connection: connection.number, read_at: Instant::now(), bytes };
            self.traffic.add(direction, piece);
        }
    }

    /// Takes script steps and passes bytes on until neither leads to the other.
    fn settle(&mut self) {
        loop {
            self.run_script();
            let before = self.moved;
            for index in 0..self.connections.len() {
                for direction in Direction::BOTH {
                    self.flush(index, direction);
                }
            }
            self.remove_ended();
            let unmoved = |way| before[way] == self.moved[way];
            if Direction::BOTH.into_iter().all(unmoved) {
                return;
            }
        }
    }

    fn flush(&mut self, index: usize, direction: Direction) {
        let rule = self.rules[direction];
        let bytes_max = self.bytes_left(direction);
        let connection = &mut self.connections[index];
        if connection.cut.is_some() {
            return;
        }
        let (_, sink) = connection.sockets.ends(direction);
        match connection.pipes[direction].flush(sink, rule, bytes_max, &mut self.moved[direction]) {
            Flushed::Going => {}
            Flushed::Reset => connection.cut = Some(Cut::Reset),
            Flushed::LimitReached => {
                if let Rule::CutAfter { cut, .. } = rule {
                    connection.cut = Some(cut);
                }
            }
        }
    }

    /// How many bytes may pass in this direction until the script must be asked.
    fn bytes_left(&self, direction: Direction) -> u64 {
        let moved = self.moved[direction];
        let script = self.script.as_ref();
        let bytes_left = script.and_then(|script| script.bytes_left(direction, moved));
        bytes_left.unwrap_or(u64::MAX - moved)
    }

    fn remove_ended(&mut self) {
        let ended = self.connections.extract_if(.., |connection| {
            let finished = |way| connection.pipes[way].is_finished();
            connection.cut.is_some() || Direction::BOTH.into_iter().all(finished)
        });
        for connection in ended {
            let cut = connection.cut.unwrap_or(Cut::Close);
            connection.sockets.end(cut);
        }
    }

    fn run_script(&mut self) {
        while let Some(mut script) = self.script.take() {
            let step = script.take_due(self.progress());
            if !script.is_finished() {
                self.script = Some(script);
            }
            match step {
                Some(what) => self.apply(what),
                None => return,
            }
        }
    }

    fn progress(&self) -> Progress {
        Progress { now: Instant::now(), moved: self.moved, connections: self.accepted }
    }

    pub(super) fn apply(&mut self, what: What) {
        match what {
            What::Rule(direction, rule) => self.set_rule(direction, rule),
            What::BothRules(rule) => {
                Direction::BOTH.into_iter().for_each(|direction| self.set_rule(direction, rule));
            }
            What::Cut(cut) => {
                for connection in self.connections.drain(..) {
                    connection.sockets.end(cut);
                }
            }
            What::Door(door) => self.door = door,
        }
    }

    fn set_rule(&mut self, direction: Direction, rule: Rule) {
        self.rules[direction] = rule;
        for connection in &mut self.connections {
            connection.pipes[direction].rule_changed();
        }
    }

    pub(super) fn set_script(&mut self, script: Script) {
        let running = RunningScript::start(script, self.progress());
        self.script = (!running.is_finished()).then_some(running);
    }

    pub(super) fn is_script_finished(&self) -> bool {
        self.script.is_none()
    }

    pub(super) fn set_target(&mut self, target: SocketAddr) {
        self.target = target;
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    pub(super) fn open(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn moved(&self, direction: Direction) -> u64 {
        self.moved[direction]
    }
}

impl Sockets {
    /// Where the bytes of a direction come from and where they go to.
    fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        match direction {
            Direction::ToServer => (&self.client, &self.server),
            Direction::ToClient => (&self.server, &self.client),
        }
    }

    fn end(self, cut: Cut) {
        for stream in [self.client, self.server] {
            match cut {
                Cut::Close => close(stream),
                Cut::Reset => reset(stream),
            }
        }
    }
}

/// Begins to connect. That it failed shows when the socket is read.
fn connect(target: SocketAddr, client: &TcpStream) -> io::Result<TcpStream> {
    client.set_nonblocking(true)?;
    client.set_nodelay(true)?;
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let server = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&server, &target) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let server = TcpStream::from(server);
    server.set_nodelay(true)?;
    Ok(server)
}

/// Closes in good order.
fn close(mut stream: TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    // Closing with bytes unread would make the system reset the connection.
    let mut unread = [0; 4 * 1024];
    for _ in 0..UNREAD_READS_MAX {
        if !stream.read(&mut unread).is_ok_and(|count| count > 0) {
            return;
        }
    }
}

/// Closes by reset rather than in good order.
fn reset(stream: TcpStream) {
    // With no time to linger, closing throws away what was not sent and resets. Should the option
    // fail, the connection is gone already.
    let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    drop(stream);
}

fn drain(wake: &mut UnixStream) {
    let mut bytes = [0; 64];
    while wake.read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: 3_600, tv_nsec: 0 })
}
