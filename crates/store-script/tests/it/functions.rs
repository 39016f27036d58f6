//! Libraries: what stays, what goes, and who may be called.

use store_script::{Flags, Replication};

use crate::store::{Memory, Store, limits, show};

fn load(store: &mut Store<Memory>, code: &str) -> String {
    show(&store.ask(&[b"FUNCTION", b"LOAD", code.as_bytes()]))
}

fn call(store: &mut Store<Memory>, name: &str) -> String {
    show(&store.ask(&[b"FCALL", name.as_bytes(), b"0"]))
}

#[test]
fn a_library_is_listed_with_all_it_said_about_itself() {
    let mut store = Store::new(Memory::default());
    let code = "#!lua name=tools\nredis.register_function('plain', function() return 1 end)\n\
                redis.register_function{function_name='careful', callback=function() return 2 end,\
                description='reads only', flags={'no-writes', 'allow-oom'}}";
    load(&mut store, code);
    let library = store.interpreter.libraries().next().unwrap();
    assert_eq!((library.name(), library.code()), ("tools", code.as_bytes()));
    let functions: Vec<_> = library.functions().collect();
    assert_eq!((functions[0].name, functions[0].description), ("plain", None));
    assert_eq!(functions[1].description, Some("reads only"));
    assert_eq!(functions[1].flags, Flags::NO_WRITES.with(Flags::ALLOW_OOM));
    assert_eq!(store.interpreter.function("careful").unwrap().name, "careful");
    assert_eq!(store.interpreter.function_count(), 2);
}

#[test]
fn replacing_takes_effect_only_when_the_new_one_loads() {
    let mut store = Store::new(Memory::default());
    load(&mut store, "#!lua name=a\nredis.register_function('f', function() return 'old' end)");
    load(&mut store, "#!lua name=b\nredis.register_function('g', function() return 'other' end)");

    let broken = [
        "#!lua name=a\nredis.register_function('f', function() end) nosuch()",
        "#!lua name=a\nredis.register_function('g', function() end)",
        "#!lua name=a\n",
    ];
    for code in broken {
        let reply = store.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", code.as_bytes()]);
        assert!(reply.starts_with(b"-ERR"), "{}", show(&reply));
        assert_eq!(call(&mut store, "f"), "$3\\r\\nold\\r\\n");
        assert_eq!(call(&mut store, "g"), "$5\\r\\nother\\r\\n");
    }
    let code = b"#!lua name=a\nredis.register_function('h', function() return 'new' end)";
    store.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", code]);
    assert_eq!(call(&mut store, "h"), "$3\\r\\nnew\\r\\n");
    assert_eq!(call(&mut store, "f"), "-ERR Function not found\\r\\n");
}

#[test]
fn deleted_and_flushed_libraries_are_gone() {
    let mut store = Store::new(Memory::default());
    load(&mut store, "#!lua name=a\nredis.register_function('f', function() return 1 end)");
    load(&mut store, "#!lua name=b\nredis.register_function('g', function() return 2 end)");
    assert!(store.interpreter.delete_library("a"));
    assert!(!store.interpreter.delete_library("a"));
    assert_eq!(call(&mut store, "f"), "-ERR Function not found\\r\\n");
    assert_eq!(call(&mut store, "g"), ":2\\r\\n");
    store.interpreter.flush_libraries();
    assert_eq!(store.interpreter.libraries().count(), 0);
    assert_eq!(call(&mut store, "g"), "-ERR Function not found\\r\\n");
}

#[test]
fn libraries_do_not_share_globals() {
    let mut store = Store::new(Memory::default());
    load(
        &mut store,
        "#!lua name=a\nlocal secret = 'mine'\n\
         redis.register_function('a1', function() return secret end)\n\
         redis.register_function('a2', function() secret = 'changed' return secret end)",
    );
    load(&mut store, "#!lua name=b\nredis.register_function('b1', function() return secret end)");
    assert_eq!(call(&mut store, "a2"), "$7\\r\\nchanged\\r\\n");
    assert_eq!(call(&mut store, "a1"), "$7\\r\\nchanged\\r\\n", "a library keeps its own state");
    let reply = call(&mut store, "b1");
    assert!(reply.contains("nonexistent global variable \\'secret\\'"), "{reply}");
    assert!(store.eval("return secret").contains("nonexistent global variable"));
}

#[test]
fn libraries_are_bounded_in_bytes_and_number() {
    let limits = limits(|limits| {
        limits.libraries_bytes_max = 1000;
        limits.functions_max = 5;
    });
    let mut store = Store::with_limits(Memory::default(), limits);
    let long = format!(
        "#!lua name=long\nredis.register_function('f', function() end) --{}",
        "x".repeat(1000)
    );
    assert!(load(&mut store, &long).starts_with("-ERR Too many libraries"));
    let many =
        "#!lua name=many\nfor i = 1, 6 do redis.register_function('f' .. i, function() end) end";
    assert!(load(&mut store, many).contains("Too many functions in the library"));
    let some =
        "#!lua name=some\nfor i = 1, 5 do redis.register_function('f' .. i, function() end) end";
    assert_eq!(load(&mut store, some), "$4\\r\\nsome\\r\\n");
    let more = "#!lua name=more\nredis.register_function('g', function() end)";
    assert!(load(&mut store, more).starts_with("-ERR Too many libraries"));
    let again = b"#!lua name=some\nredis.register_function('g', function() end)";
    assert_eq!(store.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", again]), b"$4\r\nsome\r\n");
}

#[test]
fn failed_loads_leave_no_memory_behind() {
    let mut store = Store::new(Memory::default());
    let code = "#!lua name=a\nlocal t = ('x'):rep(10000)\n\
                redis.register_function('f', function() return t end) nosuch()";
    load(&mut store, code);
    let before = store.interpreter.memory();
    for _ in 0..2000 {
        load(&mut store, code);
    }
    let after = store.interpreter.memory();
    assert!(after < before + (3 << 20), "{before} bytes became {after}");
}

#[test]
fn set_repl_tells_the_host_where_writes_go() {
    let mut store = Store::new(Memory::default());
    store.eval("redis.set_repl(redis.REPL_AOF)");
    let only_file = Replication { to_file: true, to_replicas: false };
    assert_eq!(store.host.replication, Some(only_file));
    store.eval("redis.set_repl(redis.REPL_REPLICA)");
    let only_replicas = Replication { to_file: false, to_replicas: true };
    assert_eq!(store.host.replication, Some(only_replicas));
}
