//! Files that may not grow any more.

use std::io;

use signal_hook::consts::SIGXFSZ;

/// From now on a write beyond the limit for files (`ulimit -f`) fails like one to a full disk. By
/// itself the system would end the process with SIGXFSZ, without a word. A handler, and not
/// SIG_IGN, which programs that we start would inherit.
pub(crate) fn fail_writes_beyond_it() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Default::default()).map(drop)
}
