//! Sockets and certificates, shared by the loop that uses them and by CONFIG SET that changes
//! them.
//!
//! CONFIG SET runs inside the engine and must be refused when a port is taken. So new sockets
//! are bound while it runs, and the loop fetches them when its turn has come that far.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store_engine::{Config, ListenSettings, SettingRefused};

use crate::listen::{ListenAddress, ListenError, Listener, listen_tcp};
use crate::tls::{TlsDialer, TlsError, TlsSlot};

/// Ports to listen on; 0 stands for one that the system chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) tcp: Option<u16>,
    pub(crate) tls: Option<u16>,
}

/// New listeners, and where old ones stay.
#[derive(Debug)]
pub(crate) struct ListenerChange {
    ports: Ports,
    pub(crate) kept: Vec<ListenAddress>,
    pub(crate) new: Vec<Listener>,
}

#[derive(Debug, Default)]
struct Listening {
    /// Where the server listens or is about to.
    addresses: Vec<ListenAddress>,
    /// The ports that are wanted, also while `bind` names no address.
    ports: Ports,
    /// Whether it listened on a port when it started.
    is_open: bool,
    change: Option<ListenerChange>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sockets {
    pub(crate) tls: TlsSlot,
    pub(crate) dialer: TlsDialer,
    listening: Arc<Mutex<Listening>>,
}

impl Sockets {
    /// Listens for the first time.
    pub(crate) fn open(&self, config: &Config, ports: Ports) -> Result<Vec<Listener>, OpenError> {
        let change = listen(config, ports, &[])?;
        if ports.tls.is_some() || config.settings().tls.encrypts_bus {
            self.tls.load(config)?;
        }
        self.dialer.load(config)?;
        let mut listening = self.lock();
        listening.addresses = change.new.iter().map(|listener| listener.address.clone()).collect();
        listening.ports = ports_of(&listening.addresses);
        listening.is_open = ports != Ports::default();
        Ok(change.new)
    }

    /// Follows changed settings. When one cannot be followed, nothing has changed.
    pub(crate) fn follow(&self, before: &Config, after: &Config) -> Result<(), SettingRefused> {
        let (old, new) = (before.settings(), after.settings());
        let changed = match (&old.listen, &new.listen) {
            (old, new) if old.port != new.port => Some("port"),
            (old, new) if old.tls_port != new.tls_port => Some("tls-port"),
            (old, new) if old.addresses != new.addresses => Some("bind"),
            _ => None,
        };
        let mut listening = self.lock();
        let change = match changed {
            Some(name) => Some(relisten(&listening, before, after, name)?),
            None => None,
        };
        let is_other_tls = old.tls != new.tls || old.listen.tls_port != new.listen.tls_port;
        let refused = |error: TlsError| SettingRefused {
            setting: error.setting,
            reason: error.reason,
            log: None,
        };
        if (new.listen.tls_port > 0 || new.tls.encrypts_bus) && is_other_tls {
            self.tls.load(after).map_err(refused)?;
        }
        if is_other_tls {
            self.dialer.load(after).map_err(refused)?;
        }
        if let Some(change) = change {
            listening.accept(change);
        }
        Ok(())
    }

    /// What the loop has to do about its listeners, once.
    pub(crate) fn take_change(&self) -> Option<ListenerChange> {
        self.lock().change.take()
    }

    /// The ports in use: plain, and TLS.
    pub(crate) fn ports(&self) -> Ports {
        ports_of(&self.lock().addresses)
    }

    fn lock(&self) -> MutexGuard<'_, Listening> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listening {
    fn accept(&mut self, change: ListenerChange) {
        self.ports = change.ports;
        self.addresses = change.kept.clone();
        self.addresses.extend(change.new.iter().map(|listener| listener.address.clone()));
        let mut change = change;
        // Sockets of a change that the loop has not seen yet.
        let unseen = self.change.take().map_or_else(Vec::new, |earlier| earlier.new);
        change.new.extend(unseen.into_iter().filter(|old| change.kept.contains(&old.address)));
        self.change = Some(change);
    }
}

/// Why the server cannot begin to listen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

fn ports_of(addresses: &[ListenAddress]) -> Ports {
    let mut ports = Ports::default();
    for address in addresses {
        match address {
            ListenAddress::Tcp(address) => ports.tcp = Some(address.port()),
            ListenAddress::Tls(address) => ports.tls = Some(address.port()),
            ListenAddress::Unix(_) => {}
        }
    }
    ports
}

/// Ports that did not change stay those in use, which the system may have chosen.
fn relisten(
    listening: &Listening,
    before: &Config,
    after: &Config,
    name: &'static str,
) -> Result<ListenerChange, SettingRefused> {
    /// Addresses that Redis listens on.
    const ADDRESSES_MAX: usize = 16;
    let refuse =
        |reason: &str, log| Err(SettingRefused { setting: name, reason: reason.to_owned(), log });
    if after.settings().listen.addresses.len() > ADDRESSES_MAX {
        return refuse("Too many bind addresses specified.", None);
    }
    let used = listening.ports;
    if !listening.is_open {
        return refuse("this server listens nowhere", None);
    }
    let port = |of: fn(&ListenSettings) -> u16, used: Option<u16>| {
        let (old, new) = (of(&before.settings().listen), of(&after.settings().listen));
        match new {
            port if port == old => used,
            0 => None,
            port => Some(port),
        }
    };
    let ports = Ports {
        tcp: port(|listen| listen.port, used.tcp),
        tls: port(|listen| listen.tls_port, used.tls),
    };
    listen(after, ports, &listening.addresses).or_else(|error| {
        let reason = match name {
            "bind" => "Failed to bind to specified addresses.",
            _ => "Unable to listen on this port. Check server logs.",
        };
        refuse(reason, Some(error.to_string()))
    })
}

fn listen(
    config: &Config,
    ports: Ports,
    taken: &[ListenAddress],
) -> Result<ListenerChange, ListenError> {
    let mut change = ListenerChange { ports, kept: Vec::new(), new: Vec::new() };
    let plain = (ports.tcp, ListenAddress::Tcp as fn(_) -> _);
    for (port, address_at) in [plain, (ports.tls, ListenAddress::Tls)] {
        if let Some(port) = port {
            let (kept, new) = listen_tcp(config, port, address_at, taken)?;
            change.kept.extend(kept);
            change.new.extend(new);
        }
    }
    Ok(change)
}
