//! A terminal of the test's own, with the program at its other end.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use testkit::{GENEROUS, wait_until};

/// What a person has before them: keys to press and a screen to read.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    child: Child,
}

impl Terminal {
    /// How many lines it shows.
    pub(crate) const ROWS: usize = 40;

    /// Starts the program with this terminal as its controlling one.
    pub(crate) fn start(command: Command) -> Self {
        Self::with_columns(400, command)
    }

    /// The same on a screen of this width.
    pub(crate) fn with_columns(columns: u16, mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave: OwnedFd = rustix::fs::open(name, OFlags::RDWR, Mode::empty()).unwrap();
        let size =
            Winsize { ws_row: Self::ROWS as u16, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
        command.stdin(slave.try_clone().unwrap());
        command.stdout(slave.try_clone().unwrap()).stderr(slave);
        command.env("TERM", "xterm");
        control(&mut command);
        let child = command.spawn().unwrap();
        // The command holds the other end open; only the program may.
        drop(command);
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut output, shown) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the program is gone.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { keyboard, screen, child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` is on the screen, and wipes it up to there.
    #[track_caller]
    pub(crate) fn sees(&self, text: &str) -> String {
        let mut before = None;
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(text, GENEROUS, || {
                let mut screen = self.screen.lock().unwrap();
                let at = screen.find(text);
                if let Some(at) = at {
                    let rest = screen.split_off(at + text.len());
                    before = Some(std::mem::replace(&mut *screen, rest));
                }
                at.is_some()
            });
        }));
        match seen {
            Ok(()) => before.unwrap(),
            Err(_) => panic!("{text:?} is not on the screen: {:?}", self.screen.lock().unwrap()),
        }
    }

    /// Waits for the program's end.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let mut code = None;
        wait_until("the program's end", GENEROUS, || {
            let status = self.child.try_wait().unwrap();
            code = status.and_then(|status| status.code());
            status.is_some()
        });
        code
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(unsafe_code, reason = "the standard library offers no safe way to start a session")]
fn control(command: &mut Command) {
    let in_child = || {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls.
    unsafe { command.pre_exec(in_child) };
}
