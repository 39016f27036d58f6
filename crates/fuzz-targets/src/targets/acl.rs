//! ACL rules and the patterns in them: a mistake here grants what must be denied.

use store_resp::Reply;

use super::Target;
use super::world::World;

pub(super) const TARGET: Target = Target {
    name: "acl",
    about: "rules of ACL SETUSER, a rule to a line",
    run,
    words: &[
        b"on\n",
        b"off\n",
        b">secret\n",
        b"#",
        b"~*\n",
        b"%R~a*\n",
        b"%W~",
        b"&*\n",
        b"+@all\n",
        b"-@all\n",
        b"+get|x\n",
        b"+config|get\n",
        b"-select\n",
        b"(+get ~a)\n",
        b"(",
        b")",
        b"clearselectors\n",
        b"reset\n",
        b"nopass\n",
        b"allkeys\n",
        b"resetkeys\n",
        b"**",
        b"[^",
        b"\\",
        b"?",
    ],
};

/// Rules of one request, at most: as many as a client that has not logged in may send.
const RULES_MAX: usize = 64;

fn run(bytes: &[u8]) {
    let mut world = World::new();
    let mut words: Vec<&[u8]> = vec![b"ACL", b"SETUSER", b"ada"];
    words.extend(bytes.split(|byte| *byte == b'\n').take(RULES_MAX));
    let answer = world.ask(&words);
    if let Some(Reply::Error(_)) = answer {
        let users = world.ask(&[b"ACL", b"USERS"]);
        let expected = Reply::Array(vec![Reply::Bulk(b"default".to_vec())]);
        assert_eq!(users, Some(expected), "a refused user was made");
        return;
    }
    let before = world.ask(&[b"ACL", b"LIST"]);
    let Some(Reply::Array(lines)) = &before else { panic!("ACL LIST answered {before:?}") };
    let ours = lines.iter().find_map(|line| match line {
        Reply::Bulk(line) => line.strip_prefix(b"user ada "),
        _ => None,
    });
    let rules = ours.expect("ACL LIST shows the user").to_vec();
    for words in [
        &[&b"ACL"[..], b"DRYRUN", b"ada", b"GET", b"key"][..],
        &[b"ACL", b"DRYRUN", b"ada", b"CONFIG", b"GET", b"x"],
        &[b"ACL", b"GETUSER", b"ada"],
        &[b"KEYS", bytes],
        &[b"SCAN", b"0", b"MATCH", bytes],
    ] {
        assert!(world.ask(words).is_some(), "no answer to {words:?}");
    }
    if !bytes.contains(&b' ') && !bytes.contains(&b'(') {
        assert_same_user(&mut world, &rules);
    }
}

/// Telling a new user what LIST shows of one makes an equal user. Blanks inside a rule are not
/// quoted there, and a selector has some, so only rules without both can be told again.
fn assert_same_user(world: &mut World, rules: &[u8]) {
    let mut words: Vec<&[u8]> = vec![b"ACL", b"SETUSER", b"bob"];
    words.extend(rules.split(|byte| *byte == b' '));
    let answer = world.ask(&words);
    assert!(matches!(answer, Some(Reply::Simple(_))), "what LIST shows is refused: {answer:?}");
    let Some(Reply::Array(lines)) = world.ask(&[b"ACL", b"LIST"]) else { panic!("no list") };
    let shown = [b"user bob ", rules].concat();
    assert!(lines.contains(&Reply::Bulk(shown)), "another user than {}", rules.escape_ascii());
}
