//! Peers against real sockets of this machine.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use mio::{Events, Poll, Waker};

use super::*;
use crate::clock::Running;
use crate::event_loop::{Message, WAKER};

/// Long enough for a busy machine.
const BOUND_MS: u64 = 30_000;

struct World {
    poll: Poll,
    peers: Peers,
    messages: Receiver<Message>,
    running: Running,
}

impl World {
    fn new() -> Self {
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).unwrap());
        let (sender, messages) = channel();
        let peers = Peers::new(Mailbox { messages: sender, waker });
        Self { poll, peers, messages, running: Running::begin() }
    }

    fn dial(&mut self, host: &str, port: u16, timeout_ms: u64) -> PeerId {
        let timeout = Duration::from_millis(timeout_ms);
        let target = Target { host, port, tls: None, timeout };
        self.peers.dial(self.poll.registry(), self.running.millis(), &target)
    }

    /// One turn, as the loop does it.
    fn turn(&mut self) {
        let mut events = Events::with_capacity(16);
        self.poll.poll(&mut events, Some(Duration::from_millis(20))).unwrap();
        let now_ms = self.running.millis();
        while let Ok(message) = self.messages.try_recv() {
            if let Message::Resolved(resolved) = message {
                self.peers.handle_resolved(self.poll.registry(), now_ms, resolved);
            }
        }
        for event in &events {
            if event.token() != WAKER {
                self.peers.handle_event(self.poll.registry(), now_ms, event);
            }
        }
        self.peers.handle_time(self.poll.registry(), now_ms);
    }

    fn event(&mut self) -> PeerEvent {
        let began_ms = self.running.millis();
        loop {
            if let Some(event) = self.peers.poll_event() {
                return event;
            }
            assert!(self.running.millis() - began_ms < BOUND_MS, "nothing became of it");
            self.turn();
        }
    }

    fn open(&mut self, host: &str, port: u16) -> PeerId {
        let id = self.dial(host, port, BOUND_MS);
        match self.event() {
            PeerEvent::Opened(opened) if opened == id => id,
            other => panic!("not opened: {other:?}"),
        }
    }

    fn read(&mut self, id: PeerId, wanted: usize) -> Vec<u8> {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 4096]);
        let began_ms = self.running.millis();
        while bytes.len() < wanted {
            assert!(self.running.millis() - began_ms < BOUND_MS, "{} bytes came", bytes.len());
            match self.peers.read(self.poll.registry(), id, &mut buffer) {
                PeerRead::Bytes(count) => bytes.extend_from_slice(&buffer[..count]),
                PeerRead::Nothing => self.turn(),
            }
        }
        bytes
    }
}

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn a_peer_is_found_by_its_name_and_talked_to() {
    let (listener, port) = listener();
    let mut world = World::new();
    let id = world.open("localhost", port);
    let (mut other, _) = listener.accept().unwrap();
    world.peers.send(world.poll.registry(), id, b"question");
    let mut question = [0; 8];
    other.read_exact(&mut question).unwrap();
    assert_eq!(&question, b"question");
    other.write_all(b"answer").unwrap();
    assert_eq!(world.read(id, 6), b"answer");

    drop(other);
    let mut buffer = [0; 16];
    world.peers.read(world.poll.registry(), id, &mut buffer);
    assert!(matches!(world.event(), PeerEvent::Closed(closed, _) if closed == id));
    assert!(!world.peers.may_read(id), "it is forgotten");
}

#[test]
fn what_cannot_be_reached_is_told_with_a_reason() {
    let (listener, port) = listener();
    drop(listener);
    let mut world = World::new();
    let id = world.dial("127.0.0.1", port, BOUND_MS);
    let PeerEvent::Closed(closed, error) = world.event() else { panic!("nobody is there") };
    assert_eq!((closed, error.kind()), (id, io::ErrorKind::ConnectionRefused));

    let id = world.dial("no-such-host.invalid", port, BOUND_MS);
    assert!(matches!(world.event(), PeerEvent::Closed(closed, _) if closed == id));
}

#[test]
fn a_host_that_never_answers_is_given_up_in_time() {
    // A listener whose queue is full lets the system wait for an answer that does not come.
    let (listener, port) = listener();
    let mut world = World::new();
    let mut waiting = Vec::new();
    let late = loop {
        let id = world.dial("127.0.0.1", port, 300);
        match world.event() {
            PeerEvent::Opened(_) => waiting.push(id),
            PeerEvent::Closed(closed, error) => break (closed == id, error.kind()),
        }
        assert!(waiting.len() < 10_000, "the queue is never full");
    };
    assert_eq!(late, (true, io::ErrorKind::TimedOut));
    drop(listener);
}

#[test]
fn a_peer_that_reads_nothing_holds_a_limited_amount() {
    let (listener, port) = listener();
    let mut world = World::new();
    let id = world.open("127.0.0.1", port);
    let (_other, _) = listener.accept().unwrap();
    let part = vec![b'x'; 64 * 1024];
    for _ in 0..1024 {
        world.peers.send(world.poll.registry(), id, &part);
        if let Some(PeerEvent::Closed(closed, error)) = world.peers.poll_event() {
            assert_eq!(closed, id);
            assert!(error.to_string().contains("does not read"), "{error}");
            return;
        }
    }
    panic!("64 MiB were kept");
}

#[test]
fn nothing_is_told_of_a_connection_that_was_closed() {
    let (_listener, port) = listener();
    let mut world = World::new();
    let id = world.dial("localhost", port, BOUND_MS);
    world.peers.close(world.poll.registry(), id);
    for _ in 0..20 {
        world.turn();
        assert!(world.peers.poll_event().is_none());
    }
}

#[test]
fn the_end_is_found_behind_bytes_that_came_with_it() {
    let (listener, port) = listener();
    let mut world = World::new();
    let id = world.open("127.0.0.1", port);
    let (mut other, _) = listener.accept().unwrap();
    other.write_all(b"last").unwrap();
    drop(other);
    // Both have arrived before anybody looks: one event tells of them.
    assert_eq!(world.read(id, 4), b"last");
    let began_ms = world.running.millis();
    let mut buffer = [0; 16];
    loop {
        assert!(world.running.millis() - began_ms < BOUND_MS, "the end is not noticed");
        if world.peers.may_read(id) {
            world.peers.read(world.poll.registry(), id, &mut buffer);
        }
        if matches!(world.peers.poll_event(), Some(PeerEvent::Closed(closed, _)) if closed == id) {
            return;
        }
        world.turn();
    }
}
