//! Whether an address can work, without opening anything.

use super::{ConnectError, address, postgres_address};

/// Checks an address without opening anything: Tenure must know its scheme, and the files that it
/// names must be readable. Returns the address without logins and files, for logs.
///
/// ```
/// # use tenure::backend::check_address;
/// let shown = check_address("redis://app:secret@redis.internal?mode=strict&replicas=1");
/// assert_eq!(shown.unwrap(), "redis://redis.internal:6379/0?mode=strict&replicas=1");
/// assert!(check_address("redis+sentinel://redis.internal").is_err());
/// ```
pub fn check_address(address: &str) -> Result<String, ConnectError> {
    #[cfg(feature = "embedded")]
    if is_embedded(address) {
        return Ok(super::embedded::SCHEME.to_owned());
    }
    match is_postgres(address) {
        true => postgres_address::check_address(address),
        false => address::check_address(address),
    }
}

/// The address without logins and files, if it is one that we understand.
pub(crate) fn shown_address(address: &str) -> Option<String> {
    #[cfg(feature = "embedded")]
    if is_embedded(address) {
        return Some(super::embedded::SCHEME.to_owned());
    }
    match is_postgres(address) {
        true => postgres_address::shown_address(address),
        false => address::shown_address(address),
    }
}

fn is_postgres(address: &str) -> bool {
    let scheme = address.trim().split(':').next().unwrap_or_default();
    postgres_address::SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

#[cfg(feature = "embedded")]
fn is_embedded(address: &str) -> bool {
    address.trim().split(':').next() == Some(super::embedded::SCHEME)
}
