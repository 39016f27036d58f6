//! A payload of the primary in a turn of the loop: it is kept in a file until it is whole, then
//! loaded in slices; or loaded aside by a thread as it arrives, then swapped in.

use store_engine::{AsideData, LogLevel};
use store_persist::rdb::{Fault, Mended, RdbError};
use store_replica::REFUSED_LOADS_MAX;
use store_types::dump::LoadError;

use super::EventLoop;
use crate::persistence::{Loader, Step, dir, mended_words, stream_db};
use crate::replication::{
    BeginAside, Incoming, IncomingAside, IncomingEvent, IncomingFailure, PartsSender, WhileLoading,
    Written, follow_again, loads_aside,
};

impl EventLoop {
    pub(super) fn take_payload(&mut self, bytes: Vec<u8>) {
        // What arrives is loaded as it was begun, whatever is set meanwhile.
        if !self.replication.link.has_payload() && loads_aside(&self.engine) {
            self.begin_aside();
        }
        if !self.replication.link.has_payload() {
            let text = "MASTER <-> REPLICA sync: receiving the payload of the master to disk";
            self.log(LogLevel::Notice, text);
            self.replication.link.payloads += 1;
            let number = self.replication.link.payloads;
            let disk = self.persistence.disk.clone();
            let folder = dir(self.engine.config());
            let mailbox = self.shared.mailbox.clone();
            match Incoming::begin(disk, &folder, number, self.engine.aside(), mailbox) {
                Ok(incoming) => self.replication.link.incoming = Some(incoming),
                Err(error) => {
                    let reason = format!(
                        "Opening the temp file needed for MASTER <-> REPLICA synchronization in \
                         {}: {error}; set dir to a folder that can be written",
                        folder.display()
                    );
                    return self.payload_failed(&reason);
                }
            }
        }
        if let Some(parts) = self.replication.link.parts_mut() {
            parts.push(bytes);
        }
    }

    /// The payload is loaded as it arrives. Without a thread for that it is kept in a file.
    fn begin_aside(&mut self) {
        self.replication.link.payloads += 1;
        let number = self.replication.link.payloads;
        let now_us = self.clock.now_us();
        let meanwhile = match self.replication.machine.is_own_history() {
            true => WhileLoading::OldData,
            false => WhileLoading::Refusals(self.engine.begin_refusing(now_us)),
        };
        let load_delay_us = self.engine.config().settings().snapshot.load_delay_us;
        let aside = self.engine.aside();
        let begin = BeginAside { aside, now_us, number, meanwhile, load_delay_us };
        match IncomingAside::begin(begin, self.shared.mailbox.clone()) {
            Ok(incoming) => {
                let text = "MASTER <-> REPLICA sync: Loading DB in memory";
                self.log(LogLevel::Notice, text);
                self.engine.set_loading_aside(meanwhile == WhileLoading::OldData);
                self.replication.link.aside = Some(incoming);
            }
            Err(error) => {
                self.end_aside(meanwhile);
                let line = format!("The payload is not loaded as it arrives: {error}");
                self.log(LogLevel::Warning, &line);
            }
        }
    }

    /// All of it came.
    pub(super) fn finish_payload(&mut self) {
        match self.replication.link.parts_mut() {
            Some(parts) => parts.finish(),
            None => self.payload_failed("the payload is empty"),
        }
    }

    fn end_aside(&mut self, meanwhile: WhileLoading) {
        self.engine.set_loading_aside(false);
        if let WhileLoading::Refusals(session) = meanwhile {
            self.engine.end_refusing(session);
        }
    }

    pub(super) fn take_payload_event(&mut self, event: IncomingEvent) {
        let current = self.replication.link.parts().map(PartsSender::number);
        match event {
            IncomingEvent::HasRoom => {}
            IncomingEvent::Written { number, result } if current == Some(number) => {
                self.take_written(result);
            }
            IncomingEvent::LoadedAside { number, result } if current == Some(number) => {
                self.take_loaded_aside(result);
            }
            // Of a payload that was given up.
            IncomingEvent::Written { .. } | IncomingEvent::LoadedAside { .. } => {}
        }
    }

    fn take_written(&mut self, result: Result<Written, IncomingFailure>) {
        match result {
            Ok(written) => self.begin_load(&written),
            Err(IncomingFailure::Payload(error)) => self.payload_refused(&error),
            Err(IncomingFailure::Disk(error)) => {
                let line = format!(
                    "Write error or short write writing to the DB dump file needed for MASTER <-> \
                     REPLICA synchronization: {error}"
                );
                self.log(LogLevel::Warning, &line);
                self.payload_failed("it could not be written");
            }
        }
    }

    /// The primary may have lost its data, and with it goes what is here.
    fn warn_of_emptiness(&mut self) {
        let count = self.engine.key_count();
        if count > 0 {
            let line = format!(
                "!!! The master has no keys, and all of this replica (keys: {count}) goes \
                 for it. If the master lost its data, restore it from a backup, or from another \
                 replica that still has them !!!"
            );
            self.log(LogLevel::Warning, &line);
        }
    }

    /// What was loaded aside takes the place of the old data, if it is whole.
    fn take_loaded_aside(&mut self, result: Result<Box<AsideData>, RdbError>) {
        let data = match result {
            Ok(data) => data,
            Err(error) => return self.payload_refused(&error),
        };
        self.log_mended(&data.report().mended);
        if data.report().keys == 0 {
            self.warn_of_emptiness();
        }
        self.forget_history();
        let Some(incoming) = self.replication.link.aside.take() else { return };
        self.end_aside(incoming.meanwhile);
        let now_us = self.clock.now_us();
        self.persistence.hold_append(now_us / 1000, &mut self.engine);
        let db = stream_db(data.report());
        if let Err(reason) = self.engine.adopt(now_us, *data) {
            let line = format!("A library of functions of the master does not load: {reason}");
            self.log(LogLevel::Warning, &line);
        }
        self.finish_load(db);
    }

    /// The old data is about to go, and with it whoever follows it: called by whoever drops it,
    /// directly before, so that the history never tells of data that is not there.
    fn forget_history(&mut self) {
        let now = self.replication.now();
        self.replication.machine.handle_data_forgotten(now);
        self.carry_out();
    }

    /// The payload is whole, and every record of it can be loaded: the old data goes.
    fn begin_load(&mut self, written: &Written) {
        let Some(incoming) = &self.replication.link.incoming else { return };
        let disk = self.persistence.disk.clone();
        let loader = match Loader::of_payload(disk, &self.engine, incoming.path(), written.bytes) {
            Ok(loader) => loader,
            Err(reason) => return self.payload_failed(&reason),
        };
        if written.keys == 0 {
            self.warn_of_emptiness();
        }
        self.log(LogLevel::Notice, "MASTER <-> REPLICA sync: Flushing old data");
        self.forget_history();
        let now_us = self.clock.now_us();
        self.persistence.hold_append(now_us / 1000, &mut self.engine);
        self.engine.forget_for_primary(now_us);
        self.log(LogLevel::Notice, "MASTER <-> REPLICA sync: Loading DB in memory");
        self.replication.link.loader = Some(Box::new(loader));
    }

    pub(super) fn load_slice(&mut self) {
        let Some(mut loader) = self.replication.link.loader.take() else { return };
        let clock = &self.clock;
        let step = loader.step(&mut self.engine, &|| clock.now_us());
        for (level, line) in std::mem::take(&mut loader.notes) {
            self.log(level, &line);
        }
        match step {
            Ok(Step::More) => self.replication.link.loader = Some(loader),
            Ok(Step::Done(loaded)) => {
                self.replication.link.incoming = None;
                self.finish_load(loaded.stream_db);
            }
            Err(reason) => {
                self.replication.link.loader = Some(loader);
                self.payload_failed(&reason);
            }
        }
    }

    /// The data is the primary's.
    fn finish_load(&mut self, stream_db: usize) {
        let now_ms = self.clock.now_us() / 1000;
        self.engine.note_unsaved();
        self.begin_incarnation();
        self.replication.link.history_before = None;
        self.persistence.note_replaced();
        self.persistence.resume_append(now_ms, &mut self.engine);
        self.log(LogLevel::Notice, "MASTER <-> REPLICA sync: Finished with success");
        let now = self.replication.now();
        self.replication.machine.handle_loaded(now, Some(stream_db));
        self.carry_out();
    }

    pub(super) fn payload_failed(&mut self, reason: &str) {
        let now = self.replication.now();
        self.replication.machine.handle_loaded(now, None);
        self.log_failed_payload(reason);
        self.carry_out();
    }

    /// It came whole, and something in it is not taken here.
    fn payload_refused(&mut self, error: &RdbError) {
        let now = self.replication.now();
        match error {
            RdbError::Damaged { .. } => self.replication.machine.handle_refused(now),
            _ => self.replication.machine.handle_loaded(now, None),
        }
        self.log_failed_payload(&advice(error));
        self.carry_out();
    }

    fn log_failed_payload(&mut self, reason: &str) {
        let machine = &self.replication.machine;
        let then = match machine.dials_in(self.replication.now()) {
            None if machine.is_link_stopped() => format!(
                "That was the last of {REFUSED_LOADS_MAX} times, and no data is asked for any \
                 more; this replica serves what it has. Once that is done, {}",
                follow_again(&self.replication, &self.engine)
            ),
            pause => {
                let seconds = pause.unwrap_or_default().as_secs();
                format!("The data is asked for again in {seconds} s")
            }
        };
        let line = format!(
            "Failed trying to load the MASTER synchronization DB from disk: {reason}. {then}"
        );
        self.log(LogLevel::Warning, &line);
    }

    fn log_mended(&mut self, mended: &Mended) {
        if let Some(line) = mended_words(mended) {
            self.log(LogLevel::Warning, &line);
        }
    }

    /// The payload, or what was loaded of it, is of no use.
    pub(super) fn drop_payload(&mut self) {
        self.replication.link.incoming = None;
        if let Some(aside) = self.replication.link.aside.take() {
            // The old data was not touched.
            self.end_aside(aside.meanwhile);
        }
        if let Some(loader) = self.replication.link.loader.take() {
            let now_us = self.clock.now_us();
            loader.give_up(&mut self.engine);
            self.engine.forget_all(now_us);
            self.begin_incarnation();
            self.persistence.resume_append(now_us / 1000, &mut self.engine);
        }
    }
}

/// What is wrong with a primary's payload, and what to do.
fn advice(error: &RdbError) -> String {
    let fault = match error {
        RdbError::Read { .. } => return error.to_string(),
        RdbError::Damaged { fault, .. } => fault,
        _ => return error.to_string(),
    };
    let next = match fault {
        Fault::Version(_) => "follow a master of Redis 7.0 or older, or of this kind",
        Fault::Value { error: LoadError::UnknownType(_), .. } => {
            "delete the keys of newer types on the master, or follow one of Redis 7.0 or older"
        }
        Fault::Database { .. } | Fault::Module { .. } | Fault::Function(_) => fault.next_step(),
        Fault::Value { .. } => "delete or rewrite that key on the master",
        _ => "look at the log of the master",
    };
    format!("{fault}; {next}")
}
