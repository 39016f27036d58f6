//! Who runs a command, for those who find later what was done.

use nix::unistd::{Uid, User};

/// `user@host`, as mail has it. Whoever became another user by sudo is the one who typed it.
pub(crate) fn author() -> String {
    let (user, host) = user_and_host();
    format!("{user}@{host}")
}

/// The same as the name of an instance, which knows no `@`.
pub(crate) fn as_instance() -> String {
    let (user, host) = user_and_host();
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let part = |text: &str| text.chars().map(allowed).take(PART_LEN_MAX).collect::<String>();
    format!("{}:{}", part(&user), part(&host))
}

/// Together shorter than the longest name of an instance.
const PART_LEN_MAX: usize = 48;

fn user_and_host() -> (String, String) {
    let uid = Uid::current();
    let account = User::from_uid(uid).ok().flatten().map(|account| account.name);
    let typed = std::env::var("SUDO_USER").ok().filter(|name| !name.is_empty());
    let user = typed.filter(|_| uid.is_root()).or(account).unwrap_or_else(|| format!("uid-{uid}"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    (user, if host.is_empty() { "host".to_owned() } else { host.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_can_be_an_instance() {
        assert!(author().contains('@'));
        let name = as_instance();
        assert!(tenure_core::InstanceId::new(&name, 0).is_ok(), "{name}");
    }
}
