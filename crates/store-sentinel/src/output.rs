//! What a sentinel wants done, in order, and the words that it exchanges.

use std::collections::BTreeMap;

use store_replica::{Address, Login, Moment, SessionId};
use store_resp::Reply;

use crate::event::Event;
use crate::hello::HELLO_CHANNEL;
use crate::links::LinkId;
use crate::scripts::ScriptId;
use crate::settings::RunId;

/// One thing to do. Whatever tells of epochs, votes and addresses comes only after the file has
/// them: **the driver says by `handle_file` when the text of a `Persist` is on disk**, and not
/// before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The file is to hold this text, which replaces every earlier one; then comes `handle_file`.
    Persist(String),
    /// Open a connection.
    Dial {
        /// Its number, which is used once.
        link: LinkId,
        /// Where to.
        address: Address,
    },
    /// Send this; answers come in order by `handle_reply`.
    Send {
        /// Over which connection.
        link: LinkId,
        /// What.
        question: Question,
    },
    /// Close this connection, or stop opening it. Nothing more is expected from it.
    Close(LinkId),
    /// The answer to another sentinel's question.
    Answer {
        /// Whose.
        session: SessionId,
        /// What.
        answer: DownAnswer,
    },
    /// The answer to a command.
    Reply {
        /// Whose.
        session: SessionId,
        /// As it goes to the client.
        bytes: Vec<u8>,
    },
    /// Start a program; how it ends comes by `handle_script_end`.
    StartScript {
        /// Its number.
        id: ScriptId,
        /// Its path and its arguments.
        words: Vec<String>,
    },
    /// End a program that runs for too long.
    KillScript(ScriptId),
    /// End this process at once: an operator wants to see what becomes of a failover then.
    Crash,
    /// For the log alone: what an operator should do.
    Advise(String),
    /// For log and channels.
    Tell(Event),
    /// Nothing more now. Call `handle_time` then.
    WaitUntil(Moment),
}

/// What a sentinel asks servers and other sentinels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// AUTH. Its debug text shows no password.
    Auth(Login),
    /// CLIENT SETNAME
    SetName(String),
    /// PING
    Ping,
    /// INFO
    Info,
    /// PUBLISH of a hello.
    Hello(String),
    /// SUBSCRIBE to hellos.
    Subscribe,
    /// SENTINEL is-master-down-by-addr
    IsDown(DownQuestion),
    /// SLAVEOF in a transaction that also writes the server's file and drops its clients; `None` is
    /// NO ONE.
    Follow(Option<Address>),
    /// SCRIPT KILL
    ScriptKill,
}

impl Question {
    /// How many replies belong to it. Messages of a subscription are not counted.
    pub fn replies(&self) -> usize {
        self.requests().len()
    }

    /// As bytes for the connection.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_renamed(&BTreeMap::new())
    }

    /// The same for a server that has other names for commands.
    pub(crate) fn encode_renamed(&self, renamed: &BTreeMap<String, String>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for mut words in self.requests() {
            let name = words.first().map(|name| String::from_utf8_lossy(name).into_owned());
            if let Some(called) = name.and_then(|name| renamed.get(&name)) {
                words[0] = called.clone().into_bytes();
            }
            bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                bytes.extend_from_slice(&word);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        bytes
    }

    fn requests(&self) -> Vec<Vec<Vec<u8>>> {
        match self {
            Self::Auth(login) => {
                let mut request = words("AUTH");
                request.extend(login.user.as_ref().map(|user| user.clone().into_bytes()));
                request.push(login.password.clone());
                vec![request]
            }
            Self::SetName(name) => vec![words(&format!("CLIENT SETNAME {name}"))],
            Self::Ping => vec![words("PING")],
            Self::Info => vec![words("INFO")],
            Self::Hello(text) => {
                let mut request = words(&format!("PUBLISH {HELLO_CHANNEL}"));
                request.push(text.clone().into_bytes());
                vec![request]
            }
            Self::Subscribe => vec![words(&format!("SUBSCRIBE {HELLO_CHANNEL}"))],
            Self::IsDown(question) => vec![words(&question.to_text())],
            Self::Follow(primary) => {
                let whom = match primary {
                    Some(address) => format!("SLAVEOF {} {}", address.host, address.port),
                    None => "SLAVEOF NO ONE".to_owned(),
                };
                let rest = ["CONFIG REWRITE", "CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub"];
                let all = ["MULTI", &whom].into_iter().chain(rest).chain(["EXEC"]);
                all.map(words).collect()
            }
            Self::ScriptKill => vec![words("SCRIPT KILL")],
        }
    }
}

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// `SENTINEL is-master-down-by-addr`: is it down for you, and whom do you vote for?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownQuestion {
    /// The primary in question. Groups are found by it, never by name.
    pub address: Address,
    /// The epoch of the failover, or the current one.
    pub epoch: u64,
    /// Who wants to lead a failover in that epoch; nobody while none runs.
    pub candidate: Option<RunId>,
}

impl DownQuestion {
    fn to_text(&self) -> String {
        let Address { host, port } = &self.address;
        let candidate = self.candidate.as_ref().map_or("*", RunId::as_str);
        format!("SENTINEL is-master-down-by-addr {host} {port} {} {candidate}", self.epoch)
    }

    /// Reads the words behind `is-master-down-by-addr`. `None` when they are malformed.
    pub fn parse(words: &[&[u8]]) -> Option<Self> {
        let [host, port, epoch, candidate] = words else { return None };
        let host = std::str::from_utf8(host).ok()?.to_owned();
        let port = std::str::from_utf8(port).ok()?.parse().ok()?;
        let epoch = std::str::from_utf8(epoch).ok()?.parse().ok()?;
        let candidate = match *candidate {
            b"*" => None,
            id => Some(RunId::parse(id)?),
        };
        Some(Self { address: Address { host, port }, epoch, candidate })
    }
}

/// A vote for the leader of a failover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// For whom.
    pub leader: RunId,
    /// In which epoch.
    pub epoch: u64,
}

/// The answer to a [`DownQuestion`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownAnswer {
    /// Whether the primary is down, as far as this sentinel can tell.
    pub is_down: bool,
    /// Its vote, if it was asked for one and has given one.
    pub vote: Option<Vote>,
}

impl DownAnswer {
    /// As bytes for the connection.
    pub fn encode(&self) -> Vec<u8> {
        let leader = self.vote.as_ref().map_or("*", |vote| vote.leader.as_str());
        let epoch = self.vote.as_ref().map_or(0, |vote| vote.epoch);
        let is_down = u8::from(self.is_down);
        format!("*3\r\n:{is_down}\r\n${}\r\n{leader}\r\n:{epoch}\r\n", leader.len()).into_bytes()
    }

    /// Reads a reply. `None` when it is malformed.
    pub fn parse(reply: &Reply) -> Option<Self> {
        let Reply::Array(items) = reply else { return None };
        let [Reply::Integer(is_down), Reply::Bulk(leader), Reply::Integer(epoch)] = &items[..]
        else {
            return None;
        };
        let vote = match &leader[..] {
            b"*" => None,
            leader => {
                let epoch = u64::try_from(*epoch).ok()?;
                Some(Vote { leader: RunId::parse(leader)?, epoch })
            }
        };
        Some(Self { is_down: *is_down == 1, vote })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promotion_is_one_transaction() {
        let bytes = Question::Follow(None).encode();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("*1\r\n$5\r\nMULTI\r\n*3\r\n$7\r\nSLAVEOF\r\n$2\r\nNO\r\n"));
        assert!(text.ends_with("*1\r\n$4\r\nEXEC\r\n"));
        assert_eq!(Question::Follow(None).replies(), 6);
    }

    #[test]
    fn an_answer_reads_back_as_it_was_written() {
        let leader = RunId::parse(b"abc").unwrap();
        for vote in [None, Some(Vote { leader, epoch: 7 })] {
            let answer = DownAnswer { is_down: true, vote };
            let bytes = answer.encode();
            let (reply, _) = store_resp::ReplyParser.parse(&bytes).unwrap().unwrap();
            assert_eq!(DownAnswer::parse(&reply), Some(answer));
        }
    }

    #[test]
    fn a_malformed_question_is_none() {
        let parse = |text: &str| {
            DownQuestion::parse(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>())
        };
        assert!(parse("10.0.0.1 6379 3 *").is_some_and(|question| question.candidate.is_none()));
        for text in ["10.0.0.1 6379 3", "10.0.0.1 x 3 *", "10.0.0.1 6379 -1 *", "h 1 1 a,b"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
