//! One real sentinel, and everybody else by script: the words of these tests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use store_replica::{Address, Moment, SessionId};
use store_resp::{Protocol, Reply};
use store_sentinel::{
    AdminRequest, Configuration, DownAnswer, DownQuestion, Draw, EventKind, FileOutcome, Group,
    Hello, LinkId, Output, Question, RunId, Sentinel, Surroundings, Timing, Vote,
};

/// The three servers, of which the first is the primary.
pub(crate) const SERVERS: [u16; 3] = [6379, 6380, 6381];

pub(crate) fn address(port: u16) -> Address {
    Address { host: "10.0.0.1".to_owned(), port }
}

pub(crate) fn id(name: &str) -> RunId {
    RunId::parse(name.as_bytes()).expect("a name")
}

/// What a scripted server says.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) follows: Option<u16>,
    pub(crate) is_link_up: bool,
    pub(crate) link_down_s: u64,
    pub(crate) priority: u32,
    pub(crate) offset: u64,
    pub(crate) obeys: bool,
    /// `master_replid`; empty is not told.
    pub(crate) history: &'static str,
    /// `master_replid2` and `second_repl_offset`.
    pub(crate) second: (&'static str, u64),
}

pub(crate) struct Story {
    pub(crate) sentinel: Sentinel,
    pub(crate) now: Moment,
    pub(crate) servers: BTreeMap<u16, Server>,
    pub(crate) silent: BTreeSet<u16>,
    /// What other sentinels answer, by their port.
    pub(crate) answers: BTreeMap<u16, DownAnswer>,
    pub(crate) outputs: Vec<Output>,
    /// SLAVEOF, by whom: the port that is followed.
    pub(crate) follows: Vec<(u16, Option<u16>)>,
    pub(crate) file: String,
    /// Whether writing the file takes for ever.
    pub(crate) is_disk_hanging: bool,
    links: BTreeMap<LinkId, u16>,
}

/// Every pattern matches, and every program is there.
struct Everything;

impl Surroundings for Everything {
    fn is_executable(&self, _: &str) -> bool {
        true
    }

    fn matches(&self, _: &[u8], _: &str) -> bool {
        true
    }
}

pub(crate) fn file(extra: &str) -> String {
    let mut text = "sentinel myid me\nsentinel announce-ip 10.0.0.9\n\
        sentinel monitor mymaster 10.0.0.1 6379 2\n\
        sentinel down-after-milliseconds mymaster 2000\n\
        sentinel failover-timeout mymaster 20000\n\
        sentinel known-sentinel mymaster 10.0.0.7 26379 ann\n\
        sentinel known-sentinel mymaster 10.0.0.7 26380 bob\n"
        .to_owned();
    for port in &SERVERS[1..] {
        text.push_str(&format!("sentinel known-replica mymaster 10.0.0.1 {port}\n"));
    }
    text + extra
}

impl Story {
    /// A group of three servers and three sentinels in which all is well.
    pub(crate) fn new(extra: &str) -> Self {
        let configuration = Configuration::parse(&file(extra)).expect("a good file");
        let now = Moment::from_ms(1_000_000);
        let draw = Draw::new(|_| 0);
        let sentinel = Sentinel::new(now, configuration, id("unused"), Timing::default(), draw);
        let server = |port: u16| Server {
            follows: (port != SERVERS[0]).then_some(SERVERS[0]),
            is_link_up: true,
            link_down_s: 0,
            priority: 100,
            offset: 1_000,
            obeys: true,
            history: "first",
            second: ("0", 0),
        };
        let mut story = Self {
            sentinel,
            now,
            servers: SERVERS.into_iter().map(|port| (port, server(port))).collect(),
            silent: BTreeSet::new(),
            answers: BTreeMap::new(),
            outputs: Vec::new(),
            follows: Vec::new(),
            file: String::new(),
            is_disk_hanging: false,
            links: BTreeMap::new(),
        };
        story.pass(Duration::from_secs(12));
        story.outputs.clear();
        story
    }

    pub(crate) fn group(&self) -> &Group {
        self.sentinel.group("mymaster").expect("it is monitored")
    }

    /// Time passes as it should.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + Duration::from_millis(100);
            self.sentinel.handle_time(self.now);
            self.carry_out();
        }
    }

    /// Time passes, and the process stands still.
    pub(crate) fn stand_still(&mut self, span: Duration) {
        self.now = self.now + span;
        self.sentinel.handle_time(self.now);
        self.carry_out();
    }

    pub(crate) fn passes_until(&mut self, kind: EventKind) {
        for _ in 0..1_000 {
            self.pass(Duration::from_millis(100));
            if self.has_told(kind) {
                return;
            }
        }
        panic!("{} never came: {:?}", kind.name(), self.told());
    }

    pub(crate) fn told(&self) -> Vec<&'static str> {
        let told = self.outputs.iter().filter_map(|output| match output {
            Output::Tell(event) => Some(event.kind.name()),
            _ => None,
        });
        told.collect()
    }

    pub(crate) fn has_told(&self, kind: EventKind) -> bool {
        self.told().contains(&kind.name())
    }

    pub(crate) fn hears(&mut self, hello: &str) {
        assert!(Hello::parse(hello.as_bytes()).is_some(), "{hello}");
        self.sentinel.handle_hello(self.now, hello.as_bytes());
        self.carry_out();
    }

    /// SENTINEL, from an operator. The answer.
    pub(crate) fn commands(&mut self, words: &[&str]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let (session, protocol) = (SessionId(2), Protocol::Resp2);
        let request = AdminRequest { session, protocol, words: &words };
        self.sentinel.handle_command(self.now, request, &Everything);
        self.carry_out();
        let replies = self.outputs.iter().rev().find_map(|output| match output {
            Output::Reply { bytes, .. } => Some(bytes.clone()),
            _ => None,
        });
        replies.expect("an answer")
    }

    /// A silent server restarts: its connections are gone, and it answers again.
    pub(crate) fn comes_back(&mut self, port: u16) {
        self.silent.remove(&port);
        let links = self.links.iter().filter(|(_, to)| **to == port).map(|(link, _)| *link);
        for link in links.collect::<Vec<_>>() {
            self.sentinel.handle_link_down(self.now, link);
        }
    }

    /// Others say that the primary is down, and vote as told.
    pub(crate) fn others_say_down(&mut self, vote: Option<Vote>) {
        for port in [26379, 26380] {
            self.answers.insert(port, DownAnswer { is_down: true, vote: vote.clone() });
        }
    }

    /// Another sentinel asks for a vote. The answer, and what left before it.
    pub(crate) fn is_asked(&mut self, candidate: &str, epoch: u64) -> (DownAnswer, Vec<Output>) {
        let before = self.outputs.len();
        self.hears_question(candidate, epoch);
        let mut outputs = self.outputs.split_off(before);
        let at = outputs.iter().position(|output| matches!(output, Output::Answer { .. }));
        let at = at.expect("an answer");
        let answer = match &outputs[at] {
            Output::Answer { answer, .. } => answer.clone(),
            other => panic!("{other:?} is no answer"),
        };
        outputs.truncate(at);
        (answer, outputs)
    }

    /// Another sentinel asks for a vote.
    pub(crate) fn hears_question(&mut self, candidate: &str, epoch: u64) {
        let candidate = Some(id(candidate));
        let question = DownQuestion { address: address(SERVERS[0]), epoch, candidate };
        self.sentinel.handle_down_question(self.now, SessionId(1), question);
        self.carry_out();
    }

    /// The disk goes on, or says that it cannot.
    pub(crate) fn disk_goes_on(&mut self, outcome: FileOutcome) {
        self.is_disk_hanging = false;
        self.sentinel.handle_file(self.now, outcome);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.sentinel.next_output() {
            self.outputs.push(output.clone());
            match output {
                Output::Persist(text) => {
                    self.file = text;
                    if !self.is_disk_hanging {
                        self.sentinel.handle_file(self.now, FileOutcome::Written);
                    }
                }
                Output::Dial { link, address } => {
                    self.links.insert(link, address.port);
                    self.sentinel.handle_link_up(self.now, link, "10.0.0.9");
                }
                Output::Send { link, question } => self.answer(link, &question),
                _ => {}
            }
        }
    }

    fn answer(&mut self, link: LinkId, question: &Question) {
        let port = self.links[&link];
        if self.silent.contains(&port) {
            return;
        }
        let ok = || Reply::Simple("OK".to_owned());
        let replies = match question {
            Question::Ping => vec![Reply::Simple("PONG".to_owned())],
            Question::Info => vec![Reply::Bulk(self.info(port).into_bytes())],
            Question::IsDown(_) => match self.answers.get(&port) {
                Some(answer) => {
                    let reply = store_resp::ReplyParser.parse(&answer.encode());
                    vec![reply.ok().flatten().expect("a whole reply").0]
                }
                None => vec![Reply::Null],
            },
            Question::Follow(primary) => {
                let primary = primary.as_ref().map(|primary| primary.port);
                self.follows.push((port, primary));
                let server = self.servers.get_mut(&port).expect("a server");
                if server.obeys {
                    server.follows = primary;
                    server.is_link_up = false;
                }
                vec![ok(); question.replies()]
            }
            _ => vec![ok(); question.replies()],
        };
        for reply in replies {
            self.sentinel.handle_reply(self.now, link, &reply);
        }
    }

    fn info(&self, port: u16) -> String {
        let server = &self.servers[&port];
        let mut text = format!("run_id:run{port}\r\n");
        match server.follows {
            Some(primary) => {
                let status = if server.is_link_up { "up" } else { "down" };
                text.push_str(&format!(
                    "role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:{primary}\r\n\
                     master_link_status:{status}\r\nslave_repl_offset:{}\r\n\
                     master_link_down_since_seconds:{}\r\nslave_priority:{}\r\n",
                    server.offset, server.link_down_s, server.priority
                ));
            }
            None => text.push_str("role:master\r\n"),
        }
        if !server.history.is_empty() {
            let (second, offset) = server.second;
            text.push_str(&format!(
                "master_replid:{}\r\nmaster_replid2:{second}\r\nsecond_repl_offset:{offset}\r\n",
                server.history
            ));
        }
        text
    }
}
