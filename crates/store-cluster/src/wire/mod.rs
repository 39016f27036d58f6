//! Packets of the bus, byte for byte as redis-server 7.0 writes them.
//!
//! [`packet_len`] finds where a packet ends, [`decode`] reads it, [`encode`] writes one. All
//! integers are big-endian.

mod decode;
mod encode;

pub use decode::{DecodeError, LinkError, decode, packet_len};
pub use encode::{encode, kind_of};

/// How every packet begins.
const MAGIC: &[u8; 4] = b"RCmb";
/// The version of the protocol.
const VERSION: u16 = 1;
/// Bytes before the body.
pub const HEADER_LEN: usize = 2256;
/// Bytes of an entry of gossip.
pub const GOSSIP_LEN: usize = 104;
/// Bytes of an address as text, padded with zeros.
const IP_LEN: usize = 46;
/// Bytes before the data of an extension.
const EXTENSION_HEAD_LEN: usize = 8;
/// The extension that carries a host name.
const EXTENSION_HOSTNAME: u16 = 0;
/// The longest name that DNS knows.
pub const HOSTNAME_MAX: usize = 255;

const MFLAG_PAUSED: u8 = 1;
const MFLAG_FORCED: u8 = 2;
const MFLAG_EXTENSIONS: u8 = 4;

/// How CLUSTER INFO calls the kinds of packets, by their numbers.
pub const KIND_NAMES: [&str; 11] = [
    "ping",
    "pong",
    "meet",
    "fail",
    "publish",
    "auth-req",
    "auth-ack",
    "update",
    "mfstart",
    "module",
    "publishshard",
];

/// Numbers of the kinds of packets.
mod kind {
    pub(super) const PING: u16 = 0;
    pub(super) const PONG: u16 = 1;
    pub(super) const MEET: u16 = 2;
    pub(super) const FAIL: u16 = 3;
    pub(super) const PUBLISH: u16 = 4;
    pub(super) const AUTH_REQUEST: u16 = 5;
    pub(super) const AUTH_ACK: u16 = 6;
    pub(super) const UPDATE: u16 = 7;
    pub(super) const MANUAL_START: u16 = 8;
    pub(super) const PUBLISH_SHARD: u16 = 10;
}
