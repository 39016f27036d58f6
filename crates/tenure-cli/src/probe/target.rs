//! Where the sidecar listens that is to be asked.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use tenure::config::SidecarConfig;

use crate::exit::{self, Failure};

/// An address of this machine or a socket file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    File(PathBuf),
    Address {
        address: SocketAddr,
        /// The certificate that the sidecar shows, where it serves TLS.
        certificate: Option<PathBuf>,
    },
}

impl Target {
    /// The socket file if it listens on one: that needs no certificates, and nobody else can be
    /// there.
    pub(super) fn of(sidecar: &SidecarConfig) -> Result<Self, Failure> {
        let mut address = None;
        for part in sidecar.listen.split(',').map(str::trim) {
            match part.strip_prefix("unix:").filter(|path| !path.is_empty()) {
                Some(path) => return Ok(Target::File(path.into())),
                None => {
                    address = Some(part.parse().map_err(|_| wrong_address(&sidecar.listen))?);
                }
            }
        }
        let address: SocketAddr = address.ok_or_else(|| wrong_address(&sidecar.listen))?;
        if address.port() == 0 {
            let why = "port 0 is a free port that the system chooses: name with --at the one that \
                       the sidecar said at its start";
            return Err(Failure::new(exit::CONFIGURATION, why));
        }
        if sidecar.client_ca_file.is_some() {
            let why = format!(
                "callers have to show a certificate at {address} (sidecar.tls.client_ca_file), and \
                 a probe has none: let the sidecar listen on a socket file as well, as in \
                 --listen {address},unix:/run/tenure.sock"
            );
            return Err(Failure::new(exit::CONFIGURATION, why));
        }
        Ok(Target::Address {
            address: SocketAddr::new(reachable(address.ip()), address.port()),
            certificate: sidecar.cert_file.clone(),
        })
    }
}

/// Where a listener of this address is reached from this machine.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

fn wrong_address(given: &str) -> Failure {
    let why = format!(
        "{given:?} is not an address that a sidecar listens on: write 127.0.0.1:8420, [::1]:8420 \
         or unix:/run/tenure.sock"
    );
    Failure::new(exit::CONFIGURATION, why)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::File(file) => write!(f, "unix:{}", file.display()),
            Target::Address { address, certificate: None } => write!(f, "http://{address}"),
            Target::Address { address, certificate: Some(_) } => write!(f, "https://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(listen: &str) -> Result<String, String> {
        let loader = tenure::config::Loader::new().set(["sidecar", "listen"], listen, "--at");
        let config = loader.load().unwrap();
        Target::of(&config.sidecar).map(|target| target.to_string()).map_err(|why| why.message)
    }

    #[test]
    fn a_socket_file_is_preferred_and_an_address_is_one_of_this_machine() {
        assert_eq!(of("127.0.0.1:8420").unwrap(), "http://127.0.0.1:8420");
        assert_eq!(of("0.0.0.0:9000").unwrap(), "http://127.0.0.1:9000");
        assert_eq!(of("[::]:9000").unwrap(), "http://[::1]:9000");
        assert_eq!(of("10.1.2.3:80").unwrap(), "http://10.1.2.3:80");
        assert_eq!(of("127.0.0.1:8420, unix:/run/t.sock").unwrap(), "unix:/run/t.sock");
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for wrong in ["", "localhost", "8420", "unix:", "http://127.0.0.1:8420", ","] {
            assert!(of(wrong).unwrap_err().contains("127.0.0.1:8420"), "{wrong}");
        }
        assert!(of("127.0.0.1:0").unwrap_err().contains("--at"));
    }
}
