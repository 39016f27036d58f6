//! Processor time per operation, ours beside redis-server's.
//!
//! `cargo run --release -p store-server --example measure -- target/release/tenure [rounds]`
//!
//! Each round starts both servers in turn on one core and redis-benchmark on the other, and
//! takes user and system time of the server process from /proc. The least over all rounds
//! counts: noise only ever adds.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

const TESTS: &[&str] = &["get", "set"];
const PIPELINES: &[u32] = &[1, 16, 64];
const SERVER_CORE: &str = "0";
const LOAD_CORE: &str = "1";

struct Server {
    process: Child,
    port: String,
}

impl Server {
    fn start(words: &[&str]) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let port = free.expect("a free port").port().to_string();
        let mut command = Command::new("taskset");
        command.args(["-c", SERVER_CORE]).args(words).args(["--port", &port, "--save", ""]);
        let process = command.stdout(Stdio::null()).spawn().expect("taskset and the server start");
        let mut server = Self { process, port };
        while std::net::TcpStream::connect(format!("127.0.0.1:{}", server.port)).is_err() {
            let ended = server.process.try_wait().expect("the server can be asked");
            assert!(ended.is_none(), "the server ended at once");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Ticks of ten milliseconds in user and system mode.
    fn cpu_ticks(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.process.id());
        let stat = std::fs::read_to_string(path).expect("the server runs");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks = |index: usize| fields[index].parse::<u64>().expect("a number");
        ticks(11) + ticks(12)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().expect("the server can be killed");
        self.process.wait().expect("the server ends");
    }
}

/// Microseconds of processor time per operation.
fn measure(server: &[&str], test: &str, pipeline: u32, value_len: &str) -> f64 {
    let server = Server::start(server);
    let count = if pipeline == 1 { 200_000 } else { 1_500_000 };
    // Keys to find: what is measured is not how fast nothing is found.
    load(&server, "set", 64, value_len, 300_000);
    let before = server.cpu_ticks();
    load(&server, test, pipeline, value_len, count);
    (server.cpu_ticks() - before) as f64 * 10_000.0 / f64::from(count)
}

fn load(server: &Server, test: &str, pipeline: u32, value_len: &str, count: u32) {
    let status = Command::new("taskset")
        .args(["-c", LOAD_CORE, "redis-benchmark", "-p", &server.port, "-q", "-t", test])
        .args(["-d", value_len, "-r", "100000", "-n", &count.to_string()])
        .args(["-P", &pipeline.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("redis-benchmark starts");
    assert!(status.success(), "redis-benchmark failed");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let program = args.next().expect("the path of the program tenure");
    let rounds: usize = args.next().map_or(3, |text| text.parse().expect("a number of rounds"));
    println!("CPU per operation in µs, least of {rounds} rounds");
    println!(
        "{:8} {:>8} {:>6} {:>8} {:>8} {:>6}",
        "command", "pipeline", "bytes", "ours", "redis", "ratio"
    );
    for value_len in ["3", "1024"] {
        for test in TESTS {
            for pipeline in PIPELINES {
                let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
                for _ in 0..rounds {
                    ours = ours.min(measure(&[&program, "serve"], test, *pipeline, value_len));
                    theirs = theirs.min(measure(&["redis-server"], test, *pipeline, value_len));
                }
                let ratio = ours / theirs;
                println!(
                    "{test:8} {pipeline:>8} {value_len:>6} {ours:>8.2} {theirs:>8.2} {ratio:>6.2}"
                );
            }
        }
    }
}
