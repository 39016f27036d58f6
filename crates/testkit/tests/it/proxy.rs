//! The proxy between real sockets, and in front of a real server.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use testkit::proxy::{Cut, Direction, Door, Proxy, Rule, Script, What, When};
use testkit::{GENEROUS, Random, RedisServer, wait_until};

/// Long enough that what should come has come, short enough to wait for in vain.
const A_MOMENT: Duration = Duration::from_millis(60);

/// Both ends of one connection through a proxy.
struct Pair {
    proxy: Proxy,
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

impl Pair {
    fn connected() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::to(listener.local_addr().unwrap());
        let client = connect(&proxy);
        let server = accept(&listener);
        Self { proxy, listener, client, server }
    }

    /// A further client that takes the place of the first, as after a reconnect.
    fn reconnect(&mut self) {
        self.client = connect(&self.proxy);
        self.server = accept(&self.listener);
    }
}

fn connect(proxy: &Proxy) -> TcpStream {
    let client = TcpStream::connect(proxy.address()).unwrap();
    client.set_read_timeout(Some(GENEROUS)).unwrap();
    client
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(GENEROUS)).unwrap();
    server
}

fn send(mut stream: &TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
}

#[track_caller]
fn assert_receives(mut stream: &TcpStream, text: &str) {
    let mut received = vec![0; text.len()];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(String::from_utf8_lossy(&received), text);
}

#[track_caller]
fn assert_silent(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(A_MOMENT)).unwrap();
    let outcome = stream.read(&mut [0; 64]);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
}

/// Reads to the end: what came, and whether a reset ended it.
fn read_to_end(mut stream: &TcpStream) -> (String, bool) {
    let mut received = Vec::new();
    let is_reset = match stream.read_to_end(&mut received) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            true
        }
    };
    (String::from_utf8_lossy(&received).into_owned(), is_reset)
}

#[test]
fn bytes_and_ends_pass_both_ways() {
    let pair = Pair::connected();
    send(&pair.client, "question");
    assert_receives(&pair.server, "question");
    send(&pair.server, "answer");
    assert_receives(&pair.client, "answer");

    pair.client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&pair.server), (String::new(), false));
    send(&pair.server, "last word");
    drop(pair.server);
    assert_eq!(read_to_end(&pair.client), ("last word".into(), false));
    wait_until("the connection to be forgotten", GENEROUS, || pair.proxy.connections_open() == 0);
}

#[test]
fn a_megabyte_passes_unchanged_though_the_reader_is_slow() {
    let pair = Pair::connected();
    let mut random = Random::seeded(3);
    let sent: Vec<u8> = (0..8_000_000).map(|_| random.next_u64() as u8).collect();
    let mut writer = pair.client.try_clone().unwrap();
    let expected = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    std::thread::sleep(A_MOMENT);
    let mut received = vec![0; expected.len()];
    (&pair.server).read_exact(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == expected, "bytes were changed on the way");
}

#[test]
fn a_delay_holds_bytes_back_in_one_direction_only() {
    let pair = Pair::connected();
    pair.proxy.set_rule(Direction::ToServer, Rule::Delay(A_MOMENT));
    let sent_at = Instant::now();
    send(&pair.client, "slow");
    send(&pair.server, "fast");
    assert_receives(&pair.client, "fast");
    assert_receives(&pair.server, "slow");
    assert!(sent_at.elapsed() >= A_MOMENT);
}

#[test]
fn delays_of_bytes_sent_together_do_not_add_up() {
    let pair = Pair::connected();
    pair.proxy.set_rule(Direction::ToServer, Rule::Delay(Duration::from_millis(300)));
    let sent_at = Instant::now();
    for _ in 0..100 {
        send(&pair.client, "x");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_receives(&pair.server, &"x".repeat(100));
    assert!(sent_at.elapsed() < Duration::from_secs(20), "the delays were added up");
}

#[test]
fn swallowed_bytes_never_arrive_but_are_on_record() {
    let pair = Pair::connected();
    pair.proxy.set_rule(Direction::ToServer, Rule::Swallow);
    send(&pair.client, "into the void");
    assert_silent(&pair.server);
    pair.proxy.set_rule(Direction::ToServer, Rule::Forward);
    send(&pair.client, "heard");
    assert_receives(&pair.server, "heard");
    assert!(pair.proxy.traffic(Direction::ToServer).contains("into the void"));
}

#[test]
fn a_swallowed_direction_keeps_the_end_of_a_connection_back() {
    let pair = Pair::connected();
    pair.proxy.set_rule(Direction::ToServer, Rule::Swallow);
    drop(pair.client);
    assert_silent(&pair.server);
    pair.proxy.heal();
    assert_eq!(read_to_end(&pair.server), (String::new(), false));
}

#[test]
fn a_half_open_connection_keeps_bytes_and_ends_back_until_healed() {
    let pair = Pair::connected();
    pair.proxy.set_rules(Rule::HalfOpen);
    send(&pair.client, "kept");
    assert_silent(&pair.server);
    assert!(pair.proxy.traffic(Direction::ToServer).is_empty());
    drop(pair.client);
    assert_silent(&pair.server);
    assert_eq!(pair.proxy.connections_open(), 1);

    pair.proxy.set_rules(Rule::Forward);

    assert_eq!(read_to_end(&pair.server), ("kept".into(), false));
}

#[test]
fn a_sender_into_a_half_open_connection_has_to_wait() {
    let pair = Pair::connected();
    pair.proxy.set_rule(Direction::ToServer, Rule::HalfOpen);
    pair.client.set_write_timeout(Some(A_MOMENT)).unwrap();
    let chunk = vec![0; 1024 * 1024];
    wait_until("the buffers to fill", GENEROUS, || (&pair.client).write(&chunk).is_err());
}

#[test]
fn slices_arrive_one_by_one() {
    let pair = Pair::connected();
    let pause = Duration::from_millis(5);
    pair.proxy.set_rule(Direction::ToServer, Rule::Slice { bytes: 3, pause });
    let sent_at = Instant::now();
    send(&pair.client, "0123456789");
    let mut sizes = Vec::new();
    let mut buffer = [0; 64];
    while sizes.iter().sum::<usize>() < 10 {
        sizes.push((&pair.server).read(&mut buffer).unwrap());
    }
    assert!(sizes.len() > 1, "all slices arrived at once");
    assert!(sent_at.elapsed() >= pause * 3, "four slices have three pauses between them");
}

#[test]
fn a_cut_ends_present_connections_in_either_way() {
    for (cut, is_reset) in [(Cut::Close, false), (Cut::Reset, true)] {
        let mut pair = Pair::connected();
        send(&pair.server, "said before");
        assert_receives(&pair.client, "said before");
        pair.proxy.cut(cut);
        assert_eq!(read_to_end(&pair.client), (String::new(), is_reset), "{cut:?}");
        assert_eq!(read_to_end(&pair.server), (String::new(), is_reset), "{cut:?}");

        pair.reconnect();
        send(&pair.client, "again");
        assert_receives(&pair.server, "again");
    }
}

#[test]
fn a_limit_cuts_every_connection_after_exactly_so_many_bytes() {
    let mut pair = Pair::connected();
    send(&pair.server, "before the rule");
    assert_receives(&pair.client, "before the rule");
    pair.proxy.set_rule(Direction::ToClient, Rule::CutAfter { bytes: 4, cut: Cut::Close });
    for _ in 0..2 {
        send(&pair.server, "+PONG");
        assert_eq!(read_to_end(&pair.client), ("+PON".into(), false));
        pair.reconnect();
    }
}

#[test]
fn a_refused_client_is_reset_and_a_later_one_served() {
    let mut pair = Pair::connected();
    pair.proxy.set_door(Door::Refuse);
    let refused = connect(&pair.proxy);
    assert!(read_to_end(&refused).1);
    send(&pair.client, "still there");
    assert_receives(&pair.server, "still there");
    pair.proxy.set_door(Door::Open);
    pair.reconnect();
    send(&pair.client, "served");
    assert_receives(&pair.server, "served");
    assert_eq!(pair.proxy.connections_accepted(), 3);
}

#[test]
fn a_client_is_reset_when_nothing_listens_behind_the_proxy() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = listener.local_addr().unwrap();
    drop(listener);
    let proxy = Proxy::to(target);
    assert!(read_to_end(&connect(&proxy)).1);
}

#[test]
fn new_connections_go_to_the_new_target() {
    let pair = Pair::connected();
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    pair.proxy.set_target(other.local_addr().unwrap());
    let client = connect(&pair.proxy);
    send(&client, "to the other");
    assert_receives(&accept(&other), "to the other");
    send(&pair.client, "to the first");
    assert_receives(&pair.server, "to the first");
}

#[test]
fn a_script_acts_between_two_bytes() {
    let pair = Pair::connected();
    pair.proxy.run_script(Script::new([
        (When::Bytes(Direction::ToServer, 5), What::Rule(Direction::ToServer, Rule::Swallow)),
        (When::Bytes(Direction::ToServer, 4), What::BothRules(Rule::Forward)),
        (When::Bytes(Direction::ToServer, 3), What::Cut(Cut::Close)),
    ]));
    send(&pair.client, "keep,lose,ab|never");
    assert_eq!(read_to_end(&pair.server).0, "keep,,ab");
    pair.proxy.wait_for_script(GENEROUS);
}

#[test]
fn a_script_acts_on_connections_and_on_time() {
    let mut pair = Pair::connected();
    pair.proxy.run_script(Script::new([
        (When::Connections(1), What::Rule(Direction::ToServer, Rule::HalfOpen)),
        (When::Elapsed(A_MOMENT), What::BothRules(Rule::Forward)),
    ]));
    send(&pair.client, "first");
    assert_receives(&pair.server, "first");
    let connected_at = Instant::now();
    pair.reconnect();
    send(&pair.client, "second");
    assert_receives(&pair.server, "second");
    assert!(connected_at.elapsed() >= A_MOMENT);
    pair.proxy.wait_for_script(GENEROUS);
}

#[test]
fn the_record_tells_what_was_sent_after_a_mark() {
    let pair = Pair::connected();
    send(&pair.client, "SET owner me");
    assert_receives(&pair.server, "SET owner me");
    let mark = pair.proxy.mark();
    send(&pair.client, "PING");
    assert_receives(&pair.server, "PING");
    let later = pair.proxy.traffic_since(mark, Direction::ToServer);
    assert!(later.contains("PING") && !later.contains("owner"));
    assert_eq!(pair.proxy.bytes_moved(Direction::ToServer), 16);
}

#[test]
fn a_dropped_proxy_takes_its_port_and_connections_along() {
    let pair = Pair::connected();
    let address = pair.proxy.address();
    pair.proxy.set_rules(Rule::HalfOpen);
    drop(pair.proxy);
    assert_eq!(read_to_end(&pair.client).0, "");
    assert_eq!(read_to_end(&pair.server).0, "");
    assert!(TcpStream::connect(address).is_err());
}

/// Asks with a fresh connection until the reply comes, as a client that retries does.
fn ask_until_answered(address: SocketAddr) {
    wait_until("a reply", GENEROUS, || {
        let Ok(mut stream) = TcpStream::connect(address) else { return false };
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut reply = [0; 7];
        stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut reply).is_ok()
            && &reply == b"+PONG\r\n"
    });
}

#[test]
fn a_real_server_answers_again_after_any_random_script() {
    let server = RedisServer::start();
    for seed in 0..4 {
        let proxy = Proxy::in_front_of(&server);
        proxy.run_script(Script::random(seed, 3));
        for _ in 0..10 {
            ask_until_answered(proxy.address());
        }
        proxy.wait_for_script(GENEROUS);
        ask_until_answered(proxy.address());
    }
}
