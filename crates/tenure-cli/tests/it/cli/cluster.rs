//! `tenure cli -c` in a cluster of real servers.

use testkit::{ClusterGroup, TempFolder};

use super::interactive::{prompt, session};
use super::same_output::redis_cli;
use super::{cli_on, run, stdout};

/// Keys of different masters, and of the slot that is on its way below.
const LINES: &[u8] = b"SET foo 1\nGET foo\nGET bar\nSET hello x\nMGET a b\nNOSUCH\nPING\n";

#[test]
fn a_key_is_found_on_whichever_node_it_is_as_by_redis_cli() {
    let group = ClusterGroup::start().steady();
    for place in 0..group.len() {
        let server = group.server(place);
        let ours = run(cli_on(server, &["-c"]), LINES);
        let theirs = run(redis_cli(server, &["-c"]), LINES);
        assert_eq!(stdout(&ours), stdout(&theirs), "from node {place}");
        assert!(stdout(&ours).contains("-> Redirected to slot ["), "{}", stdout(&ours));
        // One command alone: its reply and nothing else.
        let alone = run(cli_on(server, &["-c", "GET", "foo"]), b"");
        assert_eq!(stdout(&alone), "1\n");
    }
    let moved = run(cli_on(group.server(0), &["GET", "foo"]), b"");
    assert!(stdout(&moved).starts_with("MOVED 12182 "), "without -c: {}", stdout(&moved));

    let slot = group.slot_of("foo");
    let (from, to) = (group.owner_of(slot).unwrap(), 0);
    group.begin_migration(slot, to);
    let asked = run(cli_on(group.server(from), &["-c", "SET", "{foo}new", "2"]), b"");
    assert_eq!(stdout(&asked), "OK\n", "ASK is followed, and ASKING said");
    assert_eq!(stdout(&run(cli_on(group.server(from), &["-c", "GET", "{foo}new"]), b"")), "2\n");
}

#[test]
fn a_person_sees_where_the_dialogue_goes_and_a_transaction_stays() {
    let group = ClusterGroup::start().steady();
    let folder = TempFolder::create();
    let slot = group.slot_of("foo");
    let owner = group.server(group.owner_of(slot).unwrap());
    let first = group.server(0);
    let mut terminal = session(first, &folder, &["-c"]);
    terminal.sees(&prompt(first));
    terminal.press("set foo 1\r");
    let told = format!("-> Redirected to slot [{slot}] located at {}\r\nOK", owner.authority());
    terminal.sees(&told);
    terminal.sees(&prompt(owner));
    terminal.press("multi\r");
    terminal.sees(&format!("127.0.0.1:{}(TX)> ", owner.port()));
    // To follow would leave the transaction behind and carry this out by itself.
    terminal.press("set bar 1\r");
    terminal.sees("(error) MOVED 5061 ");
    terminal.press("exec\r");
    terminal.sees("(error) EXECABORT");
    terminal.press("get bar\r");
    terminal.sees("-> Redirected to slot [5061]");
    terminal.sees("(nil)");
    terminal.press("quit\r");
    assert_eq!(terminal.ends(), Some(0));
}
