//! The guard: a small process that ends the program when the wrapper cannot.
//!
//! What it does is decided in `tenure-run`; here are its pipes, its timer and its signals. Its
//! deadlines are moments of the clock that counts through suspend.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Signal, kill_process_group};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tenure::Moment;
use tenure_run::{
    Guard, GuardMessage, GuardOutput, KillAnswer, Lateness, NumberedOrder, ORDER_LEN, Order,
};

use super::mark::Mark;
use super::proc::{Processes, Watched, answer_of, to_system};
use super::search::Search;
use super::waited::waited_for_processor;
use crate::clock::boot_now;
use crate::output::{duration, warn};
use crate::{log_queue, logging};

/// The word with which the program starts itself as a guard; the instance id follows, and how the
/// log is written if that is JSON.
pub(crate) const SUBCOMMAND: &str = "__guard";
pub(crate) const JSON: &str = "json";
/// How long its last words may take: nobody waits for it, but it must end.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(500);

/// What the program does as a guard.
pub(crate) fn run() -> ExitCode {
    // Only SIGKILL and SIGSTOP get through: whoever ends the wrapper by a signal to everything
    // around it must not end the guard first.
    let _ = SigSet::all().thread_block();
    // A group of its own, away from the terminal. It fails where there is one already.
    let _ = rustix::process::setsid();
    if std::env::args_os().nth(3).is_some_and(|word| word == JSON) {
        logging::write_json();
    }
    let served = Post::open().map(|mut post| post.serve());
    if let Err(error) = &served {
        warn(&format!("guard: {error}"));
    }
    log_queue::flush(LAST_WORDS_TIMEOUT);
    ExitCode::from(u8::from(served.is_err()))
}

/// With pages of two megabytes, each handful of allocations would cost one. The program that is run
/// gets them back.
pub(crate) fn stay_small() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// What a guard has in its hands.
struct Post {
    machine: Guard,
    /// Until the wrapper is gone.
    orders: Option<File>,
    replies: File,
    timer: OwnedFd,
    /// Without `/proc`, or without an id, only the group is killed.
    processes: Option<Processes>,
    id: Option<Vec<u8>>,
    /// While it kills.
    search: Option<Search>,
    /// The leader of the group that is watched, as `/proc` shows it.
    leader: Option<Watched>,
}

impl Post {
    fn open() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        // Not through the standard library's buffers: `poll` does not know what waits there.
        let orders = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let replies = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        // A wrapper that does not listen must not hold the guard up.
        fcntl_setfl(&replies, OFlags::NONBLOCK)?;
        let id = std::env::args_os().nth(2).map(OsStringExt::into_vec);
        let processes = Processes::open().ok();
        let (machine, orders) = (Guard::new(), Some(orders));
        Ok(Post { machine, orders, replies, timer, processes, id, search: None, leader: None })
    }

    fn serve(&mut self) {
        loop {
            while let Some(output) = self.machine.poll_output() {
                if output == GuardOutput::Leave {
                    return;
                }
                self.perform(output);
            }
            self.set_timer(self.machine.wakes_at());
            match self.wait() {
                // Orders first, all of them: a deadline that has just been moved must not fire.
                Ok(true) => match self.read_order() {
                    Some(order) => self.handle_order(order),
                    None => self.leave(),
                },
                Ok(false) => {
                    self.machine.note_waited(waited_for_processor());
                    self.machine.handle_time(boot_now());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.leave(),
            }
        }
    }

    fn handle_order(&mut self, order: NumberedOrder) {
        if let Order::Watch(group) = order.order {
            // Looked up now: at the deadline nothing stands before the signal.
            self.leader = self.processes.and_then(|processes| processes.watch(group));
        }
        self.machine.handle_order(boot_now(), order);
    }

    /// There is no wrapper any more, or none that makes sense.
    fn leave(&mut self) {
        self.orders = None;
        self.machine.note_waited(waited_for_processor());
        self.machine.handle_wrapper_gone(boot_now());
    }

    fn perform(&mut self, output: GuardOutput) {
        match output {
            GuardOutput::KillGroup(group) => {
                let answer = match self.processes {
                    Some(processes) => processes.kill_group(group, self.leader),
                    None => answer_of(kill_process_group(to_system(group), Signal::KILL)),
                };
                self.machine.note_waited(waited_for_processor());
                self.machine.handle_killed(boot_now(), group, answer);
            }
            GuardOutput::KillStray(stray) => {
                let answer = self.processes.and_then(|processes| processes.kill_stray(stray));
                let answer = answer.unwrap_or(KillAnswer::Gone);
                self.machine.note_waited(waited_for_processor());
                self.machine.handle_stray_killed(boot_now(), stray.pid, answer);
            }
            GuardOutput::KillMarked => self.kill_marked(),
            GuardOutput::Reply(reply) => {
                // One that cannot be written counts as silence, which the wrapper acts on.
                let _ = rustix::io::write(self.replies.as_fd(), &reply.to_bytes());
            }
            GuardOutput::Say(word) => {
                // Not before there is something to say: a thread costs memory.
                log_queue::start();
                warn(&text_of(word));
            }
            GuardOutput::Leave => {}
        }
    }

    fn kill_marked(&mut self) {
        let mut refused = Vec::new();
        if let (None, Some(processes), Some(id)) = (&self.search, self.processes, &self.id) {
            self.search = Some(Search::of(processes, Mark::of(id.clone())));
        }
        let found = self.search.as_mut().map(|search| {
            // Without a wrapper its orphans are those of somebody who may have thousands.
            search.kill_marked(self.leader, self.orders.is_some(), |pid| refused.push(pid))
        });
        refused.into_iter().for_each(|pid| self.machine.handle_refused(pid));
        self.machine.note_waited(waited_for_processor());
        self.machine.handle_searched(boot_now(), found.unwrap_or_default());
        if self.machine.wakes_at().is_none() {
            // Its threads cost memory.
            self.search = None;
        }
    }

    /// Whether an order waits, or the end of orders; `false` when the timer fired.
    fn wait(&self) -> rustix::io::Result<bool> {
        let timer = PollFd::new(&self.timer, PollFlags::IN);
        let Some(orders) = &self.orders else {
            poll(&mut [timer], None)?;
            return Ok(false);
        };
        let mut fds = [PollFd::new(orders, PollFlags::IN), timer];
        poll(&mut fds, None)?;
        Ok(!fds[0].revents().is_empty())
    }

    /// The next order; `None` at the end of the pipe and after nonsense.
    fn read_order(&mut self) -> Option<NumberedOrder> {
        let mut bytes = [0; ORDER_LEN];
        self.orders.as_ref()?.read_exact(&mut bytes).ok()?;
        NumberedOrder::from_bytes(bytes)
    }

    fn set_timer(&self, at: Option<Moment>) {
        // Zero would mean "never" to the timer, but a term that is over ends at the origin.
        let nanos = at.map_or(0, |at| at.as_nanos().max(1));
        let it_value = Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Itimerspec { it_interval, it_value };
        // It cannot fail with a timer of this kind and a time that is in range.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value);
    }
}

fn text_of(word: GuardMessage) -> String {
    match word {
        GuardMessage::KilledWithWrapper(group) => {
            format!("guard: killed process group {group}: its wrapper has ended")
        }
        GuardMessage::KilledAtDeadline(group) => {
            let why = "its lease ends and the wrapper did not act";
            format!("guard: killed process group {group}: {why}")
        }
        GuardMessage::RunTooLate(Lateness { group, late, waited, kept_back }) => {
            let [late, waited, kept_back] = [late, waited, kept_back].map(duration);
            format!(
                "guard: process group {group} was killed after its lease: the system ran this \
                 guard {late} after the deadline and had it wait {waited} more for a processor, \
                 and {kept_back} is kept back for killing: use a longer --ttl, or a machine with \
                 less to do"
            )
        }
        GuardMessage::Refused(pid) => {
            format!("guard: process {pid} belongs to another user and could not be killed (EPERM)")
        }
    }
}
