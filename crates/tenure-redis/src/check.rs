//! Whether an address can work, without opening anything.

use tenure_backend::ConnectError;

use crate::any::{AnyAddress, check_files};
use crate::quorum::QuorumAddress;

/// Checks an address without opening anything: it must be well formed, and the files that it names
/// must be readable. Returns the address without logins and files, for logs.
pub fn check_address(address: &str) -> Result<String, ConnectError> {
    let parsed = Parsed::of(address)?;
    match &parsed {
        Parsed::Redis(address) => address.check_files()?,
        Parsed::Quorum(address) => address.nodes().iter().try_for_each(check_files)?,
    }
    Ok(parsed.shown())
}

/// The address without logins and files, if it is well formed.
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
