//! Hints as text: in `tenure.hint`, and as the payload of notifications.
//!
//! `g TOKEN TTL_MS ID` granted, `r TOKEN` released (0 for none), `t TOKEN CLAIM_MS ID` handed over,
//! `w TOKEN` a wish waits, `m` members changed, `p` pause changed, `k` a tick ended. Anyone who may
//! use the database may send anything, so what is unknown, too long or malformed is ignored.

use std::time::Duration;

use tenure_core::protocol::Hint;
use tenure_core::{InstanceId, Token};

/// The longest message that is looked at, in bytes: ids are far shorter.
const MESSAGE_LEN_MAX: usize = 4096;
/// The longest lease that a hint may tell, in milliseconds: a year.
const LEASE_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1000;

/// A hint as text; `None` for one of a kind that is not told here.
pub(crate) fn text(hint: &Hint) -> Option<String> {
    Some(match hint {
        Hint::Granted { id, token, ttl } => format!("g {token} {} {id}", ttl.as_millis()),
        Hint::Released { token } => format!("r {}", token.map_or(0, Token::get)),
        Hint::Transferred { token, to, claim_ttl } => {
            format!("t {token} {} {to}", claim_ttl.as_millis())
        }
        Hint::Wished { token } => format!("w {token}"),
        Hint::Members => "m".to_owned(),
        Hint::PauseChanged => "p".to_owned(),
        Hint::TickFinished => "k".to_owned(),
        _ => return None,
    })
}

/// The hint in a text, if it is one.
pub(crate) fn parse(text: &str) -> Option<Hint> {
    if text.len() > MESSAGE_LEN_MAX {
        return None;
    }
    let mut words = text.splitn(4, ' ');
    let hint = match words.next()? {
        "g" => {
            let (token, ttl) = (Token::new(number(words.next()?)?)?, millis(words.next()?)?);
            Hint::Granted { token, ttl, id: InstanceId::seen(words.next()?) }
        }
        "r" => {
            let number = number(words.next()?)?;
            Hint::Released { token: Token::new(number) }
        }
        "t" => {
            let (token, claim_ttl) = (Token::new(number(words.next()?)?)?, millis(words.next()?)?);
            Hint::Transferred { token, claim_ttl, to: InstanceId::seen(words.next()?) }
        }
        "w" => Hint::Wished { token: Token::new(number(words.next()?)?)? },
        "m" => Hint::Members,
        "p" => Hint::PauseChanged,
        "k" => Hint::TickFinished,
        _ => return None,
    };
    words.next().is_none().then_some(hint)
}

fn millis(word: &str) -> Option<Duration> {
    number(word).filter(|millis| *millis <= LEASE_MS_MAX).map(Duration::from_millis)
}

fn number(word: &str) -> Option<u64> {
    let is_plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hint_comes_back_as_it_was() {
        let token = Token::new(17).unwrap();
        let web = InstanceId::seen("web 1");
        let ttl = Duration::from_secs(10);
        let hints = [
            Hint::Granted { id: web.clone(), token, ttl },
            Hint::Released { token: Some(token) },
            Hint::Released { token: None },
            Hint::Transferred { token, to: web, claim_ttl: ttl },
            Hint::Wished { token },
            Hint::Members,
            Hint::PauseChanged,
            Hint::TickFinished,
        ];
        for hint in hints {
            let text = text(&hint).unwrap();
            assert_eq!(parse(&text), Some(hint), "{text}");
        }
    }

    #[test]
    fn forged_messages_are_ignored() {
        let huge = format!("g 17 10000 {}", "x".repeat(MESSAGE_LEN_MAX));
        let cases =
            ["", " ", "g", "g 17", "g x 10000 web", "g 17 -1 web", "r +17", "m m", "z 1", &huge];
        for message in cases {
            assert_eq!(parse(message), None, "{message}");
        }
    }
}
