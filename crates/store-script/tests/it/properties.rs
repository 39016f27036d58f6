//! Values made from seeds, packed and unpacked by us and by a real server.

use testkit::Random;

use crate::real::Real;
use crate::store::{Memory, Store, show};

const ROUNDS: usize = 300;

/// Both servers answer every script that `make` comes up with alike.
fn compare(make: impl Fn(&mut Random) -> String) {
    let seed = testkit::seed();
    let mut random = Random::seeded(seed);
    let mut real = Real::start();
    let mut ours = Store::new(Memory::default());
    for _ in 0..ROUNDS {
        let code = make(&mut random);
        let words: [&[u8]; 3] = [b"EVAL", code.as_bytes(), b"0"];
        let (expected, found) = (real.ask(&words), ours.ask(&words));
        assert!(
            expected == found,
            "seed {seed}\n{code}\n  real: {}\n  ours: {}",
            show(&expected),
            show(&found)
        );
    }
}

/// A number less than `bound`.
fn below(random: &mut Random, bound: u64) -> u64 {
    random.in_range(0..bound)
}

/// A Lua expression for a value. Maps have one entry, since their order is nobody's promise.
fn value(random: &mut Random, depth: u32) -> String {
    match below(random, if depth == 0 { 6 } else { 9 }) {
        0 => number(random),
        1 => below(random, 300).to_string(),
        2 => string(random),
        3 => "true".into(),
        4 => "false".into(),
        5 => "cjson.null".into(),
        6 => format!("{{k{}={}}}", below(random, 9), value(random, depth - 1)),
        _ => {
            let items: Vec<_> = (0..below(random, 20)).map(|_| value(random, depth - 1)).collect();
            format!("{{{}}}", items.join(","))
        }
    }
}

fn number(random: &mut Random) -> String {
    let sign = if below(random, 2) == 0 { "" } else { "-" };
    match below(random, 5) {
        0 => format!("{sign}{}", below(random, 1 << 20)),
        1 => format!("{sign}2^{}", below(random, 70)),
        2 => format!("{sign}{}/{}", below(random, 1000), 1 + below(random, 1000)),
        3 => format!("{sign}{}e{}", below(random, 1_000_000), below(random, 40) as i64 - 20),
        _ => format!("{sign}{}.{}", below(random, 100_000), below(random, 100_000)),
    }
}

fn string(random: &mut Random) -> String {
    let length = match below(random, 8) {
        0 => below(random, 400),
        _ => below(random, 12),
    };
    let bytes: String = (0..length).map(|_| format!("\\{:03}", below(random, 256))).collect();
    format!("'{bytes}'")
}

/// Bytes, any.
fn noise(random: &mut Random, alphabet: &[u8]) -> String {
    let pick = |random: &mut Random| match below(random, 4) {
        0 => below(random, 256) as u8,
        _ => alphabet[below(random, alphabet.len() as u64) as usize],
    };
    let bytes: String = (0..below(random, 24)).map(|_| format!("\\{:03}", pick(random))).collect();
    format!("'{bytes}'")
}

#[test]
fn cjson_encodes_as_the_real_server_does() {
    compare(|random| format!("return cjson.encode({})", value(random, 3)));
}

#[test]
fn cjson_decodes_what_was_encoded() {
    compare(|random| {
        let value = value(random, 3);
        format!("return cmsgpack.pack(cjson.decode(cjson.encode({{{value}}})))")
    });
}

#[test]
fn cjson_decodes_noise_as_the_real_server_does() {
    compare(|random| {
        let noise = noise(random, b"[]{}\",:0123456789.eE+-truefalsn \\u\0dDcC8");
        format!("return cmsgpack.pack(cjson.decode({noise}))")
    });
}

#[test]
fn cjson_reads_numbers_as_the_real_server_does() {
    compare(|random| {
        let noise = noise(random, b"0123456789.eE+-xXpPinfat");
        format!("return cmsgpack.pack(cjson.decode('-' .. ({noise})), cjson.decode({noise}))")
    });
}

#[test]
fn cmsgpack_packs_as_the_real_server_does() {
    compare(|random| format!("return cmsgpack.pack({}, {})", value(random, 3), value(random, 1)));
}

#[test]
fn cmsgpack_unpacks_noise_as_the_real_server_does() {
    compare(|random| {
        let alphabet =
            b"\x00\x01\x7f\x80\x81\x82\x90\x91\x92\xa0\xa1\xa3\xc0\xc2\xc3\xca\xcb\xcc\xcd\xce\xd0\xd1\xd2\xd9\xda\xdc\xde\xff\xe0";
        let noise = noise(random, alphabet);
        let ask = "local function show(v) if type(v) == 'table' then local n = 0 \
                   for k in pairs(v) do n = n + 1 end return 't' .. n .. #v end \
                   return type(v) .. tostring(v) end \
                   local r = {} for i, v in ipairs({";
        format!(
            "{ask} cmsgpack.unpack_limit({noise}, {})}}) do r[i] = show(v) end return r",
            1 + below(random, 4)
        )
    });
}

#[test]
fn struct_packs_and_unpacks_as_the_real_server_does() {
    compare(|random| {
        let count = 1 + below(random, 6);
        let mut format = String::new();
        let mut values = Vec::new();
        for _ in 0..count {
            format
                .push_str(["", "", ">", "<", "!", "!4", "!2", " ", "x"][below(random, 9) as usize]);
            let letters =
                ["b", "B", "h", "H", "l", "L", "T", "i", "I", "i3", "I7", "i12", "f", "d"];
            format.push_str(letters[below(random, 14) as usize]);
            values.push(format!("{}", below(random, 1 << 40) as i64 - (1 << 39)));
        }
        let values = values.join(",");
        format!(
            "local s = struct.pack('{format}', {values}) \
             local r = {{struct.unpack('{format}', s)}} \
             for i = 1, #r do r[i] = tostring(r[i]) end \
             return {{s, r, struct.size('{format}')}}"
        )
    });
}

#[test]
fn struct_reads_noise_as_the_real_server_does() {
    compare(|random| {
        let format = noise(random, b"bBhHlLTfdsxciI0123456789!<> ");
        let data = noise(random, b"\x00\x01\x02\x03\xffabc");
        format!(
            "local r = {{struct.unpack({format}, ({data}):rep(20))}} \
             for i = 1, #r do r[i] = tostring(r[i]) end return r"
        )
    });
}

#[test]
fn bits_are_moved_as_the_real_server_does() {
    compare(|random| {
        let names = ["band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror"];
        let name = names[below(random, 8) as usize];
        let (a, b) = (number(random), number(random));
        format!(
            "return {{bit.{name}({a}, {b}), bit.tobit({a}), bit.bnot({b}), bit.bswap({a}), \
             bit.tohex({a}, {b}), tostring({a}), tostring({b})}}"
        )
    });
}

#[test]
fn numbers_print_as_the_real_server_does() {
    compare(|random| {
        let (a, b) = (number(random), number(random));
        format!(
            "redis.setresp(3) return {{{{double={a}}}, {{double={b}}}, cjson.encode({{{a}, {b}}}), \
             {a}, {b}}}"
        )
    });
}
