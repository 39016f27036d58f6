//! What the sentinels' answers come to.

use std::collections::BTreeMap;

use tenure_core::{StoreError, StoreErrorKind};

use crate::error;
use crate::node::Node;
use crate::text::cleaned;

/// One sentinel's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// The primary is there.
    At(Node),
    /// It watches no primary of this name.
    Unknown,
}

/// The primary, if most of the sentinels that the address names point to the same one. One that was
/// cut off goes on naming an old primary, and a login must not be sent to a server that only one
/// names: those that are silent count against it.
pub(super) fn verdict(
    master: &str,
    answers: &[(String, Result<Named, StoreError>)],
) -> Result<Node, StoreError> {
    let mut votes: BTreeMap<&Node, Vec<&str>> = BTreeMap::new();
    let mut ignorant = Vec::new();
    let mut silent = Vec::new();
    for (sentinel, answer) in answers {
        match answer {
            Ok(Named::At(node)) => votes.entry(node).or_default().push(sentinel),
            Ok(Named::Unknown) => ignorant.push(sentinel.as_str()),
            Err(error) => silent.push((sentinel.as_str(), error)),
        }
    }
    let most = votes.iter().max_by_key(|(_, voters)| voters.len());
    match most {
        Some((node, voters)) if 2 * voters.len() > answers.len() => Ok((*node).clone()),
        Some((node, voters)) if votes.len() == 1 => {
            let heard = Heard { node, voters, ignorant: &ignorant, silent: &silent };
            Err(heard.by_too_few(answers.len()))
        }
        Some(_) => Err(disagreement(&votes)),
        // They may be told of it yet.
        None if !ignorant.is_empty() => Err(StoreError::wrong_node(format!(
            "the sentinel at {} watches no primary {:?}",
            ignorant[0],
            cleaned(master)
        ))
        .with_next_step(
            "check the name after / in the store's address (redis-cli SENTINEL MASTERS, asked \
             there, lists them)",
        )),
        None => Err(silence(&silent)),
    }
}

/// One primary, named by too few.
struct Heard<'a> {
    node: &'a Node,
    voters: &'a [&'a str],
    ignorant: &'a [&'a str],
    silent: &'a [(&'a str, &'a StoreError)],
}

impl Heard<'_> {
    fn by_too_few(&self, asked: usize) -> StoreError {
        let silent = self.silent.first().map(|(sentinel, error)| format!("{sentinel}: {error}"));
        let ignorant =
            self.ignorant.first().map(|sentinel| format!("{sentinel} watches no such primary"));
        let other = silent.or(ignorant).unwrap_or_default();
        StoreError::not_now(format!(
            "the primary at {} is named by {} of {asked} sentinels ({}), and more than half must \
             name it before a login is sent ({other})",
            self.node,
            self.voters.len(),
            self.voters.join(", "),
        ))
        .with_next_step("start the others, or remove those from the address that are gone for good")
    }
}

fn disagreement(votes: &BTreeMap<&Node, Vec<&str>>) -> StoreError {
    let sides =
        votes.iter().map(|(node, voters)| format!("{node} is named by {}", voters.join(", ")));
    let sides = sides.collect::<Vec<_>>().join(", ");
    StoreError::not_now(format!("the sentinels disagree about the primary ({sides})"))
        .with_next_step(
            "wait: they agree when the failover is over; `tenure doctor` shows which of them \
             disagree",
        )
}

fn silence(silent: &[(&str, &StoreError)]) -> StoreError {
    // Refused everywhere is for a person to mend; anything else may pass.
    let lasting = silent.iter().find(|(_, error)| !error.is_temporary());
    let Some((sentinel, error)) = lasting.or(silent.first()) else {
        return StoreError::unreachable("no sentinel was asked");
    };
    match error.kind() {
        StoreErrorKind::Unexpected if error.message().contains("unknown command") => {
            let why = StoreError::wrong_address(format!(
                "{sentinel} is not a sentinel ({})",
                error.message()
            ))
            .with_next_step(format!(
                "write redis://{sentinel} if it is the store itself, or the sentinels' own \
                         port"
            ));
            // One that is silent now may be a sentinel.
            match silent.iter().any(|(_, error)| error.is_temporary()) {
                true => why.with_kind(StoreErrorKind::Unreachable),
                false => why,
            }
        }
        StoreErrorKind::Denied => {
            with_own_login((*error).clone().at(&format!("the sentinel at {sentinel}")))
        }
        _ => error::of_silent(("sentinel", silent.len()), sentinel, error),
    }
}

/// Sentinels have a login of their own, elsewhere in the address than what helps at a store.
fn with_own_login(refusal: StoreError) -> StoreError {
    let is_login = ["login", "NOAUTH", "WRONGPASS"].iter().any(|w| refusal.message().contains(w));
    match is_login {
        true => refusal.with_next_step(
            "give the sentinels' own login by ?sentinel_user= and ?sentinel_password= \
             (docs/acl.md says what it needs)",
        ),
        false => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Result<Named, StoreError> {
        Ok(Named::At(Node { host: "10.0.0.1".into(), port }))
    }

    fn down() -> Result<Named, StoreError> {
        Err(StoreError::unreachable("refused"))
    }

    fn no_sentinel() -> Result<Named, StoreError> {
        Err(StoreError::unexpected("ERR unknown command 'SENTINEL'"))
    }

    fn of(answers: Vec<Result<Named, StoreError>>) -> Result<u16, String> {
        let answers: Vec<_> =
            answers.into_iter().enumerate().map(|(i, a)| (format!("s{i}"), a)).collect();
        verdict("main", &answers).map(|node| node.port).map_err(|error| error.to_string())
    }

    #[test]
    fn the_majority_of_those_that_are_named_is_believed() {
        assert_eq!(of(vec![at(1), at(1), at(1)]), Ok(1));
        assert_eq!(of(vec![at(2), at(1), at(2)]), Ok(2), "one is behind");
        assert_eq!(of(vec![down(), at(3), at(3)]), Ok(3), "one is down");
        assert_eq!(of(vec![at(3)]), Ok(3), "no other was named");
        assert_eq!(of(vec![Ok(Named::Unknown), at(3), at(3)]), Ok(3), "one was not told yet");
    }

    #[test]
    fn anything_else_names_the_trouble() {
        let cases = [
            (vec![down(), down(), at(3)], "10.0.0.1:3 is named by 1 of 3 sentinels (s2)"),
            (vec![Ok(Named::Unknown), at(3)], "is named by 1 of 2 sentinels (s1)"),
            (vec![at(1), at(2), down()], "disagree about the primary (10.0.0.1:1 is named by s0"),
            (vec![Ok(Named::Unknown), down()], "watches no primary \"main\""),
            (vec![down(), down()], "none of 2 sentinels answers (the one at s0: refused)"),
            (vec![down()], "the sentinel at s0 does not answer: refused"),
            (vec![no_sentinel()], "cannot work: s0 is not a sentinel"),
            (vec![down(), no_sentinel()], "unreachable: s1 is not a sentinel"),
            (
                vec![down(), Err(StoreError::denied("NOAUTH").with_next_step("do this"))],
                "the sentinel at s1: NOAUTH; give the sentinels' own login by ?sentinel_user=",
            ),
        ];
        for (answers, expected) in cases {
            let error = of(answers).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
