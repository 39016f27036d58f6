//! Hellos: how sentinels find each other and hear of newer configurations.

use store_replica::Address;

use crate::settings::RunId;

/// The channel, on every server and at every sentinel.
pub const HELLO_CHANNEL: &str = "__sentinel__:hello";

/// Longer hellos are not read.
const LEN_MAX: usize = 1024;

/// What a sentinel says about itself and one of its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Where it is.
    pub address: Address,
    /// Who it is.
    pub id: RunId,
    /// The greatest epoch that it knows.
    pub current_epoch: u64,
    /// Which group.
    pub group: String,
    /// Where the group's primary is.
    pub primary: Address,
    /// Since which epoch it is there.
    pub config_epoch: u64,
}

impl Hello {
    /// Reads eight fields between commas. `None` when they are malformed.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > LEN_MAX {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        let fields: Vec<&str> = text.split(',').collect();
        let [ip, port, id, current_epoch, group, primary_ip, primary_port, config_epoch] =
            fields[..]
        else {
            return None;
        };
        Some(Self {
            address: address(ip, port)?,
            id: RunId::parse(id.as_bytes())?,
            current_epoch: current_epoch.parse().ok()?,
            group: group.to_owned(),
            primary: address(primary_ip, primary_port)?,
            config_epoch: config_epoch.parse().ok()?,
        })
    }

    /// As it is published.
    pub fn to_text(&self) -> String {
        let Hello { address, id, current_epoch, group, primary, config_epoch } = self;
        format!(
            "{},{},{id},{current_epoch},{group},{},{},{config_epoch}",
            address.host, address.port, primary.host, primary.port
        )
    }
}

/// An address that can be dialled, kept in a file and said in a hello; `None` for any other.
pub(crate) fn address(host: &str, port: &str) -> Option<Address> {
    const HOST_MAX: usize = 255;
    let is_usable = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b':' | b'-' | b'_');
    let is_host = !host.is_empty() && host.len() <= HOST_MAX && host.bytes().all(is_usable);
    let port: u16 = port.parse().ok()?;
    (is_host && port != 0).then(|| Address { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_reads_back_as_it_was_written() {
        let text = "10.0.0.9,26379,abc,12,mymaster,10.0.0.1,6379,11";
        assert_eq!(Hello::parse(text.as_bytes()).unwrap().to_text(), text);
    }

    #[test]
    fn malformed_hellos_are_none() {
        let texts = [
            "",
            "10.0.0.9,26379,abc,12,mymaster,10.0.0.1,6379",
            "10.0.0.9,26379,abc,12,mymaster,10.0.0.1,6379,11,12",
            "10.0.0.9,0,abc,12,mymaster,10.0.0.1,6379,11",
            "10.0.0.9,26379,a c,12,mymaster,10.0.0.1,6379,11",
            "10.0.0.9,26379,abc,-1,mymaster,10.0.0.1,6379,11",
            "10.0.0.9,26379,abc,12,mymaster,10.0.0.1\r\n,6379,11",
        ];
        for text in texts {
            assert_eq!(Hello::parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
