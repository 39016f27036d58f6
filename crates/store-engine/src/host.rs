//! What only the driver can do, and a command must wait for.

/// What the process uses, as INFO tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Physical memory of the machine in bytes.
    pub machine_bytes: u64,
    /// Microseconds of processor time in the kernel.
    pub cpu_system_us: u64,
    /// Microseconds of processor time in the program.
    pub cpu_user_us: u64,
}

/// The driver as the engine sees it. The engine itself touches neither files nor the system.
pub trait Host: Send {
    /// What the process uses now.
    fn usage(&self) -> Usage;

    /// Replaces the text of the configuration file by what `renew` makes of it. Fails with a
    /// reason for the client.
    fn rewrite_config(&self, path: &str, renew: &dyn Fn(&str) -> String) -> Result<(), String>;
}

/// A host that knows nothing, for tests of the engine alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn rewrite_config(&self, _: &str, _: &dyn Fn(&str) -> String) -> Result<(), String> {
        Err("there is no file".to_owned())
    }
}
