//! What two servers tell about themselves, field by field, and what they hold, key by key.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use store_resp::Reply;

use super::excepted::Usage;
use super::servers::Side;

/// A field's path and its value.
type Fields = Vec<(String, String)>;

/// How the answer to a request is taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The sections and fields of INFO.
    Info,
    /// A line per client.
    Clients,
    /// Entries of the slow log; those of the main connection fall between others by chance.
    SlowLog,
    /// Arrays and maps; a path leads to each value.
    Nested,
    /// Lines of words in any order: single commands of a user come as a random hash has them.
    Words,
    /// The same without order: commands and channels are kept by random hashes.
    Unordered,
}

const ASKED: &[(&str, Form)] = &[
    ("INFO everything", Form::Info),
    ("CLIENT LIST", Form::Clients),
    ("CLIENT INFO", Form::Clients),
    ("SLOWLOG GET -1", Form::SlowLog),
    ("LATENCY HISTOGRAM", Form::Unordered),
    ("LATENCY LATEST", Form::Nested),
    ("ACL LIST", Form::Words),
    ("ACL LOG 100", Form::Nested),
    ("FUNCTION LIST WITHCODE", Form::Unordered),
    ("FUNCTION STATS", Form::Nested),
    ("PUBSUB CHANNELS", Form::Unordered),
    ("PUBSUB SHARDCHANNELS", Form::Unordered),
    ("MEMORY STATS", Form::Nested),
    ("CONFIG GET *", Form::Unordered),
];

/// One mistake may show in many fields.
const DIFFERENCES_SHOWN_MAX: usize = 12;

/// Ends a test; measures nothing.
const FREEING_PATIENCE: Duration = Duration::from_secs(20);

/// All databases: a crowd may leave keys in any of them.
const DATABASES: u32 = 16;

/// Compares everything that the servers tell about themselves.
pub(super) fn compare_facts(
    ours: &mut Side,
    theirs: &mut Side,
    usage: &Usage,
) -> Result<(), String> {
    wait_for_freeing(ours, theirs);
    let mut differences = Vec::new();
    for (line, form) in ASKED {
        let place = line.split_once(" GET -1").map_or(*line, |(front, _)| front);
        let place = place.strip_suffix(" everything").unwrap_or(place);
        let (our_fields, their_fields) = (fields(ours, line, *form), fields(theirs, line, *form));
        differences.extend(compare_fields(place, our_fields, their_fields, usage).err());
    }
    for side in [ours, theirs] {
        side.ask_line("SLOWLOG RESET");
    }
    if differences.is_empty() { Ok(()) } else { Err(differences.join("\n    ")) }
}

/// Waits until threads have freed what FLUSHALL ASYNC and UNLINK left to them. Both servers are
/// asked as often.
fn wait_for_freeing(ours: &mut Side, theirs: &mut Side) {
    let patience_ends_at = Instant::now() + FREEING_PATIENCE;
    loop {
        let infos = [&mut *ours, &mut *theirs].map(|side| text(&side.ask_line("INFO memory")));
        let is_done = |info: &String| info.contains("lazyfree_pending_objects:0\r\n");
        if infos.iter().all(is_done) || Instant::now() > patience_ends_at {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks for all keys, so that those that have ended are removed.
pub(super) fn remove_ended_keys(side: &mut Side) {
    for database in (0..DATABASES).rev() {
        side.ask_line(&format!("SELECT {database}"));
        let reply = side.ask_line("SCAN 0 COUNT 1000000");
        let is_whole =
            matches!(&reply, Reply::Array(parts) if parts[0] == Reply::Bulk(b"0".into()));
        assert!(is_whole, "{}: {reply:?} are not all keys", side.name);
    }
}

/// Compares the keys of all databases: kinds, encodings, ends, values.
pub(super) fn compare_keys(
    ours: &mut Side,
    theirs: &mut Side,
    usage: &Usage,
) -> Result<(), String> {
    for database in 0..DATABASES {
        let select = format!("SELECT {database}");
        assert_eq!(ours.ask_line(&select), theirs.ask_line(&select));
        let (our_keys, their_keys) = (keys(ours), keys(theirs));
        if our_keys != their_keys {
            let shown = |keys: &[Vec<u8>]| {
                let names = keys.iter().map(|key| key.escape_ascii().to_string());
                names.collect::<Vec<_>>().join(" ")
            };
            let (ours, theirs) = (shown(&our_keys), shown(&their_keys));
            return Err(format!("keys of db{database}\n    ours   {ours}\n    theirs {theirs}"));
        }
        for key in &our_keys {
            let (our_fields, their_fields) = (value(ours, key), value(theirs, key));
            let named = |difference| format!("key {} of {difference}", key.escape_ascii());
            compare_fields("a key", our_fields, their_fields, usage).map_err(named)?;
        }
    }
    ours.ask_line("SELECT 0");
    theirs.ask_line("SELECT 0");
    let (ours, theirs) = (ours.ask_line("DEBUG DIGEST"), theirs.ask_line("DEBUG DIGEST"));
    if ours == theirs { Ok(()) } else { Err(format!("DEBUG DIGEST: {ours:?}, theirs {theirs:?}")) }
}

fn keys(side: &mut Side) -> Vec<Vec<u8>> {
    let Reply::Array(keys) = side.ask_line("KEYS *") else { panic!("no keys") };
    let name = |key| match key {
        Reply::Bulk(name) => name,
        other => panic!("{other:?} is no key"),
    };
    let mut keys: Vec<Vec<u8>> = keys.into_iter().map(name).collect();
    keys.sort();
    keys
}

/// All that can be told of a key.
fn value(side: &mut Side, key: &[u8]) -> Fields {
    let mut fields = Fields::new();
    let kind = side.ask(&[b"TYPE", key]);
    let is_stream = kind == Reply::Simple("stream".into());
    flatten("TYPE", &kind, &mut fields);
    for words in [&["OBJECT", "ENCODING"][..], &["PEXPIRETIME"], &["DEBUG", "DIGEST-VALUE"]] {
        let mut request: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        request.push(key);
        flatten(&words.join(" "), &side.ask(&request), &mut fields);
    }
    if is_stream {
        let request = [&b"XINFO"[..], b"STREAM", key, b"FULL", b"COUNT", b"0"];
        flatten("XINFO", &side.ask(&request), &mut fields);
    }
    fields
}

fn fields(side: &mut Side, line: &str, form: Form) -> Fields {
    let reply = side.ask_line(line);
    let mut fields = Fields::new();
    match form {
        Form::Info => info_fields(&side.with_names(&text(&reply)), &mut fields),
        Form::Clients => {
            // Redis turns its list while it looks after clients, a few at a time.
            let reply = text(&reply);
            let mut lines: Vec<&str> = reply.lines().collect();
            lines.sort();
            for line in lines {
                client_fields("", &side.with_names(line), &mut fields);
            }
        }
        Form::SlowLog => flatten("", &without_main(side, &reply), &mut fields),
        Form::Nested => flatten("", &reply, &mut fields),
        Form::Words => {
            flatten("", &reply, &mut fields);
            for (_, line) in &mut fields {
                let mut words: Vec<&str> = line.trim_matches('"').split(' ').collect();
                words.sort_unstable();
                *line = words.join(" ");
            }
        }
        Form::Unordered => {
            flatten("", &unordered(&reply), &mut fields);
        }
    }
    for (_, value) in &mut fields {
        *value = side.with_names(value);
    }
    fields
}

/// The entries that others than the main connection caused, without their numbers.
fn without_main(side: &Side, log: &Reply) -> Reply {
    let Reply::Array(entries) = log else { panic!("{log:?} is no log") };
    let entries = entries.iter().filter_map(|entry| match entry {
        Reply::Array(parts) if side.with_names(&text(&parts[4])) != "@main" => {
            Some(Reply::Array(parts[1..].to_vec()))
        }
        Reply::Array(_) => None,
        other => panic!("{other:?} is no entry"),
    });
    Reply::Array(entries.collect())
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(text) | Reply::Verbatim(_, text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?} is no text"),
    }
}

/// Statistics of single commands come in the order of a random hash, so they are put into one.
fn info_fields(info: &str, fields: &mut Fields) {
    let mut section = Fields::new();
    for line in info.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with('#') {
            fields.append(&mut section);
            fields.push((line.to_owned(), String::new()));
            continue;
        }
        let (name, value) = line.split_once(':').expect("a name and a value");
        let parted = ["cmdstat_", "errorstat_", "latency_percentiles_usec_", "db"];
        match parted.iter().any(|front| name.starts_with(front)) && value.contains('=') {
            true => section.extend(value.split(',').map(|part| {
                let (part, value) = part.split_once('=').expect("name=value");
                (format!("{name}/{part}"), value.to_owned())
            })),
            false => section.push((name.to_owned(), value.to_owned())),
        }
        if name.starts_with("cmdstat_") || name.starts_with("latency_") {
            // The parts of one command keep their order.
            section.sort_by(|(one, _), (other, _)| {
                one.split('/').next().cmp(&other.split('/').next())
            });
        }
    }
    fields.append(&mut section);
}

fn client_fields(path: &str, line: &str, fields: &mut Fields) {
    for field in line.trim().split(' ') {
        let (name, value) = field.split_once('=').expect("name=value");
        fields.push((format!("{path}{name}"), value.to_owned()));
    }
}

/// A path leads to each value: names of maps, positions in arrays.
fn flatten(path: &str, reply: &Reply, fields: &mut Fields) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    };
    match reply {
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => {
            fields.push((below("length"), items.len().to_string()));
            for (at, item) in items.iter().enumerate() {
                flatten(&below(&at.to_string()), item, fields);
            }
        }
        Reply::Map(pairs) => {
            for (name, value) in pairs {
                let name = match name {
                    Reply::Bulk(_) | Reply::Verbatim(..) => text(name),
                    Reply::Simple(name) => name.clone(),
                    other => format!("{other:?}"),
                };
                match name == "client-info" {
                    true => client_fields(&below("client-info/"), &text(value), fields),
                    false => flatten(&below(&name), value, fields),
                }
            }
        }
        other => fields.push((path.to_owned(), format!("{other:?}"))),
    }
}

/// The same reply with arrays, sets and maps sorted.
fn unordered(reply: &Reply) -> Reply {
    let sorted = |items: &[Reply]| {
        let mut items: Vec<Reply> = items.iter().map(unordered).collect();
        items.sort_by_key(|item| format!("{item:?}"));
        items
    };
    match reply {
        Reply::Array(items) => Reply::Array(sorted(items)),
        Reply::Set(items) => Reply::Set(sorted(items)),
        Reply::Map(pairs) => {
            let mut pairs: Vec<(Reply, Reply)> =
                pairs.iter().map(|(name, value)| (name.clone(), unordered(value))).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Reply::Map(pairs)
        }
        other => other.clone(),
    }
}

/// Names and their order must be equal, and values but for those in the list.
fn compare_fields(place: &str, ours: Fields, theirs: Fields, usage: &Usage) -> Result<(), String> {
    let ours: Fields =
        ours.into_iter().filter(|(name, _)| !usage.is_ours_alone(place, name)).collect();
    let (our_fields, their_fields) = (numbered(&ours), numbered(&theirs));
    let mut differences = Vec::new();
    for (field, our) in &our_fields {
        let their = their_fields.get(field);
        if their != Some(our) && !usage.hides(place, field.0) {
            let their = their.unwrap_or(&"(not there)");
            differences.push(format!("{place} {}: ours {our}, theirs {their}", field.0));
        }
    }
    for (field, their) in &their_fields {
        if !our_fields.contains_key(field) && !usage.hides(place, field.0) {
            differences.push(format!("{place} {}: ours (not there), theirs {their}", field.0));
        }
    }
    let common = |fields: &Fields, others: &Numbered<'_>| -> Vec<String> {
        let is_common = |name: &&String| others.contains_key(&(name.as_str(), 0));
        fields.iter().map(|(name, _)| name).filter(is_common).cloned().collect()
    };
    if differences.is_empty() && common(&ours, &their_fields) != common(&theirs, &our_fields) {
        differences.push(format!("{place}: the fields come in another order"));
    }
    differences.truncate(DIFFERENCES_SHOWN_MAX);
    if differences.is_empty() { Ok(()) } else { Err(differences.join("\n    ")) }
}

/// Fields by their name and how many of that name came before.
type Numbered<'a> = BTreeMap<(&'a str, usize), &'a str>;

fn numbered(fields: &Fields) -> Numbered<'_> {
    let mut seen = BTreeMap::new();
    let mut number = |name| {
        let count = seen.entry(name).or_insert(0);
        *count += 1;
        *count - 1
    };
    fields
        .iter()
        .map(|(name, value)| ((name.as_str(), number(name.as_str())), value.as_str()))
        .collect()
}
