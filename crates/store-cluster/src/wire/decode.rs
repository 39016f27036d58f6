//! Bytes to messages. Nothing here trusts its input.

use std::sync::Arc;

use super::{
    EXTENSION_HEAD_LEN, EXTENSION_HOSTNAME, GOSSIP_LEN, HEADER_LEN, HOSTNAME_MAX, IP_LEN, MAGIC,
    MFLAG_EXTENSIONS, MFLAG_FORCED, MFLAG_PAUSED, VERSION, kind,
};
use crate::config::EPOCH_READ_MAX;
use crate::id::{ID_TEXT_LEN, NodeId};
use crate::message::{
    Address, Body, Flags, Gossip, Header, Message, Publication, Update as SlotUpdate,
};
use crate::slots::{SLOT_BYTES, SlotSet};

/// What comes over a link is not the bus: close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It does not begin as packets do.
    #[error("not a packet of the cluster bus: it does not begin with RCmb")]
    Magic,
    /// It says that it is shorter than its head or longer than anything that is taken.
    #[error("a packet of {0} bytes: less than a head, or over the limit")]
    Length(u32),
}

/// A packet that is dropped; the link stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Of another version of the protocol.
    #[error("version {0} of the bus is not known")]
    Version(u16),
    /// Its length is not that of its content.
    #[error("a packet of kind {kind} has a wrong length")]
    Length {
        /// Which kind.
        kind: u16,
    },
    /// A node's name is not 40 hexadecimal digits.
    #[error("a node's name is not 40 hexadecimal digits")]
    Id,
    /// An epoch that no cluster ever reaches: one more would not fit.
    #[error("epoch {0} is beyond all that there are")]
    Epoch(u64),
    /// An address or host name is no text.
    #[error("an address or host name is not text")]
    Text,
}

/// How long the packet is that begins here; `None` until its first eight bytes are there. A packet
/// over `len_max` is refused before anything is kept for it.
pub fn packet_len(bytes: &[u8], len_max: u32) -> Result<Option<usize>, LinkError> {
    let Some(start) = bytes.first_chunk::<8>() else {
        let is_like_it =
            MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) || bytes.starts_with(MAGIC);
        return if is_like_it { Ok(None) } else { Err(LinkError::Magic) };
    };
    if !start.starts_with(MAGIC) {
        return Err(LinkError::Magic);
    }
    let len = u32::from_be_bytes([start[4], start[5], start[6], start[7]]);
    match (HEADER_LEN as u32..=len_max).contains(&len) {
        true => Ok(Some(len as usize)),
        false => Err(LinkError::Length(len)),
    }
}

/// Reads a whole packet.
pub fn decode(packet: &[u8]) -> Result<Message, DecodeError> {
    let mut reader = Reader { rest: packet, kind: u16::MAX };
    reader.take(8)?;
    let version = reader.u16()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let port = reader.u16()?;
    let kind = reader.u16()?;
    reader.kind = kind;
    let gossip_count = reader.u16()?;
    let (header, extension_count) = header(&mut reader, port)?;
    let mut message = Message { header, body: Body::Other(kind) };
    message.body = match kind {
        kind::PING | kind::PONG | kind::MEET => {
            let entries =
                (0..gossip_count).map(|_| gossip(&mut reader)).collect::<Result<Vec<_>, _>>()?;
            message.header.hostname = extensions(&mut reader, extension_count)?;
            match kind {
                kind::PING => Body::Ping(entries),
                kind::PONG => Body::Pong(entries),
                _ => Body::Meet(entries),
            }
        }
        kind::FAIL => Body::Fail(reader.id()?),
        kind::PUBLISH | kind::PUBLISH_SHARD => publication(&mut reader)?,
        kind::AUTH_REQUEST => Body::AuthRequest,
        kind::AUTH_ACK => Body::AuthAck,
        kind::UPDATE => Body::Update(update(&mut reader)?),
        kind::MANUAL_START => Body::ManualStart,
        _ => return Ok(message),
    };
    if reader.rest.is_empty() { Ok(message) } else { Err(DecodeError::Length { kind }) }
}

/// The head behind its first 16 bytes, and how many extensions follow.
fn header(reader: &mut Reader<'_>, port: u16) -> Result<(Header, u16), DecodeError> {
    let (current_epoch, config_epoch, offset) = (reader.epoch()?, reader.epoch()?, reader.u64()?);
    let sender = reader.id()?;
    let slots = reader.slots()?;
    let master = reader.optional_id()?;
    let ip = reader.ip()?;
    let extension_count = reader.u16()?;
    reader.take(30)?;
    let (plain_port, bus_port) = (reader.u16()?, reader.u16()?);
    let flags = Flags(reader.u16()?);
    let is_ok = reader.take(1)?[0] == 0;
    let message_flags = reader.take(3)?[0];
    let has = |flag: u8| message_flags & flag != 0;
    let header = Header {
        sender,
        current_epoch,
        config_epoch,
        offset,
        slots,
        master,
        address: Address { ip, port, plain_port, bus_port },
        flags,
        is_ok,
        is_paused: has(MFLAG_PAUSED),
        is_forced: has(MFLAG_FORCED),
        hostname: None,
    };
    Ok((header, if has(MFLAG_EXTENSIONS) { extension_count } else { 0 }))
}

fn gossip(reader: &mut Reader<'_>) -> Result<Gossip, DecodeError> {
    let mut entry = Reader { rest: reader.take(GOSSIP_LEN)?, kind: reader.kind };
    let id = entry.id()?;
    let (ping_sent, pong_received) = (entry.u32()?, entry.u32()?);
    let ip = entry.ip()?;
    let (port, bus_port) = (entry.u16()?, entry.u16()?);
    let flags = Flags(entry.u16()?);
    let plain_port = entry.u16()?;
    let address = Address { ip, port, plain_port, bus_port };
    Ok(Gossip { id, ping_sent, pong_received, address, flags })
}

/// The host name, if one of the extensions is one. Unknown ones are skipped.
fn extensions(reader: &mut Reader<'_>, count: u16) -> Result<Option<Arc<str>>, DecodeError> {
    let mut hostname = None;
    for _ in 0..count {
        let len = reader.u32()? as usize;
        let kind = reader.u16()?;
        reader.take(2)?;
        let is_whole = len >= EXTENSION_HEAD_LEN && len.is_multiple_of(8);
        let data_len = len.checked_sub(EXTENSION_HEAD_LEN).filter(|_| is_whole);
        let data = reader.take(data_len.ok_or(DecodeError::Length { kind: reader.kind })?)?;
        if kind == EXTENSION_HOSTNAME {
            hostname = hostname_of(data)?;
        }
    }
    Ok(hostname)
}

fn hostname_of(data: &[u8]) -> Result<Option<Arc<str>>, DecodeError> {
    let name = text(data)?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if name.len() > HOSTNAME_MAX || !name.bytes().all(is_name) {
        return Err(DecodeError::Text);
    }
    Ok(Some(name).filter(|name| !name.is_empty()).map(Arc::from))
}

fn publication(reader: &mut Reader<'_>) -> Result<Body, DecodeError> {
    let is_sharded = reader.kind == kind::PUBLISH_SHARD;
    let (channel_len, message_len) = (reader.u32()? as usize, reader.u32()? as usize);
    let channel = Arc::from(reader.take(channel_len)?);
    let message = Arc::from(reader.take(message_len)?);
    Ok(Body::Publish(Publication { channel, message, is_sharded }))
}

fn update(reader: &mut Reader<'_>) -> Result<SlotUpdate, DecodeError> {
    let config_epoch = reader.epoch()?;
    let id = reader.id()?;
    Ok(SlotUpdate { id, config_epoch, slots: reader.slots()? })
}

struct Reader<'a> {
    rest: &'a [u8],
    kind: u16,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) =
            self.rest.split_at_checked(len).ok_or(DecodeError::Length { kind: self.kind })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(self.take(N)?.try_into().expect("as long as was asked for"))
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn epoch(&mut self) -> Result<u64, DecodeError> {
        let epoch = self.u64()?;
        if epoch <= EPOCH_READ_MAX { Ok(epoch) } else { Err(DecodeError::Epoch(epoch)) }
    }

    fn id(&mut self) -> Result<NodeId, DecodeError> {
        NodeId::parse(self.take(ID_TEXT_LEN)?).ok_or(DecodeError::Id)
    }

    /// Zeros name nobody.
    fn optional_id(&mut self) -> Result<Option<NodeId>, DecodeError> {
        let text = self.take(ID_TEXT_LEN)?;
        match text.iter().all(|byte| *byte == 0) {
            true => Ok(None),
            false => NodeId::parse(text).map(Some).ok_or(DecodeError::Id),
        }
    }

    fn slots(&mut self) -> Result<Arc<SlotSet>, DecodeError> {
        Ok(Arc::new(SlotSet::from_wire(&self.array::<SLOT_BYTES>()?)))
    }

    fn ip(&mut self) -> Result<Arc<str>, DecodeError> {
        let ip = text(self.take(IP_LEN)?)?;
        // It becomes part of lines in nodes.conf and of replies to clients.
        let is_ip = |byte: u8| byte.is_ascii_alphanumeric() || b".:%-_".contains(&byte);
        if ip.bytes().all(is_ip) { Ok(Arc::from(ip)) } else { Err(DecodeError::Text) }
    }
}

/// Text up to the first zero.
fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    let len = bytes.iter().position(|byte| *byte == 0).ok_or(DecodeError::Text)?;
    str::from_utf8(&bytes[..len]).map_err(|_| DecodeError::Text)
}
