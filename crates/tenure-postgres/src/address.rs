//! The address of a PostgreSQL store, parsed once:
//! `postgres://USER[:PASSWORD]@HOST[:PORT],…/DATABASE[?option=value&…]`
//!
//! Its options are those of libpq as far as they mean something here; what does not is refused with
//! the reason. No error text repeats a part of the address that could be a password.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tenure_backend::{ConnectError, Secret, nearest};

use crate::text::cleaned;

/// What an address may look like, for messages.
pub(crate) const FORM: &str = "postgres://USER[:PASSWORD]@HOST[:PORT],…/DATABASE[?sslmode=…]";
const DEFAULT_PORT: u16 = 5432;
/// More hosts than anybody names: each is tried in turn.
const HOSTS_MAX: usize = 15;
/// The longest `connect_timeout`, in seconds: longer waits help no election.
const CONNECT_TIMEOUT_MAX: u64 = 60;

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresUrl {
    /// Servers of one database, of which one takes writes. At least one.
    pub hosts: Vec<PostgresHost>,
    /// The role.
    pub user: String,
    /// Its password, if there is one.
    pub password: Option<Secret>,
    /// The database.
    pub database: String,
    /// How connections are encrypted.
    pub tls: TlsMode,
    /// What must have happened before a grant counts.
    pub mode: Mode,
    /// How long opening a connection to one host may take, if the address says so.
    pub connect_timeout: Option<Duration>,
    /// What `pg_stat_activity` shows.
    pub application_name: String,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum PostgresHost {
    /// A host in a network.
    Tcp { host: String, port: u16 },
    /// A unix socket: the folder in which it is, and the port that is in its name.
    Unix { folder: PathBuf, port: u16 },
}

impl fmt::Display for PostgresHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PostgresHost::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            PostgresHost::Tcp { host, port } => write!(f, "{host}:{port}"),
            PostgresHost::Unix { folder, port } => {
                write!(f, "{}:{port}", folder.display().to_string().replace('/', "%2F"))
            }
        }
    }
}

/// `sslmode`, and the files that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsMode {
    /// What must hold.
    pub verify: Verify,
    /// Certificates of the authorities to trust; the system's without.
    pub root: Option<PathBuf>,
    /// The client's own certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// What `sslmode` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verify {
    /// `disable`: no encryption.
    Plain,
    /// `prefer`: encryption if the server has it, with any certificate.
    Prefer,
    /// `require`: encryption with any certificate.
    Require,
    /// `verify-ca`: a certificate of a trusted authority.
    Authority,
    /// `verify-full`: one that is for this host, too.
    Full,
}

impl Verify {
    fn word(self) -> &'static str {
        match self {
            Verify::Plain => "disable",
            Verify::Prefer => "prefer",
            Verify::Require => "require",
            Verify::Authority => "verify-ca",
            Verify::Full => "verify-full",
        }
    }
}

/// What must have happened before a grant counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The primary has it on disk.
    #[default]
    Available,
    /// The standbys that `synchronous_standby_names` asks for have it, too.
    Strict,
}

impl PostgresUrl {
    /// Parses an address. The error names what is wrong and what may be written.
    pub fn parse(address: &str) -> Result<Self, ConnectError> {
        parse(address.trim()).map_err(ConnectError::Address)
    }

    /// What a person should know before using this address.
    pub(crate) fn warning(&self) -> Option<String> {
        let is_unchecked =
            matches!(self.tls.verify, Verify::Plain | Verify::Prefer | Verify::Require);
        let is_remote = self.hosts.iter().any(is_remote);
        (is_unchecked && is_remote && self.password.is_some()).then(|| {
            format!(
                "{self}: sslmode={} lets anybody on the network path read and change everything; \
                 write sslmode=verify-full",
                self.tls.verify.word()
            )
        })
    }
}

fn is_remote(host: &PostgresHost) -> bool {
    match host {
        PostgresHost::Unix { .. } => false,
        PostgresHost::Tcp { host, .. } => {
            let address = host.parse::<std::net::IpAddr>();
            !(host == "localhost" || address.is_ok_and(|address| address.is_loopback()))
        }
    }
}

/// Without user, password and files: fit for logs.
impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        for (index, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if index == 0 { "" } else { "," })?;
        }
        write!(f, "/{}", cleaned(&self.database))?;
        let mode = (self.mode == Mode::Strict).then(|| "mode=strict".to_owned());
        let tls = (self.tls.verify != Verify::Prefer)
            .then(|| format!("sslmode={}", self.tls.verify.word()));
        for (index, option) in tls.into_iter().chain(mode).enumerate() {
            write!(f, "{}{option}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

fn parse(address: &str) -> Result<PostgresUrl, String> {
    if address.chars().any(tenure_core::text::is_deceptive) {
        return Err("it contains control characters, or some that are not seen".into());
    }
    let Some((scheme, rest)) = address.split_once("://") else {
        return Err(match address.contains('=') {
            true => format!("key=value text is not understood: write {FORM}"),
            false => format!("no scheme: write {FORM}"),
        });
    };
    if !["postgres", "postgresql"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
        return Err(format!("unknown scheme {:?}: write {FORM}", cleaned(scheme)));
    }
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if tail.contains(['@', '#']) {
        return Err(
            "there is an @ or # after the host: write / ? # and @ inside user and password \
                    as %2F %3F %23 and %40"
                .into(),
        );
    }
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let mut options = Options::parse(query)?;
    let (login, places) = match authority.rsplit_once('@') {
        Some((login, places)) => (Some(login), places),
        None => (None, authority),
    };
    let (user, password) = login_of(login, &mut options)?;
    let hosts = hosts_of(places, &mut options)?;
    let path = decoded(path.strip_prefix('/').unwrap_or(path))?;
    let database =
        one_of("database", Some(path).filter(|path| !path.is_empty()), "dbname", &mut options)?;
    if let Some(bad) =
        [Some(&user), database.as_ref()].into_iter().flatten().find(|it| it.contains('\0'))
    {
        return Err(format!("{:?} contains a zero byte", cleaned(bad)));
    }
    let url = PostgresUrl {
        hosts,
        database: database.unwrap_or_else(|| user.clone()),
        user,
        password,
        tls: options.take_tls()?,
        mode: options.take_mode()?,
        connect_timeout: options.take_connect_timeout()?,
        application_name: options.take("application_name").unwrap_or_else(|| "tenure".to_owned()),
    };
    options.check_session()?;
    options.none_left()?;
    Ok(url)
}

fn login_of(
    login: Option<&str>,
    options: &mut Options,
) -> Result<(String, Option<Secret>), String> {
    let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        Some((user, password)) => (decoded(user)?, decoded(password)?),
        None => (String::new(), String::new()),
    };
    if login.is_some_and(|login| login.ends_with(':')) {
        return Err("the password before the @ is empty: fill it in, or leave the : out".into());
    }
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let user = one_of("user", some(user), "user", options)?;
    let password = one_of("password", some(password), "password", options)?;
    let Some(user) = user else { return Err(format!("the user is missing: write {FORM}")) };
    Ok((user, password.map(Secret::new)))
}

/// What may stand in the address or among its options, and must not differ.
fn one_of(
    what: &str,
    before: Option<String>,
    option: &str,
    options: &mut Options,
) -> Result<Option<String>, String> {
    match (before, options.take(option)) {
        (Some(_), Some(_)) => Err(format!("the {what} is given twice: leave ?{option}= out")),
        (one, other) => Ok(one.or(other)),
    }
}

fn hosts_of(places: &str, options: &mut Options) -> Result<Vec<PostgresHost>, String> {
    let option = options.take("host");
    let port = match options.take("port") {
        Some(port) => port_number(&port)?,
        None => DEFAULT_PORT,
    };
    let hosts: Vec<String> = match (places, option) {
        ("", Some(hosts)) => hosts.split(',').map(str::to_owned).collect(),
        ("", None) => {
            return Err(format!(
                "the host is missing: write {FORM}, or ?host=/run/postgresql for a unix socket"
            ));
        }
        (_, Some(_)) => return Err("the host is given twice: leave ?host= out".into()),
        (places, None) => places.split(',').map(str::to_owned).collect(),
    };
    if hosts.len() > HOSTS_MAX {
        return Err(format!("more than {HOSTS_MAX} hosts: name fewer"));
    }
    let hosts: Vec<_> = hosts.iter().map(|host| host_of(host, port)).collect::<Result<_, _>>()?;
    match hosts.iter().enumerate().find(|(at, host)| hosts[..*at].contains(host)) {
        Some((_, host)) => Err(format!("the host {host} is given twice: name each once")),
        None => Ok(hosts),
    }
}

fn host_of(text: &str, port: u16) -> Result<PostgresHost, String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("the [ of the host has no ]")?;
            match after.strip_prefix(':') {
                Some(port) => (host, port_number(port)?),
                None if after.is_empty() => (host, port),
                None => return Err("only : and a port may follow the ] of the host".into()),
            }
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("the host has several colons: write an IPv6 address as [::1]".into());
            }
            Some((host, port)) => (host, port_number(port)?),
            None => (text, port),
        },
    };
    let host = decoded(host)?;
    match host.as_str() {
        "" => Err(format!("a host is missing: write {FORM}")),
        path if path.starts_with('/') => Ok(PostgresHost::Unix { folder: path.into(), port }),
        _ => Ok(PostgresHost::Tcp { host, port }),
    }
}

/// The text is not repeated: in a mistyped address a part of the password may stand here.
fn port_number(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| {
        "a port is not a number from 1 to 65535 (write / ? # @ and , inside a password as %2F %3F \
         %23 %40 and %2C)"
            .to_owned()
    })
}

/// What follows `?`, each by its name.
struct Options(Vec<(String, String)>);

/// Options of libpq that would mean nothing here, with the reason.
const REFUSED: [(&str, &str); 16] = [
    ("hostaddr", "write the address as the host"),
    (
        "passfile",
        "set store.password_file in the configuration, or write the password before the @",
    ),
    ("service", "write its host, user and database here"),
    ("options", "set it for the role: ALTER ROLE … SET …"),
    ("replicas", "the server says how many: set synchronous_standby_names there"),
    ("keepalives", "every call has a time-out of its own here"),
    ("keepalives_idle", "every call has a time-out of its own here"),
    ("keepalives_interval", "every call has a time-out of its own here"),
    ("keepalives_count", "every call has a time-out of its own here"),
    ("tcp_user_timeout", "every call has a time-out of its own here"),
    ("load_balance_hosts", "only one of the hosts takes writes"),
    ("sslpassword", "use a key file without one"),
    ("sslcrl", "revocation lists are not read"),
    ("requiressl", "write sslmode=require"),
    ("replication", "elections need no replication connection"),
    ("schema", "it is always the schema tenure: choose a database"),
];
const KNOWN: [&str; 17] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "mode",
    "connect_timeout",
    "application_name",
    "target_session_attrs",
    "channel_binding",
    "gssencmode",
    "client_encoding",
    "sslnegotiation",
];

impl Options {
    fn parse(query: &str) -> Result<Self, String> {
        let mut options = Options(Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or("an option after ? has no =")?;
            let (name, value) = (decoded(name)?, decoded(value)?);
            let shown = cleaned(&name);
            if value.is_empty() {
                return Err(format!("the option {shown:?} is empty: fill it in, or leave it out"));
            }
            if options.0.iter().any(|(known, _)| *known == name) {
                return Err(format!("the option {shown:?} is given twice"));
            }
            options.0.push((name, value));
        }
        Ok(options)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn take_tls(&mut self) -> Result<TlsMode, String> {
        let word = self.take("sslmode");
        let root = self.take("sslrootcert");
        let verify = match word.as_deref() {
            Some("disable") => Verify::Plain,
            Some("prefer") | None => Verify::Prefer,
            Some("require") => Verify::Require,
            Some("verify-ca") => Verify::Authority,
            Some("verify-full") => Verify::Full,
            Some("allow") => {
                return Err("sslmode=allow begins without encryption: write prefer, or better \
                            verify-full"
                    .into());
            }
            Some(_) => {
                return Err("sslmode is disable, prefer, require, verify-ca or verify-full".into());
            }
        };
        let verify = match (&root, verify) {
            (Some(_), Verify::Plain | Verify::Prefer) => {
                return Err("sslrootcert is not looked at with this sslmode: write \
                            sslmode=verify-full"
                    .into());
            }
            // As libpq does: who names an authority wants it to count.
            (Some(_), Verify::Require) => Verify::Authority,
            (_, verify) => verify,
        };
        let root = root.filter(|root| root != "system").map(PathBuf::from);
        let client = match (self.take("sslcert"), self.take("sslkey")) {
            (None, None) => None,
            (Some(_), Some(_)) if verify == Verify::Plain => {
                return Err("sslcert needs encryption: write sslmode=verify-full".into());
            }
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            _ => return Err("sslcert and sslkey go together: give both or neither".into()),
        };
        Ok(TlsMode { verify, root, client })
    }

    fn take_mode(&mut self) -> Result<Mode, String> {
        match self.take("mode").as_deref() {
            None | Some("available") => Ok(Mode::Available),
            Some("strict") => Ok(Mode::Strict),
            Some(_) => Err("mode is available or strict".into()),
        }
    }

    fn take_connect_timeout(&mut self) -> Result<Option<Duration>, String> {
        let Some(text) = self.take("connect_timeout") else { return Ok(None) };
        let seconds =
            text.parse().ok().filter(|seconds| (1..=CONNECT_TIMEOUT_MAX).contains(seconds));
        let range = || {
            format!("connect_timeout is not a number of seconds from 1 to {CONNECT_TIMEOUT_MAX}")
        };
        seconds.map(|seconds| Some(Duration::from_secs(seconds))).ok_or_else(range)
    }

    /// Options whose usual values mean what is done anyway.
    fn check_session(&mut self) -> Result<(), String> {
        let rows: [(&str, &[&str], &str); 5] = [
            (
                "target_session_attrs",
                &["any", "read-write", "primary"],
                "elections write, so the primary is always looked for: leave it out",
            ),
            ("channel_binding", &["disable", "prefer"], "it is not supported: leave it out"),
            ("gssencmode", &["disable", "prefer"], "GSSAPI is not supported: leave it out"),
            (
                "client_encoding",
                &["UTF8", "utf8", "UTF-8", "auto"],
                "it is always UTF8: leave it out",
            ),
            ("sslnegotiation", &["postgres"], "it is not supported: leave it out"),
        ];
        for (name, allowed, why) in rows {
            if let Some(value) = self.take(name)
                && !allowed.contains(&value.as_str())
            {
                return Err(format!("{name}={}: {why}", cleaned(&value)));
            }
        }
        Ok(())
    }

    /// Fails with what may be written when an option was not taken.
    fn none_left(&self) -> Result<(), String> {
        let Some((name, _)) = self.0.first() else { return Ok(()) };
        if let Some((name, why)) = REFUSED.iter().find(|(known, _)| known == name) {
            return Err(format!("the option {name} is not understood here: {why}"));
        }
        let shown = cleaned(name);
        match nearest(name, KNOWN) {
            Some(meant) => Err(format!("unknown option {shown:?} after ?: did you mean {meant}?")),
            None => {
                Err(format!("unknown option {shown:?} after ?: known are {}", KNOWN.join(", ")))
            }
        }
    }
}

/// The text behind percent signs.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = after;
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a % is not followed by two hexadecimal digits: write % as %25")?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| "the text behind % signs is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "c4nary";

    fn parsed(address: &str) -> PostgresUrl {
        PostgresUrl::parse(address).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    #[test]
    fn every_usual_form_is_understood() {
        let url = parsed(
            "postgresql://ann:p%40ss%2F@db.internal:5433/app?sslmode=verify-full&sslrootcert=/ca.pem&application_name=x&connect_timeout=3&target_session_attrs=read-write",
        );
        assert_eq!((url.user.as_str(), url.database.as_str()), ("ann", "app"));
        assert_eq!(url.password.as_ref().unwrap().reveal(), "p@ss/");
        assert_eq!(url.tls.verify, Verify::Full);
        assert_eq!(url.tls.root.as_deref().unwrap().to_str(), Some("/ca.pem"));
        assert_eq!(url.connect_timeout, Some(Duration::from_secs(3)));
        assert_eq!(url.to_string(), "postgres://db.internal:5433/app?sslmode=verify-full");

        let url = parsed("postgres://ann@[::1],h2:7/?mode=strict");
        assert_eq!(url.database, "ann", "as libpq has it");
        assert_eq!(url.to_string(), "postgres://[::1]:5432,h2:7/ann?mode=strict");

        for address in [
            "postgres://ann@%2Frun%2Fpostgresql/app",
            "postgres:///app?host=/run/postgresql&user=ann",
            "postgres:///?host=/run/postgresql&user=ann&dbname=app",
        ] {
            let url = parsed(address);
            let folder = "/run/postgresql".into();
            assert_eq!(url.hosts, [PostgresHost::Unix { folder, port: 5432 }], "{address}");
            assert_eq!(parsed(&format!("{url}?user=ann")), url, "{address}");
        }
        let url = parsed("postgres://a@h/d?sslmode=require&sslrootcert=system");
        assert_eq!((url.tls.verify, url.tls.root), (Verify::Authority, None));
    }

    #[test]
    fn a_bad_address_says_what_to_write_and_keeps_the_secret() {
        let cases = [
            ("postgres://", "user is missing"),
            ("postgres://u:c4nary@", "host is missing"),
            ("postgres://host/app", "user is missing"),
            ("postgres://u:@host/app", "password before the @ is empty"),
            ("postgres://u:c4nary@host:x", "port is not"),
            ("postgres://u:c4/nary@host", "%2F"),
            ("postgres://u:c4nary%zz@host", "%25"),
            ("postgres://u:c4nary@h/d?sslmode=allow", "write prefer"),
            ("postgres://u:c4nary@h/d?sslmode=on", "verify-full"),
            ("postgres://u:c4nary@h/d?sslrootcert=/f", "sslmode=verify-full"),
            ("postgres://u:c4nary@h/d?sslmode=require&sslcert=/f", "go together"),
            ("postgres://u:c4nary@h/d?sslmod=require", "did you mean sslmode"),
            ("postgres://u:c4nary@h/d?pool=5", "unknown option \"pool\""),
            ("postgres://u:c4nary@h/d?keepalives=1", "time-out of its own"),
            ("postgres://u:c4nary@h/d?channel_binding=require", "not supported"),
            ("postgres://u:c4nary@h/d?target_session_attrs=standby", "primary"),
            ("postgres://u:c4nary@h/d?mode=quorum", "available or strict"),
            ("postgres://u:c4nary@h/d?mode=strict&replicas=1", "synchronous_standby_names"),
            ("postgres://u:c4nary@h/d?connect_timeout=0", "from 1 to"),
            ("postgres://u:c4nary@h,h:5432/d", "given twice"),
            ("postgres://u:c4nary@h/d?user=v", "user is given twice"),
            ("postgres://u:c4nary@::1/d", "[::1]"),
            ("host=h user=u password=c4nary", "key=value"),
            ("c4nary", "no scheme"),
            ("mysql://u:c4nary@h/d", "unknown scheme \"mysql\""),
            ("postgres://u:c4nary@a\nb", "control characters"),
        ];
        for (address, expected) in cases {
            let error = PostgresUrl::parse(address).unwrap_err();
            assert!(error.to_string().contains(expected), "{address}: {error}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(CANARY), "{address} leaks its password: {shown}");
        }
    }

    #[test]
    fn a_parsed_address_never_shows_its_password() {
        let url = parsed("postgres://u:c4nary@db.internal/app");
        let warning = url.warning().unwrap();
        assert!(!format!("{url} {url:?} {warning}").contains(CANARY));
        assert!(parsed("postgres://u:c4nary@localhost/app").warning().is_none());
        assert!(parsed("postgres://u:c4nary@h/app?sslmode=verify-full").warning().is_none());
    }
}
