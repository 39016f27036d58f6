//! Tables whose keys were chosen so that they all have one place: no instruction takes long.

use store_script::ScriptOutcome;

use crate::store::{Memory, Store};

/// `key(n, sum)` is one of many numbers of which Lua's hash is `sum`.
const KEY: &str = "local function key(n, sum) \
                     return 1 + (n * 2^32 + (sum - 0x3ff00000 - n) % 2^32) / 2^52 \
                   end ";

/// `spread(log)` is a full table of `2^log` keys, each in a place of its own or nearly, which will
/// all have the same among twice as many.
const SPREAD: &str = "local function spread(log) \
                        local t, size, room = {}, 2^log, 2^(log + 1) - 1 \
                        local sums = math.floor(2^32 / room) \
                        for i = 0, size - 1 do \
                          t[key(math.floor(i / sums), room * (i % sums))] = i \
                        end \
                        return t \
                      end ";

fn with_keys(code: &str) -> String {
    [KEY, SPREAD, code].concat()
}

#[test]
fn no_room_is_made_where_all_keys_would_have_one_place() {
    let mut store = Store::new(Memory::default());
    for code in [
        "local t = spread(16) t.x = 1 return 'all'",
        "local t = spread(17) t[0.5] = 1 return 'all'",
        "local t = spread(16) rawset(t, 'x', 1) return 'all'",
        "local t = spread(16) t[{}] = 1 return 'all'",
        "local t = {} for i = 1, 65537 do t[key(i, 7)] = i end return 'all'",
    ] {
        let reply = store.eval(with_keys(code));
        assert!(reply.contains("not enough memory"), "{code}: {reply}");
        assert_eq!(store.eval("return 'well'"), "$4\\r\\nwell\\r\\n", "{code}");
    }
}

#[test]
fn a_message_whose_keys_all_have_one_place_is_refused() {
    let mut store = Store::new(Memory::default());
    let code = "local parts = {'\\223' .. struct.pack('>I4', 65537)} \
                for i = 1, 65537 do parts[#parts + 1] = '\\203' .. struct.pack('>d', key(i, 7)) .. '\\1' end \
                local text = table.concat(parts) \
                cmsgpack.unpack(text) return 'all'";
    let reply = store.eval(with_keys(code));
    assert!(reply.contains("not enough memory"), "{reply}");
    assert_eq!(store.eval("return 'well'"), "$4\\r\\nwell\\r\\n");
}

#[test]
fn a_text_whose_constants_all_have_one_place_is_refused() {
    let mut store = Store::new(Memory::default());
    let key = |n: u64| {
        let low = 7_u32.wrapping_sub(0x3ff0_0000).wrapping_sub(n as u32);
        f64::from_bits((0x3ff0_0000 + n) << 32 | u64::from(low))
    };
    let constants: Vec<String> = (0..100_000).map(|n| format!("{:?}", key(n))).collect();
    let reply = store.eval(format!("return #{{{}}}", constants.join(",")));
    assert!(reply.starts_with("-ERR Error compiling"), "{}", &reply[..reply.len().min(200)]);

    let usual: Vec<String> = (0..100_000).map(|n| format!("{n}.5")).collect();
    assert_eq!(store.eval(format!("return #{{{}}}", usual.join(","))), ":100000\\r\\n");
}

#[test]
fn the_longer_the_chain_the_fewer_instructions_between_two_ticks() {
    let mut store = Store::new(Memory::default());
    // There is room for the chain: it grows without more.
    let ticks_of = |store: &mut Store<Memory>, chain: usize| {
        store.host.ticks = 0;
        let code = "local t = {} for i = 1, 40000 do t[i + 0.5] = i end \
                    for i = 1, CHAIN do t[key(i, 7)] = i end \
                    local last = key(1, 7) \
                    for i = 1, 40000 do local x = t[last] end return 'all'";
        let reply = store.eval(with_keys(&code.replace("CHAIN", &chain.to_string())));
        assert_eq!(reply, "$3\\r\\nall\\r\\n");
        store.host.ticks
    };
    let (few, many) = (ticks_of(&mut store, 1), ticks_of(&mut store, 8000));
    assert!(many > 10 * few, "{many} ticks, and {few} without a chain");
    assert!(ticks_of(&mut store, 1) <= few + 1, "the next run is not slowed down");
}

#[test]
fn large_tables_of_usual_keys_have_room() {
    let mut store = Store::new(Memory::default());
    for key in [
        "i",
        "-i",
        "i * 1000",
        "i / 10",
        "i * 2^32",
        "i * 65536 + 0.25",
        "1700000000000 + i * 60000",
        "2^52 - i",
        "1 / i",
        "'key' .. i",
        "{}",
        "function() return i end",
    ] {
        let code = format!(
            "local t, n = {{}}, 0 for i = 1, 140000 do t[{key}] = true end \
             for _ in pairs(t) do n = n + 1 end return n"
        );
        assert_eq!(store.eval(code), ":140000\\r\\n", "{key}");
        assert_eq!(store.outcome, Some(ScriptOutcome::Returned), "{key}");
    }
}

#[test]
fn a_large_list_is_no_table_of_equal_keys() {
    let mut store = Store::new(Memory::default());
    for item in ["0", "7", "'x'"] {
        // Lua makes room for 40,960 items, which is as much as for 16,384 keys.
        let list = vec![item; 40_000].join(",");
        let code = format!(
            "local list, t = {{{list}}}, {{}} for i = 1, 20000 do t[i + 0.5] = i end return #list"
        );
        assert_eq!(store.eval(code), ":40000\\r\\n", "{item}");
    }
}
