// tidy: table
//! Files that break one rule each, and the same files mended: every rule must tell them apart.

use super::CHECKS;
use super::tree::Tree;

/// What was planted for one rule.
struct Planted {
    rule: &'static str,
    wrong: Tree,
    /// The places that must be found.
    found: &'static [&'static str],
    right: Tree,
}

#[test]
fn every_rule_finds_what_was_planted_for_it_and_nothing_in_the_mended_files() {
    let planted: Vec<Planted> = [
        sizes(),
        comments(),
        purity(),
        words(),
        crates(),
        public_items(),
        publishing(),
        papers(),
        english(),
        walks(),
    ]
    .into_iter()
    .flatten()
    .collect();
    for check in CHECKS {
        let planted: Vec<_> = planted.iter().filter(|planted| planted.rule == check.name).collect();
        assert!(!planted.is_empty(), "nothing is planted for {}", check.name);
        for Planted { wrong, found, right, .. } in planted {
            let places = |tree: &Tree| -> Vec<String> {
                (check.run)(tree).iter().map(|f| format!("{}:{}", f.path, f.line)).collect()
            };
            assert_eq!(places(wrong), *found, "{}", check.name);
            assert_eq!(places(right), [""; 0], "{} on mended files", check.name);
        }
    }
    assert!(planted.iter().all(|row| CHECKS.iter().any(|check| check.name == row.rule)));
}

fn sizes() -> Vec<Planted> {
    let long = "a();\n".repeat(1_001);
    let tests = format!("a();\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
    let function = |name: &str, length: usize| {
        format!("fn {name}() {{\n{}}}\n", "    a();\n".repeat(length - 2))
    };
    vec![
        Planted {
            rule: "file length",
            wrong: Tree::of(&[("src/a.rs", &long)]),
            found: &["src/a.rs:1001"],
            right: Tree::of(&[
                ("src/a.rs", &"a();\n".repeat(1_000)),
                ("src/with_tests.rs", &tests),
                ("src/table.rs", &format!("// tidy: table\n{long}")),
                ("tests/it/a.rs", &long),
            ]),
        },
        Planted {
            rule: "function length",
            wrong: Tree::of(&[
                ("src/a.rs", &format!("\n{}{}", function("long", 71), function("short", 2))),
                ("tests/it/a.rs", &function("long", 71)),
            ]),
            found: &["src/a.rs:2", "tests/it/a.rs:1"],
            right: Tree::of(&[
                ("src/a.rs", &function("fits", 70)),
                ("src/table.rs", &format!("// tidy: table\n{}", function("long", 71))),
            ]),
        },
    ]
}

fn comments() -> Vec<Planted> {
    let over = "a".repeat(100);
    let fits = "ä".repeat(97);
    let allowed = [
        format!("// {fits}"),
        format!("// <https://host/{over}>"),
        format!("//! | {over} |"),
        format!("let text = \"{over}\"; // rustfmt judges code"),
    ];
    vec![Planted {
        rule: "comment length",
        wrong: Tree::of(&[("src/a.rs", &format!("\n    // {over}\n/// \"{over}\"\n"))]),
        found: &["src/a.rs:2", "src/a.rs:3"],
        right: Tree::of(&[("src/a.rs", &allowed.join("\n"))]),
    }]
}

fn purity() -> Vec<Planted> {
    let ours = include_str!("../../../../crates/tenure-core/clippy.toml");
    let lacking = ours.replace("std::thread::spawn", "std::thread::park");
    let unmerged = ours.replace("allow-unwrap-in-tests", "allow-panic-in-tests");
    vec![
        Planted {
            rule: "lints of pure crates",
            wrong: Tree::of(&[
                ("crates/store-resp/Cargo.toml", ""),
                ("crates/simulator/Cargo.toml", ""),
                ("crates/simulator/clippy.toml", &unmerged),
                ("crates/tenure-core/Cargo.toml", ""),
                ("crates/tenure-core/clippy.toml", &lacking),
            ]),
            found: &[
                "crates/store-resp/clippy.toml:1",
                "crates/simulator/clippy.toml:1",
                "crates/tenure-core/clippy.toml:1",
            ],
            right: Tree::of(&[
                ("crates/tenure/Cargo.toml", ""),
                ("crates/tenure-core/Cargo.toml", ""),
                ("crates/tenure-core/clippy.toml", ours),
            ]),
        },
        Planted {
            rule: "dependencies of pure crates",
            wrong: Tree::of(&[
                (
                    "crates/store-resp/Cargo.toml",
                    "[dependencies]\nx = \"1\"\ntokio.workspace = 1\n",
                ),
                ("crates/store-engine/Cargo.toml", "[dependencies.rand]\nversion = \"1\"\n"),
                (
                    "crates/tenure-core/Cargo.toml",
                    "[target.'cfg(unix)'.dependencies]\nlibc=\"1\"\n",
                ),
            ]),
            found: &[
                "crates/store-resp/Cargo.toml:3",
                "crates/store-engine/Cargo.toml:1",
                "crates/tenure-core/Cargo.toml:2",
            ],
            right: Tree::of(&[
                ("crates/tenure/Cargo.toml", "[dependencies]\ntokio = \"1\"\n"),
                (
                    "crates/tenure-core/Cargo.toml",
                    "[dependencies]\nrandom-words = \"1\"\n[dev-dependencies]\nrand = \"1\"\n",
                ),
            ]),
        },
    ]
}

fn commands_by_name() -> Planted {
    let table = "Command::new(\n    \"exec\", f),\nCommand::container(\"auth\", TABLE)\n";
    let wrong = "\
fn a(command: &Command) {
    let (last, is_pattern) = match command.name {
    if row.full_name == \"exec\" {
    if ALLOWED.contains(&row.full_name.as_str()) {
    if is_word(request.arg(0), \"EXEC\") {
    if request.arg(0)[0] == b'e' {
}
fn b(name: &str) {
    matches!(name, \"exec\" | \"discard\")
}
fn c() {
    let name = &row.full_name;
    match name {
        \"auth\" => 1,
    }
    ALLOWED.contains(&name.as_str())
}
";
    let right = "\
fn a(command: &Command, request: Request) {
    if command.has(flag::RUNS_QUEUED) {}
    let name = &row.full_name;
    format!(\"ERR '{name}' command\");
    match registry.find(request.arg(0)) {}
    is_word(request.arg(1), \"EXEC\")
}
fn b(name: &str) {
    match name {
        \"appendonly\" => 1,
    }
}
";
    Planted {
        rule: "commands by name",
        wrong: Tree::of(&[
            ("crates/store-engine/src/commands/a.rs", table),
            ("crates/store-engine/src/gate.rs", wrong),
            ("crates/store-server/src/run.rs", "command.name.starts_with(\"client\")\n"),
        ]),
        found: &[
            "crates/store-engine/src/gate.rs:2",
            "crates/store-engine/src/gate.rs:3",
            "crates/store-engine/src/gate.rs:4",
            "crates/store-engine/src/gate.rs:5",
            "crates/store-engine/src/gate.rs:6",
            "crates/store-engine/src/gate.rs:9",
            "crates/store-engine/src/gate.rs:13",
            "crates/store-engine/src/gate.rs:16",
            "crates/store-server/src/run.rs:1",
        ],
        right: Tree::of(&[
            ("crates/store-engine/src/commands/a.rs", table),
            ("crates/store-engine/src/gate.rs", right),
            ("crates/store-engine/src/registry.rs", wrong),
            ("crates/store-client/src/lib.rs", wrong),
        ]),
    }
}

fn words() -> Vec<Planted> {
    let read = "let now = Instant::now();\n";
    let leftovers = ["todo", "unimplemented", "dbg"].map(|name| format!("    {name}!();\n"));
    let host = concat!("crates", ".io");
    let locked = format!("source = \"registry+https://github.com/rust-lang/{host}-index\"\n");
    vec![
        Planted {
            rule: "settings by text",
            wrong: Tree::of(&[(
                "crates/a/src/b.rs",
                "\nlet hz = config.text_of(setting);\nlet hz = self.config()\n    \
                 .text_of(setting);\nlet hz = server.text_of(setting);\n",
            )]),
            found: &["crates/a/src/b.rs:2", "crates/a/src/b.rs:4", "crates/a/src/b.rs:5"],
            right: Tree::of(&[
                ("crates/a/src/b.rs", "let hz = config.settings().keys.hz;\ntext_of(frame);\n"),
                ("crates/store-engine/src/config/rewrite.rs", "config.text_of(setting)\n"),
            ]),
        },
        commands_by_name(),
        Planted {
            rule: "clock",
            wrong: Tree::of(&[
                ("crates/a/src/driver.rs", &format!("{read}let age = now.elapsed();\n")),
                ("crates/a/src/o_clock.rs", "rustix::time::clock_gettime(id)\n"),
                ("crates/a/src/lib.rs", "\nSystemTime::now()\n"),
            ]),
            found: &[
                "crates/a/src/driver.rs:1",
                "crates/a/src/driver.rs:2",
                "crates/a/src/o_clock.rs:1",
                "crates/a/src/lib.rs:2",
            ],
            right: Tree::of(&[
                ("crates/a/src/clock.rs", read),
                ("crates/a/src/driver.rs", "// Instant::now\n#[cfg(test)]\nmod tests {\n"),
                ("crates/a/tests/it/main.rs", read),
                ("crates/a/examples/worker.rs", read),
                ("crates/testkit/src/wait.rs", read),
                ("xtask/src/main.rs", read),
            ]),
        },
        Planted {
            rule: "leftovers",
            wrong: Tree::of(&[
                ("src/a.rs", &leftovers.concat()),
                ("tests/it/a.rs", &leftovers.concat()),
            ]),
            found: &[
                "src/a.rs:1",
                "src/a.rs:2",
                "src/a.rs:3",
                "tests/it/a.rs:1",
                "tests/it/a.rs:2",
                "tests/it/a.rs:3",
            ],
            right: Tree::of(&[("src/a.rs", &format!("// none of{}", leftovers[0]))]),
        },
        Planted {
            rule: "registry hosts",
            wrong: Tree::of(&[
                (".cargo/config.toml", &format!("\nindex = \"https://mirror.{host}/\"\n")),
                ("Cargo.lock", &format!("{locked}source = \"registry+https://{host}\"\n")),
                ("fuzz/Cargo.lock", "source = \"sparse+https://packages.example/\"\n"),
            ]),
            found: &[".cargo/config.toml:2", "Cargo.lock:2", "fuzz/Cargo.lock:1"],
            right: Tree::of(&[("Cargo.lock", &locked), ("README.md", "<https://example.com>\n")]),
        },
    ]
}

fn crates() -> Vec<Planted> {
    vec![
        Planted {
            rule: "crate heads",
            wrong: Tree::of(&[
                ("crates/a/src/lib.rs", "mod one;\n"),
                ("crates/b/src/main.rs", "\n//! Late.\n"),
                ("crates/c/src/lib.rs", "//!\n"),
            ]),
            found: &["crates/a/src/lib.rs:1", "crates/b/src/main.rs:1", "crates/c/src/lib.rs:1"],
            right: Tree::of(&[
                ("crates/a/src/lib.rs", "//! What it is for.\n"),
                ("crates/a/src/part.rs", "struct Part;\n"),
                ("crates/b/src/main.rs", "// tidy: table\n//! What it is for.\n"),
            ]),
        },
        Planted {
            rule: "modules",
            wrong: Tree::of(&[
                ("crates/a/src/lib.rs", "mod one;\n#[path = \"no_two.rs\"]\nmod two;\n"),
                ("crates/a/src/one/mod.rs", ""),
                ("crates/a/src/one/deep.rs", ""),
                ("crates/a/src/no_two.rs", ""),
                ("crates/a/src/bin/program.rs", ""),
                ("crates/a/tests/it/main.rs", "// mod forgotten\n"),
                ("crates/a/tests/it/forgotten.rs", ""),
                ("crates/a/tests/it/other/mod.rs", ""),
            ]),
            found: &[
                "crates/a/src/one/deep.rs:1",
                "crates/a/tests/it/forgotten.rs:1",
                "crates/a/tests/it/other/mod.rs:1",
            ],
            right: Tree::of(&[
                ("crates/a/src/lib.rs", "pub mod one;\n"),
                ("crates/a/src/one.rs", "mod deep;\n"),
                ("crates/a/src/one/deep.rs", ""),
                ("crates/a/tests/it/main.rs", "mod other;\n"),
                ("crates/a/tests/it/other/mod.rs", ""),
            ]),
        },
        Planted {
            rule: "workspace lints",
            wrong: Tree::of(&[("crates/a/Cargo.toml", "[package]\nname = \"a\"\n")]),
            found: &["crates/a/Cargo.toml:1"],
            right: Tree::of(&[
                ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"),
                ("fuzz/Cargo.toml", "[package]\nname = \"fuzz\"\n\n[workspace]\n"),
            ]),
        },
        Planted {
            rule: "test programs",
            wrong: Tree::of(&[("crates/a/tests/smoke.rs", "")]),
            found: &["crates/a/tests/smoke.rs:1"],
            right: Tree::of(&[("crates/a/tests/it/smoke.rs", ""), ("a/src/tests/smoke.rs", "")]),
        },
    ]
}

fn public_items() -> Vec<Planted> {
    let sources = [
        (
            "crates/tenure/src/lib.rs",
            "//! A.\npub mod blocking;\nmod term;\npub use tenure_core::{Role, Token};\npub use \
             term::Term;\npub fn wait() {}\nfn private() {}\n#[cfg(test)]\npub mod tests {}\n",
        ),
        ("crates/tenure/src/blocking/mod.rs", "pub use crate::Term;\npub const MAX: u8 = 1;\n"),
        (
            "crates/tenure/src/term.rs",
            "pub struct Term { pub a: u8, b: u8 }\nimpl Term { pub fn end(self) {} fn own(&self) {} \
             }\nimpl Drop for Term { fn drop(&mut self) {} }\npub struct Unseen;\n",
        ),
        (
            "crates/tenure-core/src/lib.rs",
            "mod role;\npub use role::*;\npub struct Token(pub u64);\npub struct Other;\n",
        ),
        ("crates/tenure-core/src/role.rs", "pub enum Role { Leader { since: u8 }, Standby(u8) }\n"),
    ];
    let listed = "\
# The public items of the crate `tenure`. `cargo xtask verify` compares; to write it anew:
# cargo xtask verify --update-public-items
# What counts is said in xtask/src/commands/verify/public_items.rs.
# At the start: 99, without tenure::blocking 90.
# Now: 13, without tenure::blocking 10.
tenure::Role (enum)
tenure::Role::Leader (variant)
tenure::Role::Leader::since (field)
tenure::Role::Standby (variant)
tenure::Term (struct)
tenure::Term::a (field)
tenure::Term::end (fn)
tenure::Token (struct)
tenure::Token::0 (field)
tenure::blocking (mod)
tenure::blocking::MAX (const)
tenure::blocking::Term (use of tenure::Term)
tenure::wait (fn)
";
    let with = |list: &str| {
        let list = ("crates/tenure/public-items.txt", list);
        Tree::of(&[sources.as_slice(), &[list]].concat())
    };
    let changed = |from: &str, to: &str| {
        assert!(listed.contains(from), "{from:?} is not in the example");
        with(&listed.replacen(from, to, 1))
    };
    let row = |wrong: Tree, found: &'static [&'static str]| Planted {
        rule: "public items",
        wrong,
        found,
        right: with(listed),
    };
    let first = &["crates/tenure/public-items.txt:1"];
    let unreadable = Tree::of(&[("crates/tenure/src/lib.rs", "pub fn {\n")]);
    vec![
        row(changed("tenure::wait (fn)\n", ""), first),
        row(
            changed("tenure::wait", "tenure::gone (fn)\ntenure::wait"),
            &["crates/tenure/public-items.txt:18"],
        ),
        row(changed("Now: 13", "Now: 12"), first),
        row(unreadable, &["crates/tenure/src/lib.rs:1"]),
    ]
}

fn publishing() -> Vec<Planted> {
    let complete = "\
[package]
name = \"a\"
description = \"What it is.\"
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
readme = \"README.md\"
keywords = [\"redis\", \"sans-io\"]
categories = [\"database\"]

[package.metadata.docs.rs]
targets = [\"x86_64-unknown-linux-gnu\"]

[dependencies]
b = { workspace = true, features = [\"tls\"] }

[dev-dependencies]
a = { path = \".\" }
kit.workspace = true
";
    let top = "\
[workspace.package]
version = \"0.2.0\"

[workspace.dependencies]
a = { path = \"crates/a\", version = \"0.2.0\" }
kit = { path = \"crates/kit\" }
";
    let kit = "[package]\nname = \"kit\"\npublish = false\n";
    let right = |manifest: &str, top: &str| {
        Tree::of(&[
            ("Cargo.toml", top),
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/README.md", "# a\n"),
            ("crates/a/src/lib.rs", "//! A.\n"),
            ("crates/kit/Cargo.toml", kit),
        ])
    };
    let row = |wrong: Tree, found: &'static [&'static str]| Planted {
        rule: "publishing",
        wrong,
        found,
        right: right(complete, top),
    };
    let changed = |from: &str, to: &str| {
        assert!(complete.contains(from), "{from:?} is not in the example");
        right(&complete.replacen(from, to, 1), top)
    };
    let without_readme =
        Tree::of(&[("crates/a/Cargo.toml", complete), ("crates/a/src/lib.rs", "")]);
    let older = top.replace("crates/a\", version = \"0.2.0\"", "crates/a\", version = \"0.1.0\"");
    let bare = top.replace("crates/a\", version = \"0.2.0\"", "crates/a\"");
    let first = &["crates/a/Cargo.toml:1"];
    vec![
        row(changed("description = \"What it is.\"\n", ""), first),
        row(changed("license.workspace = true\n", ""), first),
        row(changed("[package.metadata.docs.rs]\ntargets", "[package.metadata.x]\ny"), first),
        row(changed("\"sans-io\"", "\"without I/O\""), &["crates/a/Cargo.toml:9"]),
        row(changed("\"redis\", \"sans-io\"", ""), &["crates/a/Cargo.toml:9"]),
        row(changed("\"database\"", "\"databases\""), &["crates/a/Cargo.toml:10"]),
        row(
            changed("b = { workspace = true,", "b = { path = \"../b\","),
            &["crates/a/Cargo.toml:16"],
        ),
        row(
            changed("[dependencies]\n", "[dependencies]\nkit.workspace = true\n"),
            &["crates/a/Cargo.toml:16"],
        ),
        row(without_readme, &["crates/a/Cargo.toml:8"]),
        row(right(complete, &older), &["Cargo.toml:5"]),
        row(right(complete, &bare), &["Cargo.toml:5"]),
    ]
}

fn papers() -> Vec<Planted> {
    let readme = "\
[docs](docs) [a](docs/a.md#part) [web](https://host/x) [part](#part) [file](./Cargo.toml)
```text
[not](a/link)
```
`[nor](this)` one
";
    let prelude = "local names = {\n  'v',\n  'token',\n}\nlocal other = { 'word' }\n";
    vec![
        Planted {
            rule: "links",
            wrong: Tree::of(&[
                ("README.md", "[x](docs/gone.md)\n\n[a](docs/a.md) [b](docs/b.md \"title\")\n"),
                ("docs/a.md", "[too far up](../../README.md)\n"),
            ]),
            found: &["README.md:1", "README.md:3", "docs/a.md:1"],
            right: Tree::of(&[
                ("README.md", readme),
                ("Cargo.toml", ""),
                ("docs/a.md", "[up](../README.md)\n"),
            ]),
        },
        Planted {
            rule: "index",
            wrong: Tree::of(&[
                ("docs/README.md", "| do it | [a](a.md#part) |\n"),
                ("docs/a.md", ""),
                ("docs/b.md", ""),
            ]),
            found: &["docs/README.md:1"],
            right: Tree::of(&[("docs/README.md", "[a](a.md)\n"), ("docs/a.md", ""), ("b.md", "")]),
        },
        Planted {
            rule: "protocol names",
            wrong: Tree::of(&[
                (
                    "docs/protocol.md",
                    "rows\n| `v` | it |\n| `acquire` | it |\nand `token` and `renew`\n",
                ),
                ("crates/a/scripts/prelude.lua", prelude),
                ("crates/a/scripts/renew.lua", ""),
            ]),
            found: &[
                "crates/a/scripts/prelude.lua:1",
                "crates/a/scripts/renew.lua:1",
                "crates/a/scripts/prelude.lua:3",
            ],
            right: Tree::of(&[
                (
                    "docs/protocol.md",
                    "rows\n| `v` | it |\n| `token` | it |\n| `prelude` | it |\n| `renew` | it |\n",
                ),
                ("crates/a/scripts/prelude.lua", prelude),
                ("crates/a/scripts/renew.lua", ""),
                ("crates/a/examples/other.lua", ""),
            ]),
        },
        Planted {
            rule: "protocol citations",
            wrong: Tree::of(&[
                ("docs/protocol.md", "# P\n\n**1.1** A word (§1.2).\n"),
                ("src/lib.rs", "//! See docs/protocol.md §1.11.\n"),
            ]),
            found: &["docs/protocol.md:3", "src/lib.rs:1"],
            right: Tree::of(&[
                ("docs/protocol.md", "# P\n\n**1.1** A word (§1.2, §1).\n\n**1.2** Another.\n"),
                ("src/lib.rs", "//! See docs/protocol.md §1.1. And § 9.9 of a law.\n"),
            ]),
        },
        Planted {
            rule: "changelog",
            wrong: Tree::of(&[("CHANGELOG.md", "# Changelog\n\n## 0.1.0\n")]),
            found: &["CHANGELOG.md:1"],
            right: Tree::of(&[("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n## 0.1.0\n")]),
        },
    ]
}

/// Sentences that we once wrote, beside what they say.
fn english() -> Vec<Planted> {
    let glossary = include_str!("../../../../docs/glossary.md");
    let row = |wrong: &[(&str, &str)], found: &'static [&'static str], right: &[(&str, &str)]| {
        let with_glossary = |files: &[(&str, &str)]| {
            let page = [("docs/glossary.md", glossary)];
            Tree::of(&page.iter().chain(files).copied().collect::<Vec<_>>())
        };
        Planted { rule: "words", wrong: with_glossary(wrong), found, right: with_glossary(right) }
    };
    vec![
        row(
            &[
                ("README.md", "Higher\nleads rather.\n\nWho knows redis-cli knows it.\n"),
                ("docs/command.md", "Where the store is stands in `--store`.\n"),
                ("docs/library.md", "It is the own by default.\n\nA client came.\n"),
                ("deploy/a.yaml", "summary: ended by a fail-over\n"),
            ],
            &[
                "README.md:2",
                "README.md:4",
                "docs/command.md:1",
                "docs/library.md:1",
                "docs/library.md:3",
                "deploy/a.yaml:1",
            ],
            &[
                ("README.md", "Instances with a higher priority are preferred.\n"),
                ("docs/command.md", "Set the store with `--store`. `stands in` is code.\n"),
                ("docs/library.md", "The own store is one of them.\n\n```text\nThe own\n```\n"),
                ("docs/store.md", "Memory is given back.\n"),
                ("CHANGELOG.md", "The term was given back.\n"),
                ("deploy/a.yaml", "summary: it fails. Over there\n"),
            ],
        ),
        row(
            &[
                (
                    "crates/tenure/src/a.rs",
                    "/// Work that runs once,\n/// before it runs.\nfn f() {\n    let a = \"the \
                     term \\\n        was given back\";\n}\n",
                ),
                ("crates/tenure/src/b.rs", "/// Whether to override what speaks against it.\n"),
                (
                    "crates/tenure-cli/src/c.rs",
                    "/// The master is there.\nlet b = \"no master\";\n",
                ),
                (
                    "crates/tenure-sidecar/src/d.rs",
                    "/// What was promised is kept: the term is given to nobody else.\n",
                ),
                (
                    "crates/tenure-sidecar/page/a.js",
                    "return \"looks on\";\nheads([\"Instance\", \"Stands\"]);\n",
                ),
                (
                    "crates/tenure-sidecar/src/openapi.json",
                    "{\"description\": \"How it stands.\"}\n",
                ),
            ],
            &[
                "crates/tenure/src/a.rs:1",
                "crates/tenure/src/a.rs:4",
                "crates/tenure/src/b.rs:1",
                "crates/tenure-cli/src/c.rs:1",
                "crates/tenure-cli/src/c.rs:2",
                "crates/tenure-sidecar/src/d.rs:1",
                "crates/tenure-sidecar/src/d.rs:1",
                "crates/tenure-sidecar/page/a.js:1",
                "crates/tenure-sidecar/page/a.js:2",
                "crates/tenure-sidecar/src/openapi.json:1",
            ],
            &[
                ("crates/tenure/src/a.rs", "/// A job that has not run yet.\n// given back\n"),
                ("crates/tenure/tests/it/a.rs", "/// It was given back.\n"),
                (
                    "crates/tenure-cli/src/c.rs",
                    "/// The master name, as in `role:master`.\nlet b = is(\"master\");\n",
                ),
                ("crates/store-engine/src/c.rs", "/// The master is there.\n"),
                ("crates/tenure-sidecar/page/a.js", "return \"observer\";\n"),
            ],
        ),
        Planted {
            rule: "words",
            wrong: Tree::of(&[(
                "docs/glossary.md",
                "# Glossary\n\n## Words that we do not use\n\n| `a b` | c | here |\n",
            )]),
            found: &["docs/glossary.md:5"],
            right: Tree::of(&[("README.md", "The own.\n")]),
        },
        Planted {
            rule: "words",
            wrong: Tree::of(&[("docs/glossary.md", "# Glossary\n")]),
            found: &["docs/glossary.md:1"],
            right: Tree::of(&[(
                "docs/glossary.md",
                "## Words that we do not use\n\n| `a b` | c | elections |\n",
            )]),
        },
        Planted {
            rule: "names of types",
            wrong: Tree::of(&[
                ("docs/glossary.md", glossary),
                (
                    "crates/a/src/b.rs",
                    "\npub(super) struct Herald;\nenum Ways {\npub trait Keeper: Send {\ntype \
                     Terms<'a> = &'a str;\n#[derive(Debug)] pub struct Ties(u8);\n",
                ),
                ("examples/a.rs", "struct Wounds;\n"),
                ("xtask/src/a.rs", "enum Place {\n"),
            ]),
            found: &[
                "crates/a/src/b.rs:2",
                "crates/a/src/b.rs:3",
                "crates/a/src/b.rs:4",
                "crates/a/src/b.rs:5",
                "crates/a/src/b.rs:6",
                "examples/a.rs:1",
                "xtask/src/a.rs:1",
            ],
            right: Tree::of(&[
                ("docs/glossary.md", glossary),
                ("crates/a/src/b.rs", "struct Heralded;\n// struct Herald\nlet herald = Herald;\n"),
                ("crates/a/tests/it/a.rs", "struct Keeper;\n"),
            ]),
        },
    ]
}

fn walks() -> Vec<Planted> {
    let page = "\
# Architecture

### Walk: GET

| file | called as | |
|---|---|---|
| `a/src/read.rs` | | reads |
| `a/src/engine.rs` | `execute` | runs |
| `a/src/set.rs` | `get` | answers |
| `a/src/write.rs` | `write` | writes |

## Another part

| `no/file.rs` | `none` | is no step |
";
    let files = [
        ("ARCHITECTURE.md", page),
        ("a/src/read.rs", "fn read() { engine.execute(); write(); }\n"),
        ("a/src/engine.rs", "pub(crate) fn execute() { get(); }\n"),
        ("a/src/set.rs", "fn get() {}\n"),
        ("a/src/write.rs", "fn write() { write(); }\n"),
    ];
    let right = || Tree::of(&files);
    let row = |path: &str, text: &str, found: &'static [&'static str]| {
        let changed = files.map(|(name, was)| (name, if name == path { text } else { was }));
        let left = changed.into_iter().filter(|(_, text)| !text.is_empty());
        let wrong = Tree::of(&left.collect::<Vec<_>>());
        Planted { rule: "walks", wrong, found, right: right() }
    };
    let long: String = (0..13).map(|at| format!("| `a/src/{at}.rs` | `next` | |\n")).collect();
    let way: Vec<(String, &str)> =
        (0..13).map(|at| (format!("a/src/{at}.rs"), "fn next() { next(); }\n")).collect();
    let long = format!("### Walk: a grant\n{long}");
    let mut crowd: Vec<(&str, &str)> = way.iter().map(|(path, text)| (&path[..], *text)).collect();
    crowd.push(("ARCHITECTURE.md", &long));
    vec![
        row("a/src/set.rs", "", &["ARCHITECTURE.md:9"]),
        row("a/src/read.rs", "fn read() { executed(); write(); }\n", &["ARCHITECTURE.md:8"]),
        row("a/src/read.rs", "fn read() { engine.execute(); }\n", &["ARCHITECTURE.md:10"]),
        row("a/src/set.rs", "fn got() { get(); }\n", &["ARCHITECTURE.md:9"]),
        row("ARCHITECTURE.md", "### Walk: GET\n", &["ARCHITECTURE.md:1"]),
        Planted {
            rule: "walks",
            wrong: Tree::of(&crowd),
            found: &["ARCHITECTURE.md:1"],
            right: right(),
        },
    ]
}
