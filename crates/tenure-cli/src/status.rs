//! `tenure status`: everything one look at the store shows about an election.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::{Leadership, Observation, Token, Wish, WishKind};

use crate::exit::Failure;
use crate::members::{members_json, members_text};
use crate::output::{OutputOptions, duration, moment, plain};
use crate::store_options::{Target, no_such};
use crate::who::{leadership_json, vacancy};

/// Print who leads, for how long, who takes part, and what was asked for.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure status nightly
  tenure status nightly --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    let seen = store_observer.sight()?.now();
    let (store, key) =
        (store_observer.tenure.store(), store_observer.observer.resource().key().to_owned());
    let leads_for = store_observer.leads_for(&seen);
    let mut json = status_json(&arguments.target.name, &seen);
    json["leads_for_ms"] = json!(leads_for.map(|length| length.as_millis() as u64));
    json["store"] = json!(store);
    json["key"] = json!(key);
    let meant = store_observer.meant(&seen);
    if let Some(meant) = &meant {
        json["did_you_mean"] = json!(meant);
    }
    let meant = meant.map(|meant| format!("; {}", no_such(&arguments.target.name, &meant)));
    arguments.output.print(&json, || {
        let place = format!("{key} at {store}");
        let doubt = match (&seen.leadership, meant) {
            (Leadership::Vacant(_), Some(meant)) => meant,
            (Leadership::Vacant(why), None) => store_observer.doubt_of(why).to_owned(),
            (Leadership::Led { .. }, _) => String::new(),
        };
        let text = status_text(&arguments.target.name, &place, &doubt, &seen, leads_for);
        format!("{text}\n{}", members_text(&seen))
    });
    Ok(ExitCode::SUCCESS)
}

/// The fields of `who`, and `members`, `paused_for_ms`, `wish`, `server_time`, `warnings`.
pub(crate) fn status_json(name: &str, seen: &Observation) -> Value {
    let mut json = leadership_json(name, &seen.leadership);
    json["members"] = Value::from(members_json(seen));
    json["paused_for_ms"] = json!(seen.paused_for.map(|left| left.as_millis() as u64));
    json["wish"] = seen.wish.as_ref().map_or(Value::Null, wish_json);
    json["server_time"] = json!(moment(seen.server_time));
    json["warnings"] = json!(seen.warnings);
    json
}

fn wish_json(wish: &Wish) -> Value {
    let to = match &wish.kind {
        WishKind::HandOver { to } => Some(to),
        WishKind::Resign => None,
    };
    json!({
        "kind": wish_word(wish),
        "to": to,
        "by": wish.by.as_str(),
        "token": wish.token.map_or(0, Token::get),
        "refused": wish.refused,
    })
}

fn wish_word(wish: &Wish) -> &'static str {
    match wish.kind {
        WishKind::HandOver { .. } => "hand-over",
        WishKind::Resign => "resign",
    }
}

/// In words. `doubt` stands behind why nobody leads, `leads_for` is how long the leader has led.
pub(crate) fn status_text(
    name: &str,
    place: &str,
    doubt: &str,
    seen: &Observation,
    leads_for: Option<Duration>,
) -> String {
    let mut lines = vec![format!("{}  ({})", plain(name), plain(place))];
    lines.push(match &seen.leadership {
        Leadership::Led { leader, remaining } => {
            let led = leads_for.map(|length| format!("leads for {}, ", duration(length)));
            let left = remaining.map_or("lease without an end".to_owned(), |left| {
                format!("lease {} unless renewed", duration(left))
            });
            let term = match leader.token {
                Some(token) if !leader.foreign => format!("token {token}"),
                _ => "a program that does not speak this protocol".to_owned(),
            };
            let led = led.unwrap_or_default();
            format!("leader    {}  {term}, {led}{left}", plain(leader.id.as_str()))
        }
        Leadership::Vacant(why) => format!("leader    none: {}{doubt}", vacancy(why)),
    });
    if let Some(left) = seen.paused_for {
        lines.push(format!("paused    no new term for {}", duration(left)));
    }
    if let Some(wish) = &seen.wish {
        let answer = wish
            .refused
            .as_ref()
            .map_or("not answered yet".to_owned(), |why| format!("refused: {}", plain(why)));
        let by = plain(wish.by.as_str());
        lines.push(format!("asked     to {} by {by}: {answer}", wish_word(wish)));
    }
    lines.extend(seen.warnings.iter().map(|warning| format!("warning   {}", plain(warning))));
    lines.join("\n") + "\n"
}
