//! Addresses of servers in a network, cut into their parts:
//! `scheme://[user[:password]@]host[:port],…[/path][?option=value&…][#insecure]`
//!
//! One server, sentinels, a cluster and a quorum are all written like this; what path and options
//! mean is their own. No error repeats a part in which a password could stand.

use super::mode::Mode;
use super::node::Node;
use super::text::cleaned;
use super::url::{Endpoint, Login, RedisUrl, TlsFiles};
use tenure_backend::Secret;

/// More hosts than anybody names in one address: it is asked as a whole at each connect.
const HOSTS_MAX: usize = 31;
/// The highest database number that is sent; servers have 16 unless told otherwise.
const DATABASE_MAX: u32 = 65_535;

/// What to do about a part that is written and empty: a variable that nobody set leaves such an
/// address behind, and whoever read it as "the default" would be in another election.
const NOT_FILLED_IN: &str = "fill it in, or leave it out";

/// How several hosts may be written, for messages.
pub(super) const MANY: &str = "redis+sentinel://host1,host2,host3/master-name, \
                               redis+cluster://host1,host2 or redis+quorum://host1,host2,host3";

/// How addresses of one kind are written.
#[derive(Debug)]
pub(crate) struct Form {
    /// The scheme, and the one that encrypts.
    pub(crate) schemes: [&'static str; 2],
    /// The whole, for messages.
    pub(crate) text: &'static str,
    /// What each of its hosts is, for messages.
    pub(crate) host: &'static str,
    /// The port of a host that tells none.
    pub(crate) port: u16,
}

impl Form {
    /// Whether an address is of this kind.
    pub(crate) fn is_meant(&self, address: &str) -> bool {
        let scheme = address.trim().split_once("://").map_or("", |(scheme, _)| scheme);
        self.schemes.iter().any(|known| known.eq_ignore_ascii_case(scheme))
    }

    /// Cuts an address of this kind into its parts.
    pub(crate) fn parse(&'static self, address: &str) -> Result<Parts, String> {
        let address = address.trim();
        no_control_characters(address)?;
        let parts = address.split_once("://").ok_or_else(|| format!("write {}", self.text))?;
        let (scheme, rest) = parts;
        self.parse_after_scheme(self.schemes[1].eq_ignore_ascii_case(scheme), rest)
    }

    /// The same for what stands after the scheme. Each host may have a login of its own.
    fn parse_after_scheme(&'static self, encrypts: bool, rest: &str) -> Result<Parts, String> {
        let (authority, tail) = split_tail(rest)?;
        let hosts = authority.split(',').map(|host| self.parse_host(host));
        self.put_together(encrypts, hosts.collect::<Result<_, _>>()?, tail)
    }

    /// The same where one host is meant, so that a comma may stand in its password.
    pub(super) fn parse_one(&'static self, encrypts: bool, rest: &str) -> Result<Parts, String> {
        let (authority, tail) = split_tail(rest)?;
        if authority.rsplit('@').next().is_some_and(|place| place.contains(',')) {
            return Err(format!(
                "several hosts after {}://: write {MANY}",
                self.schemes[usize::from(encrypts)]
            ));
        }
        self.put_together(encrypts, vec![self.parse_host(authority)?], tail)
    }

    fn parse_host(&self, text: &str) -> Result<AddressHost, String> {
        let Some((credentials, place)) = text.rsplit_once('@') else {
            return Ok(AddressHost { node: parse_place(text, self)?, login: None });
        };
        let node = parse_place(place, self)?;
        Ok(AddressHost { node, login: Some(parse_credentials(credentials)?) })
    }

    fn put_together(
        &'static self,
        encrypts: bool,
        hosts: Vec<AddressHost>,
        tail: &str,
    ) -> Result<Parts, String> {
        if hosts.len() > HOSTS_MAX {
            return Err(format!("more than {HOSTS_MAX} {}s: name fewer", self.host));
        }
        let (tail, fragment) = tail.split_once('#').unwrap_or((tail, ""));
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let mut options = Options::parse(query)?;
        let tls = self.tls(encrypts, fragment, &mut options)?;
        let path = path.strip_prefix('/').unwrap_or(path).to_owned();
        Ok(Parts { form: self, hosts, path, options, tls })
    }

    fn tls(
        &self,
        encrypts: bool,
        fragment: &str,
        options: &mut Options,
    ) -> Result<Option<TlsFiles>, String> {
        let insecure = match fragment {
            "" => false,
            "insecure" => true,
            _ => return Err("only `insecure` is allowed after #".into()),
        };
        let needless = |what: &str| Err(format!("{what} needs {}://", self.schemes[1]));
        let [ca, cert, key] = ["ca", "cert", "key"].map(|name| options.take(name));
        if encrypts {
            if cert.is_some() != key.is_some() {
                return Err("?cert= and ?key= go together: give both or neither".into());
            }
            let [ca, cert, key] = [ca, cert, key].map(|file| file.map(Into::into));
            return Ok(Some(TlsFiles { ca, cert, key, insecure }));
        }
        let given = [("ca", ca), ("cert", cert), ("key", key)];
        match given.iter().find(|(_, file)| file.is_some()) {
            Some((name, _)) => needless(&format!("?{name}=")),
            None if insecure => needless("#insecure"),
            None => Ok(None),
        }
    }
}

/// One of the hosts that an address names.
#[derive(Clone, Debug)]
pub(crate) struct AddressHost {
    pub(crate) node: Node,
    /// What stands before it, if anything.
    pub(crate) login: Option<Login>,
}

/// An address, cut where its parts meet.
#[derive(Debug)]
pub(crate) struct Parts {
    form: &'static Form,
    hosts: Vec<AddressHost>,
    /// What stands after the hosts, without its first `/`.
    pub(crate) path: String,
    pub(crate) options: Options,
    pub(crate) tls: Option<TlsFiles>,
}

impl Parts {
    /// The login of all hosts. It stands before the first; whoever repeats it must not change it.
    pub(super) fn login(&self) -> Result<Login, String> {
        let first = self.hosts.first().and_then(|host| host.login.as_ref());
        match self.hosts.iter().any(|host| host.login.is_some() && host.login.as_ref() != first) {
            false => Ok(first.cloned().unwrap_or_default()),
            true => Err(format!(
                "one login counts for all {}s: write it before the first alone, and write , and @ \
                 inside user and password as %2C and %40",
                self.form.host
            )),
        }
    }

    /// The hosts, each of which may be named once only.
    pub(crate) fn hosts(&self) -> Result<&[AddressHost], String> {
        let is_same = |one: &Node, other: &Node| {
            one.port == other.port && one.host.eq_ignore_ascii_case(&other.host)
        };
        let twice = self.hosts.iter().enumerate().find(|(index, host)| {
            self.hosts[..*index].iter().any(|other| is_same(&host.node, &other.node))
        });
        match twice {
            None => Ok(&self.hosts),
            Some((_, AddressHost { node, .. })) => {
                let kind = self.form.host;
                Err(format!("the {kind} {node} is given twice: name each {kind} once"))
            }
        }
    }

    /// The hosts without their logins.
    pub(super) fn nodes(&self) -> Result<Vec<Node>, String> {
        Ok(self.hosts()?.iter().map(|host| host.node.clone()).collect())
    }

    /// Fails when an option was not taken.
    pub(crate) fn no_more_options(&self) -> Result<(), String> {
        self.options.none_left(self.form.text)
    }
}

/// How the servers of one store are reached, wherever they are.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) login: Login,
    pub(super) tls: Option<TlsFiles>,
    pub(super) mode: Mode,
}

impl Access {
    /// The address of one of them.
    pub(super) fn to(&self, node: &Node) -> RedisUrl {
        let place =
            Endpoint::Tcp { host: node.host.clone(), port: node.port, tls: self.tls.clone() };
        RedisUrl { place, login: self.login.clone(), mode: self.mode }
    }
}

/// What stands after `?`, each by its name.
#[derive(Debug)]
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let mut options = Options(Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or("an option after ? has no =")?;
            let (name, value) = (decoded(name)?, decoded(value)?);
            if value.is_empty() {
                let name = cleaned(&name);
                return Err(format!("the option {name:?} is empty: {NOT_FILLED_IN}"));
            }
            if options.0.iter().any(|(known, _)| *known == name) {
                return Err(format!("the option {:?} is given twice", cleaned(&name)));
            }
            options.0.push((name, value));
        }
        Ok(options)
    }

    /// Takes the value of an option out.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Takes the options that make up a mode.
    pub(super) fn take_mode(&mut self) -> Result<Mode, String> {
        Mode::from_options(self.take("mode").as_deref(), self.take("replicas").as_deref())
    }

    /// The number of the database: the option counts before what is in the path.
    pub(crate) fn take_database(&mut self, in_path: &str) -> Result<u32, String> {
        let in_path = Some(in_path.to_owned()).filter(|database| !database.is_empty());
        let Some(text) = self.take("db").or(in_path) else { return Ok(0) };
        let database = text.parse().ok().filter(|database| *database <= DATABASE_MAX);
        database.ok_or_else(|| format!("the database is not a number from 0 to {DATABASE_MAX}"))
    }

    /// Fails with what may be written when an option was not taken.
    pub(super) fn none_left(&self, form: &str) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(format!("unknown option {:?} after ?: write {form}", cleaned(name)))
            }
        }
    }
}

/// An address of one line, as people mean it.
pub(super) fn no_control_characters(address: &str) -> Result<(), String> {
    match address.chars().any(tenure_core::text::is_deceptive) {
        true => Err("it contains control characters, or some that are not seen".into()),
        false => Ok(()),
    }
}

/// Logins and hosts, and what follows them.
fn split_tail(rest: &str) -> Result<(&str, &str), String> {
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match tail.contains('@') {
        false => Ok((authority, tail)),
        true => Err("there is an @ after the host: write / ? # and @ inside user and password as \
                     %2F %3F %23 and %40"
            .into()),
    }
}

/// `host`, `host:port` or `[::1]:port`.
pub(super) fn parse_place(place: &str, form: &Form) -> Result<Node, String> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("the [ of the host has no ]")?;
            match after.strip_prefix(':') {
                None if !after.is_empty() => {
                    return Err("only : and a port are allowed after the ] of the host".into());
                }
                port => (host, port),
            }
        }
        None => match place.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("the host has several colons: write an IPv6 address as [::1]".into());
            }
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() {
        return Err(format!("the host is missing: write {}", form.text));
    }
    // The text is not repeated: in a mistyped address a part of the password may stand here.
    let bad_port = "the port is not a number from 1 to 65535 (write / ? # @ and , inside a \
                    password as %2F %3F %23 %40 and %2C)";
    let port = match port {
        Some("") => return Err(format!("the port after the colon is empty: {NOT_FILLED_IN}")),
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(bad_port)?,
        None => form.port,
    };
    Ok(Node { host: decoded(host)?, port })
}

fn parse_credentials(credentials: &str) -> Result<Login, String> {
    let (user, password) = match credentials.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (credentials, None),
    };
    let user = Some(decoded(user)?).filter(|user| !user.is_empty());
    let password = password.map(decoded).transpose()?;
    match (&user, password.as_deref()) {
        (None, None) => return Err(format!("the login before the @ is empty: {NOT_FILLED_IN}")),
        (_, Some("")) => {
            return Err(format!("the password before the @ is empty: {NOT_FILLED_IN}"));
        }
        (Some(_), None) => {
            return Err("a user without password: write user:password@ (or :password@ for the \
                        default user)"
                .into());
        }
        (_, Some(_)) => {}
    }
    Ok(Login { user, password: password.map(Secret::new), database: 0 })
}

/// The text behind percent signs.
pub(super) fn decoded(text: &str) -> Result<String, String> {
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

    static FORM: Form =
        Form { schemes: ["x", "xs"], text: "x://host1,host2", host: "node", port: 7 };

    #[test]
    fn an_address_is_cut_where_its_parts_meet() {
        assert!(FORM.is_meant(" XS://a ") && !FORM.is_meant("y://a") && !FORM.is_meant("a:1"));
        let mut parts =
            FORM.parse("xs://u:p%2Cw@a,[::1],v:q@[::2]:9/m/3?k=v&ca=/f#insecure").unwrap();
        let hosts: Vec<_> = parts.hosts().unwrap().iter().map(|h| h.node.to_string()).collect();
        assert_eq!(hosts, ["a:7", "[::1]:7", "[::2]:9"]);
        let users = parts.hosts().unwrap().iter().map(|host| host.login.as_ref()?.user.as_deref());
        assert_eq!(users.collect::<Vec<_>>(), [Some("u"), None, Some("v")]);
        assert_eq!(parts.path, "m/3");
        assert!(parts.tls.as_ref().is_some_and(|tls| tls.insecure && tls.ca.is_some()));
        assert!(parts.login().is_err() && parts.no_more_options().is_err());
        assert_eq!(parts.options.take("k").as_deref(), Some("v"));
        assert_eq!(parts.no_more_options(), Ok(()));
        assert_eq!(parts.options.take_database("3"), Ok(3));
    }

    #[test]
    fn what_cannot_be_cut_is_named() {
        let cases = [
            ("x:a", "write x://host1,host2"),
            ("x://[::1", "has no ]"),
            ("x://[::1]7", "only : and a port"),
            ("x://::1,b", "[::1]"),
            ("x://a,b?k", "has no ="),
            ("x://a,b?k=1&k=2", "\"k\" is given twice"),
            ("x://a,b#x", "insecure"),
            ("xs://a?key=/f", "go together"),
            ("x://a:", "port after the colon is empty"),
            ("x://[::1]:", "port after the colon is empty"),
            ("x://a:1,b:", "port after the colon is empty"),
            ("x://@a", "login before the @ is empty"),
            ("x://:@a", "password before the @ is empty"),
            ("x://u:@a", "password before the @ is empty"),
            ("x://u:p@a,:@b", "password before the @ is empty"),
            ("xs://a?ca=", "\"ca\" is empty"),
            ("x://a?password=", "\"password\" is empty"),
        ];
        for (address, expected) in cases {
            let error = FORM.parse(address).unwrap_err();
            assert!(error.contains(expected), "{address}: {error}");
        }
        assert!(
            FORM.parse("x://a,b,A:7").unwrap().hosts().unwrap_err().contains("node A:7 is given")
        );
    }
}
