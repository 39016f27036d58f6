//! One of several nodes: what an address says about it, and what it says about itself.

use redis::Value;
use tenure_core::StoreError;

use super::dial::{Route, field};
use super::error;
use super::mode::Mode;
use super::url::{self, DEFAULT_PORT, Login, Place, RedisUrl, TlsFiles};

/// The part of an address after the scheme that names several servers alike.
pub(in crate::backend) struct QuorumParts<'a> {
    pub(in crate::backend) rest: &'a str,
    pub(in crate::backend) is_encrypted: bool,
    /// What may be written, for messages.
    pub(in crate::backend) form: &'a str,
}

impl QuorumParts<'_> {
    /// The servers, each with its login. A login before the first counts for all without one.
    pub(in crate::backend) fn nodes(&self) -> Result<Vec<RedisUrl>, String> {
        let parts = url::Parts::split(self.rest)?;
        let tls = self.options(&parts)?;
        let authority = match parts.credentials {
            "" => parts.hosts.to_owned(),
            credentials => format!("{credentials}@{}", parts.hosts),
        };
        let mut nodes = Vec::new();
        let mut shared: Option<Login> = None;
        for node in authority.split(',') {
            let (credentials, host) = node.rsplit_once('@').unwrap_or(("", node));
            let (host, port) = url::parse_host(host, DEFAULT_PORT)?;
            let mut login = url::parse_credentials(credentials)?;
            match &shared {
                Some(shared) if credentials.is_empty() => login.clone_from(shared),
                Some(_) => {}
                None => shared = Some(login.clone()),
            }
            login.database = self.database(&parts)?;
            let place = match tls.clone() {
                Some(tls) => Place::Tls { host, port, tls },
                None => Place::Tcp { host, port },
            };
            nodes.push(RedisUrl { place, login, mode: Mode::Available });
        }
        Ok(nodes)
    }

    fn database(&self, parts: &url::Parts<'_>) -> Result<u32, String> {
        let in_path = parts.path.strip_prefix('/').filter(|database| !database.is_empty());
        let options = url::parse_query(parts.query)?;
        let in_query = options.iter().find(|(name, _)| name == "db").map(|(_, db)| db.as_str());
        in_query.or(in_path).map_or(Ok(0), url::parse_database)
    }

    fn options(&self, parts: &url::Parts<'_>) -> Result<Option<TlsFiles>, String> {
        let insecure = url::parse_fragment(parts.fragment)?;
        let mut tls = TlsFiles { insecure, ..TlsFiles::default() };
        for (name, value) in url::parse_query(parts.query)? {
            match name.as_str() {
                "db" => {}
                "mode" | "replicas" => {
                    return Err(format!(
                        "?{name}= does not go with several nodes, which are a mode of their own: \
                         write {}",
                        self.form
                    ));
                }
                _ if tls.take_option(&name, &value) => {
                    if !self.is_encrypted {
                        return Err(format!("?{name}= needs rediss+quorum://"));
                    }
                }
                _ => return Err(url::unknown_option(&name, self.form)),
            }
        }
        match (self.is_encrypted, tls.insecure) {
            (true, _) => Ok(Some(tls.checked()?)),
            (false, true) => Err("#insecure needs rediss+quorum://".into()),
            (false, false) => Ok(None),
        }
    }
}

/// What a server says about itself. Empty where it may not be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::backend) struct NodeFacts {
    /// Its run id: the same for the same process, whatever it is called.
    pub(in crate::backend) run: String,
    /// `standalone`, `cluster` or `sentinel`.
    pub(in crate::backend) kind: String,
    pub(in crate::backend) is_replica: bool,
}

/// Looks at a server once.
pub(in crate::backend) async fn look_at(url: &RedisUrl) -> Result<NodeFacts, StoreError> {
    let route = Route::to(url).map_err(|error| StoreError::Unexpected(error.to_string()))?;
    let looking = async {
        let mut line = route.open_unchecked().await?;
        let mut facts = NodeFacts::default();
        for section in ["server", "replication"] {
            let mut question = redis::cmd("INFO");
            question.arg(section);
            let reply = line.connection.send_packed_command(&question).await;
            let text = match reply.map_err(|error| error::from_connection(&error))? {
                Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Value::VerbatimString { text, .. } => text,
                _ => continue,
            };
            facts.is_replica |= field(&text, "role").is_some_and(|role| role == "slave");
            let run = field(&text, "run_id").unwrap_or(&facts.run).to_owned();
            let kind = field(&text, "redis_mode").unwrap_or(&facts.kind).to_owned();
            facts = NodeFacts { run, kind, ..facts };
        }
        Ok(facts)
    };
    route.in_time(looking).await
}
