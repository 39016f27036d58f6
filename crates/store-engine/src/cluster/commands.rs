//! CLUSTER, ASKING, READONLY and READWRITE.

use std::sync::Arc;

use store_cluster::{Address, AdminError, Cluster, FailoverMode, NodeId, Now, SlotChange, SlotSet};
use store_resp::slot::{SLOT_COUNT, slot_of};

use super::{ClusterState, show};
use crate::commands::prelude::*;
use crate::context::Caller;
use crate::effects::ServerRequest;
use crate::keyspace::Freeing;
use crate::session::session_flag;

/// From the port of clients to that of nodes.
const BUS_PORT_OFFSET: i64 = 10_000;
/// For those that change what all nodes must know.
const CHANGES: u32 = ADMIN | STALE | NO_ASYNC_LOADING;

pub(crate) const TABLE: &[Command] = &[
    Command::new("asking", Exactly(1), FAST, asking).categories(category::CONNECTION).docs(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "Allows one command on a slot that moves.",
    ),
    Command::container("cluster", SUBCOMMANDS).docs(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "The cluster that this server is a node of.",
    ),
    Command::new("readonly", Exactly(1), LOADING | STALE | FAST, readonly)
        .categories(category::CONNECTION)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Allows reads from a replica in a cluster."),
    Command::new("readwrite", Exactly(1), LOADING | STALE | FAST, readwrite)
        .categories(category::CONNECTION)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Forbids reads from a replica in a cluster."),
];

const SUBCOMMANDS: &[Command] = &[
    Command::new("addslots", AtLeast(3), CHANGES, addslots)
        .docs(Group::Cluster, "3.0.0", "O(N)", "Takes slots that nobody serves.")
        .arguments("*slot#i"),
    Command::new("addslotsrange", AtLeast(4), CHANGES, addslotsrange)
        .docs(Group::Cluster, "7.0.0", "O(N)", "Takes ranges of slots that nobody serves.")
        .arguments("*start-slot_end-slot#b(start-slot#i end-slot#i)"),
    Command::new("bumpepoch", Exactly(2), CHANGES, bumpepoch)
        .tips(&["nondeterministic_output"])
        .docs(
            Group::Cluster,
            "3.0.0",
            "O(1)",
            "Takes the next epoch, unless its own is the greatest.",
        ),
    Command::new("count-failure-reports", Exactly(3), ADMIN | STALE, count_failure_reports)
        .tips(&["nondeterministic_output"])
        .docs(
            Group::Cluster,
            "3.0.0",
            "O(N)",
            "How many masters report that they cannot reach a node.",
        )
        .arguments("node-id#s"),
    Command::new("countkeysinslot", Exactly(3), STALE, countkeysinslot)
        .docs(Group::Cluster, "3.0.0", "O(1)", "How many keys of a slot are here.")
        .arguments("slot#i"),
    Command::new("delslots", AtLeast(3), CHANGES, delslots)
        .docs(Group::Cluster, "3.0.0", "O(N)", "Forgets who serves slots.")
        .arguments("*slot#i"),
    Command::new("delslotsrange", AtLeast(4), CHANGES, delslotsrange)
        .docs(Group::Cluster, "7.0.0", "O(N)", "Forgets who serves ranges of slots.")
        .arguments("*start-slot_end-slot#b(start-slot#i end-slot#i)"),
    Command::new("failover", AtLeast(2), CHANGES, failover)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Makes this replica take over from its master.")
        .arguments("?options#o(force#t=FORCE takeover#t=TAKEOVER)"),
    Command::new("flushslots", Exactly(2), CHANGES, flushslots).docs(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "Forgets all slots that this node serves.",
    ),
    Command::new("forget", Exactly(3), CHANGES, forget)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Removes a node from the table of this one.")
        .arguments("node-id#s"),
    Command::new("getkeysinslot", Exactly(4), STALE, getkeysinslot)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(log(N))", "Some keys of a slot that are here.")
        .arguments("slot#i count#i"),
    Command::new("help", Exactly(2), LOADING | STALE, help).docs(
        Group::Cluster,
        "5.0.0",
        "O(1)",
        "What the subcommands do.",
    ),
    Command::new("info", Exactly(2), STALE, info).tips(&["nondeterministic_output"]).docs(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "The state of the cluster as this node sees it.",
    ),
    Command::new("keyslot", Exactly(3), STALE, keyslot)
        .docs(Group::Cluster, "3.0.0", "O(N)", "The slot of a key.")
        .arguments("key#s"),
    Command::new("links", Exactly(2), STALE, links).tips(&["nondeterministic_output"]).docs(
        Group::Cluster,
        "7.0.0",
        "O(N)",
        "The connections to and from other nodes.",
    ),
    Command::new("meet", AtLeast(4), CHANGES, meet)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Introduces a node to the cluster.")
        .arguments("ip#s port#i ?cluster_bus_port#i^4.0.0")
        .history(&[("4.0.0", "Takes the port of the bus.")]),
    Command::new("myid", Exactly(2), STALE, myid).docs(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "The id of this node.",
    ),
    Command::new("nodes", Exactly(2), STALE, nodes).tips(&["nondeterministic_output"]).docs(
        Group::Cluster,
        "3.0.0",
        "O(N)",
        "All nodes as this one sees them.",
    ),
    Command::new("replicas", Exactly(3), ADMIN | STALE, replicas)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "5.0.0", "O(1)", "The replicas of a master.")
        .arguments("node-id#s"),
    Command::new("replicate", Exactly(3), CHANGES, replicate)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Makes this node a replica of a master.")
        .arguments("node-id#s"),
    Command::new("reset", AtLeast(2), ADMIN | NO_SCRIPT | STALE, reset)
        .docs(Group::Cluster, "3.0.0", "O(N)", "Makes this node forget the cluster.")
        .arguments("?hard_soft#o(hard#t=HARD soft#t=SOFT)"),
    Command::new("saveconfig", Exactly(2), CHANGES, saveconfig).docs(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "Writes nodes.conf.",
    ),
    Command::new("set-config-epoch", Exactly(3), CHANGES, set_config_epoch)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Sets the epoch of a new node.")
        .arguments("config-epoch#i"),
    Command::new("setslot", AtLeast(4), CHANGES, setslot)
        .docs(Group::Cluster, "3.0.0", "O(1)", "Moves a slot between nodes, step by step.")
        .arguments(
            "slot#i subcommand#o(node-id#s=IMPORTING node-id#s=MIGRATING \
             node-id#s=NODE stable#t=STABLE)",
        ),
    Command::new("shards", Exactly(2), STALE, shards).tips(&["nondeterministic_output"]).docs(
        Group::Cluster,
        "7.0.0",
        "O(N)",
        "Masters with their slots and replicas.",
    ),
    Command::new("slaves", Exactly(3), ADMIN | STALE, replicas)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(1)", "The replicas of a master.")
        .arguments("node-id#s")
        .deprecated("5.0.0", "`CLUSTER REPLICAS`"),
    Command::new("slots", Exactly(2), STALE, slots)
        .tips(&["nondeterministic_output"])
        .docs(Group::Cluster, "3.0.0", "O(N)", "Who serves which slots.")
        .history(&[
            ("4.0.0", "Tells the ids of nodes."),
            ("7.0.0", "Tells more about how to reach them."),
        ])
        .deprecated("7.0.0", "`CLUSTER SHARDS`"),
];

const NO_CLUSTER: CommandError =
    CommandError::text("ERR This instance has cluster support disabled");

/// The node, for those that ask it.
fn state<'c>(cx: &'c mut Context<'_>) -> Result<&'c mut ClusterState, CommandError> {
    cx.server.cluster.as_deref_mut().ok_or(NO_CLUSTER)
}

/// Looks at the node while the reply is written.
fn show(
    cx: &mut Context<'_>,
    write: impl FnOnce(&mut Context<'_>, &ClusterState),
) -> CommandResult {
    let state = cx.server.cluster.take().ok_or(NO_CLUSTER)?;
    write(cx, &state);
    cx.server.cluster = Some(state);
    Ok(())
}

/// Has the node do something that must not be forgotten. OK is answered once nodes.conf has it, or
/// at once where nothing may wait.
fn change(
    cx: &mut Context<'_>,
    request: Request<'_>,
    work: impl FnOnce(&mut Cluster, Now) -> Result<(), AdminError>,
) -> CommandResult {
    let state = state(cx)?;
    if state.is_unsaved {
        return Err(CommandError::UNSAVED_NODES);
    }
    work(&mut state.machine, state.now).map_err(|error| error_text(&error))?;
    if matches!(cx.caller, Caller::Transaction | Caller::Script) {
        cx.reply.ok();
        return Ok(());
    }
    let id = cx.session.id;
    cx.server.effects.requests.push(ServerRequest::ClusterChanged(id));
    cx.wait_for_driver(request)
}

fn error_text(error: &AdminError) -> CommandError {
    CommandError::new(format!("ERR {error}"))
}

fn unknown_node(text: &[u8]) -> CommandError {
    CommandError::new([b"ERR Unknown node ", text].concat())
}

/// A node by its name; it need not be known.
fn node_id(arg: &[u8]) -> Result<NodeId, CommandError> {
    NodeId::parse(arg).ok_or_else(|| unknown_node(arg))
}

fn slot(arg: &[u8]) -> Result<u16, CommandError> {
    let number = store_resp::parse_integer(arg).and_then(|number| u16::try_from(number).ok());
    let invalid = CommandError::text("ERR Invalid or out of range slot");
    number.filter(|slot| *slot < SLOT_COUNT).ok_or(invalid)
}

fn asking(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    state(cx)?;
    cx.session.flags |= session_flag::ASKING;
    if cx.caller != Caller::Transaction {
        // In a transaction it ends with EXEC.
        cx.session.flags |= session_flag::ASKED_NOW;
    }
    cx.reply.ok();
    Ok(())
}

fn readonly(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    state(cx)?;
    cx.session.flags |= session_flag::READS_REPLICA;
    cx.reply.ok();
    Ok(())
}

fn readwrite(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    state(cx)?;
    cx.session.flags &= !session_flag::READS_REPLICA;
    cx.reply.ok();
    Ok(())
}

fn info(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    show(cx, |cx, state| cx.reply.verbatim("txt", show::info(state).as_bytes()))
}

fn nodes(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    show(cx, |cx, state| {
        let text = show::nodes(cx, &state.machine);
        cx.reply.verbatim("txt", text.as_bytes());
    })
}

fn slots(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    show(cx, |cx, state| show::slots(cx, &state.machine))
}

fn shards(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    show(cx, |cx, state| show::shards(cx, &state.machine))
}

fn links(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    show(cx, show::links)
}

fn myid(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let id = state(cx)?.machine.me().id;
    cx.reply.bulk(&id.text());
    Ok(())
}

fn keyslot(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    cx.reply.integer(i64::from(slot_of(request.arg(2))));
    Ok(())
}

fn countkeysinslot(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    integer(request.arg(2))?;
    let slot = slot(request.arg(2)).map_err(|_| CommandError::text("ERR Invalid slot"))?;
    cx.reply.count(cx.db.slot_len(slot));
    Ok(())
}

fn getkeysinslot(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    let (_, count) = (integer(request.arg(2))?, integer(request.arg(3))?);
    let invalid = || CommandError::text("ERR Invalid slot or number of keys");
    let slot = slot(request.arg(2)).map_err(|_| invalid())?;
    let count = usize::try_from(count).map_err(|_| invalid())?;
    let keys = cx.db.keys_in_slot(slot, count);
    cx.reply.array(keys.len());
    keys.iter().for_each(|key| cx.reply.bulk(key));
    Ok(())
}

/// Slots of ADDSLOTS and DELSLOTS, in the order they are given: the first that is wrong decides.
fn check_slots(
    machine: &Cluster,
    ranges: impl Iterator<Item = (u16, u16)>,
    is_added: bool,
) -> Result<SlotSet, CommandError> {
    let mut slots = SlotSet::default();
    for slot in ranges.flat_map(|(first, last)| first..=last) {
        match machine.owner(slot) {
            Some(_) if is_added => return Err(error_text(&AdminError::SlotBusy(slot))),
            None if !is_added => return Err(error_text(&AdminError::SlotUnassigned(slot))),
            _ => {}
        }
        if !slots.insert(slot) {
            let text = format!("ERR Slot {slot} specified multiple times");
            return Err(CommandError::new(text));
        }
    }
    Ok(slots)
}

fn single_slots(request: Request<'_>) -> Result<Vec<(u16, u16)>, CommandError> {
    request.args_from(2).map(|arg| slot(arg).map(|slot| (slot, slot))).collect()
}

fn slot_ranges(request: Request<'_>) -> Result<Vec<(u16, u16)>, CommandError> {
    let args: Vec<&[u8]> = request.args_from(2).collect();
    if !args.len().is_multiple_of(2) {
        let name = String::from_utf8_lossy(request.arg(1)).to_ascii_lowercase();
        let text = format!("ERR wrong number of arguments for 'cluster|{name}' command");
        return Err(CommandError::new(text));
    }
    let ranges = args.chunks_exact(2).map(|pair| {
        let (first, last) = (slot(pair[0])?, slot(pair[1])?);
        if first > last {
            let text =
                format!("ERR start slot number {first} is greater than end slot number {last}");
            return Err(CommandError::new(text));
        }
        Ok((first, last))
    });
    ranges.collect()
}

fn assign(
    cx: &mut Context<'_>,
    request: Request<'_>,
    ranges: Vec<(u16, u16)>,
    is_added: bool,
) -> CommandResult {
    let slots = check_slots(&state(cx)?.machine, ranges.into_iter(), is_added)?;
    change(cx, request, |machine, now| match is_added {
        true => machine.add_slots(now, &slots),
        false => machine.delete_slots(now, &slots),
    })
}

fn addslots(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    assign(cx, request, single_slots(request)?, true)
}

fn addslotsrange(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    assign(cx, request, slot_ranges(request)?, true)
}

fn delslots(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    assign(cx, request, single_slots(request)?, false)
}

fn delslotsrange(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    assign(cx, request, slot_ranges(request)?, false)
}

fn flushslots(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    if !cx.db.is_empty() {
        let text = "ERR DB must be empty to perform CLUSTER FLUSHSLOTS.";
        return Err(CommandError::text(text));
    }
    change(cx, request, |machine, now| {
        machine.flush_slots(now);
        Ok(())
    })
}

fn setslot(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if !state(cx)?.machine.me().is_master() {
        return Err(error_text(&AdminError::OnlyMasters));
    }
    let slot = slot(request.arg(2))?;
    let word = request.arg(3);
    let named = |what: &str| is_word(word, what) && request.len() == 5;
    let stranger = |arg: &[u8]| CommandError::new([b"ERR I don't know about node ", arg].concat());
    let partner = |machine: &Cluster| {
        let id = NodeId::parse(request.arg(4)).filter(|id| machine.nodes().find(*id).is_some());
        id.ok_or_else(|| stranger(request.arg(4)))
    };
    let machine = &state(cx)?.machine;
    let is_mine = machine.owner(slot) == Some(machine.my_index());
    let order = match () {
        () if named("MIGRATING") && !is_mine => {
            return Err(error_text(&AdminError::NotOwner(slot)));
        }
        () if named("MIGRATING") => SlotChange::Migrating(partner(machine)?),
        () if named("IMPORTING") && is_mine => {
            return Err(error_text(&AdminError::AlreadyOwner(slot)));
        }
        () if named("IMPORTING") => SlotChange::Importing(partner(machine)?),
        () if is_word(word, "STABLE") && request.len() == 4 => SlotChange::Stable,
        () if named("NODE") => SlotChange::Node(node_id(request.arg(4))?),
        () => {
            let text =
                "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP";
            return Err(CommandError::text(text));
        }
    };
    let has_keys = cx.db.slot_len(slot) > 0;
    change(cx, request, |machine, now| machine.set_slot(now, slot, order, has_keys))
}

fn meet(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    if request.len() > 5 {
        return Err(crate::commands::help::wrong_arguments("CLUSTER", request));
    }
    let number = |at: usize, what: &str| {
        let text = String::from_utf8_lossy(request.arg(at)).into_owned();
        store_resp::parse_integer(request.arg(at)).ok_or_else(|| {
            CommandError::new(format!("ERR Invalid TCP {what} port specified: {text}"))
        })
    };
    let port = number(3, "base")?;
    let bus_port = if request.len() == 5 { number(4, "bus")? } else { port + BUS_PORT_OFFSET };
    let ip = String::from_utf8_lossy(request.arg(2)).into_owned();
    let invalid = || {
        let text = format!("ERR Invalid node address specified: {ip}:{port}");
        CommandError::new(text)
    };
    let in_range = |port: i64| u16::try_from(port).ok().filter(|port| *port > 0);
    let port = in_range(port).ok_or_else(invalid)?;
    let bus_port = in_range(bus_port).ok_or_else(invalid)?;
    let address = Address { ip: Arc::from(ip.as_str()), port, plain_port: 0, bus_port };
    change(cx, request, |machine, now| machine.meet(now, address))
}

fn forget(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    let id = node_id(request.arg(2))?;
    change(cx, request, |machine, now| machine.forget(now, id))
}

fn replicate(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    let id = node_id(request.arg(2))?;
    let is_empty = cx.db.is_empty();
    change(cx, request, |machine, now| machine.replicate(now, id, is_empty))
}

fn replicas(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let machine = &state(cx)?.machine;
    let index = machine.nodes().find(node_id(request.arg(2))?);
    let index = index.ok_or_else(|| unknown_node(request.arg(2)))?;
    if machine.nodes()[index].is_replica() {
        return Err(CommandError::text("ERR The specified node is not a master"));
    }
    show(cx, |cx, state| {
        let replicas: Vec<_> = state.machine.nodes().replicas_of(index).collect();
        cx.reply.array(replicas.len());
        for (index, node) in replicas {
            let mut line = String::new();
            show::write_node(cx, &state.machine, &mut line, index, node);
            cx.reply.bulk(line.as_bytes());
        }
    })
}

/// The word behind a subcommand that takes one at most.
fn one_option<'r>(request: Request<'r>) -> Result<Option<&'r [u8]>, CommandError> {
    match request.len() {
        ..=3 => Ok(request.get(2)),
        _ => Err(crate::commands::help::wrong_arguments("CLUSTER", request)),
    }
}

fn failover(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    let mode = match one_option(request)? {
        None => FailoverMode::Plain,
        Some(word) if is_word(word, "FORCE") => FailoverMode::Force,
        Some(word) if is_word(word, "TAKEOVER") => FailoverMode::Takeover,
        Some(_) => return Err(CommandError::SYNTAX),
    };
    change(cx, request, |machine, now| machine.fail_over(now, mode))
}

fn reset(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    let is_hard = match one_option(request)? {
        None => false,
        Some(word) if is_word(word, "SOFT") => false,
        Some(word) if is_word(word, "HARD") => true,
        Some(_) => return Err(CommandError::SYNTAX),
    };
    let is_replica = state(cx)?.machine.me().is_replica();
    if !is_replica && !cx.db.is_empty() {
        let text = "ERR CLUSTER RESET can't be called with master nodes containing keys";
        return Err(CommandError::text(text));
    }
    let new_id = match is_hard {
        true => Some(new_id(cx)?),
        false => None,
    };
    change(cx, request, |machine, now| {
        machine.reset(now, new_id);
        Ok(())
    })?;
    if is_replica {
        // What it had was its master's, and must not come back from a file.
        cx.db.dirty += 1 + cx.db.flush(0, Freeing::Lazily) as u64;
        cx.db.signal_all_flushed();
        cx.propagate_instead(&[b"FLUSHALL"]);
    }
    Ok(())
}

fn new_id(cx: &Context<'_>) -> Result<NodeId, CommandError> {
    let mut bytes = [0; 20];
    match cx.server.platform.fill_secret(&mut bytes) {
        true => Ok(NodeId::from_bytes(bytes)),
        false => Err(CommandError::text("ERR there is no source of randomness for a new id")),
    }
}

fn bumpepoch(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let state = state(cx)?;
    if state.is_unsaved {
        return Err(CommandError::UNSAVED_NODES);
    }
    let is_new = state.machine.bump_epoch(state.now);
    let epoch = state.machine.me().config_epoch;
    cx.reply.simple(&format!("{} {epoch}", if is_new { "BUMPED" } else { "STILL" }));
    Ok(())
}

fn set_config_epoch(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    state(cx)?;
    let epoch = integer(request.arg(2))?;
    let epoch = u64::try_from(epoch)
        .map_err(|_| CommandError::new(format!("ERR Invalid config epoch specified: {epoch}")))?;
    change(cx, request, |machine, now| machine.set_config_epoch(now, epoch))
}

fn saveconfig(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    change(cx, request, |machine, now| {
        machine.save_config(now);
        Ok(())
    })
}

fn count_failure_reports(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let state = state(cx)?;
    let count = state.machine.count_failure_reports(state.now, node_id(request.arg(2))?);
    let count = count.map_err(|error| error_text(&error))?;
    cx.reply.count(count);
    Ok(())
}

fn help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    state(cx)?;
    let lines = [
        ("ADDSLOTS <slot> [<slot> ...]", "Serve slots that nobody serves."),
        ("ADDSLOTSRANGE <start> <end> [<start> <end> ...]", "Serve ranges of slots."),
        ("BUMPEPOCH", "Take the next epoch."),
        (
            "COUNT-FAILURE-REPORTS <node-id>",
            "How many masters report that they cannot reach a node.",
        ),
        ("COUNTKEYSINSLOT <slot>", "How many keys of a slot are here."),
        ("DELSLOTS <slot> [<slot> ...]", "Forget who serves slots."),
        ("DELSLOTSRANGE <start> <end> [<start> <end> ...]", "Forget who serves ranges of slots."),
        ("FAILOVER [FORCE|TAKEOVER]", "Take the place of this replica's master."),
        ("FLUSHSLOTS", "Give all slots of this node up."),
        ("FORGET <node-id>", "Remove a node from the table of this one."),
        ("GETKEYSINSLOT <slot> <count>", "Some keys of a slot that are here."),
        ("INFO", "The state of the cluster as this node sees it."),
        ("KEYSLOT <key>", "The slot of a key."),
        ("LINKS", "The connections to and from other nodes."),
        ("MEET <ip> <port> [<bus-port>]", "Introduce a node to the cluster."),
        ("MYID", "The id of this node."),
        ("NODES", "All nodes as this one sees them."),
        ("REPLICAS <node-id>", "The replicas of a master."),
        ("REPLICATE <node-id>", "Follow a master."),
        ("RESET [HARD|SOFT]", "Forget the cluster."),
        ("SAVECONFIG", "Write nodes.conf."),
        ("SET-CONFIG-EPOCH <epoch>", "Set the epoch of a new node."),
        (
            "SETSLOT <slot> (IMPORTING|MIGRATING|STABLE|NODE <node-id>)",
            "Move a slot between nodes, step by step.",
        ),
        ("SHARDS", "Masters with their slots and replicas."),
        ("SLOTS", "Who serves which slots."),
    ];
    crate::commands::help::reply(cx, "CLUSTER", &lines);
    Ok(())
}
