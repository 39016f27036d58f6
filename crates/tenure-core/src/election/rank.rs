//! Who goes first: ranks, head starts, and who may be chosen as a successor.
//!
//! Pure functions over the members as an answer listed them. A wrong rank costs a few needless
//! requests, never safety.

use std::cmp::Ordering;
use std::time::Duration;

use crate::protocol::Member;
use crate::timing::TTL_MAX;
use crate::{InstanceId, ServerTime};

/// A member that was silent for this many of its own leases is taken for gone.
const SILENT_LEASES_MAX: u32 = 3;
/// The longest head start: beyond it everyone else may try at once.
pub(super) const HEAD_START_MAX: Duration = Duration::from_millis(250);
/// The least distance between two ranks.
const STEP_MIN: Duration = Duration::from_millis(5);

/// The distance between two ranks: enough to learn of the earlier one's grant.
pub(super) fn step(round_trip: Duration) -> Duration {
    STEP_MIN.max(round_trip * 2).min(HEAD_START_MAX)
}

/// How many others go before `me`, by priority and id, once `last_holder` is gone.
pub(super) fn rank(
    members: &[Member],
    server_time: ServerTime,
    me: &InstanceId,
    my_priority: i32,
    last_holder: Option<&InstanceId>,
) -> u32 {
    let rivals = members.iter().filter(|member| {
        member.id != *me && Some(&member.id) != last_holder && may_lead(member, server_time).is_ok()
    });
    let ahead = match last_holder == Some(me) {
        true => rivals.count(),
        false => rivals
            .filter(|rival| goes_first(rival.record.priority, &rival.id, my_priority, me))
            .count(),
    };
    u32::try_from(ahead).unwrap_or(u32::MAX)
}

fn goes_first(priority: i32, id: &InstanceId, other_priority: i32, other: &InstanceId) -> bool {
    match priority.cmp(&other_priority) {
        Ordering::Greater => true,
        Ordering::Less => false,
        Ordering::Equal => id < other,
    }
}

/// How long rank `rank` waits after the resource became free, before jitter.
pub(super) fn head_start(rank: u32, step: Duration) -> Duration {
    step.saturating_mul(rank).min(HEAD_START_MAX)
}

/// Whether a member may lead now, and if not, why.
pub(super) fn may_lead(member: &Member, server_time: ServerTime) -> Result<(), &'static str> {
    let ttl = member.record.ttl.clamp(Duration::from_secs(1), TTL_MAX);
    let silent_max = ttl * SILENT_LEASES_MAX;
    if server_time.since(member.beat_at) > silent_max {
        Err("it is silent")
    } else if member.record.departing {
        Err("it is leaving")
    } else if member.record.stalled {
        Err("its work has stalled")
    } else if !member.record.ready {
        Err("it is not ready")
    } else {
        Ok(())
    }
}

/// Finds the successor that a person named, and checks it.
pub(super) fn named_successor(
    members: &[Member],
    server_time: ServerTime,
    me: &InstanceId,
    my_version: &str,
    name: &str,
) -> Result<InstanceId, String> {
    let named: Vec<&Member> = members.iter().filter(|m| m.id.answers_to(name)).collect();
    let whole_id = named.iter().find(|member| member.id.as_str() == name);
    let mut alive = named.iter().filter(|member| may_lead(member, server_time).is_ok());
    let member = match (whole_id, alive.next(), alive.next()) {
        (Some(member), ..) | (None, Some(member), None) => *member,
        (None, Some(_), Some(_)) => {
            return Err(format!("{name:?} is the name of several members: give the whole id"));
        }
        (None, None, _) => named.first().ok_or(format!("{name:?} is not a member"))?,
    };
    if member.id == *me {
        return Err(format!("{name:?} leads already"));
    }
    check_successor(member, server_time, my_version)
        .map_err(|why| format!("{:?} cannot take over: {why}", member.id.as_str()))?;
    Ok(member.id.clone())
}

/// The best successor: ready, not older than this version, by priority and id.
pub(super) fn best_successor(
    members: &[Member],
    server_time: ServerTime,
    me: &InstanceId,
    my_version: &str,
) -> Option<InstanceId> {
    members
        .iter()
        .filter(|member| member.id != *me)
        .filter(|member| check_successor(member, server_time, my_version).is_ok())
        .min_by(|a, b| b.record.priority.cmp(&a.record.priority).then_with(|| a.id.cmp(&b.id)))
        .map(|member| member.id.clone())
}

/// The member that a leader of `my_priority` should hand over to after it was ready for `delay`.
pub(super) fn failback_target(
    members: &[Member],
    server_time: ServerTime,
    my_priority: i32,
    my_version: &str,
    delay: Duration,
) -> Option<InstanceId> {
    let patient = |member: &&Member| {
        // A forged moment in the future gives zero here, so it never counts as patience.
        member.ready_since.is_some_and(|since| server_time.since(since) >= delay)
    };
    members
        .iter()
        .filter(|member| member.record.priority > my_priority)
        .filter(patient)
        .filter(|member| check_successor(member, server_time, my_version).is_ok())
        .min_by(|a, b| b.record.priority.cmp(&a.record.priority).then_with(|| a.id.cmp(&b.id)))
        .map(|member| member.id.clone())
}

fn check_successor(
    member: &Member,
    server_time: ServerTime,
    my_version: &str,
) -> Result<(), &'static str> {
    may_lead(member, server_time)?;
    match compare_versions(&member.record.version, my_version) {
        Ordering::Less => Err("it runs an older version"),
        _ => Ok(()),
    }
}

/// Compares dotted versions number by number; what is not a number counts as zero.
fn compare_versions(a: &str, b: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        let mut parts: Vec<u64> = text
            .split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().unwrap_or(u64::MAX))
            .collect();
        while parts.last() == Some(&0) {
            parts.pop();
        }
        parts
    };
    numbers(a).cmp(&numbers(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::MemberRecord;

    const NOW: ServerTime = ServerTime(1_000_000_000);

    fn member(id: &str, priority: i32) -> Member {
        let ttl = Duration::from_secs(10);
        Member {
            id: InstanceId::seen(id),
            record: MemberRecord { priority, ready: true, ttl, ..MemberRecord::default() },
            ready_since: Some(ServerTime(0)),
            beat_at: NOW,
        }
    }

    fn rank_of(id: &str, priority: i32, members: &[Member], last: Option<&str>) -> u32 {
        let last = last.map(InstanceId::seen);
        rank(members, NOW, &InstanceId::seen(id), priority, last.as_ref())
    }

    #[test]
    fn ranks_follow_priority_then_id_and_leave_out_the_last_holder() {
        let members = [member("a", 0), member("b", 0), member("c", 5)];
        assert_eq!(rank_of("c", 5, &members, None), 0);
        assert_eq!(rank_of("b", 0, &members, None), 2);
        assert_eq!(rank_of("b", 0, &members, Some("c")), 1);
        assert_eq!(rank_of("c", 5, &members, Some("c")), 2, "the last holder goes last");
    }

    #[test]
    fn the_silent_the_departing_and_the_unready_hold_nobody_up() {
        let mut members = vec![member("a", 0), member("b", 0), member("c", 0), member("d", 0)];
        members[0].beat_at = ServerTime(NOW.0 - 31_000_000);
        members[1].record.departing = true;
        members[2].record.ready = false;
        assert_eq!(rank_of("d", 0, &members, None), 0);
    }

    #[test]
    fn head_starts_are_bounded() {
        assert_eq!(head_start(3, Duration::from_millis(5)), Duration::from_millis(15));
        assert_eq!(head_start(u32::MAX, Duration::from_millis(5)), HEAD_START_MAX);
    }

    #[test]
    fn a_successor_is_refused_with_the_reason() {
        let mut members = vec![member("web-1_a", 0), member("web-2_b", 0), member("web-2_c", 0)];
        let find = |members: &[Member], name: &str| {
            named_successor(members, NOW, &InstanceId::seen("web-1_a"), "1.2", name)
        };
        assert!(find(&members, "web-9").unwrap_err().contains("not a member"));
        assert!(find(&members, "web-1").unwrap_err().contains("leads already"));
        assert!(find(&members, "web-2").unwrap_err().contains("several members"));
        assert!(find(&members, "web-2_b").unwrap_err().contains("older version"));
        members[1].record.version = "1.10".into();
        assert_eq!(find(&members, "web-2_b").unwrap().as_str(), "web-2_b");
        members[1].record.ready = false;
        assert!(find(&members, "web-2_b").unwrap_err().contains("not ready"));
    }

    #[test]
    fn failback_waits_and_is_not_fooled_by_a_moment_in_the_future() {
        let mut members = vec![member("a", 9)];
        let target = |members: &[Member], delay| failback_target(members, NOW, 0, "", delay);
        assert_eq!(target(&members, Duration::from_secs(999)).unwrap().as_str(), "a");
        assert_eq!(target(&members, Duration::from_secs(1_001)), None);
        members[0].ready_since = Some(ServerTime(u64::MAX));
        assert_eq!(target(&members, Duration::from_secs(1)), None);
        members[0].ready_since = Some(ServerTime(0));
        members[0].record.priority = 0;
        assert_eq!(target(&members, Duration::from_secs(1)), None, "equal priority is no reason");
    }

    #[test]
    fn versions_compare_number_by_number() {
        assert_eq!(compare_versions("1.10.0", "1.9"), Ordering::Greater);
        assert_eq!(compare_versions("v2", "2.0.0"), Ordering::Equal);
        assert_eq!(compare_versions("", "0.1"), Ordering::Less);
    }
}
