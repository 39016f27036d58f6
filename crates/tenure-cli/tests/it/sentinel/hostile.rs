//! Servers that answer a sentinel as no server should.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{GENEROUS, Sentinel, ServerProgram, wait_until};

/// Replicas that the primary lists, each of which the sentinel has two connections to.
const REPLICAS: u8 = 40;

/// 127.0.0.1 is the primary, every other address a replica.
fn answer(mut stream: TcpStream, port: u16, ended: &AtomicUsize) -> std::io::Result<()> {
    let mut input = [0; 4096];
    if stream.local_addr()?.ip() != Ipv4Addr::LOCALHOST {
        let len = stream.read(&mut input)?;
        assert!(len > 0, "the sentinel speaks first");
        let mut written = stream.write_all(b"$500000000\r\n");
        while written.is_ok() {
            written = stream.write_all(&[b'x'; 64 * 1024]);
        }
        ended.fetch_add(1, Ordering::SeqCst);
        return Ok(());
    }
    let mut info = "role:master\r\n".to_owned();
    for number in 1..=REPLICAS {
        write!(info, "slave{number}:ip=127.0.1.{number},port={port},state=online\r\n")
            .expect("a string takes everything");
    }
    let info = format!("${}\r\n{info}\r\n", info.len());
    loop {
        let len = stream.read(&mut input)?;
        let text = String::from_utf8_lossy(&input[..len]).into_owned();
        // One request may come in pieces; what is too much is closed, and comes again.
        for request in text.split('*').skip(1) {
            match request {
                _ if request.contains("PING") => stream.write_all(b"+PONG\r\n")?,
                _ if request.contains("INFO") => stream.write_all(info.as_bytes())?,
                _ => stream.write_all(b"+OK\r\n")?,
            }
        }
        if len == 0 {
            return Ok(());
        }
    }
}

/// The most memory that a process has had, in kilobytes.
fn most_memory(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("it has memory");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn many_replicas_that_never_end_their_answers_take_little_memory() {
    const MEMORY_MAX_KB: usize = 220_000;
    let primary = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = primary.local_addr().unwrap().port();
    let replica = |number| TcpListener::bind((Ipv4Addr::new(127, 0, 1, number), port)).unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    for listener in (1..=REPLICAS).map(replica).chain([primary]) {
        let counter = Arc::clone(&ended);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || answer(stream, port, &counter));
            }
        });
    }
    let lines = format!("sentinel monitor main 127.0.0.1 {port} 1\n");
    let sentinel = Sentinel::start_alone(&ServerProgram::own(), &lines, None);
    wait_until("every connection to a replica to be given up", GENEROUS, || {
        ended.load(Ordering::SeqCst) >= 2 * usize::from(REPLICAS)
    });
    assert_eq!(sentinel.field("num-slaves"), REPLICAS.to_string());
    let memory = most_memory(sentinel.pid());
    println!("{memory} kB");
    assert!(memory < MEMORY_MAX_KB, "{memory} kB");
}
