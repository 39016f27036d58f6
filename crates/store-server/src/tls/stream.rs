//! One encrypted stream, in non-blocking mode.

use std::io::{self, Read, Write};

use mio::net::TcpStream;
use rustls::Connection;

/// One side of a connection. Reads and writes move the handshake along.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: TcpStream,
    connection: Connection,
    /// The end or the failure that came behind bytes which were returned first.
    ending: Option<io::Result<usize>>,
    /// Whether something was written before the handshake was done.
    holds_output: bool,
}

impl TlsStream {
    pub(super) fn new(socket: TcpStream, connection: Connection) -> Self {
        Self { socket, connection, ending: None, holds_output: false }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether bytes that were taken have not reached the socket yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.connection.wants_write() || self.holds_output
    }

    /// Whether the next read has an answer without an event.
    pub(crate) fn has_ended(&self) -> bool {
        self.ending.is_some()
    }

    /// Sends what waits. `WouldBlock` when the socket takes no more.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut self.socket)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.holds_output &= self.connection.is_handshaking();
        Ok(())
    }

    /// Takes the next bytes from the socket. `Ok(false)` at its end.
    fn receive(&mut self) -> io::Result<bool> {
        if self.connection.read_tls(&mut self.socket)? == 0 {
            return Ok(false);
        }
        let processed = self.connection.process_new_packets();
        // Answers of the handshake, or the alert that says what was wrong.
        let sent = self.send();
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        match sent {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(true),
        }
    }

    /// Reads once; `WouldBlock` only when the socket is empty.
    fn read_once(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Clients often go without saying so; what they sent is whole or is not.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if !self.receive()? {
                return Ok(0);
            }
        }
    }
}

impl Read for TlsStream {
    /// Fills the buffer as far as the socket goes, so that a short read means, as with plain
    /// sockets, that an event will tell of more.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(ending) = self.ending.take() {
            return ending;
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_once(&mut buffer[filled..]) {
                Ok(count) if count > 0 => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                ending if filled == 0 => return ending,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                ending => {
                    self.ending = Some(ending);
                    break;
                }
            }
        }
        Ok(filled)
    }
}

impl Write for TlsStream {
    /// Takes as much as rustls keeps, 64 KiB; `WouldBlock` when it keeps that much already and the
    /// socket takes no more, so that an event will tell when it does.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let taken = self.connection.writer().write(bytes)?;
            self.holds_output = self.connection.is_handshaking();
            match self.send() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => {
                    return Ok(taken);
                }
                Err(error) => return Err(error),
                Ok(()) if taken > 0 || bytes.is_empty() => return Ok(taken),
                // Kept until the handshake is done, and no more fits.
                Ok(()) if self.holds_output => return Err(io::ErrorKind::WouldBlock.into()),
                // There was no room before, and is now.
                Ok(()) => {}
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

impl Drop for TlsStream {
    /// Says goodbye, as far as the socket takes it.
    fn drop(&mut self) {
        if !self.connection.is_handshaking() {
            self.connection.send_close_notify();
            let _ = self.send();
        }
    }
}
