//! What SENTINEL MASTERS and its siblings tell, field by field as Redis does.

use store_replica::Moment;
use store_resp::ReplyWriter;

use crate::core::Core;
use crate::failover::FailoverStep;
use crate::group::Group;
use crate::info::ReportedRole;
use crate::instance::{Instance, Peer, Reconfiguration};
use crate::links::GroupMember;

/// The fields of one instance, in order.
type Fields = Vec<(&'static str, String)>;

impl Group {
    /// Its primary.
    pub(crate) fn write_primary(&self, now: Moment, core: &Core, reply: &mut ReplyWriter) {
        let mut fields = self.fields(now, core, &GroupMember::Primary, &self.primary);
        let settings = &self.settings;
        fields.extend([
            ("config-epoch", self.config_epoch.to_string()),
            ("num-slaves", self.replicas.len().to_string()),
            ("num-other-sentinels", self.peers.len().to_string()),
            ("quorum", settings.quorum.to_string()),
            ("failover-timeout", settings.failover_timeout.as_millis().to_string()),
            ("parallel-syncs", settings.parallel_syncs.to_string()),
        ]);
        let scripts = [
            ("notification-script", &settings.notification_script),
            ("client-reconfig-script", &settings.reconfig_script),
        ];
        let set = scripts.into_iter().filter_map(|(name, path)| Some((name, path.clone()?)));
        fields.extend(set);
        write(&fields, reply);
    }

    /// Its replicas.
    pub(crate) fn write_replicas(&self, now: Moment, core: &Core, reply: &mut ReplyWriter) {
        reply.array(self.replicas.len());
        for (address, replica) in &self.replicas {
            let member = GroupMember::Replica(address.clone());
            let mut fields = self.fields(now, core, &member, replica);
            let report = &replica.known.report;
            let primary = report.primary.as_ref();
            let status = if report.is_link_up { "ok" } else { "err" };
            fields.extend([
                ("master-link-down-time", report.link_down_for.as_millis().to_string()),
                ("master-link-status", status.to_owned()),
                ("master-host", primary.map_or("?".to_owned(), |at| at.host.clone())),
                ("master-port", primary.map_or(0, |at| at.port).to_string()),
                ("slave-priority", report.priority.to_string()),
                ("slave-repl-offset", report.offset.to_string()),
                ("replica-announced", u8::from(report.is_announced).to_string()),
            ]);
            write(&fields, reply);
        }
    }

    /// The other sentinels.
    pub(crate) fn write_peers(&self, now: Moment, core: &Core, reply: &mut ReplyWriter) {
        reply.array(self.peers.len());
        for (id, peer) in &self.peers {
            let Peer { instance, heard_at, vote, .. } = peer;
            let mut fields = self.fields(now, core, &GroupMember::Peer(id.clone()), instance);
            let leader = vote.as_ref().map_or("?", |vote| vote.leader.as_str());
            let epoch = vote.as_ref().map_or(0, |vote| vote.epoch);
            fields.extend([
                ("last-hello-message", now.since(*heard_at).as_millis().to_string()),
                ("voted-leader", leader.to_owned()),
                ("voted-leader-epoch", epoch.to_string()),
            ]);
            write(&fields, reply);
        }
    }

    /// What all kinds have.
    fn fields(
        &self,
        now: Moment,
        core: &Core,
        member: &GroupMember,
        instance: &Instance,
    ) -> Fields {
        let slot = core.links.get(instance.commands);
        let ago = |at: Moment| now.since(at).as_millis().to_string();
        let since = |at: Option<Moment>| at.map_or("0".to_owned(), ago);
        let (name, run_id) = match member {
            GroupMember::Primary => (self.name.to_string(), instance.known.report.run_id.clone()),
            GroupMember::Replica(at) => (at.to_string(), instance.known.report.run_id.clone()),
            GroupMember::Peer(id) => (id.to_string(), Some(id.to_string())),
        };
        let address = core.announced(&instance.address);
        let mut fields = vec![
            ("name", name),
            ("ip", address.host),
            ("port", address.port.to_string()),
            ("runid", run_id.unwrap_or_default()),
            ("flags", self.flags(core, member, instance)),
            ("link-pending-commands", slot.pending.len().to_string()),
            ("link-refcount", core.links.users(instance.commands).to_string()),
        ];
        if let (GroupMember::Primary, Some(step)) = (member, self.failover_step()) {
            fields.push(("failover-state", step.name().to_owned()));
        }
        fields.extend([
            ("last-ping-sent", since(slot.waiting_since)),
            ("last-ok-ping-reply", ago(slot.available_at)),
            ("last-ping-reply", ago(slot.answered_at)),
        ]);
        if let Some(at) = instance.down_since {
            fields.push(("s-down-time", ago(at)));
        }
        if let (GroupMember::Primary, Some(at)) = (member, self.down_agreed_since) {
            fields.push(("o-down-time", ago(at)));
        }
        fields.push(("down-after-milliseconds", self.settings.down_after.as_millis().to_string()));
        if instance.hellos.is_some() {
            fields.extend([
                ("info-refresh", since(instance.known.asked_at)),
                ("role-reported", role_reported(member, instance).to_owned()),
                ("role-reported-time", ago(instance.known.role_since)),
            ]);
        }
        fields
    }

    fn flags(&self, core: &Core, member: &GroupMember, instance: &Instance) -> String {
        let is_primary = *member == GroupMember::Primary;
        let says_down = match member {
            GroupMember::Peer(id) => self.peers.get(id).is_some_and(|peer| peer.says_down),
            _ => false,
        };
        let is_promoted = match (member, self.failover_step()) {
            (GroupMember::Replica(at), Some(step)) => step.promoted() == Some(at),
            _ => false,
        };
        let reconfiguration = instance.reconfiguration;
        let kind = match member {
            GroupMember::Primary => "master",
            GroupMember::Replica(_) => "slave",
            GroupMember::Peer(_) => "sentinel",
        };
        let is_sent = matches!(reconfiguration, Reconfiguration::Sent { .. });
        let flags = [
            ("s_down", instance.down_since.is_some()),
            ("o_down", is_primary && self.down_agreed_since.is_some()),
            (kind, true),
            ("disconnected", !instance.is_connected(core)),
            ("master_down", says_down),
            ("failover_in_progress", is_primary && self.failover.is_some()),
            ("promoted", is_promoted),
            ("reconf_sent", is_sent),
            ("reconf_inprog", reconfiguration == Reconfiguration::Begun),
            ("reconf_done", reconfiguration == Reconfiguration::Done),
            ("force_failover", is_primary && self.is_failover_forced()),
            ("script_kill_sent", instance.is_kill_sent),
            ("master_reboot", is_primary && instance.rebooted_at.is_some()),
        ];
        let set: Vec<&str> =
            flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
        set.join(",")
    }

    /// SENTINEL INFO-CACHE: the primary and its replicas.
    pub(crate) fn write_infos(&self, now: Moment, reply: &mut ReplyWriter) {
        reply.bulk(self.name.as_bytes());
        reply.array(self.replicas.len() + 1);
        for instance in [&self.primary].into_iter().chain(self.replicas.values()) {
            reply.array(2);
            reply.integer(instance.report_age(now).map_or(0, |age| age.as_millis() as i64));
            let text = Some(instance.known.text.as_bytes()).filter(|text| !text.is_empty());
            reply.bulk_or_null(text);
        }
    }

    /// Its line of INFO.
    pub(crate) fn info_line(&self, core: &Core, index: usize) -> String {
        let status = match (self.is_objectively_down(), self.is_subjectively_down()) {
            (true, _) => "odown",
            (false, true) => "sdown",
            (false, false) => "ok",
        };
        let at = core.announced(self.address());
        format!(
            "master{index}:name={},status={status},address={at},slaves={},sentinels={}\r\n",
            self.name,
            self.replicas.len(),
            self.peers.len() + 1
        )
    }
}

impl FailoverStep {
    /// As SENTINEL MASTER tells it.
    fn name(&self) -> &'static str {
        match self {
            Self::WaitStart => "wait_start",
            Self::SelectReplica => "select_slave",
            Self::SendPromotion { .. } => "send_slaveof_noone",
            Self::WaitPromotion { .. } => "wait_promotion",
            Self::Reconfigure { .. } => "reconf_slaves",
            Self::UpdateConfig { .. } => "update_config",
        }
    }
}

/// A server that has not said yet is what it is held for.
fn role_reported(member: &GroupMember, instance: &Instance) -> &'static str {
    match (instance.known.report.role, member) {
        (Some(ReportedRole::Primary), _) | (None, GroupMember::Primary) => "master",
        _ => "slave",
    }
}

fn write(fields: &Fields, reply: &mut ReplyWriter) {
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}
