//! What a sentinel reads: its file, and in a second target hellos, SENTINEL words, INFO and
//! replies.

use std::collections::{BTreeMap, VecDeque};

use store_replica::{Moment, SessionId};
use store_resp::{Protocol, Reply, ReplyParser};
use store_sentinel::{
    AdminRequest, Configuration, Draw, FileOutcome, LinkId, Output, Question, RunId, Sentinel,
    Surroundings, Timing,
};

use super::Target;

pub(super) const FILE: Target = Target {
    name: "sentinel-file",
    about: "sentinel.conf, which reads back as it was written",
    run: read_file,
    words: &[
        b"sentinel ",
        b"monitor main 127.0.0.1 6379 2\n",
        b"down-after-milliseconds main ",
        b"failover-timeout main ",
        b"parallel-syncs main ",
        b"auth-pass main ",
        b"auth-user main ",
        b"rename-command main CONFIG ",
        b"notification-script main /bin/true\n",
        b"known-replica main 127.0.0.1 6380\n",
        b"known-sentinel main 127.0.0.1 26380 abc\n",
        b"config-epoch main ",
        b"leader-epoch main ",
        b"current-epoch ",
        b"announce-ip ",
        b"announce-port ",
        b"sentinel-pass ",
        b"myid abc\n",
        b"18446744073709551615",
        b"\"\\x00\"",
        b"yes\n",
    ],
};

fn read_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(configuration) = Configuration::parse(&text) else { return };
    let written = configuration.to_text();
    match Configuration::parse(&written) {
        Ok(again) => assert_eq!(again, configuration, "{written}"),
        Err(error) => panic!("what was written is refused: {error}\n{written}"),
    }
}

pub(super) const WORDS: Target = Target {
    name: "sentinel",
    about: "hellos, SENTINEL words, INFO and replies that a sentinel hears, a line each",
    run: hear,
    words: &[
        b"\nh10.0.0.2,26379,abc,7,main,10.0.0.1,6379,7",
        b"\nh10.0.0.2,26380,def,18446744073709551615,main,10.0.0.3,6379,9",
        b"\nc set main quorum 2",
        b"\nc monitor other 10.0.0.9 6379 1",
        b"\nc remove main",
        b"\nc reset *",
        b"\nc failover main",
        b"\nc is-master-down-by-addr 10.0.0.1 6379 8 abc",
        b"\nc config set announce-ip 10.0.0.4",
        b"\nc debug info-period 1",
        b"\nc simulate-failure crash-after-election",
        b"\nc pending-scripts",
        b"\nc info-cache main",
        b"\nirole:master|run_id:abc|slave0:ip=10.0.0.5,port=6379,state=online",
        b"\nirole:slave|master_host:10.0.0.1|master_port:6379|slave_priority:0",
        b"\nIrole:slave|master_link_status:down|master_link_down_since_seconds:18446744073709551615",
        b"\nIrole:master",
        b"\nr+PONG",
        b"\nr-BUSY",
        b"\nt60000",
        b"\nf",
        b"\nd",
    ],
};

/// What the driver would find out.
struct Anything;

impl Surroundings for Anything {
    fn is_executable(&self, path: &str) -> bool {
        !path.ends_with("missing")
    }

    fn matches(&self, pattern: &[u8], name: &str) -> bool {
        pattern == b"*" || pattern == name.as_bytes()
    }
}

struct Heard {
    sentinel: Sentinel,
    now: Moment,
    /// The last connection that was opened.
    link: Option<LinkId>,
    /// What was asked over each connection and not answered.
    asked: BTreeMap<LinkId, VecDeque<Question>>,
    outcome: FileOutcome,
}

fn hear(bytes: &[u8]) {
    /// More lines than that find nothing new.
    const LINES_MAX: usize = 200;
    let file = "sentinel monitor main 10.0.0.1 6379 1\nsentinel down-after-milliseconds main 100\n\
                sentinel deny-scripts-reconfig no\n";
    let configuration = Configuration::parse(file).expect("a good file");
    let (now, draw) = (Moment::from_ms(1_000), Draw::new(|_| 0));
    let id = RunId::parse(b"me").expect("a name");
    let sentinel = Sentinel::new(now, configuration, id, Timing::default(), draw);
    let (link, asked, outcome) = (None, BTreeMap::new(), FileOutcome::Written);
    let mut heard = Heard { sentinel, now, link, asked, outcome };
    heard.carry_out();
    for line in bytes.split(|byte| *byte == b'\n').take(LINES_MAX) {
        if let Some((kind, rest)) = line.split_first() {
            heard.take(*kind, rest);
            heard.carry_out();
        }
    }
    let written = heard.sentinel.configuration().to_text();
    if let Err(error) = Configuration::parse(&written) {
        panic!("what it knows cannot be kept: {error}\n{written}");
    }
}

impl Heard {
    fn take(&mut self, kind: u8, rest: &[u8]) {
        let (now, session) = (self.now, SessionId(1));
        match (kind, self.link) {
            (b'h', _) => self.sentinel.handle_hello(now, rest),
            (b'c', _) => {
                let words: Vec<&[u8]> =
                    rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
                let request = AdminRequest { session, protocol: Protocol::Resp3, words: &words };
                self.sentinel.handle_command(now, request, &Anything);
            }
            (b'i' | b'I', _) => {
                let info = rest.iter().map(|byte| if *byte == b'|' { b'\n' } else { *byte });
                self.answer_info(kind == b'I', &Reply::Bulk(info.collect()));
            }
            (b'r', Some(link)) => {
                let reply = [rest, b"\r\n"].concat();
                if let Ok(Some((reply, _))) = ReplyParser.parse(&reply) {
                    self.sentinel.handle_reply(now, link, &reply);
                }
            }
            (b'd', Some(link)) => {
                self.asked.remove(&link);
                self.sentinel.handle_link_down(now, link);
            }
            (b'f', _) => {
                self.outcome = match self.outcome {
                    FileOutcome::Written => FileOutcome::Failed,
                    FileOutcome::Failed => FileOutcome::Written,
                };
                self.sentinel.handle_file(now, self.outcome);
            }
            _ => {
                let digits = std::str::from_utf8(rest).ok().and_then(|text| text.parse().ok());
                let ms: u32 = digits.unwrap_or(100);
                self.now = now + std::time::Duration::from_millis(u64::from(ms));
                self.sentinel.handle_time(self.now);
            }
        }
    }

    /// The server that was dialled first, or last, of those that were asked for INFO gives it, and
    /// usual answers to what it was asked before.
    fn answer_info(&mut self, is_last: bool, info: &Reply) {
        let is_asked = |(_, asked): &(&LinkId, &VecDeque<_>)| asked.contains(&Question::Info);
        let mut links = self.asked.iter().filter(is_asked).map(|(link, _)| *link);
        let Some(link) = (if is_last { links.next_back() } else { links.next() }) else { return };
        while let Some(question) = self.asked.get_mut(&link).and_then(VecDeque::pop_front) {
            if question == Question::Info {
                return self.sentinel.handle_reply(self.now, link, info);
            }
            for _ in 0..question.replies() {
                let usual = Reply::Simple("PONG".to_owned());
                self.sentinel.handle_reply(self.now, link, &usual);
            }
        }
    }

    fn carry_out(&mut self) {
        /// What one input leads to is far less.
        const OUTPUTS_MAX: usize = 10_000;
        for _ in 0..OUTPUTS_MAX {
            match self.sentinel.poll_output() {
                Output::WaitUntil(_) => return,
                Output::Persist(text) => {
                    if let Err(error) = Configuration::parse(&text) {
                        panic!("its file is refused: {error}\n{text}");
                    }
                    self.sentinel.handle_file(self.now, self.outcome);
                }
                Output::Dial { link, .. } => {
                    self.link = Some(link);
                    self.sentinel.handle_link_up(self.now, link, "10.0.0.7");
                }
                Output::Send { link, question } => {
                    let bytes = self.sentinel.encode(link, &question);
                    let requests = bytes.split(|byte| *byte == b'*').count() - 1;
                    assert!(requests >= question.replies(), "{question:?}");
                    self.asked.entry(link).or_default().push_back(question);
                }
                Output::Close(link) => drop(self.asked.remove(&link)),
                _ => {}
            }
        }
        panic!("it never comes to rest");
    }
}
