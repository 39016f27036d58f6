//! Whether an address can work, without opening anything.

use super::ConnectError;
use super::quorum::QuorumAddress;
use super::redis::{AnyAddress, check_files};

/// Looks at an address as a client would that knows no other backends than ours: it is one that we
/// understand, and the files that it names can be read. Whether anybody is there is not asked.
/// Returns the address without logins and files, fit for logs.
///
/// ```
/// # use tenure::backend::check_address;
/// let shown = check_address("redis://app:secret@redis.internal?mode=strict&replicas=1");
/// assert_eq!(shown.unwrap(), "redis://redis.internal:6379/0?mode=strict&replicas=1");
/// assert!(check_address("redis+sentinel://redis.internal").is_err());
/// ```
pub fn check_address(address: &str) -> Result<String, ConnectError> {
    let parsed = Parsed::of(address)?;
    match &parsed {
        Parsed::Redis(address) => address.check_files()?,
        Parsed::Quorum(address) => address.nodes().iter().try_for_each(check_files)?,
        #[cfg(feature = "embedded")]
        Parsed::InThisProcess => {}
    }
    Ok(parsed.shown())
}

/// The address without logins and files, if it is one that we understand.
pub(crate) fn shown_address(address: &str) -> Option<String> {
    Parsed::of(address).ok().map(|parsed| parsed.shown())
}

enum Parsed {
    Redis(AnyAddress),
    Quorum(QuorumAddress),
    #[cfg(feature = "embedded")]
    InThisProcess,
}

impl Parsed {
    fn of(address: &str) -> Result<Self, ConnectError> {
        let address = address.trim();
        #[cfg(feature = "embedded")]
        if address.split(':').next() == Some(super::embedded::SCHEME) {
            return Ok(Parsed::InThisProcess);
        }
        match QuorumAddress::is_meant(address) {
            true => QuorumAddress::parse(address).map(Parsed::Quorum),
            false => AnyAddress::parse(address).map(Parsed::Redis),
        }
    }

    fn shown(&self) -> String {
        match self {
            Parsed::Redis(address) => address.to_string(),
            Parsed::Quorum(address) => address.to_string(),
            #[cfg(feature = "embedded")]
            Parsed::InThisProcess => super::embedded::SCHEME.to_owned(),
        }
    }
}
