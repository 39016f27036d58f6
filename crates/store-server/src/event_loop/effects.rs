//! What the engine asks the loop to do.

use store_engine::{LogLevel, ServerRequest};

use super::EventLoop;
use crate::client::CloseState;

impl EventLoop {
    /// Does what the engine asks for, until it asks for nothing more.
    pub(super) fn apply_effects(&mut self) {
        while !self.engine.is_fetched() {
            let written = self.engine.take_written();
            let effects = self.engine.effects();
            let resumed = std::mem::take(&mut effects.resumed_sessions);
            let requests = std::mem::take(&mut effects.requests);
            let units = self.engine.units();
            if !units.is_empty() {
                self.persistence.take_units(self.now_us / 1000, units);
                self.replication.take_units(units);
                units.clear();
                self.replication.tell_writers(&mut self.engine);
            }
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
