//! Who this process is: a readable name, and a nonce that no other start shares.

use tenure_core::{InstanceId, NameError};

/// The id of a client: the configured name, or host and process id, plus a fresh nonce.
pub(crate) fn instance_id(configured: Option<&str>) -> Result<InstanceId, NameError> {
    match configured {
        Some(name) => InstanceId::new(name, nonce()),
        None => InstanceId::new(&default_name(), nonce()),
    }
}

/// `{host}_{pid}`, of which only characters that an id may carry are kept.
fn default_name() -> String {
    const HOST_LEN_MAX: usize = 64;
    let system = rustix::system::uname();
    let host: String = system
        .nodename()
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' })
        .take(HOST_LEN_MAX)
        .collect();
    let host = if host.is_empty() { "host" } else { host.as_str() };
    format!("{host}_{}", std::process::id())
}

/// Eight bytes from the operating system's random source.
pub(crate) fn nonce() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_ne_bytes(bytes)
}

#[cfg(target_os = "linux")]
fn fill_random(bytes: &mut [u8; 8]) {
    use rustix::rand::{GetRandomFlags, getrandom};
    // Requests of up to 256 bytes are answered whole once the source is seeded.
    let filled = getrandom(&mut bytes[..], GetRandomFlags::empty());
    assert_eq!(filled, Ok(8), "the operating system gives no random numbers");
}

#[cfg(not(target_os = "linux"))]
fn fill_random(bytes: &mut [u8; 8]) {
    use std::io::Read;
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(bytes))
        .expect("the operating system gives random numbers");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_starts_under_one_name_are_two_instances() {
        let first = instance_id(Some("web-1")).unwrap();
        let second = instance_id(Some("web-1")).unwrap();
        assert_ne!(first, second);
        assert_eq!(first.name(), second.name());
    }

    #[test]
    fn the_default_name_carries_the_process() {
        let id = instance_id(None).unwrap();
        assert!(id.name().ends_with(&format!("_{}", std::process::id())), "{id}");
    }
}
