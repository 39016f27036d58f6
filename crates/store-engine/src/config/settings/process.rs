//! The process around the server: where it listens, how it is started, watched and ended.

use std::path::PathBuf;
use std::time::Duration;

use super::super::Texts;

/// Where the server listens.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// `port`, 0 for none.
    pub port: u16,
    /// `tls-port`, 0 for none.
    pub tls_port: u16,
    /// `bind`: addresses, optional ones with a dash before them.
    pub addresses: Vec<String>,
    /// `tcp-backlog`.
    pub backlog: i32,
    /// `unixsocket`.
    pub unix_socket: Option<PathBuf>,
    /// `unixsocketperm`.
    pub unix_socket_mode: Option<u32>,
}

/// How connections are encrypted. Texts are empty where nothing is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// `tls-cert-file`.
    pub cert_file: String,
    /// `tls-key-file`; the file of the certificate where there is none.
    pub key_file: String,
    /// `tls-key-file-pass`.
    pub key_file_pass: String,
    /// `tls-ca-cert-file`.
    pub ca_cert_file: String,
    /// `tls-ca-cert-dir`.
    pub ca_cert_folder: String,
    /// `tls-dh-params-file`.
    pub dh_params_file: String,
    /// `tls-replication`: whether the link to a primary is encrypted.
    pub encrypts_replication: bool,
    /// `tls-cluster`: whether links between nodes are encrypted.
    pub encrypts_bus: bool,
    /// `tls-client-cert-file`: what is shown to other servers, instead of `tls-cert-file`.
    pub client_cert_file: String,
    /// `tls-client-key-file`.
    pub client_key_file: String,
    /// `tls-client-key-file-pass`.
    pub client_key_file_pass: String,
    /// `tls-auth-clients`.
    pub client_auth: ClientAuth,
    /// `tls-protocols`.
    pub protocols: Vec<String>,
    /// `tls-ciphers`.
    pub ciphers: String,
    /// `tls-ciphersuites`.
    pub ciphersuites: String,
    /// `tls-prefer-server-ciphers`.
    pub prefers_own_ciphers: bool,
    /// `tls-session-cache-size`, unless `tls-session-caching` is off.
    pub cached_sessions_max: Option<usize>,
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// They must.
    Required,
    /// They may.
    Optional,
    /// They are not asked.
    Off,
}

/// How the process is started, watched and ended.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// `daemonize`.
    pub is_daemon: bool,
    /// `supervised`.
    pub supervised: Supervision,
    /// `pidfile`; empty for none.
    pub pid_file: String,
    /// `logfile`; empty for the standard output.
    pub log_file: String,
    /// `syslog-*`.
    pub system_log: Option<SystemLogSettings>,
    /// `server_cpulist`; empty for all.
    pub processors: String,
    /// `disable-thp`.
    pub avoids_huge_pages: bool,
    /// `always-show-logo`.
    pub shows_logo: bool,
    /// `oom-score-adj` and its values.
    pub oom: OomSettings,
    /// `shutdown-timeout`: how long an end waits for replicas.
    pub shutdown_wait: Duration,
    /// `shutdown-on-sigint`.
    pub on_interrupt: ShutdownOptions,
    /// `shutdown-on-sigterm`.
    pub on_terminate: ShutdownOptions,
}

/// Who is told when the server is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervision {
    /// Nobody.
    No,
    /// Whoever is there.
    Auto,
    /// systemd.
    Systemd,
    /// upstart.
    Upstart,
}

/// How lines go to the log of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemLogSettings {
    /// `syslog-facility`: N of `localN`; none for `user`.
    pub local_facility: Option<u8>,
    /// `syslog-ident`.
    pub identity: String,
}

/// How soon the kernel ends this process when memory runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomSettings {
    /// `oom-score-adj`.
    pub mode: OomMode,
    /// The first of `oom-score-adj-values`: the score of a primary.
    pub primary_score: i32,
}

/// What a score is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomMode {
    /// It is left as it is.
    Off,
    /// To nothing.
    Absolute,
    /// To the one that the process began with.
    Relative,
}

/// What a signal that ends the server asks for; nothing for the usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownOptions {
    /// Save, even without save points.
    pub save: bool,
    /// Do not save.
    pub nosave: bool,
    /// Do not wait for replicas.
    pub now: bool,
    /// End, even if saving fails.
    pub force: bool,
}

impl ListenSettings {
    pub(super) fn read(texts: &Texts) -> Self {
        let path = texts.text("unixsocket");
        let mode = u32::from_str_radix(texts.text("unixsocketperm"), 8).ok();
        Self {
            port: texts.number("port") as u16,
            tls_port: texts.number("tls-port") as u16,
            addresses: words(texts.text("bind")),
            backlog: texts.number("tcp-backlog") as i32,
            unix_socket: (!path.is_empty()).then(|| PathBuf::from(path)),
            unix_socket_mode: mode.filter(|mode| *mode != 0),
        }
    }
}

impl TlsSettings {
    pub(super) fn read(texts: &Texts) -> Self {
        let text = |name| texts.text(name).to_owned();
        let is_cached = texts.is_on("tls-session-caching");
        Self {
            cert_file: text("tls-cert-file"),
            key_file: text("tls-key-file"),
            key_file_pass: text("tls-key-file-pass"),
            ca_cert_file: text("tls-ca-cert-file"),
            ca_cert_folder: text("tls-ca-cert-dir"),
            dh_params_file: text("tls-dh-params-file"),
            encrypts_replication: texts.is_on("tls-replication"),
            encrypts_bus: texts.is_on("tls-cluster"),
            client_cert_file: text("tls-client-cert-file"),
            client_key_file: text("tls-client-key-file"),
            client_key_file_pass: text("tls-client-key-file-pass"),
            client_auth: match texts.text("tls-auth-clients") {
                "no" => ClientAuth::Off,
                "optional" => ClientAuth::Optional,
                _ => ClientAuth::Required,
            },
            protocols: words(texts.text("tls-protocols")),
            ciphers: text("tls-ciphers"),
            ciphersuites: text("tls-ciphersuites"),
            prefers_own_ciphers: texts.is_on("tls-prefer-server-ciphers"),
            cached_sessions_max: is_cached.then(|| texts.size("tls-session-cache-size")),
        }
    }
}

impl ProcessSettings {
    pub(super) fn read(texts: &Texts) -> Self {
        let text = |name| texts.text(name).to_owned();
        Self {
            is_daemon: texts.is_on("daemonize"),
            supervised: match texts.text("supervised") {
                "auto" => Supervision::Auto,
                "systemd" => Supervision::Systemd,
                "upstart" => Supervision::Upstart,
                _ => Supervision::No,
            },
            pid_file: text("pidfile"),
            log_file: text("logfile"),
            system_log: texts.is_on("syslog-enabled").then(|| SystemLogSettings {
                local_facility: local_facility(texts.text("syslog-facility")),
                identity: text("syslog-ident"),
            }),
            processors: text("server_cpulist"),
            avoids_huge_pages: texts.is_on("disable-thp"),
            shows_logo: texts.is_on("always-show-logo"),
            oom: OomSettings::read(texts),
            on_interrupt: ShutdownOptions::parse(texts.text("shutdown-on-sigint")),
            shutdown_wait: Duration::from_secs(texts.number("shutdown-timeout") as u64),
            on_terminate: ShutdownOptions::parse(texts.text("shutdown-on-sigterm")),
        }
    }
}

impl OomSettings {
    fn read(texts: &Texts) -> Self {
        let scores = texts.text("oom-score-adj-values");
        let first = scores.split_ascii_whitespace().next();
        Self {
            mode: match texts.text("oom-score-adj") {
                "no" => OomMode::Off,
                "absolute" => OomMode::Absolute,
                _ => OomMode::Relative,
            },
            primary_score: first.and_then(|word| word.parse().ok()).unwrap_or(0),
        }
    }
}

impl ShutdownOptions {
    fn parse(text: &str) -> Self {
        let says = |wanted: &str| text.split(' ').any(|word| word == wanted);
        Self { save: says("save"), nosave: says("nosave"), now: says("now"), force: says("force") }
    }
}

fn local_facility(name: &str) -> Option<u8> {
    name.strip_prefix("local")?.parse().ok()
}

fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}
