//! Replicas' connections at a server: what they ask, and what they are sent.

use std::collections::VecDeque;

use store_replica::SessionId;
use store_resp::{Limits, OwnedRequest, Parsed, RequestParser};

use super::flaw::Flaw;
use super::server::{Outgoing, Peer, Server};
use super::world::World;
use crate::network::{ConnectionId, Host, Side};

/// The request that a flawed replica leaves out when it writes the stream anew.
const PING: &[u8] = b"*1\r\n$4\r\nping\r\n";

impl World {
    pub(crate) fn accept(&mut self, host: Host, connection: ConnectionId) {
        if !self.network.accept(connection, &mut self.queue, &mut self.random) {
            return;
        }
        let session = self.new_session();
        let peer = Peer {
            connection,
            unparsed: Vec::new(),
            parser: RequestParser::default(),
            out: VecDeque::new(),
            payload: None,
            payload_sent: 0,
        };
        self.servers[host].peers.insert(session, peer);
    }

    pub(crate) fn close_peer(&mut self, host: Host, session: SessionId) {
        if let Some(peer) = self.servers[host].peers.remove(&session) {
            let (queue, random) = (&mut self.queue, &mut self.random);
            self.network.close(peer.connection, Side::Listener, queue, random);
        }
    }

    /// A connection is over at this end.
    pub(crate) fn connection_ended(&mut self, host: Host, id: ConnectionId, at: Side) {
        let server = &mut self.servers[host];
        let now = server.now(self.queue.now());
        if at == Side::Dialer && server.upstream == Some(id) {
            server.upstream = None;
            server.read_ahead.clear();
            server.link.queued = None;
            server.replication.handle_link_down(now);
        }
        let session = server.peers.iter().find(|(_, peer)| peer.connection == id);
        if let Some(session) = session.map(|(session, _)| *session) {
            server.peers.remove(&session);
            server.replication.handle_session_closed(now, session);
        }
    }

    pub(crate) fn read_peers(&mut self, host: Host) {
        let sessions: Vec<SessionId> = self.servers[host].peers.keys().copied().collect();
        for session in sessions {
            let Some(peer) = self.servers[host].peers.get_mut(&session) else { continue };
            let bytes = self.network.read(peer.connection, Side::Listener);
            if bytes.is_empty() {
                continue;
            }
            peer.unparsed.extend(bytes);
            self.run_requests(host, session);
            self.carry_out(host);
        }
    }

    fn run_requests(&mut self, host: Host, session: SessionId) {
        let server = &mut self.servers[host];
        let now = server.now(self.queue.now());
        while let Some(peer) = server.peers.get_mut(&session) {
            match peer.parser.parse(&peer.unparsed, &Limits::default()) {
                Ok(Parsed::Request { consumed }) => {
                    let request = peer.parser.request(&peer.unparsed).to_owned();
                    peer.unparsed.drain(..consumed);
                    peer.parser.clear();
                    server.answer(now, session, request);
                }
                Ok(Parsed::Empty { consumed }) => {
                    peer.unparsed.drain(..consumed);
                    server.replication.handle_newline(now, session);
                }
                Ok(Parsed::Incomplete) => return,
                Err(error) => panic!("a replica sent nonsense: {error}"),
            }
        }
    }

    /// Writes to replicas as much as their connections take.
    pub(crate) fn pump(&mut self, host: Host) {
        self.forget_readers_out_of_size(host);
        let sessions: Vec<SessionId> = self.servers[host].peers.keys().copied().collect();
        for session in sessions {
            while self.pump_once(host, session) {}
        }
        let server = &mut self.servers[host];
        let is_read = |ticket| server.peers.values().any(|peer| peer.payload == Some(ticket));
        server.outgoing.retain(|outgoing| !outgoing.is_made || is_read(outgoing.ticket));
    }

    /// Sends one stretch of bytes. Whether there may be more.
    fn pump_once(&mut self, host: Host, session: SessionId) -> bool {
        let server = &mut self.servers[host];
        let now = server.now(self.queue.now());
        let Some(peer) = server.peers.get_mut(&session) else { return false };
        let end = (peer.connection, Side::Listener);
        let room = self.network.room(end.0, end.1);
        if room == 0 {
            return false;
        }
        let its_own = |outgoing: &&Outgoing| peer.payload == Some(outgoing.ticket);
        let outgoing = server.outgoing.iter().find(its_own);
        let bytes: Vec<u8> = if !peer.out.is_empty() {
            let len = room.min(peer.out.len());
            peer.out.drain(..len).collect()
        } else if let Some(outgoing) = outgoing {
            let may_have = if outgoing.is_made || outgoing.is_diskless { room } else { 0 };
            let rest = &outgoing.bytes[peer.payload_sent..];
            let bytes = rest[..may_have.min(rest.len())].to_vec();
            peer.payload_sent += bytes.len();
            if outgoing.is_made && peer.payload_sent == outgoing.bytes.len() {
                peer.payload = None;
                server.replication.handle_payload_sent(now, session);
            } else {
                server.replication.handle_progress(now, session);
            }
            bytes
        } else {
            let part = server.replication.stream_for(session);
            let bytes = part[..room.min(part.len())].to_vec();
            server.replication.handle_stream_written(session, bytes.len());
            server.as_a_flawed_replica_writes_it(bytes)
        };
        let is_more = !bytes.is_empty();
        self.network.send(end, &bytes, &mut self.queue, &mut self.random);
        self.carry_out(host);
        is_more
    }

    /// The flaw: whoever still reads what is older than the backlog's size loses its place.
    fn forget_readers_out_of_size(&mut self, host: Host) {
        let server = &mut self.servers[host];
        if !server.has(Flaw::TrimUnderReader) {
            return;
        }
        let size = server.settings().backlog_size as u64;
        let lost: Vec<SessionId> = server
            .replication
            .replicas()
            .iter()
            .filter(|replica| replica.unsent(server.replication.history().offset()) > size)
            .map(|replica| replica.session())
            .collect();
        let now = server.now(self.queue.now());
        for session in lost {
            self.servers[host].replication.handle_session_closed(now, session);
            self.close_peer(host, session);
        }
        self.carry_out(host);
    }
}

impl Server {
    fn answer(&mut self, now: store_replica::Moment, session: SessionId, request: OwnedRequest) {
        let words = request.as_request();
        let is_loading = self.loading.is_some();
        let text: &[u8] = match words.arg(0) {
            b"PING" => b"+PONG\r\n",
            b"PSYNC" if is_loading => b"-LOADING Redis is loading the dataset in memory\r\n",
            b"PSYNC" => {
                let request = self.as_a_flawed_primary_reads_it(request);
                self.replication.handle_psync(now, session, request.as_request());
                self.remember_id();
                self.repeat_stale_ack(now, session);
                b""
            }
            b"SYNC" => {
                self.replication.handle_sync(now, session);
                b""
            }
            _ => {
                self.replication.handle_replconf(now, session, words);
                self.remember_ack(session);
                b""
            }
        };
        if let Some(peer) = self.peers.get_mut(&session) {
            peer.out.extend(text);
        }
    }

    /// The flaws of accepting: a name that no longer holds is taken for the current one.
    fn as_a_flawed_primary_reads_it(&self, request: OwnedRequest) -> OwnedRequest {
        let words = request.as_request();
        let history = self.replication.history();
        let is_second = history.second().is_some_and(|s| s.id.as_str().as_bytes() == words.arg(1));
        let is_old = self.old_ids.iter().any(|id| id.as_str().as_bytes() == words.arg(1));
        let is_taken = self.has(Flaw::SecondIdUnbounded) && is_second
            || self.has(Flaw::KeepIdWithoutBacklog) && is_old;
        if !is_taken {
            return request;
        }
        let id = history.id();
        let args = words.args_from(2);
        OwnedRequest::from_args([&b"PSYNC"[..], id.as_str().as_bytes()].into_iter().chain(args))
    }

    /// Names that this primary's history had before writes went uncounted.
    pub(crate) fn remember_id(&mut self) {
        let id = self.replication.history().id();
        if self.has(Flaw::KeepIdWithoutBacklog) && self.old_ids.last() != Some(&id) {
            self.old_ids.push(id);
        }
    }

    fn remember_ack(&mut self, session: SessionId) {
        let mut replicas = self.replication.replicas().iter();
        let replica = replicas.find(|r| r.session() == session && r.acked() > 0);
        if let Some(replica) = replica.filter(|_| self.flaw == Some(Flaw::CountStaleAcks)) {
            let seen = self.seen_acks.entry(replica.address()).or_default();
            *seen = replica.acked().max(*seen);
        }
    }

    fn repeat_stale_ack(&mut self, now: store_replica::Moment, session: SessionId) {
        let replica = self.replication.replicas().iter().find(|r| r.session() == session);
        let seen = replica.and_then(|replica| self.seen_acks.get(&replica.address()));
        if let Some(seen) = seen.filter(|_| self.flaw == Some(Flaw::CountStaleAcks)) {
            let offset = (*seen).min(self.replication.history().offset()).to_string();
            let words = [&b"REPLCONF"[..], b"ACK", offset.as_bytes()];
            let request = OwnedRequest::from_args(words);
            self.replication.handle_replconf(now, session, request.as_request());
        }
    }

    /// The flaw: a replica writes the stream anew, without what changes nothing.
    fn as_a_flawed_replica_writes_it(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.has(Flaw::FeedOwnEncoding) && !self.replication.is_primary() {
            while let Some(at) = bytes.windows(PING.len()).position(|part| part == PING) {
                bytes.drain(at..at + PING.len());
            }
        }
        bytes
    }
}
