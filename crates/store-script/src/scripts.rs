//! The cache of EVAL scripts.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::LoadError;
use crate::flags::Flags;
use crate::limits::Limits;
use crate::lua::Function;

/// The SHA-1 of a script's text, by which EVALSHA calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 20]);

impl Digest {
    /// The digest of a text.
    pub fn of(code: &[u8]) -> Self {
        Self(sha1_smol::Sha1::from(code).digest().bytes())
    }

    /// Reads forty hexadecimal digits of either case.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 20];
        if text.len() != 2 * bytes.len() {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// How a script came into the cache, which decides how long it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By EVAL: it may be dropped when others come.
    Evaluated,
    /// By SCRIPT LOAD: it stays until SCRIPT FLUSH.
    Loaded,
}

pub(crate) struct Script {
    pub(crate) code: Vec<u8>,
    pub(crate) flags: Flags,
    pub(crate) function: Function,
    origin: Origin,
    /// The count of uses of the whole cache when this one was last used.
    used: u64,
}

/// Compiled scripts by digest.
#[derive(Default)]
pub(crate) struct Scripts {
    scripts: BTreeMap<Digest, Script>,
    /// Evaluated scripts, the longest unused first.
    by_use: BTreeMap<u64, Digest>,
    uses: u64,
    evaluated_bytes: usize,
    loaded_bytes: usize,
}

impl Scripts {
    pub(crate) fn len(&self) -> usize {
        self.scripts.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.evaluated_bytes + self.loaded_bytes
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<&Script> {
        self.scripts.get(digest)
    }

    /// The script, which counts as used now.
    pub(crate) fn touch(&mut self, digest: &Digest) -> Option<&Script> {
        let script = self.scripts.get_mut(digest)?;
        if script.origin == Origin::Evaluated {
            self.by_use.remove(&script.used);
            self.uses += 1;
            script.used = self.uses;
            self.by_use.insert(self.uses, *digest);
        }
        Some(script)
    }

    /// Whether SCRIPT LOAD may keep this script.
    pub(crate) fn check_room(
        &self,
        digest: &Digest,
        length: usize,
        limits: &Limits,
    ) -> Result<(), LoadError> {
        let limit = limits.loaded_bytes_max;
        let is_loaded = self.get(digest).is_some_and(|script| script.origin == Origin::Loaded);
        if !is_loaded && self.loaded_bytes + length > limit {
            return Err(LoadError::CacheFull { limit });
        }
        Ok(())
    }

    /// From now on the script stays.
    pub(crate) fn pin(&mut self, digest: &Digest) {
        let Some(script) = self.scripts.get_mut(digest) else { return };
        if script.origin == Origin::Evaluated {
            script.origin = Origin::Loaded;
            self.by_use.remove(&script.used);
            self.evaluated_bytes -= script.code.len();
            self.loaded_bytes += script.code.len();
        }
    }

    pub(crate) fn add(
        &mut self,
        digest: Digest,
        code: &[u8],
        flags: Flags,
        function: Function,
        origin: Origin,
    ) {
        let script = Script { code: code.to_vec(), flags, function, origin, used: 0 };
        match origin {
            Origin::Evaluated => self.evaluated_bytes += code.len(),
            Origin::Loaded => self.loaded_bytes += code.len(),
        }
        self.scripts.insert(digest, script);
        self.touch(&digest);
    }

    /// Removes the longest unused script, if the evaluated ones are over their limits. The newest
    /// stays, since it is about to run.
    pub(crate) fn evict(&mut self, limits: &Limits) -> Option<Script> {
        let is_over = self.by_use.len() > limits.evaluated_count_max.max(1)
            || self.evaluated_bytes > limits.evaluated_bytes_max;
        if !is_over || self.by_use.len() <= 1 {
            return None;
        }
        let (_, digest) = self.by_use.pop_first()?;
        let script = self.scripts.remove(&digest)?;
        self.evaluated_bytes -= script.code.len();
        Some(script)
    }

    /// Removes all.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Script> + use<> {
        std::mem::take(self).scripts.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back_from_what_it_prints() {
        let digest = Digest::of(b"return 1");
        assert_eq!(digest.to_string(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(Digest::parse(digest.to_string().to_uppercase().as_bytes()), Some(digest));
        assert_eq!(Digest::parse(b"e0e1"), None);
        assert_eq!(Digest::parse(&[b'g'; 40]), None);
    }
}
