//! Loading what an earlier process left, in slices, so that clients are answered meanwhile.
//!
//! ```text
//! appendonly yes and files listed ─► base, then increments in order
//! else dump.rdb, whether snapshots are to be made or not
//! ```
//! A file that cannot be understood ends the start with its name, the place and what to do, and
//! is left as it is. Only the end of the last increment may be cut: that is how a crash leaves it.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use store_engine::{
    Config, EndedKeys, Engine, LoadFailure, LoadOptions, LoadReport, LogLevel, SessionId, fact,
};
use store_persist::aof::{
    AofError, CommandReader, Layout, Manifest, Part, PlanError, is_snapshot, make_plan,
};
use store_persist::disk::Disk;
use store_persist::rdb::{FileReader, Mended, RdbError};
use store_replica::{Facts, ReplicationId};

use super::delay::KeyDelay;
use super::{layout, snapshot_path};

/// Requests or entries between two looks at the clock.
const SLICE_LEN: usize = 256;
/// Time that a slice may take: clients wait for it.
const SLICE_US: u64 = 5000;
/// Between lines about progress.
const PROGRESS_US: u64 = 5_000_000;

type Input = Box<dyn Read + Send>;

/// What became of a slice.
pub(crate) enum Step {
    /// There is more.
    More,
    /// All is loaded.
    Done(Loaded),
}

/// What was loaded.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The files of the append-only file; of nothing without one.
    pub(crate) manifest: Manifest,
    /// Whether there was anything.
    pub(crate) has_data: bool,
    /// Which history of replication a snapshot says that it is of.
    pub(crate) history: Option<Facts>,
    /// The database that the stream behind a primary's payload has selected.
    pub(crate) stream_db: usize,
}

/// Loads files one after the other.
pub(crate) struct Loader {
    disk: Arc<dyn Disk>,
    manifest: Manifest,
    parts: VecDeque<Part>,
    current: Option<Current>,
    session: Option<SessionId>,
    is_aof: bool,
    /// Whether files from before a full sync are left as they are.
    is_superseded: bool,
    /// Whether a primary sent it, to a server that serves already.
    is_payload: bool,
    /// What becomes of keys in a snapshot that are over.
    ended: EndedKeys,
    stream_db: usize,
    history: Option<Facts>,
    may_cut: bool,
    total_bytes: u64,
    done_bytes: u64,
    keys: u64,
    requests: u64,
    started_us: u64,
    told_us: u64,
    pub(crate) notes: Vec<(LogLevel, String)>,
}

/// The file being loaded.
struct Current {
    part: Part,
    content: Content,
}

/// Some requests that are run at once.
struct Slice {
    session: SessionId,
    len: usize,
    began_us: u64,
}

enum Content {
    Snapshot(Box<FileReader<Input>>, LoadReport),
    Requests(Box<CommandReader<Input>>),
}

impl Loader {
    /// Looks what there is to load. Fails with what to tell.
    pub(crate) fn find(disk: Arc<dyn Disk>, config: &Config) -> Result<Self, String> {
        let mut loader = match config.settings().append.file.is_wanted {
            true => Self::of_appended(disk, config, &layout(config))?,
            false => Self::of_nothing(disk, config),
        };
        if loader.parts.is_empty() {
            loader.is_aof = false;
            if loader.is_superseded {
                return Ok(loader);
            }
            if let Some(path) = snapshot_path(config) {
                loader.parts.extend(loader.snapshot_part(&path)?);
            }
        }
        loader.total_bytes = loader.parts.iter().map(|part| part.len).sum();
        Ok(loader)
    }

    /// Loads the append-only file there and nothing else. Fails with what to tell.
    pub(crate) fn of_appended(
        disk: Arc<dyn Disk>,
        config: &Config,
        layout: &Layout,
    ) -> Result<Self, String> {
        let plan = make_plan(&*disk, layout).map_err(|error| advise(&error))?;
        let mut loader = Self::of_nothing(disk, config);
        if plan.was_upgraded {
            let line = "Successfully migrated an old-style AOF into its folder";
            loader.notes.push((LogLevel::Notice, line.to_owned()));
        }
        let is_lost = plan.parts.is_empty();
        if let Some(path) = plan.superseded.filter(|_| is_lost) {
            loader.is_superseded = true;
            let line = format!(
                "The data of the last full sync was not written yet when this server ended. Files \
                 from before it are not loaded, nor is a snapshot: this server begins empty, and \
                 its master has the data. {} lists the old AOF files; without its last word it is \
                 their manifest",
                path.display()
            );
            loader.notes.push((LogLevel::Warning, line));
        }
        (loader.manifest, loader.parts, loader.is_aof) = (plan.manifest, plan.parts.into(), true);
        loader.total_bytes = loader.parts.iter().map(|part| part.len).sum();
        Ok(loader)
    }

    /// Loads what a primary sent, into a server that serves already. Fails with what to tell when
    /// the file is not what it should be; nothing was changed then.
    pub(crate) fn of_payload(
        disk: Arc<dyn Disk>,
        engine: &Engine,
        path: &Path,
        len: u64,
    ) -> Result<Self, String> {
        let mut loader = Self::of_nothing(disk, engine.config());
        (loader.is_payload, loader.total_bytes) = (true, len);
        loader.ended = EndedKeys::Loaded;
        let name = path.display().to_string();
        let part = Part { path: path.to_owned(), name, len, is_last: true, before: Vec::new() };
        loader.current = Some(loader.open(part, engine)?);
        Ok(loader)
    }

    /// Nothing more is loaded; what was is for the caller to forget.
    pub(crate) fn give_up(&self, engine: &mut Engine) {
        if let Some(session) = self.session {
            engine.end_reloading(session);
        }
    }

    fn of_nothing(disk: Arc<dyn Disk>, config: &Config) -> Self {
        Self {
            disk,
            manifest: Manifest::default(),
            parts: VecDeque::new(),
            current: None,
            session: None,
            is_aof: false,
            is_superseded: false,
            is_payload: false,
            // Whoever removes them says so.
            ended: match config.settings().replica.primary.is_some() {
                true => EndedKeys::Loaded,
                false => EndedKeys::LoadedIfFollowed,
            },
            stream_db: 0,
            history: None,
            may_cut: config.settings().append.may_cut,
            total_bytes: 0,
            done_bytes: 0,
            keys: 0,
            requests: 0,
            started_us: 0,
            told_us: 0,
            notes: Vec::new(),
        }
    }

    /// The snapshot file, if it is there. With an append-only file that is wanted and not there
    /// yet it is where the data is.
    fn snapshot_part(&self, path: &Path) -> Result<Option<Part>, String> {
        match self.disk.size(path) {
            Ok(len) => {
                let name = path.display().to_string();
                Ok(Some(Part {
                    path: path.to_owned(),
                    name,
                    len,
                    is_last: true,
                    before: Vec::new(),
                }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }

    /// Loads for a few milliseconds. Fails with what to tell; nothing may be served then.
    pub(crate) fn step(
        &mut self,
        engine: &mut Engine,
        now_us: &dyn Fn() -> u64,
    ) -> Result<Step, String> {
        let began_us = now_us();
        let mut delay = KeyDelay::new(engine.config().settings().snapshot.load_delay_us);
        let slice_len = if delay.is_none() { SLICE_LEN } else { 1 };
        let session = match self.session {
            Some(session) => session,
            None => self.begin(engine, began_us),
        };
        loop {
            let Some(mut current) = self.current.take() else {
                match self.parts.pop_front() {
                    Some(part) => self.current = Some(self.open(part, engine)?),
                    None => return Ok(Step::Done(self.finish(engine, session, now_us()))),
                }
                continue;
            };
            let is_over = match &mut current.content {
                Content::Snapshot(file, report) => {
                    let ended = if self.is_aof { EndedKeys::Loaded } else { self.ended };
                    // What was looked at before the old data went must not fail any more.
                    let options = LoadOptions { ended, merges: self.is_payload };
                    engine
                        .load_records(began_us, file, slice_len, options, report)
                        .map_err(|error| rdb_advice(&current.part.path, &error))?
                }
                Content::Requests(reader) => {
                    let slice = Slice { session, len: slice_len, began_us };
                    self.load_requests(&current.part, reader, engine, slice)?
                }
            };
            delay.wait(slice_len as u64, &|| true);
            self.tell_progress(engine, &current, now_us());
            match is_over {
                true => self.current = self.next_content(current),
                false => self.current = Some(current),
            }
            if now_us() - began_us > SLICE_US {
                return Ok(Step::More);
            }
        }
    }

    fn begin(&mut self, engine: &mut Engine, now_us: u64) -> SessionId {
        (self.started_us, self.told_us) = (now_us, now_us);
        let session = engine.begin_loading(now_us, self.total_bytes);
        self.session = Some(session);
        session
    }

    fn open(&self, part: Part, engine: &Engine) -> Result<Current, String> {
        let read = || -> io::Result<(Vec<u8>, Input)> {
            let mut input = self.disk.read(&part.path)?;
            let mut head = Vec::new();
            input.by_ref().take(5).read_to_end(&mut head)?;
            Ok((head, input))
        };
        let (head, input) =
            read().map_err(|error| format!("cannot read {}: {error}", part.path.display()))?;
        let is_snapshot = is_snapshot(&part.path, &head) || !self.is_aof;
        let input: Input = Box::new(io::Cursor::new(head).chain(input));
        let content = if is_snapshot {
            let mut file = FileReader::begin(input, engine.state().limits).map_err(|error| {
                let next = if self.is_aof { "; restore it from a backup" } else { "" };
                format!("{}{next}", rdb_advice(&part.path, &error))
            })?;
            let skips = engine.state().debug.skips_checksums;
            file.verify_checksum(engine.config().settings().snapshot.checksums && !skips);
            let report = LoadReport { version: file.version(), ..LoadReport::default() };
            Content::Snapshot(Box::new(file), report)
        } else {
            Content::Requests(Box::new(CommandReader::new(input, 0).behind(&part.before)))
        };
        Ok(Current { part, content })
    }

    /// What follows in the same file: requests behind a snapshot, or nothing.
    fn next_content(&mut self, current: Current) -> Option<Current> {
        let Current { part, content } = current;
        match content {
            Content::Snapshot(file, report) => {
                self.keys += report.keys;
                self.notes.extend(mended_words(&report.mended).map(|it| (LogLevel::Warning, it)));
                self.stream_db = stream_db(&report);
                self.history = history(&report).filter(|_| !self.is_aof);
                if !self.is_aof {
                    self.done_bytes += part.len;
                    return None;
                }
                let offset = file.offset();
                let (input, rest) = file.into_rest();
                let input: Input = Box::new(io::Cursor::new(rest).chain(input));
                let content = Content::Requests(Box::new(CommandReader::new(input, offset)));
                Some(Current { part, content })
            }
            Content::Requests(reader) => {
                self.requests += reader.requests();
                self.done_bytes += part.len;
                None
            }
        }
    }

    /// Runs some requests. True at the end of the file.
    fn load_requests(
        &mut self,
        part: &Part,
        reader: &mut CommandReader<Input>,
        engine: &mut Engine,
        slice: Slice,
    ) -> Result<bool, String> {
        let Slice { session, len, began_us: now_us } = slice;
        for _ in 0..len {
            match reader.advance() {
                Ok(false) => return Ok(true),
                Ok(true) => {}
                Err(AofError::Truncated { at, valid_len, inside })
                    if part.is_last && self.may_cut =>
                {
                    engine.drop_loaded_transaction(now_us, session);
                    self.cut(part, at, valid_len, inside)?;
                    return Ok(true);
                }
                Err(error) => return Err(aof_advice(&part.path, &error)),
            }
            engine
                .load_request(now_us, session, reader.request())
                .map_err(|failure| request_advice(&part.path, reader.offset(), &failure))?;
        }
        Ok(false)
    }

    /// A crash left the end of the last file torn: what is whole stays.
    fn cut(&mut self, part: &Part, at: u64, valid_len: u64, inside: &str) -> Result<(), String> {
        let path = part.path.display();
        self.warn(format!("!!! Warning: short read while loading the AOF file {}!!!", part.name));
        self.warn(format!(
            "{path} ends at offset {at} in the middle of {inside}: truncating it to {valid_len} \
             bytes, {} less than it had. Set aof-load-truncated to no to have such a start refused.",
            part.len.saturating_sub(valid_len)
        ));
        self.disk
            .truncate(&part.path, valid_len)
            .map_err(|error| format!("cannot truncate {path}: {error}"))?;
        self.warn(format!("AOF {} loaded anyway because aof-load-truncated is enabled", part.name));
        Ok(())
    }

    fn tell_progress(&mut self, engine: &mut Engine, current: &Current, now_us: u64) {
        let (offset, keys, requests) = match &current.content {
            Content::Snapshot(file, report) => (file.offset(), report.keys, 0),
            Content::Requests(reader) => (reader.offset(), 0, reader.requests()),
        };
        let done = self.done_bytes + offset;
        engine.note_loaded(done);
        if now_us - self.told_us >= PROGRESS_US {
            self.told_us = now_us;
            let percent = 100 * done / self.total_bytes.max(1);
            let (keys, requests) = (self.keys + keys, self.requests + requests);
            let line = format!(
                "Loading {}: {percent}% of {} bytes, {keys} keys and {requests} requests so far",
                current.part.name, self.total_bytes
            );
            self.notes.push((LogLevel::Notice, line));
        }
    }

    fn finish(&mut self, engine: &mut Engine, session: SessionId, now_us: u64) -> Loaded {
        match self.is_payload {
            true => engine.end_reloading(session),
            false => engine.end_loading(session),
        }
        if self.total_bytes > 0 {
            let seconds = (now_us - self.started_us) as f64 / 1e6;
            let from = match (self.is_aof, self.is_payload) {
                (true, _) => "append only file",
                (_, true) => "master",
                _ => "disk",
            };
            let (keys, requests) = (self.keys, self.requests);
            self.notes.push((
                LogLevel::Notice,
                format!("DB loaded from {from}: {seconds:.3} seconds, {keys} keys and {requests} requests"),
            ));
        }
        let manifest = std::mem::take(&mut self.manifest);
        let has_data = self.total_bytes > 0;
        Loaded { manifest, has_data, stream_db: self.stream_db, history: self.history }
    }

    fn warn(&mut self, line: String) {
        self.notes.push((LogLevel::Warning, line));
    }
}

/// What the log says about values that were made whole, if there are any.
pub(crate) fn mended_words(mended: &Mended) -> Option<String> {
    let first = mended.first.as_ref()?;
    Some(format!(
        "{} values contradict themselves and were made whole, as redis-server takes them; the \
         first: {first}. A Redis server that has such a key may answer otherwise, and end when the \
         key is written to: rewrite the key there",
        mended.values
    ))
}

/// Which history of replication the snapshot is of, if it says so.
fn history(report: &LoadReport) -> Option<Facts> {
    let id = ReplicationId::parse(report.facts.get(fact::REPLICATION_ID)?)?;
    let (offset, db) = (number(report, fact::OFFSET)?, number(report, fact::STREAM_DB)?);
    Some(Facts { id, offset, db: usize::try_from(db).ok()? })
}

/// The database that the stream behind a primary's payload has selected.
pub(crate) fn stream_db(report: &LoadReport) -> usize {
    number(report, fact::STREAM_DB).unwrap_or(0) as usize
}

fn number(report: &LoadReport, name: &str) -> Option<u64> {
    let number = store_resp::parse_integer(report.facts.get(name)?)?;
    u64::try_from(number).ok()
}

fn request_advice(path: &Path, offset: u64, failure: &LoadFailure) -> String {
    let path = path.display();
    let next = match failure {
        LoadFailure::UnknownCommand(_) | LoadFailure::NoChange => {
            "load it with the server that wrote it".to_owned()
        }
        LoadFailure::Database { .. } => {
            "set databases to at least as many as the server had that wrote it".to_owned()
        }
        _ => format!(
            "restore it from a backup, or run `tenure check-aof {path}` to see whether it is whole"
        ),
    };
    format!(
        "{path} has a request at offset {offset} that cannot be loaded: {failure}. The file is \
         left as it is; {next}"
    )
}

fn rdb_advice(path: &Path, error: &RdbError) -> String {
    format!("{}: {error}. The file is left as it is", path.display())
}

fn aof_advice(path: &Path, error: &AofError) -> String {
    let path = path.display();
    let next = match error {
        AofError::Read { .. } => "check the disk".to_owned(),
        AofError::Discontinued { .. } => "restore the one before it from a backup".to_owned(),
        AofError::Truncated { .. } => format!(
            "to start without what is cut, set aof-load-truncated to yes if it is the last file, \
             or run `tenure check-aof --fix {path}`"
        ),
        _ => format!(
            "restore it from a backup, or run `tenure check-aof {path}` to see and \
             `tenure check-aof --fix {path}` to cut everything behind that place"
        ),
    };
    format!("{path} {error}. The file is left as it is; {next}")
}

fn advise(error: &PlanError) -> String {
    let next = match error {
        PlanError::Disk { .. } => "check the setting dir and its permissions",
        PlanError::Unlisted { .. } => {
            "restore the manifest from a backup, or move the file away if you can do without it"
        }
        PlanError::Manifest { .. } => "restore it from a backup, or correct the line by hand",
        _ => {
            "restore it from a backup, or remove its line and the one with #SUM if you can do without \
             its data"
        }
    };
    format!("{error}. Nothing was changed; {next}")
}
