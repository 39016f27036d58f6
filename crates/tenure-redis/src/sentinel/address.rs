//! `redis+sentinel://[user:password@]host[:port],host[:port],…/master[/db]`

use std::fmt;

use crate::address::{Access, Form, decoded};
use crate::mode::Mode;
use crate::node::{Node, Nodes};
use crate::url::{Login, RedisUrl, Suffix};
use tenure_backend::{ConnectError, Secret};

/// How a primary behind sentinels is written.
static FORM: Form = Form {
    schemes: ["redis+sentinel", "rediss+sentinel"],
    text: "redis+sentinel://[user:password@]host1,host2,host3/master-name[/db] (rediss+sentinel:// \
           for TLS; ?sentinel_user= and ?sentinel_password= for the sentinels' own login)",
    host: "sentinel",
    port: 26_379,
};

/// A parsed address.
#[derive(Clone, Debug)]
pub(crate) struct SentinelAddress {
    sentinels: Vec<Node>,
    sentinel_access: Access,
    /// The name under which the sentinels watch the primary.
    pub(super) master: String,
    access: Access,
}

impl SentinelAddress {
    /// Whether an address is meant for this parser.
    pub(crate) fn is_meant(address: &str) -> bool {
        FORM.is_meant(address)
    }

    /// Parses an address. No error repeats a part in which a password could stand.
    pub(crate) fn parse(address: &str) -> Result<Self, ConnectError> {
        parse(address).map_err(ConnectError::Address)
    }

    /// The sentinels.
    pub(super) fn sentinels(&self) -> &[Node] {
        &self.sentinels
    }

    /// The address of a sentinel.
    pub(super) fn sentinel_at(&self, node: &Node) -> RedisUrl {
        self.sentinel_access.to(node)
    }

    /// The addresses of all sentinels.
    pub(crate) fn each(&self) -> impl Iterator<Item = RedisUrl> {
        self.sentinels.iter().map(|sentinel| self.sentinel_at(sentinel))
    }

    /// The address of a server that the sentinels named.
    pub(super) fn master_at(&self, node: &Node) -> RedisUrl {
        self.access.to(node)
    }

    /// Who logs in to the primary, and to which database.
    pub(super) fn login(&self) -> &Login {
        &self.access.login
    }

    /// How far a grant must have got before it counts.
    pub(crate) fn mode(&self) -> Mode {
        self.access.mode
    }

    /// What a person should know before using this address.
    pub(crate) fn warning(&self) -> Option<String> {
        self.sentinels.first().and_then(|sentinel| self.sentinel_at(sentinel).warning())
    }
}

/// Without logins and files: fit for logs.
impl fmt::Display for SentinelAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Access { login, tls, mode } = &self.access;
        let scheme = FORM.schemes[usize::from(tls.is_some())];
        write!(f, "{scheme}://{}/{}/", Nodes(&self.sentinels), self.master)?;
        write!(f, "{}{}", login.database, Suffix(*mode, '?'))
    }
}

fn parse(address: &str) -> Result<SentinelAddress, String> {
    let mut parts = FORM.parse(address)?;
    let (master, database) = parts.path.split_once('/').unwrap_or((&parts.path, ""));
    let master = decoded(master)?;
    if master.is_empty() || master.contains(char::is_whitespace) {
        return Err(format!("the master name is missing: write {}", FORM.text));
    }
    let database = parts.options.take_database(database)?;
    let access = Access {
        login: Login { database, ..parts.login()? },
        tls: parts.tls.clone(),
        mode: parts.options.take_mode()?,
    };
    let sentinel_login = Login {
        user: parts.options.take("sentinel_user"),
        password: parts.options.take("sentinel_password").map(Secret::new),
        database: 0,
    };
    if sentinel_login.user.is_some() && sentinel_login.password.is_none() {
        return Err("?sentinel_user= needs ?sentinel_password=".into());
    }
    parts.no_more_options()?;
    let sentinels = parts.nodes()?;
    let sentinel_access = Access { login: sentinel_login, tls: parts.tls, mode: Mode::default() };
    Ok(SentinelAddress { sentinels, sentinel_access, master, access })
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
        assert_eq!(address.login().password.as_ref().unwrap().reveal(), "s@crt");
        let sentinel = address.sentinel_at(&address.sentinels()[1]);
        assert_eq!(sentinel.login.user.as_deref(), Some("watch"));
        let master = address.master_at(&Node { host: "10.0.0.7".into(), port: 6380 });
        assert_eq!(master.to_string(), "rediss://10.0.0.7:6380/3");
        assert!(!format!("{address:?} {address}").contains("s@crt"));
    }

    #[test]
    fn a_bad_address_says_what_to_write_and_keeps_the_secret() {
        let cases = [
            ("redis+sentinel://u:c4nary@a,b", "master name is missing"),
            ("redis+sentinel://u:c4nary@/main", "host is missing"),
            ("redis+sentinel://a,a:26379/main", "twice"),
            ("redis+sentinel://a,b:x/main", "port is not"),
            ("redis+sentinel://a,u:c4nary@b/main", "one login counts for all sentinels"),
            ("redis+sentinel://a\nb/main", "control characters"),
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
