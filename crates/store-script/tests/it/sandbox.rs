//! What a script is given.

use crate::store::{Memory, Store, show};

#[test]
fn keys_and_arguments_are_each_scripts_own() {
    let mut store = Store::new(Memory::default());
    let code = b"return {KEYS, ARGV}";
    let reply = store.ask(&[b"EVAL", code, b"1", b"k\0", b"a", b""]);
    assert_eq!(
        show(&reply),
        "*2\\r\\n*1\\r\\n$2\\r\\nk\\x00\\r\\n*2\\r\\n$1\\r\\na\\r\\n$0\\r\\n\\r\\n"
    );
    assert_eq!(store.ask(&[b"EVAL", code, b"0"]), b"*2\r\n*0\r\n*0\r\n");
}

#[test]
fn many_keys_and_arguments_fit() {
    let mut store = Store::new(Memory::default());
    let many: Vec<Vec<u8>> = (0..50_000).map(|n| format!("argument {n}").into_bytes()).collect();
    let mut words: Vec<&[u8]> = vec![b"EVAL", b"return {#KEYS, #ARGV, ARGV[#ARGV]}", b"20000"];
    words.extend(many.iter().map(Vec::as_slice));
    assert_eq!(
        show(&store.ask(&words)),
        "*3\\r\\n:20000\\r\\n:30000\\r\\n$14\\r\\nargument 49999\\r\\n"
    );
}

#[test]
fn large_arguments_do_not_count_as_the_scripts_memory() {
    let mut store = Store::with_limits(Memory::default(), crate::store::small_limits());
    let large = vec![b'x'; 32 << 20];
    let reply = store.ask(&[b"EVAL", b"return #ARGV[1]", b"0", &large]);
    assert_eq!(show(&reply), ":33554432\\r\\n");
    assert_eq!(store.eval("return ('x'):rep(3)"), "$3\\r\\nxxx\\r\\n");
}

#[test]
fn a_command_gets_its_arguments_byte_for_byte() {
    let mut store = Store::new(Memory::default());
    store.eval("redis.call('SET', 'k\\0\\r\\n', '\\255', 5, 1.5)");
    let expected: Vec<Vec<u8>> =
        [&b"SET"[..], b"k\0\r\n", b"\xff", b"5", b"1.5"].map(<[u8]>::to_vec).into();
    assert_eq!(store.host.calls, [expected]);
}

#[test]
fn an_error_that_a_command_gave_is_told_apart_from_the_scripts_own() {
    use store_script::ScriptOutcome::{Failed, Returned};
    let mut store = Store::new(Memory::default());
    store.eval("redis.call('nosuch')");
    assert_eq!(store.outcome, Some(Failed { counted: true }));
    store.eval("error('mine')");
    assert_eq!(store.outcome, Some(Failed { counted: false }));
    store.eval("return redis.pcall('nosuch')");
    assert_eq!(store.outcome, Some(Returned));
}
