//! The scripts that carry out requests atomically inside the store, and their digests.

use std::sync::LazyLock;

/// A script, put together from the shared parts that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Script {
    Acquire,
    Renew,
    Adopt,
    Release,
    PassOn,
    Note,
    Confirm,
    Herald,
    Abandon,
    Transfer,
    Observe,
    Beat,
    Leave,
    Ask,
    Refuse,
    Pause,
    Clear,
    History,
    TickBegin,
    TickFinish,
    TickLook,
    Fence,
}

/// How many scripts there are.
pub(super) const SCRIPT_COUNT: usize = Script::Fence as usize + 1;

impl Script {
    const ALL: [Script; SCRIPT_COUNT] = [
        Script::Acquire,
        Script::Renew,
        Script::Adopt,
        Script::Release,
        Script::PassOn,
        Script::Note,
        Script::Confirm,
        Script::Herald,
        Script::Abandon,
        Script::Transfer,
        Script::Observe,
        Script::Beat,
        Script::Leave,
        Script::Ask,
        Script::Refuse,
        Script::Pause,
        Script::Clear,
        Script::History,
        Script::TickBegin,
        Script::TickFinish,
        Script::TickLook,
        Script::Fence,
    ];

    /// Its Lua source.
    pub(super) fn source(self) -> &'static str {
        &SOURCES[self as usize].text
    }

    /// The digest by which a store that has run it before knows it.
    pub(super) fn digest(self) -> &'static str {
        &SOURCES[self as usize].digest
    }

    /// What is missing when it fails after the script whose answer counts.
    pub(super) fn courtesy(self) -> &'static str {
        match self {
            Script::Herald => "heartbeat key",
            _ => "history",
        }
    }

    fn parts(self) -> &'static [&'static str] {
        const PRELUDE: &str = include_str!("scripts/prelude.lua");
        const WRITES: &str = include_str!("scripts/writes.lua");
        const JOURNAL: &str = include_str!("scripts/journal.lua");
        const ROSTER: &str = include_str!("scripts/roster.lua");
        const TICKS: &str = include_str!("scripts/ticks.lua");
        const EXTEND: &str = include_str!("scripts/extend.lua");
        const CLOSE: &str = include_str!("scripts/close.lua");
        match self {
            Script::Acquire => {
                &[PRELUDE, WRITES, JOURNAL, ROSTER, include_str!("scripts/acquire.lua")]
            }
            Script::Renew => &[PRELUDE, WRITES, EXTEND, include_str!("scripts/renew.lua")],
            Script::Adopt => &[PRELUDE, WRITES, EXTEND, include_str!("scripts/adopt.lua")],
            Script::Release => &[PRELUDE, WRITES, CLOSE, include_str!("scripts/release.lua")],
            Script::PassOn => {
                &[PRELUDE, WRITES, JOURNAL, CLOSE, include_str!("scripts/pass_on.lua")]
            }
            Script::Note => &[PRELUDE, WRITES, JOURNAL, ROSTER, include_str!("scripts/note.lua")],
            Script::Confirm => &[PRELUDE, WRITES, JOURNAL, include_str!("scripts/confirm.lua")],
            Script::Herald => &[PRELUDE, WRITES, include_str!("scripts/herald.lua")],
            Script::Abandon => &[PRELUDE, WRITES, JOURNAL, include_str!("scripts/abandon.lua")],
            Script::Transfer => &[PRELUDE, WRITES, JOURNAL, include_str!("scripts/transfer.lua")],
            Script::Observe => &[PRELUDE, ROSTER, include_str!("scripts/observe.lua")],
            Script::Beat => &[PRELUDE, WRITES, ROSTER, include_str!("scripts/beat.lua")],
            Script::Leave => &[PRELUDE, WRITES, ROSTER, include_str!("scripts/leave.lua")],
            Script::Ask => &[PRELUDE, WRITES, include_str!("scripts/ask.lua")],
            Script::Refuse => &[PRELUDE, WRITES, include_str!("scripts/refuse.lua")],
            Script::Pause => &[PRELUDE, WRITES, include_str!("scripts/pause.lua")],
            Script::Clear => &[PRELUDE, WRITES, JOURNAL, include_str!("scripts/clear.lua")],
            Script::History => &[PRELUDE, JOURNAL, include_str!("scripts/history.lua")],
            Script::TickBegin => &[PRELUDE, WRITES, TICKS, include_str!("scripts/tick_begin.lua")],
            Script::TickFinish => {
                &[PRELUDE, WRITES, TICKS, include_str!("scripts/tick_finish.lua")]
            }
            Script::TickLook => &[PRELUDE, TICKS, include_str!("scripts/tick_look.lua")],
            Script::Fence => &[include_str!("scripts/fence.lua")],
        }
    }
}

/// The digests of all scripts, for a store that is to run no others.
pub fn script_digests() -> impl Iterator<Item = &'static str> {
    Script::ALL.iter().map(|script| script.digest())
}

struct Source {
    text: String,
    digest: String,
}

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let source = |script: &Script| {
        let text = script.parts().concat();
        let digest = sha1_smol::Sha1::from(text.as_bytes()).digest().to_string();
        Source { text, digest }
    };
    Script::ALL.iter().map(source).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_finds_its_own_source() {
        let last_parts: Vec<_> = Script::ALL.iter().map(|s| s.parts().last()).collect();
        for (index, script) in Script::ALL.iter().enumerate() {
            assert_eq!(*script as usize, index);
            assert_eq!(script.digest().len(), 40);
            let same = last_parts.iter().filter(|part| **part == script.parts().last());
            assert_eq!(same.count(), 1, "{script:?} shares its body with another");
        }
    }

    #[test]
    fn renew_and_release_need_no_key_beyond_the_first_two() {
        for script in [Script::Renew, Script::Adopt, Script::Release] {
            for key in 3..=9 {
                assert!(!script.source().contains(&format!("KEYS[{key}]")), "{script:?}");
            }
        }
    }
}
