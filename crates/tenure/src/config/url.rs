//! As much of a URL as is needed to add a login, a database or options to it.

use std::fmt::{self, Write};

/// The parts of `scheme://user:password@place/database?options#fragment`, still percent-encoded.
/// A `unix:` address keeps user, password and database among its options. No `Debug`: it holds
/// the password.
pub(super) struct Url {
    pub(super) scheme: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    place: String,
    pub(super) database: Option<String>,
    pub(super) options: Vec<(String, String)>,
    pub(super) fragment: Option<String>,
}

impl Url {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (rest, fragment) = split_off(rest, '#');
        let (rest, query) = split_off(rest, '?');
        let mut url = Url {
            scheme: scheme.to_owned(),
            user: None,
            password: None,
            place: rest.to_owned(),
            database: None,
            options: query.map(options).unwrap_or_default(),
            fragment,
        };
        match url.is_unix() {
            true => {
                url.user = url.take_option("user");
                url.password = url.take_option("password");
                url.database = url.take_option("db");
            }
            false => url.split_authority(),
        }
        Some(url)
    }

    fn split_authority(&mut self) {
        let place = std::mem::take(&mut self.place);
        let (authority, path) = split_off(&place, '/');
        let (master, database) = match (path, self.scheme.ends_with("+sentinel")) {
            // The first part of the path is the name of the master there.
            (Some(path), true) => {
                let (master, database) = split_off(&path, '/');
                (format!("/{master}"), database)
            }
            (path, _) => (String::new(), path),
        };
        self.database = database.filter(|text| !text.is_empty()).or(self.take_option("db"));
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        if let Some(login) = login {
            let (user, password) = split_off(login, ':');
            // Empty parts stay, so that whoever reads the address refuses them.
            let is_given = !user.is_empty() || password.is_none();
            self.user = is_given.then(|| user.to_owned());
            self.password = password;
        }
        self.place = format!("{place}{master}");
    }

    /// Where it leads, without login, database and options.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    fn is_unix(&self) -> bool {
        self.scheme == "unix"
    }

    pub(super) fn take_option(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(known, _)| known == name)?;
        Some(self.options.remove(at).1)
    }

    fn write_login(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.user.is_none() && self.password.is_none() {
            return Ok(());
        }
        f.write_str(self.user.as_deref().unwrap_or_default())?;
        if let Some(password) = &self.password {
            write!(f, ":{password}")?;
        }
        f.write_char('@')
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        let mut options: Vec<(&str, &str)> = Vec::new();
        if self.is_unix() {
            f.write_str(&self.place)?;
            let moved =
                [("user", &self.user), ("password", &self.password), ("db", &self.database)];
            options.extend(moved.iter().filter_map(|(name, part)| Some((*name, part.as_deref()?))));
        } else {
            self.write_login(f)?;
            f.write_str(&self.place)?;
            if let Some(database) = &self.database {
                write!(f, "/{database}")?;
            }
        }
        options.extend(self.options.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        for (index, (name, value)) in options.into_iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            write!(f, "{mark}{name}={value}")?;
        }
        match &self.fragment {
            Some(fragment) => write!(f, "#{fragment}"),
            None => Ok(()),
        }
    }
}

fn split_off(text: &str, mark: char) -> (&str, Option<String>) {
    match text.split_once(mark) {
        Some((before, after)) => (before, Some(after.to_owned())),
        None => (text, None),
    }
}

fn options(query: String) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Percent-encodes everything that might mean something in a URL, but for what is in `kept`.
pub(super) fn encoded(text: &str, kept: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        match plain || kept.as_bytes().contains(&byte) {
            true => out.push(char::from(byte)),
            false => write!(out, "%{byte:02X}").expect("writing to a String never fails"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_taken_apart_is_put_together_again() {
        let addresses = [
            "redis://h",
            "redis://u:p%40@h:1/2",
            "redis://u:@h:",
            "redis://:@h",
            "redis://@h",
            "rediss://:p@[::1]:7000?ca=/a&x=y#insecure",
            "unix:///run/r.sock?user=u&password=p&db=3",
            "unix:///run/r.sock",
            "other://a,b,c/x/y?z=",
        ];
        for address in addresses {
            let url = Url::parse(address).expect("has a scheme");
            assert_eq!(url.to_string(), address);
        }
        assert!(Url::parse("localhost:6379").is_none());
    }

    #[test]
    fn encoding_keeps_nothing_that_has_a_meaning() {
        assert_eq!(encoded("a/b@c:d#e?f%g é", ""), "a%2Fb%40c%3Ad%23e%3Ff%25g%20%C3%A9");
        assert_eq!(encoded("/run/x y", "/"), "/run/x%20y");
    }
}
