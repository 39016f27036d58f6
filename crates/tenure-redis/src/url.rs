//! The address of a Redis store, parsed once. No error text repeats a part of the address that
//! could be a password.

use std::fmt;
use std::path::PathBuf;

use super::address::{Form, MANY, Options, decoded, no_control_characters, parse_place};
use super::mode::Mode;
use super::node::Node;
use tenure_backend::nearest;
use tenure_backend::{ConnectError, Secret};

/// What the address of a Redis store may look like, for messages.
pub(super) const SUPPORTED: &str = "redis://[user[:password]@]host[:port][/db], rediss://… with \
                                    ?ca=FILE&cert=FILE&key=FILE, \
                                    redis+sentinel://host1,host2/master-name, \
                                    redis+cluster://host1,host2, \
                                    redis+quorum://host1,host2,host3, or \
                                    unix:///path?db=N";
pub(crate) const DEFAULT_PORT: u16 = 6379;

/// How one server in a network is written.
static FORM: Form =
    Form { schemes: ["redis", "rediss"], text: SUPPORTED, host: "server", port: DEFAULT_PORT };

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// Where the server listens.
    pub place: Endpoint,
    /// The login and the database.
    pub login: Login,
    /// What must have happened before a grant counts.
    pub mode: Mode,
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum Endpoint {
    /// `redis://`, or `rediss://` with TLS
    Tcp { host: String, port: u16, tls: Option<TlsFiles> },
    /// `unix://`
    Unix { path: PathBuf },
}

/// Files for an encrypted connection. Without `ca`, the system's certificate authorities are
/// trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities to trust.
    pub ca: Option<PathBuf>,
    /// The client's own certificate, for servers that ask for one.
    pub cert: Option<PathBuf>,
    /// The private key of `cert`.
    pub key: Option<PathBuf>,
    /// Accepts any certificate. This is shown wherever the address is shown.
    pub insecure: bool,
}

/// The login and the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The ACL user; `None` for the default user.
    pub user: Option<String>,
    /// The password, if there is one.
    pub password: Option<Secret>,
    /// The database number.
    pub database: u32,
}

impl RedisUrl {
    /// Parses an address. The error names what is wrong and which forms are allowed.
    pub fn parse(address: &str) -> Result<Self, ConnectError> {
        parse(address.trim()).map_err(ConnectError::Address)
    }

    /// What a person should know before using this address.
    pub(super) fn warning(&self) -> Option<String> {
        match &self.place {
            Endpoint::Tcp { tls: Some(tls), .. } if tls.insecure => Some(format!(
                "INSECURE: {self} accepts any certificate, so anybody on the network path can read \
                 and change everything; remove #insecure and name the issuer with ?ca=FILE"
            )),
            _ => None,
        }
    }
}

/// Without user, password and files: fit for logs.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.login.database;
        let mode = Suffix(self.mode, '?');
        match &self.place {
            Endpoint::Tcp { host, port, tls: None } => {
                write!(f, "redis://{}:{port}/{database}{mode}", HostText(host))
            }
            Endpoint::Tcp { host, port, tls: Some(tls) } => {
                let flag = if tls.insecure { "#insecure" } else { "" };
                write!(f, "rediss://{}:{port}/{database}{mode}{flag}", HostText(host))
            }
            Endpoint::Unix { path } => {
                let path = path.display();
                match database {
                    0 => write!(f, "unix://{path}{}", Suffix(self.mode, '?')),
                    _ => write!(f, "unix://{path}?db={database}{}", Suffix(self.mode, '&')),
                }
            }
        }
    }
}

/// A mode as it goes on an address, if it is not the default.
pub(super) struct Suffix(pub(super) Mode, pub(super) char);

impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Mode::Available => Ok(()),
            mode => write!(f, "{}{mode}", self.1),
        }
    }
}

/// A host as it is in an address.
pub(super) struct HostText<'a>(pub(super) &'a str);

impl fmt::Display for HostText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') { write!(f, "[{}]", self.0) } else { f.write_str(self.0) }
    }
}

fn parse(address: &str) -> Result<RedisUrl, String> {
    no_control_characters(address)?;
    let Some((scheme, rest)) = address.split_once(':').filter(|(s, r)| is_scheme(s, r)) else {
        return Err(refuse_other_forms(address));
    };
    match scheme {
        "redis" | "rediss" => parse_network(scheme == "rediss", rest.trim_start_matches('/')),
        "unix" => parse_unix(rest),
        _ => Err(unsupported_scheme(scheme)),
    }
}

/// The text for an address whose scheme is not ours.
pub(super) fn unsupported_scheme(scheme: &str) -> String {
    if let Some((plain, "sentinel" | "cluster" | "quorum")) = scheme.split_once('+') {
        return format!(
            "{scheme:?} leads to several servers, and here one is meant: write {plain}://host:port \
             of that one"
        );
    }
    let kinds = ["", "+sentinel", "+cluster", "+quorum"];
    let known = kinds.iter().flat_map(|kind| ["redis", "rediss"].map(|it| format!("{it}{kind}")));
    let known: Vec<String> = known.chain(["unix".to_owned()]).collect();
    if let Some(meant) = nearest(scheme, known.iter().map(String::as_str)) {
        return format!("unknown scheme {scheme:?}: did you mean {meant}://? Write {SUPPORTED}");
    }
    let is_many = ["sentinel", "cluster", "quorum"].iter().any(|kind| scheme.contains(kind));
    if is_many {
        return format!("unknown scheme {scheme:?}: several hosts are written {MANY}");
    }
    format!("unknown scheme {scheme:?}: write {SUPPORTED}")
}

fn is_scheme(scheme: &str, rest: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    rest.starts_with('/') && !scheme.is_empty() && scheme.chars().all(is_word)
}

fn parse_network(encrypts: bool, rest: &str) -> Result<RedisUrl, String> {
    let mut parts = FORM.parse_one(encrypts, rest)?;
    let Node { host, port } = parts.nodes()?.remove(0);
    let mode = parts.options.take_mode()?;
    let database = parts.options.take_database(&parts.path)?;
    parts.no_more_options()?;
    let login = Login { database, ..parts.login()? };
    Ok(RedisUrl { place: Endpoint::Tcp { host, port, tls: parts.tls }, login, mode })
}

fn parse_unix(rest: &str) -> Result<RedisUrl, String> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = decoded(path)?;
    if !path.starts_with('/') || path.len() < 2 {
        return Err("unix: needs an absolute path: write unix:///run/redis.sock".into());
    }
    let mut options = Options::parse(query)?;
    let login = Login {
        user: options.take("user"),
        password: options.take("password").map(Secret::new),
        database: options.take_database("")?,
    };
    let mode = options.take_mode()?;
    options.none_left(SUPPORTED)?;
    Ok(RedisUrl { place: Endpoint::Unix { path: path.into() }, login, mode })
}

/// Other ways of writing an address that people know: refused with what to write instead.
fn refuse_other_forms(address: &str) -> String {
    let mut parts = address.split(',').map(str::trim).filter(|part| !part.is_empty());
    let place = parts.next().unwrap_or_default();
    let options: Vec<(String, &str)> = address
        .split(',')
        .filter_map(|part| part.trim().split_once('='))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()))
        .collect();
    if options.is_empty() {
        // A single word may be anything, a password too: it is not repeated.
        let is_place = place.contains(':') && !place.contains(['@', ' ']);
        return match parse_place(place, &FORM).ok().filter(|_| is_place) {
            Some(Node { host, port }) => {
                format!("no scheme: write redis://{}:{port}", HostText(&host))
            }
            None => format!("no scheme: write {SUPPORTED}"),
        };
    }
    let option = |name: &str| options.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
    if option("servicename").is_some() {
        return "serviceName= is a master name of sentinels: write \
                redis+sentinel://USER:PASSWORD@host1,host2,host3/MASTER"
            .into();
    }
    let scheme = if option("ssl").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        "rediss"
    } else {
        "redis"
    };
    let credentials = match (option("user"), option("password")) {
        (Some(_), _) => "USER:PASSWORD@",
        (None, Some(_)) => ":PASSWORD@",
        (None, None) => "",
    };
    let place = match parse_place(place, &FORM) {
        Ok(Node { host, port }) if !place.contains('=') => format!("{}:{port}", HostText(&host)),
        _ => "HOST:PORT".into(),
    };
    let database = option("defaultdatabase").and_then(|text| text.parse::<u32>().ok());
    format!(
        "options with commas are not understood: write {scheme}://{credentials}{place}/{} with \
         your own user and password",
        database.unwrap_or(0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "c4nary";

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port, tls: None }
    }

    #[test]
    fn every_form_of_the_documentation_is_understood() {
        let url = RedisUrl::parse("redis://127.0.0.1").unwrap();
        assert_eq!((url.place, url.login), (tcp("127.0.0.1", 6379), Login::default()));

        let url = RedisUrl::parse("redis://ann:p%40ss%2F@[::1]:7000/3").unwrap();
        assert_eq!(url.place, tcp("::1", 7000));
        assert_eq!(url.login.user.as_deref(), Some("ann"));
        assert_eq!(url.login.password.as_ref().unwrap().reveal(), "p@ss/");
        assert_eq!(url.login.database, 3);
        assert_eq!(url.to_string(), "redis://[::1]:7000/3");

        let url = RedisUrl::parse("redis://:only,one@host").unwrap();
        assert_eq!(url.login.user, None);
        assert_eq!(url.login.password.as_ref().unwrap().reveal(), "only,one");

        let url = RedisUrl::parse("rediss://h?ca=/a.pem&cert=/c.pem&key=/k.pem#insecure").unwrap();
        assert!(url.warning().unwrap().starts_with("INSECURE: rediss://h:6379/0#insecure"));
        let Endpoint::Tcp { tls: Some(tls), .. } = url.place else { panic!("not TLS") };
        assert_eq!(tls.ca.unwrap().to_str(), Some("/a.pem"));
        assert!(tls.cert.is_some() && tls.key.is_some() && tls.insecure);

        for address in ["unix:///run/redis.sock?db=2", "unix:/run/redis.sock?db=2"] {
            let url = RedisUrl::parse(address).unwrap();
            assert_eq!(url.to_string(), "unix:///run/redis.sock?db=2");
        }
    }

    #[test]
    fn a_bad_address_says_what_to_write_and_keeps_the_secret() {
        let cases = [
            ("redis://", "host is missing"),
            ("redis://:c4nary@", "host is missing"),
            ("redis://u:c4nary@host:x", "port is not"),
            ("redis://u:c4/nary@host", "%2F"),
            ("redis://u:c4?c4nary@host", "%2F"),
            ("redis://u:c4#c4nary@host", "%2F"),
            ("redis://u:c4nary%zz@host", "%25"),
            ("redis://c4nary:x/y", "port is not"),
            ("redis://u@host", "user without password"),
            ("redis://host/x", "database"),
            ("redis://host/70000", "database"),
            ("redis://host?pool=5", "unknown option \"pool\""),
            ("redis://host?ca=/x", "needs rediss://"),
            ("redis://host?db=1&db=2", "\"db\" is given twice"),
            ("redis://u:c4nary@a,b:7000", "several hosts"),
            ("redis://host#insecure", "needs rediss://"),
            ("rediss://host#whatever", "insecure"),
            ("rediss://host?cert=/x", "go together"),
            ("redis://::1", "[::1]"),
            ("unix://run/redis.sock", "absolute path"),
            ("http://u:c4nary@host", "unknown scheme \"http\""),
            ("redis-sentinel://u:c4nary@host", "redis+sentinel://host1"),
            ("redis-cluster://u:c4nary@host", "redis+cluster://host1"),
            ("rediss+cluster://u:c4nary@host", "write rediss://host:port"),
            ("redis+sentinel://u:c4nary@host/main", "write redis://host:port"),
            ("quorum://a,b,c", "are written redis+sentinel://host1,host2,host3/master-name"),
            ("localhost:6380", "redis://localhost:6380"),
            ("u:c4nary@localhost", "no scheme: write redis://["),
            ("c4nary", "no scheme: write redis://["),
            ("", "no scheme"),
            ("redis://a\nb", "control characters"),
            (
                "cache:6380,password=c4nary,ssl=True,defaultDatabase=2",
                "rediss://:PASSWORD@cache:6380/2",
            ),
            ("cache,user=ann,password=c4nary", "redis://USER:PASSWORD@cache:6379/0"),
            ("a:1,b:2,serviceName=m,password=c4nary", "write redis+sentinel://"),
            ("password=c4nary,ssl=true", "rediss://:PASSWORD@HOST:PORT/0"),
        ];
        for (address, expected) in cases {
            let error = RedisUrl::parse(address).unwrap_err();
            assert!(error.to_string().contains(expected), "{address}: {error}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(CANARY), "{address} leaks its password: {shown}");
        }
    }

    #[test]
    fn a_parsed_address_never_shows_its_password() {
        for address in ["redis://u:c4nary@h/1", "rediss://:c4nary@h", "unix:///s?password=c4nary"] {
            let url = RedisUrl::parse(address).unwrap();
            assert_eq!(url.login.password.as_ref().unwrap().reveal(), CANARY);
            assert!(!format!("{url} {url:?} {:?}", url.login).contains(CANARY), "{address}");
        }
    }
}
