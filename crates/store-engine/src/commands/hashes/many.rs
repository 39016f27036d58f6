//! All fields, or some of them.

use store_resp::ReplyWriter;
use store_types::{Element, Hash};

use super::super::collection::{
    Picks, begin_pair, begin_pairs, pair_picks, randomness, reply_element,
};
use super::super::element_scan::Found;
use super::super::prelude::*;
use super::super::scan::{parse_cursor, parse_options};

pub(super) fn hgetall(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let hash = cx.db.read_as::<Hash>(request.arg(1))?;
    cx.reply.map(hash.map_or(0, Hash::len));
    for (field, value) in hash.into_iter().flat_map(Hash::iter) {
        reply_element(&mut cx.reply, field);
        reply_element(&mut cx.reply, value);
    }
    Ok(())
}

pub(super) fn hkeys(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_halves(cx, request, |(field, _)| field)
}

pub(super) fn hvals(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_halves(cx, request, |(_, value)| value)
}

fn reply_halves(
    cx: &mut Context<'_>,
    request: Request<'_>,
    half: for<'a> fn((Element<'a>, Element<'a>)) -> Element<'a>,
) -> CommandResult {
    let hash = cx.db.read_as::<Hash>(request.arg(1))?;
    cx.reply.array(hash.map_or(0, Hash::len));
    for pair in hash.into_iter().flat_map(Hash::iter) {
        reply_element(&mut cx.reply, half(pair));
    }
    Ok(())
}

pub(super) fn hrandfield(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    if request.len() == 2 {
        let mut rng = randomness(cx);
        match cx.db.read_as::<Hash>(key)?.and_then(|hash| hash.random(&mut rng)) {
            Some((field, _)) => reply_element(&mut cx.reply, field),
            None => cx.reply.null(),
        }
        return Ok(());
    }
    let (count, with_values) = pair_picks(request, "WITHVALUES")?;
    let mut rng = randomness(cx);
    let Some(hash) = cx.db.read_as::<Hash>(key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    match Picks::of(count)? {
        Picks::Distinct(count) => {
            let pairs = hash.sample(&mut rng, count);
            begin_pairs(&mut cx.reply, pairs.len(), with_values);
            for pair in pairs {
                reply_pair(&mut cx.reply, pair, with_values);
            }
        }
        Picks::Repeated(count) => {
            begin_pairs(&mut cx.reply, count, with_values);
            for _ in 0..count {
                let pair = hash.random(&mut rng).expect("a hash is never empty");
                reply_pair(&mut cx.reply, pair, with_values);
            }
        }
    }
    Ok(())
}

fn reply_pair(reply: &mut ReplyWriter, pair: (Element<'_>, Element<'_>), with_values: bool) {
    begin_pair(reply, with_values);
    reply_element(reply, pair.0);
    if with_values {
        reply_element(reply, pair.1);
    }
}

pub(super) fn hscan(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let cursor = parse_cursor(request.arg(2))?;
    let hash = cx.db.read_as::<Hash>(request.arg(1))?;
    let mut found = Found::begin(&mut cx.reply);
    let Some(hash) = hash else {
        found.end(0);
        return Ok(());
    };
    let options = parse_options(request, 3, false)?;
    let next = hash.scan(cursor, options.count, |field, value| {
        if field.with_bytes(|text| options.wants(text)) {
            found.push(field);
            found.push(value);
        }
    });
    found.end(next);
    Ok(())
}
