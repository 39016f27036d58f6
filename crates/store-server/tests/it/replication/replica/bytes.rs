//! Cuts at every single byte, by a primary that breaks off exactly there.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use store_resp::Reply;

use super::{Ours, ok};
use crate::replication::support::{EMPTY_SNAPSHOT, scripted_primary};

const ID: &str = "dddddddddddddddddddddddddddddddddddddddd";
/// Bytes of the history that the payload has.
const BASE: usize = 100;

/// A request of the stream.
pub(super) fn request(words: &[&str]) -> String {
    let args: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{args}", words.len())
}

/// A stream with everything that a cut can fall into, and where a replica may go on from.
fn stream() -> (Vec<u8>, Vec<usize>) {
    let units: [&[&[&str]]; 6] = [
        &[&["SELECT", "2"]],
        &[&["INCR", "counter"]],
        // No server asks inside of a transaction; if one did, nothing there would count yet.
        &[
            &["MULTI"],
            &["INCR", "counter"],
            &["REPLCONF", "GETACK", "*"],
            &["RPUSH", "list", "a", "b"],
            &["EXEC"],
        ],
        &[&["ping"]],
        &[&["SET", "value", "0123456789abcdef"]],
        &[&["REPLCONF", "GETACK", "*"]],
    ];
    let (mut bytes, mut ends) = (Vec::new(), vec![0]);
    for unit in units {
        unit.iter().for_each(|words| bytes.extend_from_slice(request(words).as_bytes()));
        ends.push(bytes.len());
    }
    (bytes, ends)
}

pub(super) fn full_sync(stream: &mut TcpStream) {
    let head = format!("+FULLRESYNC {ID} {BASE}\r\n${}\r\n", EMPTY_SNAPSHOT.len());
    let _ = stream.write_all(&[head.as_bytes(), EMPTY_SNAPSHOT].concat());
}

/// Until the replica confirms this many bytes, or is gone.
fn wait_for_ack(stream: &mut TcpStream, offset: usize) {
    let (mut heard, mut buffer) = (String::new(), [0; 1024]);
    while !heard.contains(&format!("\r\n{offset}\r\n")) {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => heard.push_str(&String::from_utf8_lossy(&buffer[..count])),
            _ => return,
        }
    }
}

#[test]
fn a_stream_that_is_cut_at_any_byte_goes_on_behind_the_last_whole_unit() {
    let (bytes, ends) = stream();
    // What was asked for after each cut: the number of bytes that the replica has.
    let asked: Arc<Mutex<Vec<usize>>> = Arc::default();
    let (told, sent, is_first) = (Arc::clone(&asked), bytes.clone(), Mutex::new(true));
    let port = scripted_primary(move |stream, psync| {
        if std::mem::replace(&mut *is_first.lock().unwrap(), false) {
            full_sync(stream);
            wait_for_ack(stream, BASE);
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        let mut told = told.lock().unwrap();
        let has = psync.parse::<usize>().unwrap() - 1 - BASE;
        told.push(has);
        // One byte more each time: all classes of bytes have their turn.
        let cut = told.len().min(sent.len());
        drop(told);
        let _ = stream.write_all(format!("+CONTINUE {ID}\r\n").as_bytes());
        let _ = stream.write_all(&sent[has..cut.max(has)]);
        if cut < sent.len() {
            let _ = stream.shutdown(Shutdown::Write);
        }
    });
    let mut ours = Ours::start();
    ours.follow(port);
    testkit::wait_until("all of the stream", testkit::GENEROUS, || {
        super::fact(&mut ours.connection, "slave_repl_offset")
            .is_some_and(|offset| offset == (BASE + bytes.len()).to_string())
    });
    for (index, has) in asked.lock().unwrap().iter().enumerate() {
        let whole = ends.iter().rev().find(|end| **end <= index).unwrap();
        assert_eq!(has, whole, "after a cut at byte {index}");
    }
    ours.words("SELECT 2");
    assert_eq!(ours.words("GET counter"), Reply::Bulk(b"2".to_vec()));
    assert_eq!(ours.words("LLEN list"), Reply::Integer(2));
    assert_eq!(ours.words("GET value"), Reply::Bulk(b"0123456789abcdef".to_vec()));
}

#[test]
fn a_payload_that_is_cut_at_any_byte_class_leaves_the_old_data_until_another_is_whole() {
    let mark = "e".repeat(40);
    let mut bytes = format!("+FULLRESYNC {ID} {BASE}\r\n$EOF:{mark}\r\n").into_bytes();
    let payload_at = bytes.len();
    bytes.extend_from_slice(b"REDIS0010\xfe\0\x00\x03new\x011");
    bytes.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    let mark_at = bytes.len();
    bytes.extend_from_slice(mark.as_bytes());
    let cuts = [20, payload_at - 30, payload_at, payload_at + 3, payload_at + 15, mark_at - 4]
        .into_iter()
        .chain([mark_at, mark_at + 1, mark_at + 20, mark_at + 39, bytes.len()]);
    for mode in ["disabled", "swapdb"] {
        let mut ours = Ours::start_with(|builder| builder.setting("repl-diskless-load", mode));
        ours.words("SET own 1");
        for cut in cuts.clone() {
            let (sent, is_whole) = (bytes[..cut].to_vec(), cut == bytes.len());
            let port = scripted_primary(move |stream, _| {
                let _ = stream.write_all(&sent);
                if !is_whole {
                    let _ = stream.shutdown(Shutdown::Write);
                }
            });
            ours.lines.lock().unwrap().clear();
            ours.follow(port);
            if is_whole {
                ours.wait_for("master_link_status", "up");
                assert_eq!(ours.words("EXISTS own"), Reply::Integer(0), "{mode}");
                assert_eq!(ours.words("GET new"), Reply::Bulk(b"1".to_vec()), "{mode}");
                break;
            }
            let lost = "Error condition on socket for SYNC";
            testkit::wait_until(lost, testkit::GENEROUS, || ours.has_logged(lost));
            // It is tried again, and while something is loaded aside nothing else is answered.
            testkit::wait_until("a moment between", testkit::GENEROUS, || {
                ours.words("REPLICAOF NO ONE") == ok()
            });
            assert_eq!(ours.words("GET own"), Reply::Bulk(b"1".to_vec()), "{mode}, byte {cut}");
        }
    }
}
