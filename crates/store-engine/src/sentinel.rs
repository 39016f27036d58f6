//! The commands of a sentinel. What they ask for is decided by the driver's machine; the session is
//! held back until it has answered.
//!
//! ```text
//! SENTINEL, PUBLISH ─► ServerRequest::Sentinel ─► the driver's machine ─► resume_session
//! INFO, ROLE ────────► the same ─► SentinelFacts ─► ask_again
//! ```

use store_resp::OwnedRequest;

use crate::commands::prelude::*;
use crate::context::Caller;
use crate::effects::ServerRequest;
use crate::engine::Engine;
use crate::pubsub::commands::deliver;

/// The channel on which sentinels tell each other where they and their masters are.
const HELLO_CHANNEL: &[u8] = b"__sentinel__:hello";

/// What a session asks of the sentinel. It is held back meanwhile, so that replies keep their
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SentinelRequest {
    /// SENTINEL, with all its words.
    Command(OwnedRequest),
    /// PUBLISH of a hello.
    Hello(Vec<u8>),
    /// To be told the [`SentinelFacts`].
    Tell,
}

/// What the driver tells, when it is asked to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentinelFacts {
    /// The section of INFO.
    pub info: String,
    /// The names of all masters, for ROLE.
    pub names: Vec<String>,
}

impl Engine {
    /// For the driver to tell.
    pub fn sentinel_facts_mut(&mut self) -> &mut SentinelFacts {
        &mut self.state_mut().sentinel
    }

    /// Publishes an event to all who listen.
    pub fn publish(&mut self, channel: &[u8], text: &[u8]) {
        deliver(self.state_mut(), channel, text, &mut |_| {});
    }
}

pub(crate) const TABLE: &[Command] =
    &[Command::container("sentinel", SUBCOMMANDS).also(ADMIN | SENTINEL).docs(
        Group::Sentinel,
        "2.8.4",
        "Depends on subcommand.",
        "What this sentinel knows, and what it is to do.",
    )];

const fn row(
    name: &'static str,
    arity: crate::command::Arity,
    since: &'static str,
    text: &'static str,
) -> Command {
    Command::new(name, arity, ADMIN, ask).docs(Group::Sentinel, since, "O(N)", text)
}

/// Whose second word names a master.
const fn of_master(name: &'static str, since: &'static str, text: &'static str) -> Command {
    row(name, Exactly(3), since, text).arguments("master-name#s")
}

const SUBCOMMANDS: &[Command] = &[
    of_master("ckquorum", "2.8.4", "Whether enough sentinels can be reached for a failover."),
    row("config", AtLeast(3), "6.2.0", "Settings of the sentinel itself.")
        .secrets_found_by(secrets_of_config),
    row("debug", AtLeast(2), "7.0.0", "Shows or changes the sentinel's periods."),
    of_master("failover", "2.8.4", "Starts a failover without a vote."),
    row("flushconfig", Exactly(2), "2.8.4", "Writes the file anew."),
    of_master("get-master-addr-by-name", "2.8.4", "Where the master is."),
    Command::new("help", Exactly(2), LOADING | STALE, help).docs(
        Group::Sentinel,
        "6.2.0",
        "O(1)",
        "What the subcommands do.",
    ),
    row("info-cache", AtLeast(3), "3.2.0", "What servers last answered to INFO.")
        .arguments("*nodename#s"),
    row("is-master-down-by-addr", Exactly(6), "2.8.4", "Whether a master is down, and a vote.")
        .arguments("ip#s port#i current-epoch#i runid#s"),
    of_master("master", "2.8.4", "The state of one master."),
    row("masters", Exactly(2), "2.8.4", "The state of all masters."),
    row("monitor", Exactly(6), "2.8.4", "Begins to watch a master.")
        .arguments("name#s ip#s port#i quorum#i"),
    row("myid", Exactly(2), "6.2.0", "The id of this sentinel."),
    row("pending-scripts", Exactly(2), "2.8.4", "Scripts that run or wait."),
    of_master("remove", "2.8.4", "Stops watching a master."),
    of_master("replicas", "5.0.0", "The state of a master's replicas."),
    row("reset", Exactly(3), "2.8.4", "Forgets replicas and sentinels of matching masters.")
        .arguments("pattern#p"),
    of_master("sentinels", "2.8.4", "The state of the other sentinels of a master."),
    row("set", AtLeast(5), "2.8.4", "Changes settings of a master.")
        .secrets_found_by(secrets_of_set)
        .arguments("master-name#s *option_value#b(option#s value#s)"),
    row("simulate-failure", AtLeast(3), "3.2.0", "Ends the process at a chosen moment."),
    of_master("slaves", "2.8.0", "The state of a master's replicas.")
        .deprecated("5.0.0", "`SENTINEL REPLICAS`"),
];

/// The value behind each option that is a password.
fn secrets_of_set(request: Request<'_>) -> Vec<usize> {
    let is_secret = |at: &usize| is_word(request.arg(*at), "auth-pass");
    (3..request.len().saturating_sub(1)).filter(is_secret).map(|at| at + 1).collect()
}

fn secrets_of_config(request: Request<'_>) -> Vec<usize> {
    let is_secret = |at: &usize| is_word(request.arg(*at), "sentinel-pass");
    (3..request.len().saturating_sub(1)).filter(is_secret).map(|at| at + 1).collect()
}

fn ask(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    hold(cx, request, SentinelRequest::Command(request.to_owned()))
}

/// PUBLISH: other sentinels say hello.
pub(crate) fn publish(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if request.arg(1) != HELLO_CHANNEL {
        let text = "ERR Only HELLO messages are accepted by Sentinel instances.";
        return Err(CommandError::text(text));
    }
    hold(cx, request, SentinelRequest::Hello(request.arg(2).to_vec()))
}

pub(crate) fn role(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if !is_told(cx) {
        return hold(cx, request, SentinelRequest::Tell);
    }
    cx.reply.array(2);
    cx.reply.bulk(b"sentinel");
    let names = &cx.server.sentinel.names;
    cx.reply.array(names.len());
    names.iter().for_each(|name| cx.reply.bulk(name.as_bytes()));
    Ok(())
}

/// Whether the driver has told its facts for this request.
pub(crate) fn is_told(cx: &Context<'_>) -> bool {
    cx.caller == Caller::Resumed
}

/// Holds the session back until the driver's machine has answered.
pub(crate) fn hold(
    cx: &mut Context<'_>,
    request: Request<'_>,
    asked: SentinelRequest,
) -> CommandResult {
    let id = cx.session.id;
    cx.server.effects.requests.push(ServerRequest::Sentinel(id, asked));
    cx.wait_for_driver(request)
}

fn help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let lines = [
        ("CKQUORUM <master-name>", "Whether enough sentinels can be reached for a failover."),
        ("CONFIG GET <name>", "A setting of the sentinel itself, or all that match."),
        ("CONFIG SET <name> <value>", "Change a setting of the sentinel itself."),
        ("DEBUG [<name> <value> ...]", "Show or change periods, in milliseconds."),
        ("FAILOVER <master-name>", "Hand over to a replica without asking other sentinels."),
        ("FLUSHCONFIG", "Write the file anew."),
        ("GET-MASTER-ADDR-BY-NAME <master-name>", "Where the master is."),
        ("INFO-CACHE <master-name> ...", "What the servers last answered to INFO."),
        (
            "IS-MASTER-DOWN-BY-ADDR <ip> <port> <current-epoch> <runid>",
            "Whether the master is down for this sentinel. Other sentinels ask for votes with it.",
        ),
        ("MASTER <master-name>", "The state of one master."),
        ("MASTERS", "The state of all masters."),
        ("MONITOR <name> <ip> <port> <quorum>", "Begin to watch a master."),
        ("MYID", "The id of this sentinel."),
        ("PENDING-SCRIPTS", "Scripts that run or wait."),
        ("REMOVE <master-name>", "Stop watching a master."),
        ("REPLICAS <master-name>", "The state of the replicas of a master."),
        ("RESET <pattern>", "Forget replicas and sentinels of all masters that match."),
        ("SENTINELS <master-name>", "The state of the other sentinels of a master."),
        ("SET <master-name> <option> <value> [...]", "Change settings of a master."),
        (
            "SIMULATE-FAILURE [CRASH-AFTER-ELECTION] [CRASH-AFTER-PROMOTION] [HELP]",
            "End the process at that moment, for tests.",
        ),
    ];
    crate::commands::help::reply(cx, "SENTINEL", &lines);
    Ok(())
}
