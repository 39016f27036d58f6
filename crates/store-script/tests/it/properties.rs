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

/// One that matches something now and then: what patterns are made of, and noise.
fn pattern(random: &mut Random) -> String {
    const PARTS: [&str; 44] = [
        "a", "b", "ab", ".", ".-", ".*", ".+", "a?", "a*", "b-", "%a", "%d+", "%s*", "%w", "%u",
        "%l-", "%p", "%x+", "%z", "%c", "%A", "%D", "%S+", "%W", "[ab]", "[^ab]+", "[a-z]*",
        "[%d_]-", "[]a]", "[^]]", "[a-", "(", ")", "()", "%b()", "%bxa", "%f[%w]", "%f[^a]", "%1",
        "%2", "$", "^", "%", "-",
    ];
    let mut pattern = String::new();
    if below(random, 5) == 0 {
        pattern.push('^');
    }
    for _ in 0..below(random, 7) {
        match below(random, 12) {
            0 => pattern.push_str(&format!("\\{:03}", below(random, 256))),
            1 => pattern
                .push_str(["(a)", "(.-)", "((b)a)", "(%w+)", "()"][below(random, 5) as usize]),
            _ => pattern.push_str(PARTS[below(random, PARTS.len() as u64) as usize]),
        }
    }
    if below(random, 8) == 0 {
        pattern.push('$');
    }
    format!("'{pattern}'")
}

fn subject(random: &mut Random) -> String {
    const ALPHABET: &[u8] = b"aaabbbxy019 _-().%[]A\0\n";
    let bytes: String = (0..below(random, 24))
        .map(|_| format!("\\{:03}", ALPHABET[below(random, ALPHABET.len() as u64) as usize]))
        .collect();
    format!("'{bytes}'")
}

fn position(random: &mut Random) -> String {
    let choices =
        ["1", "2", "-1", "-3", "0", "7", "100", "-100", "nil", "'2'", "1.9", "-0.5", "1e300"];
    choices[below(random, choices.len() as u64) as usize].into()
}

/// A statement that runs the expression and shows all its values, or its error.
fn show_values(expression: &str) -> String {
    format!(
        "local function show(...) local r = {{}} for i = 1, select('#', ...) do \
         local v = select(i, ...) r[i] = type(v) .. ':' .. tostring(v) end return r end \
         return show({expression})"
    )
}

#[test]
fn find_and_match_as_the_real_server_does() {
    compare(|random| {
        let (subject, pattern, from) = (subject(random), pattern(random), position(random));
        let plain = ["", ", true", ", false", ", nil"][below(random, 4) as usize];
        match below(random, 2) {
            0 => show_values(&format!("string.find({subject}, {pattern}, {from}{plain})")),
            _ => show_values(&format!("string.match({subject}, {pattern}, {from})")),
        }
    });
}

#[test]
fn gmatch_iterates_as_the_real_server_does() {
    compare(|random| {
        let (subject, pattern) = (subject(random), pattern(random));
        format!(
            "local r = {{}} for a, b, c in string.gmatch({subject}, {pattern}) do \
             r[#r + 1] = tostring(a) .. '|' .. tostring(b) .. '|' .. tostring(c) end return r"
        )
    });
}

#[test]
fn gsub_replaces_as_the_real_server_does() {
    compare(|random| {
        let (subject, pattern) = (subject(random), pattern(random));
        let replacements = [
            "'<%0>'",
            "'%1'",
            "'%2%1'",
            "'%'",
            "'%%'",
            "'%x'",
            "''",
            "'long text'",
            "7",
            "nil",
            "true",
            "{a = 'A', b = 2, ab = false}",
            "{a = {}}",
            "{}",
            "setmetatable({}, {__index = function(t, k) return k .. '!' end})",
            "setmetatable({}, {__index = {a = 'in'}})",
            "setmetatable({}, {__index = 'text'})",
            "setmetatable({}, {__index = function(t, k) return t end})",
            "setmetatable({}, {__index = 5})",
            "function(...) return table.concat({...}, '+') end",
            "function() end",
            "function() return false end",
            "function(a) return {} end",
            "string.upper",
            "function(a)\\n error('inside')\\n end",
            "error",
            "tostring",
        ];
        let replacement = replacements[below(random, replacements.len() as u64) as usize];
        let replacement = replacement.replace("\\n", "\n");
        let limit =
            ["", "", ", 1", ", 0", ", -1", ", 2.9", ", '2'", ", {}"][below(random, 8) as usize];
        show_values(&format!("string.gsub({subject}, {pattern}, {replacement}{limit})"))
    });
}

#[test]
fn format_writes_as_the_real_server_does() {
    compare(|random| {
        let mut format = String::new();
        for _ in 0..1 + below(random, 3) {
            let flags = ["", "", "", "-", "+", " ", "#", "0", "-+ #0", "------", "-+0-+0"];
            let widths = ["", "", "5", "20", "99", "100", ".3", "10.4", ".0", ".", ".99", ".100"];
            let letters = "cdiouxXeEfgGqsyaDp%\\000";
            format.push_str(["", "x", "\\000", "%%"][below(random, 4) as usize]);
            format.push('%');
            format.push_str(flags[below(random, flags.len() as u64) as usize]);
            format.push_str(widths[below(random, widths.len() as u64) as usize]);
            let letter = below(random, 24) as usize;
            format.push_str(letters.get(letter..letter + 1).unwrap_or("s"));
        }
        let argument = |random: &mut Random| match below(random, 8) {
            0 => string(random),
            1 => format!("({}):rep({})", subject(random), below(random, 12)),
            2 => "'12'".into(),
            3 => "nil".into(),
            4 => "{}".into(),
            _ => number(random),
        };
        let arguments: Vec<_> = (0..below(random, 5)).map(|_| argument(random)).collect();
        let arguments: String = arguments.iter().map(|argument| format!(", {argument}")).collect();
        show_values(&format!("string.format('{format}'{arguments})"))
    });
}

#[test]
fn sort_leaves_equal_items_where_the_real_server_does() {
    compare(|random| {
        let items: Vec<_> = (0..below(random, 40)).map(|_| below(random, 12).to_string()).collect();
        let items = items.join(",");
        let orders = [
            "a.k < b.k",
            "a.k > b.k",
            "a.k <= b.k",
            "true",
            "false",
            "a.k < 5",
            "a.n > b.n",
            "(a.k * 7 + a.n) % 5 < b.k % 5",
            "nil",
            "error('inside')",
            "a.k .. '' < b.k .. ''",
        ];
        let order = orders[below(random, orders.len() as u64) as usize];
        format!(
            "local t = {{}} for n, k in ipairs({{{items}}}) do t[n] = {{k = k, n = n}} end \
             table.sort(t, function(a, b) return {order} end) \
             local r = {{}} for i, v in ipairs(t) do r[i] = v.k .. ':' .. v.n end return r"
        )
    });
}

#[test]
fn sort_compares_as_the_real_server_does() {
    compare(|random| {
        let kinds = below(random, 4);
        let item = |random: &mut Random| match (kinds, below(random, 9)) {
            (0, _) | (3, 0) => number(random),
            (1, _) | (3, 1) => subject(random),
            (2, _) => "make()".into(),
            (_, 2) => "{}".into(),
            (_, 3) => "coroutine.create(type)".into(),
            (_, 4) => "true".into(),
            (_, 5) => "7".into(),
            (_, 6) => "false".into(),
            _ => "'s'".into(),
        };
        let items: Vec<_> = (0..below(random, 12)).map(|_| item(random)).collect();
        let items = items.join(",");
        format!(
            "local n, m = 7, {{}} m.__lt = function(a, b) return a.n < b.n end \
             local function make() n = n * 5 % 23 return setmetatable({{n = n}}, m) end \
             local t = {{{items}}} table.sort(t) \
             for i, v in ipairs(t) do t[i] = type(v) == 'table' and (v.n or 't') or tostring(v) end return t"
        )
    });
}

#[test]
fn lists_change_as_on_the_real_server() {
    compare(|random| {
        let mut code = String::from("local t = {5, 6, 7, 'x', n = 1} local r = {} ");
        for _ in 0..4 {
            let at =
                ["1", "2", "-2", "0", "9", "nil", "'3'", "2.9", "{}"][below(random, 9) as usize];
            code.push_str(&match below(random, 6) {
                0 => format!("table.insert(t, {at}, {}) ", below(random, 9)),
                1 => format!("table.insert(t, {at}) "),
                2 => format!("r[#r + 1] = type(table.remove(t, {at})) "),
                3 => format!("r[#r + 1] = table.concat(t, ',', {at}) "),
                4 => "r[#r + 1] = table.maxn(t) r[#r + 1] = table.remove(t) ".into(),
                _ => "table.foreach(t, function(k, v) r[#r + 1] = v end) \
                      r[#r + 1] = table.foreachi(t, function(i, v) if i == 3 then return v end end) "
                    .into(),
            });
        }
        code + "r[#r + 1] = table.concat(t, '-') return r"
    });
}

#[test]
fn bytes_change_as_on_the_real_server() {
    compare(|random| {
        let subject = string(random);
        let count = ["0", "1", "3", "-1", "2.9", "nil", "'2'"][below(random, 7) as usize];
        format!(
            "local s = {subject} return {{s:upper(), s:lower(), s:reverse(), s:rep({count}), \
             (5):rep(2)}}"
        )
        .replace("(5):rep(2)", "string.rep(5, 2)")
    });
}
