//! An address of any kind that leads to Redis, parsed but not opened.

use std::fmt;

use super::cluster::ClusterAddress;
use super::dial::Route;
use super::sentinel::SentinelAddress;
use super::url::RedisUrl;
use tenure_backend::ConnectError;

/// Where a store is.
pub(crate) enum AnyAddress {
    One(RedisUrl),
    Sentinels(SentinelAddress),
    Cluster(ClusterAddress),
}

impl AnyAddress {
    /// Parses an address. Fails with a text that names what is wrong and what may be written.
    pub(crate) fn parse(address: &str) -> Result<Self, ConnectError> {
        if SentinelAddress::is_meant(address) {
            return SentinelAddress::parse(address).map(AnyAddress::Sentinels);
        }
        if ClusterAddress::is_meant(address) {
            return ClusterAddress::parse(address).map(AnyAddress::Cluster);
        }
        RedisUrl::parse(address).map(AnyAddress::One)
    }

    /// Reads the files that it names. Fails when one is missing or unusable.
    pub(crate) fn check_files(&self) -> Result<(), ConnectError> {
        match self {
            AnyAddress::One(url) => check_files(url),
            AnyAddress::Sentinels(address) => address.each().try_for_each(|url| check_files(&url)),
            AnyAddress::Cluster(address) => address.each().try_for_each(|url| check_files(&url)),
        }
    }
}

/// Reads the files that the address of one server names.
pub(crate) fn check_files(url: &RedisUrl) -> Result<(), ConnectError> {
    Route::to(url).map(drop)
}

/// Without logins and files: fit for logs.
impl fmt::Display for AnyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyAddress::One(url) => url.fmt(f),
            AnyAddress::Sentinels(address) => address.fmt(f),
            AnyAddress::Cluster(address) => address.fmt(f),
        }
    }
}
