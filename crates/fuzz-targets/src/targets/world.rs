//! An engine without sockets, one session, and a clock that stands still.

use store_engine::{Config, Engine, Identity, NoPlatform, Origin, SessionId, parse_arguments};
use store_resp::{OwnedRequest, Reply, ReplyParser, Request};

const NOW_US: u64 = 1_700_000_000_000_000;
/// What a session has not read yet; more means that replies pile up.
const OUTPUT_MAX: usize = 64 * 1024 * 1024;

pub(super) struct World {
    engine: Engine,
    session: SessionId,
}

impl World {
    pub(super) fn new() -> Self {
        let mut config = Config::default();
        // Small, so that SETRANGE and APPEND with large numbers do not only test the allocator.
        let settings = ["--proto-max-bulk-len", "1mb"].map(str::to_owned);
        parse_arguments(&mut config, &settings).expect("the setting exists");
        let mut engine = Engine::new(config, Identity::default(), 7, Box::new(NoPlatform));
        let session = engine.open_session(NOW_US, Origin::default());
        Self { engine, session }
    }

    /// Runs a request and gives its reply; none when the session waits, or was closed.
    pub(super) fn execute(&mut self, request: Request<'_>) -> Option<Reply> {
        self.engine.execute(NOW_US, self.session, request);
        self.engine.finish(Some((self.session, request)), 1);
        let session = self.engine.session_mut(self.session)?;
        let unread = session.output.unread();
        assert!(unread <= OUTPUT_MAX, "{unread} bytes of reply");
        let output = std::mem::take(&mut session.output).to_vec();
        if output.is_empty() {
            return None;
        }
        match ReplyParser.parse(&output) {
            Ok(Some((reply, _))) => Some(reply),
            other => panic!("what was answered is no reply: {other:?}"),
        }
    }

    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Option<Reply> {
        let request = OwnedRequest::from_args(words.iter().copied());
        self.execute(request.as_request())
    }

    /// Whether the session still takes requests.
    pub(super) fn is_open(&mut self) -> bool {
        self.engine.session_mut(self.session).is_some_and(|session| session.blocked.is_none())
    }
}
