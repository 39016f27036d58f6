//! Messages to bytes.

use super::{
    EXTENSION_HEAD_LEN, EXTENSION_HOSTNAME, HEADER_LEN, IP_LEN, MAGIC, MFLAG_EXTENSIONS,
    MFLAG_FORCED, MFLAG_PAUSED, VERSION, kind,
};
use crate::id::NodeId;
use crate::message::{Address, Body, Gossip, Header, Message};

/// The bytes of a message.
pub fn encode(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + 512);
    let gossip = match &message.body {
        Body::Ping(gossip) | Body::Pong(gossip) | Body::Meet(gossip) => gossip.as_slice(),
        _ => &[],
    };
    let hostname = message.header.hostname.as_deref().filter(|_| carries_gossip(&message.body));
    put_head(&mut bytes, message, gossip.len(), hostname.is_some());
    gossip.iter().for_each(|entry| put_gossip(&mut bytes, entry));
    if let Some(name) = hostname {
        put_hostname(&mut bytes, name);
    }
    put_body(&mut bytes, &message.body);
    let len = (bytes.len() as u32).to_be_bytes();
    bytes[4..8].copy_from_slice(&len);
    bytes
}

fn carries_gossip(body: &Body) -> bool {
    matches!(body, Body::Ping(_) | Body::Pong(_) | Body::Meet(_))
}

fn put_head(bytes: &mut Vec<u8>, message: &Message, gossip_count: usize, is_extended: bool) {
    let header = &message.header;
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    put_u16(bytes, VERSION);
    put_u16(bytes, header.address.port);
    put_u16(bytes, kind_of(&message.body));
    put_u16(bytes, gossip_count as u16);
    bytes.extend_from_slice(&header.current_epoch.to_be_bytes());
    bytes.extend_from_slice(&header.config_epoch.to_be_bytes());
    bytes.extend_from_slice(&header.offset.to_be_bytes());
    bytes.extend_from_slice(&header.sender.text());
    header.slots.write_wire(bytes);
    bytes.extend_from_slice(&header.master.map_or([0; 40], |master: NodeId| master.text()));
    put_ip(bytes, &header.address);
    put_u16(bytes, u16::from(is_extended));
    bytes.extend_from_slice(&[0; 30]);
    put_u16(bytes, header.address.plain_port);
    put_u16(bytes, header.address.bus_port);
    put_u16(bytes, header.flags.0);
    bytes.push(u8::from(!header.is_ok));
    bytes.extend_from_slice(&[message_flags(header, is_extended), 0, 0]);
}

fn message_flags(header: &Header, is_extended: bool) -> u8 {
    let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    flag(header.is_paused, MFLAG_PAUSED)
        | flag(header.is_forced, MFLAG_FORCED)
        | flag(is_extended, MFLAG_EXTENSIONS)
}

/// The number of a message's kind on the wire.
pub fn kind_of(body: &Body) -> u16 {
    match body {
        Body::Ping(_) => kind::PING,
        Body::Pong(_) => kind::PONG,
        Body::Meet(_) => kind::MEET,
        Body::Fail(_) => kind::FAIL,
        Body::Publish(publication) if publication.is_sharded => kind::PUBLISH_SHARD,
        Body::Publish(_) => kind::PUBLISH,
        Body::AuthRequest => kind::AUTH_REQUEST,
        Body::AuthAck => kind::AUTH_ACK,
        Body::Update(_) => kind::UPDATE,
        Body::ManualStart => kind::MANUAL_START,
        Body::Other(number) => *number,
    }
}

fn put_gossip(bytes: &mut Vec<u8>, entry: &Gossip) {
    bytes.extend_from_slice(&entry.id.text());
    bytes.extend_from_slice(&entry.ping_sent.to_be_bytes());
    bytes.extend_from_slice(&entry.pong_received.to_be_bytes());
    put_ip(bytes, &entry.address);
    put_u16(bytes, entry.address.port);
    put_u16(bytes, entry.address.bus_port);
    put_u16(bytes, entry.flags.0);
    put_u16(bytes, entry.address.plain_port);
    put_u16(bytes, 0);
}

fn put_hostname(bytes: &mut Vec<u8>, name: &str) {
    let padded = (name.len() + 1).next_multiple_of(8);
    bytes.extend_from_slice(&((EXTENSION_HEAD_LEN + padded) as u32).to_be_bytes());
    put_u16(bytes, EXTENSION_HOSTNAME);
    put_u16(bytes, 0);
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(bytes.len() + padded - name.len(), 0);
}

fn put_body(bytes: &mut Vec<u8>, body: &Body) {
    match body {
        Body::Fail(id) => bytes.extend_from_slice(&id.text()),
        Body::Publish(publication) => {
            bytes.extend_from_slice(&(publication.channel.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&(publication.message.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&publication.channel);
            bytes.extend_from_slice(&publication.message);
        }
        Body::Update(update) => {
            bytes.extend_from_slice(&update.config_epoch.to_be_bytes());
            bytes.extend_from_slice(&update.id.text());
            update.slots.write_wire(bytes);
        }
        _ => {}
    }
}

/// Text of an address; what does not fit was refused when it came in.
fn put_ip(bytes: &mut Vec<u8>, address: &Address) {
    let text = address.ip.as_bytes();
    let len = text.len().min(IP_LEN - 1);
    bytes.extend_from_slice(&text[..len]);
    bytes.resize(bytes.len() + IP_LEN - len, 0);
}

fn put_u16(bytes: &mut Vec<u8>, number: u16) {
    bytes.extend_from_slice(&number.to_be_bytes());
}
