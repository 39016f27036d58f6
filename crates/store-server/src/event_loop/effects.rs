//! What the engine asks the loop to do.

use store_engine::{LogLevel, SaveJob, ServerRequest};

use super::EventLoop;
use crate::client::CloseState;
use crate::replication::{tell_description, tell_facts};

impl EventLoop {
    /// Does what the engine asks for, until it asks for nothing more.
    #[inline]
    pub(super) fn apply_effects(&mut self) {
        while !self.engine.is_fetched() {
            self.fetch();
        }
    }

    fn fetch(&mut self) {
        let written = self.engine.take_written();
        let effects = self.engine.effects();
        let resumed = std::mem::take(&mut effects.resumed_sessions);
        let mut requests = std::mem::take(&mut effects.requests);
        self.take_units(&mut requests);
        let memory_max = self.engine.config().settings().memory_max();
        for garbage in self.engine.take_garbage() {
            if let Err(garbage) = self.freeing.free(garbage, memory_max) {
                self.engine.take_back(garbage);
            }
        }
        for id in written {
            if self.clients.of(id).is_some() {
                self.write_told(id.slot());
            }
        }
        for request in requests {
            self.apply(request);
        }
        for id in resumed {
            if self.clients.of(id).is_some()
                && let Some(mut client) = self.clients.take(id.slot())
            {
                self.run_waiting(&mut client);
                self.clients.put_back(client);
            }
        }
    }

    /// What was written goes to the file and to the stream. A snapshot that began among it learns
    /// here what its data is.
    fn take_units(&mut self, requests: &mut [ServerRequest]) {
        let units = std::mem::take(self.engine.units());
        if units.is_empty() {
            return;
        }
        self.persistence.take_units(self.now_us / 1000, &units);
        let mut rest = &units[..];
        if let Some((job, count)) = requests.iter_mut().find_map(waiting_job) {
            let (before, behind) = rest.split_at(count.min(rest.len()));
            self.replication.take_units(before);
            if let Some(facts) = self.replication.machine.facts() {
                job.describe(facts);
            }
            job.units_before = None;
            rest = behind;
        }
        self.replication.take_units(rest);
        self.engine.recycle_units(units);
        self.replication.tell_writers(&mut self.engine);
        tell_description(&self.replication, &mut self.engine);
    }

    /// The same before the end of the turn, for whoever is told the offset.
    pub(super) fn feed_early(&mut self) {
        if self.engine.units().is_empty() {
            return;
        }
        let mut requests = std::mem::take(&mut self.engine.effects().requests);
        self.take_units(&mut requests);
        tell_facts(&self.replication, &mut self.engine);
        self.engine.effects().requests.splice(..0, requests);
    }

    fn apply(&mut self, request: ServerRequest) {
        match request {
            ServerRequest::Close(id) if self.clients.of(id).is_some() => {
                self.clients.close_later(id.slot(), CloseState::Now);
            }
            ServerRequest::CloseAfterOutput(id) if self.clients.of(id).is_some() => {
                self.clients.close_later(id.slot(), CloseState::AfterOutput);
            }
            ServerRequest::Close(id) | ServerRequest::CloseAfterOutput(id) => {
                self.close_killed_link(id);
            }
            ServerRequest::Shutdown => (self.is_stopping, self.is_settled) = (true, true),
            ServerRequest::SaveStarted(job) => self.begin_save(*job),
            ServerRequest::SaveCancelled => _ = self.shared.generations.advance(),
            ServerRequest::Log(text) => self.log(LogLevel::Notice, &text),
            ServerRequest::SettingsChanged => {
                self.log_level = self.engine.config().settings().logs.level;
                self.change_listeners();
                self.persistence.apply(&request, self.now_us / 1000, &mut self.engine);
                self.set_replication();
                self.set_cluster();
            }
            ServerRequest::LoadAof => self.load_again(),
            ServerRequest::Replication(id, request) => self.ask_replication(id, request),
            ServerRequest::Migrate(id, request) => self.begin_migration(id, *request),
            ServerRequest::Decode(id, request) => self.begin_decoding(id, request),
            ServerRequest::Sentinel(id, request) => self.ask_sentinel(id, request),
            ServerRequest::ClusterChanged(id) => self.answer_when_saved(id),
            ServerRequest::Fail(reason) => self.end_with(reason),
            ServerRequest::RewriteAof => {
                self.persistence.apply(&request, self.now_us / 1000, &mut self.engine);
            }
        }
    }
}

/// A save that began when so many of the units that wait had happened.
fn waiting_job(request: &mut ServerRequest) -> Option<(&mut SaveJob, usize)> {
    match request {
        ServerRequest::SaveStarted(job) => job.units_before.map(|count| (&mut **job, count)),
        _ => None,
    }
}
