//! From a term to a running program.

use tenure_core::Moment;

use super::{Output, Stage, StartError, Wrapper, WrapperMessage};
use crate::process::{Ending, Pid};

/// The number of the signal by which guards end programs.
pub(super) const SIGKILL: u8 = 9;

impl Wrapper {
    /// Forks, as soon as there is a guard and the program before is forgotten.
    pub(super) fn advance(&mut self, now: Moment) {
        self.keep_guard(now);
        let is_free = self.guard.is_ready() && self.unforgotten.is_none();
        let Some(program) = &mut self.program else { return };
        if program.stage != Stage::Waiting || !is_free || !program.knows_strangers {
            return;
        }
        if now >= program.deadline.kill_at {
            return self.cut_short(now);
        }
        program.stage = Stage::Forked;
        self.outputs.push_back(Output::Fork);
    }

    /// The program's process is there and waits at the gate.
    pub fn handle_forked(&mut self, now: Moment, leader: Pid) {
        let Some(program) = &mut self.program else { return };
        program.group = Some(leader);
        if program.stage == Stage::Forked {
            program.stage = Stage::AtGate;
        }
        self.introduce_program(now);
        if matches!(self.program.as_ref().map(|it| &it.stage), Some(Stage::Ending(_))) {
            self.look_for_end(now);
        }
    }

    /// The system refused another process.
    pub fn handle_not_forked(&mut self, now: Moment, error: i32) {
        let Some(program) = &mut self.program else { return };
        program.not_started = Some(StartError::Fork(error));
        self.cut_short(now);
    }

    /// The guard watches: the program may be executed, unless it is too late by now.
    pub(super) fn open_gate(&mut self, now: Moment) {
        let Some(program) = &mut self.program else { return };
        if program.stage != Stage::AtGate {
            return;
        }
        if now >= program.deadline.kill_at {
            return self.cut_short(now);
        }
        program.stage = Stage::Opening;
        self.outputs.push_back(Output::OpenGate);
    }

    /// The program is being executed.
    pub fn handle_executed(&mut self, now: Moment) {
        let Some(program) = &mut self.program else { return };
        program.has_executed = true;
        if program.stage != Stage::Opening {
            return;
        }
        program.stage = Stage::Running;
        if let (true, Some(group)) = (program.is_cut_short, program.group) {
            program.asked_at = Some(now);
            self.ask_to_stop(group);
        }
    }

    /// The program could not be executed; its process ends.
    pub fn handle_not_executed(&mut self, now: Moment, error: i32) {
        let Some(program) = &mut self.program else { return };
        if !program.has_executed && program.not_started.is_none() {
            program.not_started = Some(StartError::Execute(error));
            self.end(now);
        }
    }

    /// The leader has ended, and nobody had told it to, as far as is known.
    pub(super) fn leader_ended(&mut self, now: Moment, ending: Ending) {
        let Some(program) = &mut self.program else { return };
        if !program.has_executed && !program.is_cut_short && now < program.deadline.kill_at {
            program.not_started = program.not_started.or(Some(StartError::Died(ending)));
        }
        // The guard acts when this process could not; its word may still be on the way.
        let is_late = now >= program.deadline.kill_at;
        let was_killed = is_late && ending == Ending::Signalled(SIGKILL);
        program.is_cut_short |= was_killed || is_late && !program.has_executed;
        // Asked in time, that is: a wrapper that did not run asks when nobody is left to hear it.
        let asked_at = program.asked_at.filter(|asked_at| *asked_at < program.deadline.kill_at);
        let has_executed = program.has_executed;
        self.end(now);
        if was_killed && has_executed {
            let message = match asked_at {
                Some(asked_at) => WrapperMessage::CutOff(now.since(asked_at)),
                None => WrapperMessage::KilledByGuard,
            };
            self.outputs.push_back(Output::Say(message));
        }
    }
}
