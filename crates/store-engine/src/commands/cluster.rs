//! Cluster commands, answered as a server that is no part of a cluster answers.

use super::prelude::*;

pub(super) const TABLE: &[Command] = &[
    Command::new("asking", Exactly(1), FAST, no_cluster).categories(category::CONNECTION).docs(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "Allows one command on a slot that moves.",
    ),
    Command::container("cluster", CLUSTER_SUBCOMMANDS).docs(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "The cluster, of which this server is no part.",
    ),
    Command::new("readonly", Exactly(1), LOADING | STALE | FAST, no_cluster)
        .categories(category::CONNECTION)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Allows reads from a replica in a cluster."),
    Command::new("readwrite", Exactly(1), LOADING | STALE | FAST, no_cluster)
        .categories(category::CONNECTION)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Forbids reads from a replica in a cluster."),
];

/// Said of every subcommand: what it would do is nothing here.
const ABSENT: &str = "About a cluster: refused, since this server is no part of one.";

const CLUSTER_SUBCOMMANDS: &[Command] =
    &[
        Command::new("addslots", AtLeast(3), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(N)", ABSENT)
            .arguments("*slot#i"),
        Command::new("addslotsrange", AtLeast(4), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .docs(Group::Cluster, "7.0.0", "O(N)", ABSENT)
            .arguments("*start-slot_end-slot#b(start-slot#i end-slot#i)"),
        Command::new("bumpepoch", Exactly(2), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .tips(&["nondeterministic_output"])
            .docs(Group::Cluster, "3.0.0", "O(1)", ABSENT),
        Command::new("count-failure-reports", Exactly(3), ADMIN | STALE, no_cluster)
            .tips(&["nondeterministic_output"])
            .docs(Group::Cluster, "3.0.0", "O(N)", ABSENT)
            .arguments("node-id#s"),
        Command::new("countkeysinslot", Exactly(3), STALE, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(1)", ABSENT)
            .arguments("slot#i"),
        Command::new("delslots", AtLeast(3), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(N)", ABSENT)
            .arguments("*slot#i"),
        Command::new("delslotsrange", AtLeast(4), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .docs(Group::Cluster, "7.0.0", "O(N)", ABSENT)
            .arguments("*start-slot_end-slot#b(start-slot#i end-slot#i)"),
        Command::new("failover", AtLeast(2), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(1)", ABSENT)
            .arguments("?options#o(force#t=FORCE takeover#t=TAKEOVER)"),
        Command::new("flushslots", Exactly(2), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster).docs(
            Group::Cluster,
            "3.0.0",
            "O(1)",
            ABSENT,
        ),
        Command::new("forget", Exactly(3), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(1)", ABSENT)
            .arguments("node-id#s"),
        Command::new("getkeysinslot", Exactly(4), STALE, no_cluster)
            .tips(&["nondeterministic_output"])
            .docs(Group::Cluster, "3.0.0", "O(log(N))", ABSENT)
            .arguments("slot#i count#i"),
        Command::new("help", Exactly(2), LOADING | STALE, no_cluster).docs(
            Group::Cluster,
            "5.0.0",
            "O(1)",
            ABSENT,
        ),
        Command::new("info", Exactly(2), STALE, no_cluster)
            .tips(&["nondeterministic_output"])
            .docs(Group::Cluster, "3.0.0", "O(1)", ABSENT),
        Command::new("keyslot", Exactly(3), STALE, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(N)", ABSENT)
            .arguments("key#s"),
        Command::new("links", Exactly(2), STALE, no_cluster)
            .tips(&["nondeterministic_output"])
            .docs(Group::Cluster, "7.0.0", "O(N)", ABSENT),
        Command::new("meet", AtLeast(4), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(1)", ABSENT)
            .arguments("ip#s port#i ?cluster_bus_port#i^4.0.0")
            .history(&[("4.0.0", "Takes the port of the bus.")]),
        Command::new("myid", Exactly(2), STALE, no_cluster).docs(
            Group::Cluster,
            "3.0.0",
            "O(1)",
            ABSENT,
        ),
        Command::new("nodes", Exactly(2), STALE, no_cluster)
            .tips(&["nondeterministic_output"])
            .docs(Group::Cluster, "3.0.0", "O(N)", ABSENT),
        Command::new("replicas", Exactly(3), ADMIN | STALE, no_cluster)
            .tips(&["nondeterministic_output"])
            .docs(Group::Cluster, "5.0.0", "O(1)", ABSENT)
            .arguments("node-id#s"),
        Command::new("replicate", Exactly(3), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(1)", ABSENT)
            .arguments("node-id#s"),
        Command::new("reset", AtLeast(2), ADMIN | NO_SCRIPT | STALE, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(N)", ABSENT)
            .arguments("?hard_soft#o(hard#t=HARD soft#t=SOFT)"),
        Command::new("saveconfig", Exactly(2), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster).docs(
            Group::Cluster,
            "3.0.0",
            "O(1)",
            ABSENT,
        ),
        Command::new("set-config-epoch", Exactly(3), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(1)", ABSENT)
            .arguments("config-epoch#i"),
        Command::new("setslot", AtLeast(4), ADMIN | STALE | NO_ASYNC_LOADING, no_cluster)
            .docs(Group::Cluster, "3.0.0", "O(1)", ABSENT)
            .arguments(
                "slot#i subcommand#o(node-id#s=IMPORTING node-id#s=MIGRATING \
                 node-id#s=NODE stable#t=STABLE)",
            ),
        Command::new("shards", Exactly(2), STALE, no_cluster)
            .tips(&["nondeterministic_output"])
            .docs(Group::Cluster, "7.0.0", "O(N)", ABSENT),
        Command::new("slaves", Exactly(3), ADMIN | STALE, no_cluster)
            .tips(&["nondeterministic_output"])
            .docs(Group::Cluster, "3.0.0", "O(1)", ABSENT)
            .arguments("node-id#s")
            .deprecated("5.0.0", "`CLUSTER REPLICAS`"),
        Command::new("slots", Exactly(2), STALE, no_cluster)
            .tips(&["nondeterministic_output"])
            .docs(Group::Cluster, "3.0.0", "O(N)", ABSENT)
            .history(&[
                ("4.0.0", "Tells the ids of nodes."),
                ("7.0.0", "Tells more about how to reach them."),
            ])
            .deprecated("7.0.0", "`CLUSTER SHARDS`"),
    ];

fn no_cluster(_: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    Err(CommandError::text("ERR This instance has cluster support disabled"))
}
