//! The messages on a resource's events channel.
//!
//! One short line each, published by the scripts (docs/protocol.md §12.1):
//! `g TOKEN TTL_MS ID` granted, `r TOKEN` released, `t TOKEN CLAIM_MS ID` handed over,
//! `w TOKEN` a wish waits, `m` members changed, `p` pause changed, `k` a tick ended. Anyone may
//! publish anything there, so what is unknown, too long or malformed is ignored.

use std::time::Duration;

use tenure_core::protocol::Hint;
use tenure_core::{InstanceId, Token};

use super::text::escaped;

/// The longest message that is looked at, in bytes: ids are far shorter.
const MESSAGE_LEN_MAX: usize = 4096;
/// The longest lease that a hint may tell, in milliseconds: a year.
const LEASE_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1000;

/// The hint in a message, if it is one.
pub(super) fn parse(message: &[u8]) -> Option<Hint> {
    if message.len() > MESSAGE_LEN_MAX {
        return None;
    }
    let mut words = message.splitn(4, |byte| *byte == b' ');
    let hint = match words.next()? {
        b"g" => Hint::Granted {
            token: token(words.next()?)?,
            ttl: millis(words.next()?)?,
            id: InstanceId::seen(&escaped(words.next()?)),
        },
        b"r" => Hint::Released { token: token_or_none(words.next()?)? },
        b"t" => Hint::Transferred {
            token: token(words.next()?)?,
            claim_ttl: millis(words.next()?)?,
            to: InstanceId::seen(&escaped(words.next()?)),
        },
        b"w" => Hint::Wished { token: token(words.next()?)? },
        b"m" => Hint::Members,
        b"p" => Hint::PauseChanged,
        b"k" => Hint::TickFinished,
        _ => return None,
    };
    words.next().is_none().then_some(hint)
}

fn token(word: &[u8]) -> Option<Token> {
    Token::new(number(word)?)
}

/// A token where zero stands for none.
fn token_or_none(word: &[u8]) -> Option<Option<Token>> {
    match number(word)? {
        0 => Some(None),
        number => Token::new(number).map(Some),
    }
}

fn millis(word: &[u8]) -> Option<Duration> {
    number(word).filter(|millis| *millis <= LEASE_MS_MAX).map(Duration::from_millis)
}

fn number(word: &[u8]) -> Option<u64> {
    let is_plain = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(word).ok().filter(|_| is_plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_scripts_are_understood() {
        let token = Token::new(17).unwrap();
        let web = InstanceId::seen("web_1");
        let ttl = Duration::from_secs(10);
        let cases = [
            ("g 17 10000 web_1", Hint::Granted { id: web.clone(), token, ttl }),
            ("r 17", Hint::Released { token: Some(token) }),
            ("t 17 10000 web_1", Hint::Transferred { token, to: web, claim_ttl: ttl }),
            ("w 17", Hint::Wished { token }),
            ("m", Hint::Members),
            ("p", Hint::PauseChanged),
            ("k", Hint::TickFinished),
        ];
        for (message, hint) in cases {
            assert_eq!(parse(message.as_bytes()), Some(hint), "{message}");
        }
    }

    #[test]
    fn forged_messages_are_ignored() {
        let huge = format!("g 17 10000 {}", "x".repeat(MESSAGE_LEN_MAX));
        let cases = [
            "",
            " ",
            "g",
            "g 17",
            "g x 10000 web",
            "g 17 -1 web",
            "g 17 99999999999999999 web",
            "r 9007199254740992",
            "r 17 extra",
            "t 10000 web",
            "r +17",
            "m m",
            "z 1",
            &huge,
        ];
        for message in cases {
            assert_eq!(parse(message.as_bytes()), None, "{message}");
        }
        assert_eq!(parse(b"\xff\x00\n"), None);
    }
}
