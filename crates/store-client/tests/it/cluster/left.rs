//! A node that left the cluster still answers, and knows nobody.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use store_client::ClusterClient;
use store_client::redis::Cmd;

/// What a node answers to a request whose words include this one; OK to all others.
type Answers = Arc<Mutex<Vec<(&'static str, String)>>>;

/// Says what it is told to say.
struct Node {
    port: u16,
    answers: Answers,
}

impl Node {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = Answers::default();
        let told = Arc::clone(&answers);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let told = Arc::clone(&told);
                thread::spawn(move || serve(stream, &told));
            }
        });
        Self { port, answers }
    }

    fn answer(&self, answers: &[(&'static str, &str)]) {
        let answers = answers.iter().map(|(word, reply)| (*word, (*reply).to_owned()));
        *self.answers.lock().unwrap() = answers.collect();
    }
}

fn serve(mut stream: TcpStream, answers: &Answers) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        // Each request of a piece begins with how many words it has.
        for request in text.split('*').filter(|request| !request.is_empty()) {
            let said = answers.lock().unwrap().clone();
            let answer = said.iter().find(|(word, _)| request.contains(&format!("{word}\r\n")));
            let answer = answer.map_or("+OK\r\n", |(_, answer)| answer);
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

const COMMANDS: &str =
    "*1\r\n*6\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n";
const DOWN: &str = "-CLUSTERDOWN The cluster is down\r\n";
const LOADING: &str = "-LOADING Redis is loading the dataset in memory\r\n";
const NOTHING: &str = "*0\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_without_any_owner_does_not_replace_one_that_has_some() {
    let (seed, owner) = (Node::start(), Node::start());
    let node = |node: &Node| format!("*3\r\n$9\r\n127.0.0.1\r\n:{}\r\n$2\r\nid\r\n", node.port);
    let map = format!("*1\r\n*4\r\n:0\r\n:16383\r\n{}{}", node(&owner), node(&seed));
    seed.answer(&[("SLOTS", &map), ("COMMAND", COMMANDS)]);
    owner.answer(&[("GET", "$5\r\nvalue\r\n"), ("SLOTS", &map)]);
    let address = format!("redis+cluster://127.0.0.1:{}", seed.port);
    let client = ClusterClient::connect(&address).await.unwrap();
    let client = client.with_patience(Duration::from_secs(10));
    let get = Cmd::get("key");
    assert_eq!(client.query::<String>(&get).await.unwrap(), "value");

    // It is removed from the cluster. Nobody else answers for a moment.
    seed.answer(&[("SLOTS", NOTHING)]);
    owner.answer(&[("GET", DOWN), ("SLOTS", LOADING)]);
    let put_off = client.with_patience(Duration::from_secs(1));
    assert!(put_off.query::<String>(&get).await.is_err());
    owner.answer(&[("GET", "$5\r\nvalue\r\n"), ("SLOTS", &map)]);
    assert_eq!(client.query::<String>(&get).await.unwrap(), "value");
}
