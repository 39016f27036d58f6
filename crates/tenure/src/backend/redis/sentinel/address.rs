//! `redis+sentinel://[user:password@]host[:port],host[:port],…/master[/db]`

use std::fmt;

use crate::backend::redis::mode::{Mode, ModeOptions};
use crate::backend::redis::node::Node;
use crate::backend::redis::url::{
    self, Host, Login, Place, RedisUrl, Suffix, TlsFiles, parse_credentials, parse_database,
    parse_query,
};
use crate::backend::{ConnectError, Secret};

/// The address as people write it, for messages.
const FORM: &str = "redis+sentinel://[user:password@]host1,host2,host3/master-name[/db] \
                    (rediss+sentinel:// for TLS; ?sentinel_user= and ?sentinel_password= for the \
                    sentinels' own login)";
const SENTINEL_PORT: u16 = 26_379;
/// More sentinels than anybody runs: an address is asked as a whole at each connect.
const SENTINELS_MAX: usize = 31;

/// A parsed address.
#[derive(Clone, Debug)]
pub(in crate::backend::redis) struct SentinelAddress {
    sentinels: Vec<RedisUrl>,
    /// The name under which the sentinels watch the master.
    pub(super) master: String,
    /// Who logs in to the master, and to which database.
    pub(super) login: Login,
    tls: Option<TlsFiles>,
    mode: Mode,
}

impl SentinelAddress {
    /// Whether an address is meant for this parser.
    pub(in crate::backend::redis) fn is_meant(address: &str) -> bool {
        address.split_once("://").is_some_and(|(scheme, _)| {
            ["redis+sentinel", "rediss+sentinel"].contains(&scheme.to_ascii_lowercase().as_str())
        })
    }

    /// Parses an address. No error repeats a part in which a password could stand.
    pub(in crate::backend::redis) fn parse(address: &str) -> Result<Self, ConnectError> {
        parse(address.trim()).map_err(ConnectError::Address)
    }

    /// The sentinels, each with their login.
    pub(super) fn sentinels(&self) -> &[RedisUrl] {
        &self.sentinels
    }

    /// The address of a server that the sentinels named.
    pub(super) fn master_at(&self, node: &Node) -> RedisUrl {
        RedisUrl {
            place: Place::network(node.host.clone(), node.port, self.tls.clone()),
            login: self.login.clone(),
            mode: self.mode,
        }
    }

    /// How far a grant must have got before it counts.
    pub(in crate::backend::redis) fn mode(&self) -> Mode {
        self.mode
    }

    /// What a person should know before using this address.
    pub(in crate::backend::redis) fn warning(&self) -> Option<String> {
        self.sentinels.first().and_then(RedisUrl::warning)
    }
}

/// Without logins and files: fit for logs.
impl fmt::Display for SentinelAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "rediss+sentinel" } else { "redis+sentinel" };
        write!(f, "{scheme}://")?;
        for (index, sentinel) in self.sentinels.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match &sentinel.place {
                Place::Tcp { host, port } | Place::Tls { host, port, .. } => {
                    write!(f, "{comma}{}:{port}", Host(host))?;
                }
                Place::Unix { .. } => unreachable!("the parser makes no such sentinel"),
            }
        }
        let mode = Suffix(self.mode, '?');
        write!(f, "/{}/{}{mode}", self.master, self.login.database)
    }
}

fn parse(address: &str) -> Result<SentinelAddress, String> {
    let (scheme, rest) = address.split_once("://").ok_or_else(|| format!("write {FORM}"))?;
    let is_encrypted = scheme.eq_ignore_ascii_case("rediss+sentinel");
    let parts = url::Parts::split(rest)?;
    let mut login = parse_credentials(parts.credentials)?;
    let master = master_and_database(parts.path, &mut login)?;
    let mut sentinel_login = Login::default();
    let mut tls =
        TlsFiles { insecure: url::parse_fragment(parts.fragment)?, ..TlsFiles::default() };
    let mut mode = ModeOptions::default();
    for (name, value) in parse_query(parts.query)? {
        match name.as_str() {
            _ if mode.take(&name, &value)? => {}
            "db" => login.database = parse_database(&value)?,
            "sentinel_user" => sentinel_login.user = Some(value),
            "sentinel_password" => sentinel_login.password = Some(Secret::new(value)),
            _ if tls.take_option(&name, &value) => {
                if !is_encrypted {
                    return Err(format!("?{name}= needs rediss+sentinel://"));
                }
            }
            _ => return Err(url::unknown_option(&name, FORM)),
        }
    }
    if sentinel_login.user.is_some() && sentinel_login.password.is_none() {
        return Err("?sentinel_user= needs ?sentinel_password=".into());
    }
    if tls.insecure && !is_encrypted {
        return Err("#insecure needs rediss+sentinel://".into());
    }
    let tls = is_encrypted.then_some(tls.checked()?);
    let sentinels = sentinels(parts.hosts, &sentinel_login, tls.as_ref())?;
    Ok(SentinelAddress { sentinels, master, login, tls, mode: mode.checked()? })
}

fn master_and_database(path: &str, login: &mut Login) -> Result<String, String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (master, database) = path.split_once('/').unwrap_or((path, ""));
    if !database.is_empty() {
        login.database = parse_database(database)?;
    }
    let master = url::decoded(master)?;
    match master.is_empty() || master.contains(char::is_whitespace) {
        true => Err(format!("the name of the master is missing: write {FORM}")),
        false => Ok(master),
    }
}

fn sentinels(hosts: &str, login: &Login, tls: Option<&TlsFiles>) -> Result<Vec<RedisUrl>, String> {
    let mut sentinels: Vec<RedisUrl> = Vec::new();
    for host in hosts.split(',') {
        let (host, port) = url::parse_host(host, SENTINEL_PORT)?;
        let place = Place::network(host, port, tls.cloned());
        let sentinel = RedisUrl { place, login: login.clone(), mode: Mode::default() };
        if sentinels.contains(&sentinel) {
            return Err(format!("the sentinel {sentinel} stands there twice: name each once"));
        }
        sentinels.push(sentinel);
    }
    match sentinels.len() > SENTINELS_MAX {
        true => Err(format!("more than {SENTINELS_MAX} sentinels")),
        false => Ok(sentinels),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_understood() {
        let text = "rediss+sentinel://app:s%40crt@a,b:7000,[::1]:7001/main/3?ca=/ca.pem\
                    &sentinel_user=watch&sentinel_password=other";
        let address = SentinelAddress::parse(text).unwrap();
        assert_eq!(address.to_string(), "rediss+sentinel://a:26379,b:7000,[::1]:7001/main/3");
        assert_eq!(address.master, "main");
        assert_eq!(address.login.password.as_ref().unwrap().reveal(), "s@crt");
        let sentinel = &address.sentinels()[1];
        assert_eq!(sentinel.login.user.as_deref(), Some("watch"));
        let master = address.master_at(&Node { host: "10.0.0.7".into(), port: 6380 });
        assert_eq!(master.to_string(), "rediss://10.0.0.7:6380/3");
        assert!(!format!("{address:?} {address}").contains("s@crt"));
    }

    #[test]
    fn a_bad_address_says_what_to_write_and_keeps_the_secret() {
        let cases = [
            ("redis+sentinel://u:c4nary@a,b", "name of the master is missing"),
            ("redis+sentinel://u:c4nary@/main", "host is missing"),
            ("redis+sentinel://a,a:26379/main", "twice"),
            ("redis+sentinel://a,b:x/main", "port is not"),
            ("redis+sentinel://a/main?ca=/x", "needs rediss+sentinel://"),
            ("redis+sentinel://a/main#insecure", "needs rediss+sentinel://"),
            ("redis+sentinel://a/main?sentinel_user=x", "sentinel_password"),
            ("redis+sentinel://a/main?pool=4", "unknown option \"pool\""),
            ("redis+sentinel://a/main/x", "database"),
        ];
        for (address, expected) in cases {
            let error = SentinelAddress::parse(address).unwrap_err().to_string();
            assert!(error.contains(expected), "{address}: {error}");
            assert!(!error.contains("c4nary"), "{address}: {error}");
        }
    }
}
