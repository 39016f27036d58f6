//! SENTINEL: what operators and clients ask of a sentinel.

use std::time::Duration;

use store_replica::{Moment, SessionId};
use store_resp::{Protocol, ReplyWriter};

use crate::config::{GroupConfiguration, check_name, script};
use crate::core::Core;
use crate::event::EventKind;
use crate::group::Group;
use crate::hello::address;
use crate::instance::Peer;
use crate::links::GroupMember;
use crate::output::{DownQuestion, Output};
use crate::sentinel::Sentinel;
use crate::settings::{Globals, GroupSettings, Timing};

/// One SENTINEL command.
#[derive(Clone, Copy, Debug)]
pub struct AdminRequest<'a> {
    /// Who asks.
    pub session: SessionId,
    /// How the answer is written.
    pub protocol: Protocol,
    /// The words behind SENTINEL; how many there are has been checked where a command takes a
    /// fixed number.
    pub words: &'a [&'a [u8]],
}

/// What only the driver can find out.
pub trait Surroundings {
    /// Whether there is a program under this path that may be run.
    fn is_executable(&self, path: &str) -> bool;
    /// Whether a pattern matches a name.
    fn matches(&self, pattern: &[u8], name: &str) -> bool;
}

/// Why a command did nothing, as the client is told.
type Refusal = String;

const NO_SUCH_PRIMARY: &str = "ERR No such master with that name";

impl Sentinel {
    /// Carries a command out. Its answer waits for the file if it changed something.
    pub fn handle_command(
        &mut self,
        now: Moment,
        request: AdminRequest<'_>,
        surroundings: &dyn Surroundings,
    ) {
        self.watch_clock(now);
        let AdminRequest { session, protocol, words } = request;
        let Some((name, rest)) = words.split_first() else { return };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if name == "is-master-down-by-addr" {
            return self.answer_down_question(now, session, rest);
        }
        let mut reply = ReplyWriter::new(protocol);
        let rest: Vec<String> =
            rest.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let changes = self.core.saving.changes();
        if let Err(refusal) = self.obey(now, &name, &rest, surroundings, &mut reply) {
            reply = ReplyWriter::new(protocol);
            reply.error(refusal.as_bytes());
        }
        let reply = Output::Reply { session, bytes: reply.into_bytes() };
        match self.core.saving.changes() == changes {
            true => self.core.push(reply),
            false => self.core.push_when_saved(reply),
        }
        self.settle();
    }

    fn answer_down_question(&mut self, now: Moment, session: SessionId, words: &[&[u8]]) {
        match DownQuestion::parse(words) {
            Some(question) => self.handle_down_question(now, session, question),
            None => {
                let text = b"-ERR value is not an integer or out of range\r\n".to_vec();
                self.core.push(Output::Reply { session, bytes: text });
            }
        }
    }

    fn obey(
        &mut self,
        now: Moment,
        name: &str,
        words: &[&str],
        surroundings: &dyn Surroundings,
        reply: &mut ReplyWriter,
    ) -> Result<(), Refusal> {
        match (name, words) {
            ("masters", _) => {
                reply.array(self.groups.len());
                self.groups.values().for_each(|it| it.write_primary(now, &self.core, reply));
            }
            ("master", [name]) => self.known(name)?.write_primary(now, &self.core, reply),
            ("replicas" | "slaves", [name]) => {
                self.known(name)?.write_replicas(now, &self.core, reply);
            }
            ("sentinels", [name]) => self.known(name)?.write_peers(now, &self.core, reply),
            ("get-master-addr-by-name", [name]) => self.write_address(name, reply),
            ("myid", _) => reply.bulk(self.core.id.as_str().as_bytes()),
            ("reset", [pattern]) => {
                let count = self.reset(now, &|name| surroundings.matches(pattern.as_bytes(), name));
                reply.count(count);
            }
            ("failover", [name]) => {
                self.start_failover(now, name).map_err(|refused| refused.to_string())?;
                reply.ok();
            }
            ("ckquorum", [name]) => reply.simple(&self.known(name)?.check_quorum(&self.core)?),
            ("flushconfig", _) => {
                self.core.mark_changed();
                reply.ok();
            }
            ("monitor", [name, host, port, quorum]) => {
                self.monitor(now, name, (host, port), quorum)?;
                reply.ok();
            }
            ("remove", [name]) => {
                let group = self.known(name)?;
                let text = group.describe(&GroupMember::Primary);
                self.core.tell(EventKind::ForgetPrimary, text);
                self.remove(name);
                reply.ok();
            }
            ("set", [name, options @ ..]) => {
                self.set(name, options, surroundings)?;
                reply.ok();
            }
            ("config", [verb, rest @ ..]) => self.config(verb, rest, surroundings, reply)?,
            ("debug", options) => self.debug(options, reply)?,
            ("info-cache", names) => self.write_info_cache(now, names, reply),
            ("pending-scripts", _) => self.write_scripts(now, reply),
            ("simulate-failure", failures) => self.simulate(failures, reply)?,
            _ => return Err(format!("ERR unknown subcommand '{name}'. Try SENTINEL HELP.")),
        }
        Ok(())
    }

    fn known(&self, name: &str) -> Result<&Group, Refusal> {
        self.groups.get(name).ok_or_else(|| NO_SUCH_PRIMARY.to_owned())
    }

    fn write_address(&self, name: &str, reply: &mut ReplyWriter) {
        let Some(address) = self.primary_address(name) else { return reply.null_array() };
        let address = self.core.announced(address);
        reply.array(2);
        reply.bulk(address.host.as_bytes());
        reply.bulk(address.port.to_string().as_bytes());
    }

    /// SENTINEL RESET: forgets replicas, sentinels and failovers. How many groups it concerned.
    fn reset(&mut self, now: Moment, matches: &dyn Fn(&str) -> bool) -> usize {
        let names: Vec<String> = self.groups.keys().filter(|name| matches(name)).cloned().collect();
        for name in &names {
            if let Some(group) = self.groups.get_mut(name) {
                group.forget_others(now, &mut self.core);
            }
        }
        names.len()
    }

    fn monitor(
        &mut self,
        now: Moment,
        name: &str,
        (host, port): (&str, &str),
        quorum: &str,
    ) -> Result<(), Refusal> {
        let quorum: i64 = quorum.parse().map_err(|_| "ERR Invalid quorum")?;
        let port_number: i64 = port.parse().map_err(|_| "ERR Invalid port")?;
        let quorum = usize::try_from(quorum).ok().filter(|quorum| *quorum > 0);
        let quorum = quorum.ok_or("ERR Quorum must be 1 or greater.")?;
        let is_ip = host.parse::<std::net::IpAddr>().is_ok();
        if !is_ip && !self.core.globals.resolve_hostnames || address(host, "1").is_none() {
            return Err("ERR Invalid IP address or hostname specified".to_owned());
        }
        if !(1..=65_535).contains(&port_number) {
            return Err("ERR Invalid port number.".to_owned());
        }
        if self.groups.contains_key(name) {
            return Err("ERR Duplicate master name.".to_owned());
        }
        check_name(name, self.groups.len()).map_err(|problem| format!("ERR monitor {problem}"))?;
        let primary = address(host, port).ok_or("ERR Invalid port number.")?;
        let settings = GroupSettings {
            quorum,
            down_after: self.core.timing.default_down_after,
            failover_timeout: self.core.timing.default_failover_timeout,
            ..GroupSettings::default()
        };
        // It may have been monitored before, and have voted in every epoch until now.
        let leader_epoch = self.core.current_epoch;
        let configuration =
            GroupConfiguration { leader_epoch, ..GroupConfiguration::new(name, primary, settings) };
        self.core.mark_changed();
        let group = Group::new(now, &mut self.core, configuration);
        self.groups.insert(name.to_owned(), group);
        Ok(())
    }

    /// SENTINEL SET: all options, or none when one cannot be used.
    fn set(
        &mut self,
        name: &str,
        options: &[&str],
        surroundings: &dyn Surroundings,
    ) -> Result<(), Refusal> {
        let denies_scripts = self.core.globals.deny_scripts_reconfig;
        let mut settings = self.known(name)?.settings.clone();
        let mut told = Vec::new();
        let mut rest = options;
        while let [option, after @ ..] = rest {
            let option = option.to_ascii_lowercase();
            let width = if option == "rename-command" { 2 } else { 1 };
            let Some((values, after)) = after.split_at_checked(width) else {
                return Err(unknown_option("SET", &option));
            };
            if option.ends_with("-script") {
                check_script(&option, values[0], denies_scripts, surroundings)?;
            }
            apply(&mut settings, &option, values)?;
            let shown = if option == "auth-pass" { "(redacted)" } else { &values.join(" ") };
            told.push(format!("{option} {shown}"));
            rest = after;
        }
        self.set_settings(name, settings);
        if let Some(group) = self.groups.get(name) {
            for text in told {
                let text = format!("{} {text}", group.describe(&GroupMember::Primary));
                group.tell(&mut self.core, EventKind::Set, text);
            }
        }
        Ok(())
    }

    fn config(
        &mut self,
        verb: &str,
        words: &[&str],
        surroundings: &dyn Surroundings,
        reply: &mut ReplyWriter,
    ) -> Result<(), Refusal> {
        match (verb.to_ascii_lowercase().as_str(), words) {
            ("get", [pattern]) => {
                let pattern = pattern.to_ascii_lowercase();
                let all = self.core.globals.told();
                let wanted = |name: &str| surroundings.matches(pattern.as_bytes(), name);
                let found: Vec<_> = all.iter().filter(|(name, _)| wanted(name)).collect();
                reply.map(found.len());
                for (name, value) in found {
                    reply.bulk(name.as_bytes());
                    reply.bulk(value.as_bytes());
                }
                Ok(())
            }
            ("set", [name, value]) => {
                self.set_global(&name.to_ascii_lowercase(), value)?;
                reply.ok();
                Ok(())
            }
            ("get" | "set", _) => {
                Err("ERR wrong number of arguments for 'sentinel|config' command".to_owned())
            }
            _ => Err("ERR Only SENTINEL CONFIG GET <param> / SET <param> <value> are supported."
                .to_owned()),
        }
    }

    fn set_global(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        let known = self.core.globals.told();
        if !known.iter().any(|(setting, _)| *setting == name) {
            return Err(format!("ERR Invalid argument '{name}' to SENTINEL CONFIG SET"));
        }
        let mut globals = self.core.globals.clone();
        let invalid = |_| format!("ERR Invalid value '{value}' to SENTINEL CONFIG SET '{name}'");
        globals.apply(name, value).map_err(invalid)?;
        let is_login = globals.login != self.core.globals.login;
        self.core.globals = globals;
        self.core.mark_changed();
        if is_login {
            self.core.log_in_anew();
        }
        Ok(())
    }

    fn debug(&mut self, options: &[&str], reply: &mut ReplyWriter) -> Result<(), Refusal> {
        if options.is_empty() {
            let all = self.core.timing.periods();
            reply.map(all.len());
            for (name, period) in all {
                reply.bulk(name.to_ascii_uppercase().as_bytes());
                reply.bulk(period.as_millis().to_string().as_bytes());
            }
            return Ok(());
        }
        let mut timing = self.core.timing.clone();
        let mut pairs = options.chunks_exact(2);
        for pair in &mut pairs {
            let [option, value] = [pair[0].to_ascii_lowercase(), pair[1].to_owned()];
            let period = timing.periods_mut().into_iter().find(|(name, _)| *name == option);
            let (_, period) = period.ok_or_else(|| unknown_option("DEBUG", &option))?;
            let ms = value.parse().ok().filter(|ms| (1..=PERIOD_MS_MAX).contains(ms));
            let ms = ms.ok_or_else(|| {
                format!("ERR Invalid argument '{value}' for SENTINEL DEBUG '{option}'")
            })?;
            *period = Duration::from_millis(ms);
        }
        if let [option] = pairs.remainder() {
            return Err(unknown_option("DEBUG", option));
        }
        self.core.timing = timing;
        reply.ok();
        Ok(())
    }

    fn write_info_cache(&self, now: Moment, names: &[&str], reply: &mut ReplyWriter) {
        let found: Vec<&Group> = names.iter().filter_map(|name| self.groups.get(*name)).collect();
        reply.array(2 * found.len());
        found.into_iter().for_each(|group| group.write_infos(now, reply));
    }

    fn write_scripts(&self, now: Moment, reply: &mut ReplyWriter) {
        reply.array(self.core.scripts.jobs().count());
        for job in self.core.scripts.jobs() {
            let running = job.running(now);
            let (flags, pid) = match running {
                Some((pid, _)) => ("running", pid),
                None => ("scheduled", 0),
            };
            let (name, span) = match running {
                Some((_, ran)) => ("run-time", ran),
                None => ("run-delay", job.rest(now)),
            };
            reply.map(5);
            reply.bulk(b"argv");
            reply.array(job.words.len());
            job.words.iter().for_each(|word| reply.bulk(word.as_bytes()));
            let (span, tries) = (span.as_millis().to_string(), job.tries.to_string());
            let pid = pid.to_string();
            for (name, value) in
                [("flags", flags), ("pid", &*pid), (name, &*span), ("retry-num", &*tries)]
            {
                reply.bulk(name.as_bytes());
                reply.bulk(value.as_bytes());
            }
        }
    }

    fn simulate(&mut self, failures: &[&str], reply: &mut ReplyWriter) -> Result<(), Refusal> {
        let mut simulated = crate::core::Simulated::default();
        for failure in failures {
            match failure.to_ascii_lowercase().as_str() {
                "crash-after-election" => simulated.crash_after_election = true,
                "crash-after-promotion" => simulated.crash_after_promotion = true,
                "help" => {
                    reply.array(2);
                    reply.bulk(b"crash-after-election");
                    reply.bulk(b"crash-after-promotion");
                    return Ok(());
                }
                _ => return Err("ERR Unknown failure simulation specified".to_owned()),
            }
        }
        self.core.simulated = simulated;
        reply.ok();
        Ok(())
    }

    /// The section of INFO.
    pub fn info(&self, now: Moment) -> String {
        let core = &self.core;
        let tilt = match core.is_tilted {
            true => now.since(self.tilted_at).as_secs().to_string(),
            false => "-1".to_owned(),
        };
        let running = core.scripts.jobs().filter(|job| job.running(now).is_some()).count();
        let simulated = u8::from(core.simulated.crash_after_election)
            + 2 * u8::from(core.simulated.crash_after_promotion);
        let mut text = format!(
            "sentinel_masters:{}\r\nsentinel_tilt:{}\r\nsentinel_tilt_since_seconds:{tilt}\r\n\
             sentinel_running_scripts:{running}\r\nsentinel_scripts_queue_length:{}\r\n\
             sentinel_simulate_failure_flags:{simulated}\r\n",
            self.groups.len(),
            u8::from(core.is_tilted),
            core.scripts.jobs().count(),
        );
        for (index, group) in self.groups.values().enumerate() {
            text.push_str(&group.info_line(core, index));
        }
        text
    }
}

/// A day; a period that is longer is a mistake.
const PERIOD_MS_MAX: u64 = 24 * 3_600 * 1_000;

fn unknown_option(command: &str, option: &str) -> Refusal {
    format!("ERR Unknown option or number of arguments for SENTINEL {command} '{option}'")
}

fn check_script(
    option: &str,
    path: &str,
    is_denied: bool,
    surroundings: &dyn Surroundings,
) -> Result<(), Refusal> {
    if is_denied {
        return Err("ERR Reconfiguration of scripts path is denied for security reasons. Check \
                    the deny-scripts-reconfig configuration directive in your Sentinel \
                    configuration"
            .to_owned());
    }
    if !path.is_empty() && !surroundings.is_executable(path) {
        let kind = match option {
            "notification-script" => "Notification",
            _ => "Client reconfiguration",
        };
        return Err(format!("ERR {kind} script seems non existing or non executable"));
    }
    Ok(())
}

/// One option of SENTINEL SET.
fn apply(settings: &mut GroupSettings, option: &str, values: &[&str]) -> Result<(), Refusal> {
    let value = values[0];
    match option {
        "quorum" => {
            let quorum = value.parse().ok().filter(|quorum| *quorum > 0);
            settings.quorum = quorum.ok_or_else(|| invalid(option, value))?;
        }
        "parallel-syncs" => {
            let count = value.parse().ok().filter(|count| *count > 0);
            settings.parallel_syncs = count.ok_or_else(|| invalid(option, value))?;
        }
        "auth-pass" | "auth-user" => {
            let no_login = || store_replica::Login { user: None, password: Vec::new() };
            let login = settings.login.get_or_insert_with(no_login);
            match option {
                "auth-pass" => login.password = value.as_bytes().to_vec(),
                _ => login.user = script(value),
            }
            settings.login.take_if(|login| login.user.is_none() && login.password.is_empty());
        }
        "notification-script" => settings.notification_script = script(value),
        "client-reconfig-script" => settings.reconfig_script = script(value),
        "rename-command" => {
            let (name, called) = (value.to_ascii_uppercase(), values[1]);
            if name.is_empty() || called.is_empty() {
                return Err(invalid(option, if name.is_empty() { value } else { called }));
            }
            match name == called.to_ascii_uppercase() {
                true => drop(settings.renamed.remove(&name)),
                false => drop(settings.renamed.insert(name, called.to_owned())),
            }
        }
        "down-after-milliseconds" | "failover-timeout" | "master-reboot-down-after-period" => {
            GroupConfiguration::set_time(settings, option, value)
                .map_err(|_| invalid(option, value))?;
        }
        _ => return Err(unknown_option("SET", option)),
    }
    Ok(())
}

fn invalid(option: &str, value: &str) -> Refusal {
    format!("ERR Invalid argument '{value}' for SENTINEL SET '{option}'")
}

impl Group {
    /// SENTINEL CKQUORUM.
    fn check_quorum(&self, core: &Core) -> Result<String, Refusal> {
        let is_usable = |it: &&Peer| it.instance.down_since.is_none() && !it.is_displaced;
        let peers = self.peers.values().filter(is_usable).count();
        let usable = peers + usize::from(!core.has_double());
        let voters = self.peers.len() + 1;
        let mut reasons = Vec::new();
        if usable < self.settings.quorum {
            reasons.push(
                "Not enough available Sentinels to reach the specified quorum for this master",
            );
        }
        if core.has_double() {
            reasons.push("This Sentinel does not vote, because another one has its id");
        }
        if usable < voters / 2 + 1 {
            reasons.push(
                "Not enough available Sentinels to reach the majority and authorize a failover",
            );
        }
        match reasons.is_empty() {
            true => Ok(format!(
                "OK {usable} usable Sentinels. Quorum and failover authorization can be reached"
            )),
            false => Err(format!("NOQUORUM {usable} usable Sentinels. {}", reasons.join(". "))),
        }
    }
}

impl Globals {
    /// What SENTINEL CONFIG GET tells.
    fn told(&self) -> Vec<(&'static str, String)> {
        let switch = |is_on| if is_on { "yes" } else { "no" }.to_owned();
        let login = self.login.as_ref();
        let password = login.map(|it| String::from_utf8_lossy(&it.password).into_owned());
        vec![
            ("resolve-hostnames", switch(self.resolve_hostnames)),
            ("announce-hostnames", switch(self.announce_hostnames)),
            ("announce-ip", self.announce_ip.clone().unwrap_or_default()),
            ("announce-port", self.announce_port.unwrap_or(0).to_string()),
            ("sentinel-user", login.and_then(|it| it.user.clone()).unwrap_or_default()),
            ("sentinel-pass", password.unwrap_or_default()),
        ]
    }
}

impl Timing {
    /// What SENTINEL DEBUG shows, in its order.
    fn periods(&self) -> Vec<(&'static str, Duration)> {
        let mut copy = self.clone();
        copy.periods_mut().into_iter().map(|(name, period)| (name, *period)).collect()
    }

    fn periods_mut(&mut self) -> [(&'static str, &mut Duration); 13] {
        [
            ("info-period", &mut self.info_every),
            ("ping-period", &mut self.ping_every),
            ("ask-period", &mut self.ask_every),
            ("publish-period", &mut self.hello_every),
            ("default-down-after", &mut self.default_down_after),
            ("default-failover-timeout", &mut self.default_failover_timeout),
            ("tilt-trigger", &mut self.tilt_trigger),
            ("tilt-period", &mut self.tilt_for),
            ("slave-reconf-timeout", &mut self.reconfigure_max),
            ("min-link-reconnect-period", &mut self.link_age_min),
            ("election-timeout", &mut self.election_max),
            ("script-max-runtime", &mut self.script_max),
            ("script-retry-delay", &mut self.script_retry),
        ]
    }
}
