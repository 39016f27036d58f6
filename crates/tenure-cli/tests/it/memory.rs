//! Memory of the process, as the system counts it: what is freed goes back.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::{GENEROUS, RedisServer, ServerProgram, wait_until};

const MIB: u64 = 1 << 20;
/// What the process may hold beyond what is in use.
const SLACK: u64 = 32 * MIB;

fn start(settings: &[&str]) -> RedisServer {
    let program = ServerProgram::new(env!("CARGO_BIN_EXE_tenure")).arg("serve");
    RedisServer::builder().program(program).args(settings).start()
}

fn connect(server: &RedisServer) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    stream
}

fn resident(server: &RedisServer) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

fn info(server: &RedisServer, name: &str) -> u64 {
    let text = server.cli(&["INFO"]);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("INFO has no {name}")).trim().parse().unwrap()
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n", word.len()).into_bytes());
        request.extend(*word);
        request.extend(b"\r\n");
    }
    request
}

/// Sets `count` keys to values of `len` bytes, in one request per thousand.
fn fill(stream: &mut TcpStream, count: usize, len: usize) {
    let value = vec![b'x'; len];
    for first in (0..count).step_by(1000) {
        let keys: Vec<Vec<u8>> =
            (first..count.min(first + 1000)).map(|key| format!("key:{key}").into()).collect();
        let mut words: Vec<&[u8]> = vec![b"MSET"];
        keys.iter().for_each(|key| words.extend([&key[..], &value]));
        stream.write_all(&request(&words)).unwrap();
        expect_ok(stream);
    }
}

fn expect_ok(stream: &mut TcpStream) {
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
}

fn shrinks(server: &RedisServer) {
    wait_until("what was freed goes back", GENEROUS, || {
        let bound = info(server, "used_memory") * 13 / 10 + SLACK;
        resident(server) <= bound
    });
}

#[test]
fn a_flush_gives_memory_back_without_another_word() {
    let server = start(&[]);
    let mut stream = connect(&server);
    fill(&mut stream, 400_000, 150);
    assert!(resident(&server) > 60 * MIB);
    stream.write_all(b"FLUSHALL\r\n").unwrap();
    expect_ok(&mut stream);
    // Nobody asks for anything meanwhile.
    wait_until("it shrinks by itself", GENEROUS, || resident(&server) < SLACK);
    shrinks(&server);
}

#[test]
fn a_loop_of_writes_and_flushes_stays_within_its_memory() {
    let server = start(&["--maxmemory", "64mb"]);
    let mut stream = connect(&server);
    for _ in 0..10 {
        fill(&mut stream, 40_000, 400);
        stream.write_all(b"FLUSHALL\r\n").unwrap();
        expect_ok(&mut stream);
        assert!(resident(&server) < 130 * MIB, "{} MiB", resident(&server) / MIB);
    }
    shrinks(&server);
}

#[test]
fn memory_purge_gives_memory_back() {
    let server = start(&[]);
    let mut stream = connect(&server);
    let large = vec![b'x'; 3 * MIB as usize];
    for key in 0..30 {
        stream.write_all(&request(&[b"SET", format!("{key}").as_bytes(), &large])).unwrap();
        expect_ok(&mut stream);
    }
    assert!(resident(&server) > 90 * MIB);
    let keys: Vec<String> = (0..30).map(|key| key.to_string()).collect();
    let mut words: Vec<&[u8]> = vec![b"UNLINK"];
    words.extend(keys.iter().map(|key| key.as_bytes()));
    stream.write_all(&request(&words)).unwrap();
    stream.write_all(&request(&[b"MEMORY", b"PURGE"])).unwrap();
    shrinks(&server);
    assert_eq!(server.cli(&["MEMORY", "PURGE"]), "OK");
    assert!(server.cli(&["INFO", "memory"]).contains("mem_allocator:mimalloc"));
}
