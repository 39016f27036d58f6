//! All sentinels and servers are restarted one after the other while clients write.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testkit::{GENEROUS, SentinelGroup, wait_for, wait_until};

use super::{hurry, own};

const WRITERS: usize = 3;
/// How long a writer waits for an answer before it asks the sentinels again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Clients that count, each on a key of its own, wherever the sentinels say the primary is.
struct Load {
    writers: Vec<Writer>,
    is_over: Arc<AtomicBool>,
}

struct Writer {
    /// The greatest number that the primary and all replicas had.
    confirmed: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Load {
    fn begin(group: &SentinelGroup) -> Self {
        let ports: Vec<u16> = group.sentinels.iter().map(testkit::Sentinel::port).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = |index: usize| {
            let confirmed = Arc::new(AtomicU64::new(0));
            let (ports, is_over, count) = (ports.clone(), is_over.clone(), confirmed.clone());
            let thread = thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Whatever goes wrong, the sentinels are asked again.
                    let _ = write_on(&ports, index, &is_over, &count);
                    thread::sleep(Duration::from_millis(20));
                }
            });
            Writer { confirmed, thread }
        };
        Self { writers: (0..WRITERS).map(writer).collect(), is_over }
    }

    fn confirmed(&self) -> Vec<u64> {
        self.writers.iter().map(|it| it.confirmed.load(Ordering::Relaxed)).collect()
    }

    /// Every writer gets on.
    fn goes_on(&self, after: &str) {
        let before = self.confirmed();
        wait_until(&format!("all writers to get on after {after}"), 3 * GENEROUS, || {
            self.confirmed().iter().zip(&before).all(|(now, before)| now > before)
        });
    }

    fn end(self) -> Vec<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        let confirmed = self.confirmed();
        self.writers.into_iter().for_each(|writer| writer.thread.join().unwrap());
        confirmed
    }
}

struct Line(BufReader<TcpStream>);

impl Line {
    fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Asks, and returns so many lines of the answer.
    fn ask(&mut self, words: &str, lines: usize) -> io::Result<Vec<String>> {
        write!(self.0.get_mut(), "{words}\r\n")?;
        let mut read = || {
            let mut line = String::new();
            match self.0.read_line(&mut line)? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(line.trim_end().to_owned()),
            }
        };
        (0..lines).map(|_| read()).collect()
    }

    fn number(&mut self, words: &str) -> io::Result<u64> {
        let told = self.ask(words, 1)?.remove(0);
        let number = told.strip_prefix(':').and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| io::Error::other(told))
    }
}

/// Where the first sentinel that answers says.
fn primary(sentinels: &[u16]) -> io::Result<u16> {
    let words = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", SentinelGroup::MASTER);
    let ask = |port: &u16| Line::open(*port)?.ask(&words, 5);
    let told = sentinels.iter().find_map(|port| ask(port).ok());
    let port = told.and_then(|lines| lines[4].parse().ok());
    port.ok_or_else(|| io::Error::other("no sentinel answers"))
}

fn write_on(
    sentinels: &[u16],
    index: usize,
    is_over: &AtomicBool,
    confirmed: &AtomicU64,
) -> io::Result<()> {
    let mut line = Line::open(primary(sentinels)?)?;
    while !is_over.load(Ordering::Relaxed) {
        let number = line.number(&format!("INCR writer:{index}"))?;
        if line.number("WAIT 2 500")? == 2 {
            confirmed.fetch_max(number, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn follows(group: &SentinelGroup, at: usize, primary: usize) {
    let port = format!("slave\n127.0.0.1\n{}\nconnected", group.servers[primary].port());
    wait_until("a server to follow the primary", GENEROUS, || {
        group.servers[at].role().is_some_and(|role| role.starts_with(&port))
    });
}

#[test]
fn sentinels_and_servers_are_restarted_in_turn_under_load_and_nothing_confirmed_is_lost() {
    let mut group = SentinelGroup::start_mixed(&own(3), &own(3));
    hurry(&group);
    let load = Load::begin(&group);
    load.goes_on("the start");

    for at in 0..3 {
        group.sentinels[at].restart();
        hurry(&group);
        wait_until("the sentinels to agree", GENEROUS, || group.sentinels_agree());
        load.goes_on("the restart of a sentinel");
    }
    for at in [1, 2] {
        group.servers[at].terminate();
        group.servers[at].restart();
        follows(&group, at, 0);
        load.goes_on("the restart of a replica");
    }
    // The primary last: another takes over first. A try that comes to nothing is made again.
    let new = wait_for("another primary by hand", 3 * GENEROUS, || {
        group.sentinels[0].cli(&["SENTINEL", "FAILOVER", SentinelGroup::MASTER]);
        group.master().filter(|new| *new != 0)
    });
    follows(&group, 0, new);
    group.servers[0].terminate();
    let port = group.servers[new].port().to_string();
    group.servers[0].restart_with(["--replicaof", "127.0.0.1", &port]);
    (0..3).filter(|at| *at != new).for_each(|at| follows(&group, at, new));
    load.goes_on("the restart of the old primary");

    let confirmed = load.end();
    for (index, confirmed) in confirmed.into_iter().enumerate() {
        let kept = group.servers[new].cli(&["GET", &format!("writer:{index}")]);
        let kept: u64 = kept.parse().unwrap();
        assert!(kept >= confirmed, "writer {index}: {kept} is there, {confirmed} was confirmed");
    }
}
