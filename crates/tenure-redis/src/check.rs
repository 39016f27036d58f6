//! Whether an address can work, without opening anything.

use tenure_backend::ConnectError;

use crate::any::{AnyAddress, check_files};
use crate::quorum::QuorumAddress;

/// Looks at an address as a client would: it is one that we understand, and the files that it names
/// can be read. Whether anybody is there is not asked. Returns the address without logins and
/// files, fit for logs.
pub fn check_address(address: &str) -> Result<String, ConnectError> {
    let parsed = Parsed::of(address)?;
    match &parsed {
        Parsed::Redis(address) => address.check_files()?,
        Parsed::Quorum(address) => address.nodes().iter().try_for_each(check_files)?,
    }
    Ok(parsed.shown())
}

/// The address without logins and files, if it is one that we understand.
pub fn shown_address(address: &str) -> Option<String> {
    Parsed::of(address).ok().map(|parsed| parsed.shown())
}

enum Parsed {
    Redis(AnyAddress),
    Quorum(QuorumAddress),
}

impl Parsed {
    fn of(address: &str) -> Result<Self, ConnectError> {
        let address = address.trim();
        match QuorumAddress::is_meant(address) {
            true => QuorumAddress::parse(address).map(Parsed::Quorum),
            false => AnyAddress::parse(address).map(Parsed::Redis),
        }
    }

    fn shown(&self) -> String {
        match self {
            Parsed::Redis(address) => address.to_string(),
            Parsed::Quorum(address) => address.to_string(),
        }
    }
}
