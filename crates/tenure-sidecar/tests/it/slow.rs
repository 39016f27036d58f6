//! Callers that do not read, do not finish, or say nothing at all keep nobody else out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tenure_sidecar::{ServerSettings, Sidecar};
use testkit::{GENEROUS, wait_until};

use crate::http::head;
use crate::stage::{RESOURCE, Served, Stage};

/// More than a listener has places.
const CROWD: usize = 300;
/// Longer than the test: only making room lets the next one in.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn served(stage: &Stage, patience: Duration) -> Served {
    let builder = Sidecar::builder(stage.client("ada")).observe(RESOURCE);
    let settings = ServerSettings::listen("127.0.0.1:0").caller_timeout(patience);
    stage.serve_at(builder, settings).unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    // A server that does not read either must not hold up the test.
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    stream
}

/// `CROWD` connections, each of which has said this and listens to no answer.
fn crowd(address: SocketAddr, said: &[u8]) -> Vec<TcpStream> {
    let one = |_| {
        let mut stream = connect(address);
        let _ = stream.write_all(said);
        stream
    };
    (0..CROWD).map(one).collect()
}

fn assert_probes_are_answered(served: &Served, among: &str) {
    wait_until(&format!("/livez to answer among {among}"), GENEROUS, || {
        let Ok(mut stream) = TcpStream::connect(served.address) else { return false };
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let asked = head(served.address, "GET", "/livez", &[], "");
        let mut answer = [0; 15];
        stream.write_all(asked.as_bytes()).is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && answer.starts_with(b"HTTP/1.1 200")
    });
}

#[test]
fn callers_that_say_nothing_silence_nobody() {
    let stage = Stage::embedded();
    let served = served(&stage, FOR_EVER);
    let _crowd = crowd(served.address, b"");
    assert_probes_are_answered(&served, "the silent");
}

#[test]
fn callers_that_do_not_finish_a_body_silence_nobody() {
    let stage = Stage::embedded();
    let served = served(&stage, FOR_EVER);
    let asked = "POST /hand-over/nightly-report HTTP/1.1\r\nHost: localhost\r\n\
                 Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    let _crowd = crowd(served.address, asked.as_bytes());
    assert_probes_are_answered(&served, "unfinished bodies");
}

#[test]
fn callers_that_do_not_read_silence_nobody() {
    let stage = Stage::embedded();
    let served = served(&stage, FOR_EVER);
    let _crowd = crowd(served.address, large_questions().as_bytes());
    assert_probes_are_answered(&served, "those who do not read");
}

/// Followers of events who do not read: each is told something every second.
#[test]
fn followers_that_do_not_read_silence_nobody() {
    let stage = Stage::embedded();
    let served = served(&stage, FOR_EVER);
    let _crowd = crowd(served.address, b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_probes_are_answered(&served, "followers");
}

#[test]
fn a_body_that_does_not_end_is_answered_with_a_time_out() {
    let stage = Stage::embedded();
    let served = served(&stage, Duration::from_millis(300));
    let mut stream = connect(served.address);
    let asked = "POST /hand-over/nightly-report HTTP/1.1\r\nHost: localhost\r\n\
                 Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    stream.write_all(asked.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers and hangs up");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer:?}");
}

#[test]
fn a_caller_that_stops_reading_is_hung_up_on() {
    let stage = Stage::embedded();
    let served = served(&stage, Duration::from_millis(300));
    let mut stream = connect(served.address);
    let asked = large_questions();
    while let Ok(length @ 1..) = stream.write(asked.as_bytes()) {
        // Until the server has stopped reading, because nobody reads what it writes.
        assert!(length <= asked.len());
    }
    wait_until("the server to hang up", GENEROUS, || match stream.write(b"x") {
        Ok(_) => false,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    });
}

/// So many requests that their answers fill every buffer on the way.
fn large_questions() -> String {
    "GET /page/card.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000)
}
