//! Where the store is and who we are there: from words and the environment.

use std::path::PathBuf;
use std::time::Duration;

use store_client::cluster::Node;
use store_resp::Protocol;
use tenure::Secret;
use tenure::backend::redis::{Endpoint, Login, RedisUrl, TlsFiles};

use super::args::Arguments;
use super::error::ClientError;
use crate::exit::Failure;
use crate::local;

const DEFAULT_HOST: &str = "127.0.0.1";
const DEFAULT_PORT: u16 = 6379;

/// Everything a connection needs.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) place: Endpoint,
    pub(super) login: Login,
    pub(super) protocol: Protocol,
    pub(super) connect_within: Duration,
    /// How long an answer may take; commands that block take as long as they like.
    pub(super) answer_within: Option<Duration>,
}

impl Target {
    /// Words win over the environment, and the environment over the default.
    ///
    /// Fails when an address makes no sense; the text never repeats a password.
    pub(super) fn from(arguments: &Arguments) -> Result<Self, ClientError> {
        let (mut place, mut login) = address(arguments)?;
        if arguments.tls {
            place = encrypted(place, arguments)?;
        }
        if matches!(&place, Endpoint::Tcp { tls: Some(tls), .. } if tls.insecure) {
            eprintln!(
                "tenure cli: INSECURE: any certificate is accepted, so anybody on the network path \
                 can read and change everything; name the issuer with --cacert or ?ca=FILE"
            );
        }
        if let Some(user) = &arguments.user {
            login.user = Some(user.clone());
        }
        if let Some(password) = password(arguments)? {
            login.password = Some(password);
        }
        if login.user.is_some() && login.password.is_none() {
            let text = "--user needs a password: set REDISCLI_AUTH, or give --askpass";
            return Err(ClientError::Usage(text.into()));
        }
        if let Some(database) = arguments.database {
            login.database = database;
        }
        let wants_resp3 = arguments.resp3 || (arguments.shape.json && !arguments.resp2);
        Ok(Self {
            place,
            login,
            protocol: if wants_resp3 { Protocol::Resp3 } else { Protocol::Resp2 },
            connect_within: Duration::from_secs(arguments.timeout.max(1)),
            answer_within: None,
        })
    }

    /// The place as nodes of a cluster know it.
    pub(super) fn node(&self) -> Node {
        match &self.place {
            Endpoint::Tcp { host, port, .. } => Node { host: host.clone(), port: *port },
            Endpoint::Unix { .. } => Node { host: DEFAULT_HOST.to_owned(), port: DEFAULT_PORT },
        }
    }

    /// Another node of the cluster, reached in the same way.
    pub(super) fn move_to(&mut self, node: Node) {
        let Node { host, port } = node;
        let tls = match &self.place {
            Endpoint::Tcp { tls, .. } => tls.clone(),
            Endpoint::Unix { .. } => None,
        };
        self.place = Endpoint::Tcp { host, port, tls };
    }

    /// The place as the prompt shows it.
    pub(super) fn name(&self) -> String {
        match &self.place {
            Endpoint::Tcp { .. } => self.node().to_string(),
            Endpoint::Unix { path } => path.display().to_string(),
        }
    }
}

fn address(arguments: &Arguments) -> Result<(Endpoint, Login), ClientError> {
    let url = |text: &str, origin: &str| match RedisUrl::parse(text) {
        Ok(url) => Ok((url.place, url.login)),
        Err(error) => Err(ClientError::Usage(format!("{origin}: {error}"))),
    };
    if let Some(text) = &arguments.url {
        return url(text, "--url");
    }
    if let Some(path) = &arguments.socket {
        return Ok((Endpoint::Unix { path: path.clone() }, Login::default()));
    }
    if arguments.local {
        let unreachable = |failure: Failure| ClientError::NoLocalStore(failure.message);
        let path = local::socket().map_err(unreachable)?;
        return Ok((Endpoint::Unix { path }, Login::default()));
    }
    let is_told = arguments.host.is_some() || arguments.port.is_some();
    match std::env::var("TENURE_STORE") {
        Ok(text) if !is_told && text.trim().is_empty() => Err(ClientError::Usage(
            "TENURE_STORE is empty: write the store's address, such as redis://host, or unset it"
                .into(),
        )),
        Ok(text) if !is_told => url(&text, "TENURE_STORE"),
        _ => {
            let host = arguments.host.clone().unwrap_or_else(|| DEFAULT_HOST.to_owned());
            let port = arguments.port.unwrap_or(DEFAULT_PORT);
            Ok((Endpoint::Tcp { host, port, tls: None }, Login::default()))
        }
    }
}

fn encrypted(place: Endpoint, arguments: &Arguments) -> Result<Endpoint, ClientError> {
    let file = |path: &Option<PathBuf>| path.clone();
    let files = TlsFiles {
        ca: file(&arguments.cacert),
        cert: file(&arguments.cert),
        key: file(&arguments.key),
        insecure: arguments.insecure,
    };
    match place {
        Endpoint::Tcp { host, port, tls: None } => {
            Ok(Endpoint::Tcp { host, port, tls: Some(files) })
        }
        Endpoint::Tcp { .. } => {
            Err(ClientError::Usage("--tls: rediss:// says so already; leave --tls out".into()))
        }
        Endpoint::Unix { .. } => {
            Err(ClientError::Usage("--tls: a unix socket is not encrypted; leave --tls out".into()))
        }
    }
}

fn password(arguments: &Arguments) -> Result<Option<Secret>, ClientError> {
    if arguments.askpass {
        return super::terminal::ask_password("Please input password: ").map(Some);
    }
    if let Some(password) = &arguments.password {
        if !arguments.no_auth_warning {
            eprintln!(
                "tenure cli: a password given with -a is visible in the process list: set \
                 REDISCLI_AUTH or TENURE_STORE instead"
            );
        }
        return Ok(Some(Secret::new(password.as_str())));
    }
    let found = std::env::var("REDISCLI_AUTH").ok().filter(|password| !password.is_empty());
    Ok(found.map(Secret::new))
}
