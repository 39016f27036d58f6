//! A sentinel in a turn of the loop: connections are read, time passes, and what the machine asks
//! for is done in order.

use std::time::Duration;

use store_engine::{LogLevel, SentinelRequest, SessionId};
use store_replica::Address;
use store_sentinel::{AdminRequest, Event, Level, LinkId, Output, Question};

use super::EventLoop;
use crate::peers::{PeerEvent, PeerRead, Target};
use crate::sentinel::{SentinelDriver, Written, log_level};

/// Read at once from one connection.
const READ_LEN: usize = 16 * 1024;
/// How long a connection may take to open; one that does not is tried again.
const DIAL_MAX: Duration = Duration::from_secs(10);
/// What SENTINEL SIMULATE-FAILURE ends the process with.
const SIMULATED_EXIT: i32 = 99;

impl EventLoop {
    /// One pass for the sentinel, before what requests caused is done.
    pub(super) fn turn_sentinel(&mut self) {
        let Some(mut driver) = self.sentinel.take() else { return };
        self.hear_peers(&mut driver);
        if let Some((level, line)) = driver.pass_time() {
            self.log(level, &line);
        }
        self.obey_sentinel(&mut driver);
        self.sentinel = Some(driver);
    }

    /// How long nothing is due for the sentinel. A connection that was not read to its end is.
    pub(super) fn sentinel_wait_ms(&self) -> Option<u64> {
        let driver = self.sentinel.as_ref()?;
        let has_more = self.peers.readable().any(|peer| driver.of_peers.contains_key(&peer));
        Some(if has_more { 0 } else { driver.wakes_in_ms() })
    }

    /// The file was written, or cannot be.
    pub(super) fn sentinel_file_written(&mut self, written: Written) {
        let Some(mut driver) = self.sentinel.take() else { return };
        if let Some((level, line)) = driver.file_written(written) {
            self.log(level, &line);
        }
        self.obey_sentinel(&mut driver);
        self.sentinel = Some(driver);
    }

    /// A session asks.
    pub(super) fn ask_sentinel(&mut self, id: SessionId, request: SentinelRequest) {
        let Some(mut driver) = self.sentinel.take() else { return };
        let now = driver.now();
        match request {
            SentinelRequest::Command(request) => {
                let words: Vec<&[u8]> = request.as_request().args_from(1).collect();
                let Some(session) = self.engine.session_mut(id) else {
                    self.sentinel = Some(driver);
                    return;
                };
                let protocol = session.protocol;
                let session = store_replica::SessionId(id.number);
                driver.ask(id, AdminRequest { session, protocol, words: &words });
            }
            SentinelRequest::Hello(text) => {
                driver.machine.handle_hello(now, &text);
                self.engine.answer_waiting(id, b":1\r\n");
            }
            SentinelRequest::Tell => {
                let facts = self.engine.sentinel_facts_mut();
                facts.info = driver.machine.info(now);
                facts.names = driver.machine.groups().map(|it| it.name().to_owned()).collect();
                self.engine.ask_again(self.now_us, id);
            }
        }
        self.obey_sentinel(&mut driver);
        self.sentinel = Some(driver);
    }

    fn hear_peers(&mut self, driver: &mut SentinelDriver) {
        self.take_link_events(driver);
        let mut buffer = std::mem::take(&mut driver.buffer);
        buffer.resize(READ_LEN, 0);
        let readable = self.peers.readable().filter_map(|peer| driver.of_peers.get(&peer).copied());
        for id in readable.collect::<Vec<LinkId>>() {
            self.read_link_of_sentinel(driver, id, &mut buffer);
        }
        driver.buffer = buffer;
        self.take_link_events(driver);
    }

    fn take_link_events(&mut self, driver: &mut SentinelDriver) {
        while let Some(event) = self.peers.poll_event() {
            let now = driver.now();
            match event {
                PeerEvent::Opened(peer) => {
                    let Some(id) = driver.of_peers.get(&peer).copied() else { continue };
                    let Some((own, other)) = self.peers.hosts(peer) else { continue };
                    if let Some(link) = driver.links.get(&id) {
                        driver.machine.handle_name(&link.host, &other);
                    }
                    let listens = &self.engine.config().settings().listen.addresses;
                    if let Some(advice) = driver.advise_on_bind(&own, listens) {
                        self.log(LogLevel::Warning, &advice);
                    }
                    driver.machine.handle_link_up(now, id, &own);
                }
                PeerEvent::Closed(peer, _) => {
                    let Some(id) = driver.of_peers.get(&peer).copied() else { continue };
                    driver.forget(id);
                    driver.machine.handle_link_down(now, id);
                }
            }
        }
    }

    /// Reads once in a turn: one connection cannot keep the others waiting.
    fn read_link_of_sentinel(
        &mut self,
        driver: &mut SentinelDriver,
        id: LinkId,
        buffer: &mut [u8],
    ) {
        let Some(peer) = driver.links.get(&id).map(|link| link.peer) else { return };
        let read = self.peers.read(self.poll.registry(), peer, buffer);
        let PeerRead::Bytes(len) = read else { return };
        let now = driver.now();
        match driver.take_bytes(id, &buffer[..len]) {
            Ok(replies) => {
                for reply in &replies {
                    driver.machine.handle_reply(now, id, reply);
                }
            }
            Err(()) => self.drop_link(driver, id),
        }
    }

    /// Closes a connection from here.
    fn drop_link(&mut self, driver: &mut SentinelDriver, id: LinkId) {
        if let Some(peer) = driver.forget(id) {
            self.peers.close(self.poll.registry(), peer);
        }
        let now = driver.now();
        driver.machine.handle_link_down(now, id);
    }

    /// Does what the machine asks for, in order, until it only waits.
    fn obey_sentinel(&mut self, driver: &mut SentinelDriver) {
        while let Some(output) = driver.next_output() {
            match output {
                Output::Persist(text) => driver.file.write(driver.now(), text),
                Output::WaitUntil(_) => {}
                Output::Dial { link, address } => self.dial_for_sentinel(driver, link, &address),
                Output::Send { link, question } => self.send_question(driver, link, question),
                Output::Close(link) => {
                    if let Some(peer) = driver.forget(link) {
                        self.peers.close(self.poll.registry(), peer);
                    }
                }
                Output::Answer { session, answer } => {
                    self.answer_session(driver, session, &answer.encode());
                }
                Output::Reply { session, bytes } => self.answer_session(driver, session, &bytes),
                Output::StartScript { id, words } => {
                    if let Some(process) = driver.scripts.start(id, &words) {
                        driver.machine.handle_script_start(id, process);
                    }
                }
                Output::KillScript(id) => driver.scripts.kill(id),
                Output::Crash => self.crash(),
                Output::Advise(line) => self.log(LogLevel::Warning, &line),
                Output::Tell(event) => self.tell_event(&event),
            }
        }
    }

    fn dial_for_sentinel(&mut self, driver: &mut SentinelDriver, link: LinkId, address: &Address) {
        let dialer = &self.shared.sockets.dialer;
        let is_encrypted = self.engine.config().settings().tls.encrypts_replication;
        let tls = is_encrypted.then(|| dialer.clone());
        let (host, port) = (&address.host, address.port);
        let target = Target { host, port, tls, timeout: DIAL_MAX };
        let peer = self.peers.dial(self.poll.registry(), self.running.millis(), &target);
        driver.open(link, peer, address.host.clone());
    }

    fn send_question(&mut self, driver: &mut SentinelDriver, id: LinkId, question: Question) {
        let Some(peer) = driver.links.get(&id).map(|link| link.peer) else { return };
        let bytes = driver.machine.encode(id, &question);
        self.peers.send(self.poll.registry(), peer, &bytes);
    }

    fn answer_session(
        &mut self,
        driver: &mut SentinelDriver,
        session: store_replica::SessionId,
        bytes: &[u8],
    ) {
        if let Some(id) = driver.take_session(session) {
            self.engine.answer_waiting(id, bytes);
        }
    }

    fn tell_event(&mut self, event: &Event) {
        let (name, level) = (event.kind.name(), event.kind.level());
        self.log(log_level(level), &format!("{name} {}", event.text));
        if level > Level::Debug {
            self.engine.publish(name.as_bytes(), event.text.as_bytes());
        }
    }

    /// An operator asked for it by SENTINEL SIMULATE-FAILURE.
    fn crash(&mut self) {
        let line = "Sentinel CRASH because of SENTINEL simulate-failure";
        self.log(LogLevel::Warning, line);
        std::process::exit(SIMULATED_EXIT);
    }
}
