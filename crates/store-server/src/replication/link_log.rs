//! What the log says about the link to a primary, in the words that scripts wait for.

use store_engine::LogLevel;
use store_replica::{Event, LinkFault};

/// The line for an event of the link; `None` for other events, and for what is logged where it
/// happens.
pub(crate) fn link_words(event: &Event) -> Option<(LogLevel, String)> {
    let line = match event {
        Event::LinkTransfer(Some((id, offset))) => {
            format!("Full resync from master: {}:{offset}", id.as_str())
        }
        Event::LinkTransfer(None) => "Full resync from a master that knows no PSYNC".to_owned(),
        Event::LinkContinued => "Successful partial resynchronization with master.".to_owned(),
        Event::StepRefused(text) => format!(
            "(Non critical) Master does not understand a step of the handshake, and it goes on: \
             {text}"
        ),
        Event::LinkNotReady(text) => format!(
            "MASTER is currently unable to PSYNC but should be in the future: {text}. If it goes on, \
             look whether servers follow themselves or each other in a circle"
        ),
        Event::LinkRefused(text) => {
            return Some(warning(format!("MASTER aborted replication with an error: {text}")));
        }
        Event::LinkFailed(fault) => return fault_words(*fault).map(|it| warning(it.to_owned())),
        _ => return None,
    };
    Some((LogLevel::Notice, line))
}

fn warning(line: String) -> (LogLevel, String) {
    (LogLevel::Warning, line)
}

fn fault_words(fault: LinkFault) -> Option<&'static str> {
    Some(match fault {
        LinkFault::Silent => {
            "MASTER timeout: no data nor PING received. The link is opened again; see repl-timeout"
        }
        LinkFault::Protocol => {
            "MASTER <-> REPLICA sync: what came is not what a master says. Check that replicaof \
             names a Redis server, and set tls-replication yes if its port speaks TLS; it is tried \
             again"
        }
        LinkFault::Refused => {
            "MASTER refuses this replica. Check masterauth and masteruser; it is tried again"
        }
        LinkFault::TransferAborted => "MASTER aborted the transfer; it is asked for again",
        LinkFault::TooLong => {
            "MASTER sends a request or transaction that is longer than a replica takes (1 GiB, 2 GiB in memory); the \
             link is opened again. Let clients write smaller ones"
        }
        LinkFault::Inapplicable => {
            "MASTER sends a request that cannot be applied here. Nothing behind it is applied; the \
             link is opened again"
        }
        LinkFault::FailedWrite => {
            "A write of MASTER failed here, so that the data of this replica is not what its master \
             has. It is not confirmed, and all data is asked for again"
        }
        // Whoever could not load it tells why.
        LinkFault::Unreadable => return None,
    })
}
