//! A server that was redirected, taken over or broken controls every byte that we read.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{StoreErrorKind, Token};

use crate::actor::Actor;

/// A server that answers `INFO` like Redis and everything else as it likes. Its threads end with
/// the test process.
struct Fake {
    port: u16,
}

type Answering = dyn Fn(&str) -> Vec<u8> + Send + Sync;

impl Fake {
    fn start(answering: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answering: Arc<Answering> = Arc::new(answering);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten().take(10_000) {
                let answering = Arc::clone(&answering);
                std::thread::spawn(move || serve(stream, &*answering));
            }
        });
        Fake { port }
    }

    fn actor(&self) -> Actor {
        let actor = Actor::at(&format!("redis://127.0.0.1:{}", self.port), "job");
        actor.within(Duration::from_secs(2))
    }
}

fn serve(mut stream: TcpStream, answering: &Answering) {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let request = String::from_utf8_lossy(&buffer[..count]).into_owned();
        let infos = request.matches("INFO\r\n").count();
        let reply = match request.contains("EVAL") {
            false => b"$13\r\nrun_id:abcdef\r\n".repeat(infos.max(1)),
            true => answering(&request),
        };
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

/// The number of the call, which an honest reply carries back.
fn number_in(request: &str) -> &str {
    let words: Vec<&str> = request.split("\r\n").collect();
    let at = words.iter().position(|word| word.ends_with(":meta")).unwrap();
    words[at + 2]
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// A reply with these parts in place of the honest ones.
fn reply(request: &str, kind: &str, first: &str, pttl: &str, token: &str, time: &str) -> Vec<u8> {
    let view = ["1", "ada_1", pttl, token, "0", time, "abc:", "0", "0", "0", ""].map(bulk).concat();
    let number = bulk(number_in(request));
    format!(
        "*7\r\n{number}{}*2\r\n{}{}*11\r\n{view}*0\r\n*0\r\n*0\r\n",
        bulk(kind),
        bulk(first),
        bulk("")
    )
    .into_bytes()
}

fn token() -> Token {
    Token::new(7).unwrap()
}

#[tokio::test]
async fn an_honest_fake_is_believed() {
    let fake = Fake::start(|request| reply(request, "renewed", "", "900", "7", "1700000000000000"));
    let answer = fake.actor().renew(token()).await.unwrap();
    assert_eq!(answer.view.token, Some(token()));
}

#[tokio::test]
async fn replies_of_another_shape_are_errors_and_nothing_else() {
    let garbage: Vec<(&str, Vec<u8>)> = vec![
        ("an integer", b":1\r\n".to_vec()),
        ("nothing", b"$-1\r\n".to_vec()),
        ("no list", b"*-1\r\n".to_vec()),
        ("an empty list", b"*0\r\n".to_vec()),
        ("a status", b"+OK\r\n".to_vec()),
        ("a list of integers", b"*7\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n".to_vec()),
        ("an error", b"-ERR what\x1b[31m\r\n".to_vec()),
        ("an error with line ends", b"-ERR a\r\n-ERR b\r\n".to_vec()),
        ("deep lists", b"*1\r\n".repeat(100_000)),
        ("deep sets", b"~1\r\n".repeat(100_000)),
        ("deep pushes", b">1\r\n".repeat(100_000)),
        ("deep maps", b"%1\r\n+a\r\n".repeat(100_000)),
        ("deep attributes", b"|1\r\n+a\r\n".repeat(100_000)),
        ("a huge list", b"*2147483647\r\n".to_vec()),
        ("the hugest list", b"*9223372036854775807\r\n".to_vec()),
        ("a huge map", b"%4611686018427387904\r\n".to_vec()),
        ("a huge text", b"$536870913\r\n".to_vec()),
        ("an impossible text", b"$99999999999999999999\r\n".to_vec()),
        ("a negative text", b"$-2\r\n".to_vec()),
        ("a signed length", b"$+5\r\nhello\r\n".to_vec()),
        ("a spaced length", b"$ 5\r\nhello\r\n".to_vec()),
        ("a float", b":1e3\r\n".to_vec()),
        ("a lone line feed", b"+OK\n".to_vec()),
        ("a text without its end", b"$5\r\nhelloXX".to_vec()),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("TLS", b"\x15\x03\x01\x00\x02\x02\x46".to_vec()),
        ("zeros", vec![0; 100_000]),
    ];
    for (what, bytes) in garbage {
        let fake = Fake::start(move |_| bytes.clone());
        let error = fake.actor().within(Duration::from_millis(500)).renew(token()).await;
        let error = error.expect_err(what);
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(['\x1b', '\r', '\n']), "{what}: {shown:?}");
        assert!(shown.len() < 2000, "{what}: {shown}");
    }
}

#[tokio::test]
async fn an_expiry_in_the_far_future_is_cut_and_no_reason_to_reject_an_answer() {
    let endless = "1000000000000000000";
    let fake = Fake::start(move |r| reply(r, "renewed", "", endless, "7", "1700000000000000"));
    let answer = fake.actor().renew(token()).await.unwrap();
    assert!(answer.view.pttl.is_some_and(|left| left < Duration::from_secs(1 << 32)));
}

#[tokio::test]
async fn numbers_out_of_bounds_are_errors() {
    let cases = [
        ("negative expiry", ["900", "-5", "7", "1700000000000000"]),
        ("a float as token", ["", "900", "1.79e15", "1700000000000000"]),
        ("a token too large", ["", "900", "9007199254740992", "1700000000000000"]),
        ("a negative token", ["", "900", "-1", "1700000000000000"]),
        ("no token", ["", "900", "", "1700000000000000"]),
        ("a clock of the far future", ["", "900", "7", "99999999999999999999"]),
    ];
    for (what, [first, pttl, known, time]) in cases {
        let fake = Fake::start(move |request| reply(request, "renewed", first, pttl, known, time));
        let error = fake.actor().renew(token()).await.expect_err(what);
        assert_eq!(error.kind(), StoreErrorKind::Unexpected, "{what}: {error:?}");
    }
    for granted in ["", "0", "-1", "abc", "9007199254740992"] {
        let time = "1700000000000000";
        let fake = Fake::start(move |r| reply(r, "granted", granted, "900", "7", time));
        let error = fake.actor().acquire(1).await.expect_err(granted);
        assert_eq!(error.kind(), StoreErrorKind::Unexpected, "{granted}: {error:?}");
    }
}

#[tokio::test]
async fn a_holder_of_ten_megabytes_is_not_even_read() {
    let fake = Fake::start(|request| {
        let mut bytes = format!("*7\r\n{}", bulk(number_in(request))).into_bytes();
        bytes.extend_from_slice(bulk(&"x".repeat(10_000_000)).as_bytes());
        bytes
    });
    let error = fake.actor().renew(token()).await.unwrap_err();
    assert!(error.to_string().contains("broke the protocol"), "{error}");
    assert!(error.next_step().unwrap().contains("the port of Redis or Valkey"), "{error}");
}

#[tokio::test]
async fn one_reply_too_many_never_answers_another_call() {
    let fake = Fake::start(|request| {
        let mut bytes = reply(request, "renewed", "", "900", "7", "1700000000000000");
        bytes.extend_from_slice(&bytes.clone());
        bytes
    });
    let ada = fake.actor();
    for round in 0..20 {
        // The copy of an earlier reply may arrive before the next call or after it: the next call
        // either gets its own answer or an error, and the line is replaced.
        match ada.renew(token()).await {
            Ok(answer) => assert_eq!(answer.view.token, Some(token()), "round {round}"),
            Err(error) => {
                let expected = matches!(
                    error.kind(),
                    StoreErrorKind::Unexpected | StoreErrorKind::Unreachable
                );
                assert!(expected, "round {round}: {error:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_drips_is_given_up_by_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten().take(100) {
            std::thread::spawn(move || {
                let mut stream = stream;
                // Half of a header, byte by byte, and then nothing.
                for byte in b"$100000\r\n" {
                    std::thread::sleep(Duration::from_millis(100));
                    if stream.write_all(&[*byte]).is_err() {
                        return;
                    }
                }
                std::thread::sleep(Duration::from_secs(30));
            });
        }
    });
    let ada = Actor::at(&format!("redis://127.0.0.1:{port}"), "job");
    let asked_at = std::time::Instant::now();
    let error = ada.within(Duration::from_millis(400)).renew(token()).await.unwrap_err();
    assert!(error.is_temporary(), "{error:?}");
    assert!(asked_at.elapsed() < Duration::from_secs(10));
}
