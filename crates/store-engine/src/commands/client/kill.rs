//! CLIENT KILL: closes connections, named or by what they have in common.

use super::super::prelude::*;
use super::list::ClientType;
use crate::effects::ServerRequest;
use crate::keyspace::Keyspace;
use crate::session::{Session, SessionId, session_flag};
use crate::state::ServerState;

/// Which connections are closed: all that fit every condition.
#[derive(Default)]
struct Conditions<'a> {
    number: Option<u64>,
    kind: Option<ClientType>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
}

impl Conditions<'_> {
    fn admit(&self, session: &Session) -> bool {
        let is = |wanted: Option<&[u8]>, found: &[u8]| wanted.is_none_or(|wanted| wanted == found);
        self.number.is_none_or(|number| number == session.id.number)
            && self.kind.is_none_or(|kind| kind == ClientType::of(session))
            && is(self.address, session.origin.address.as_bytes())
            && is(self.local_address, session.origin.local_address.as_bytes())
            && is(self.user, &session.user)
            && !session.has(session_flag::CLOSING)
    }
}

pub(super) fn client_kill(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if request.len() == 3 {
        let conditions = Conditions { address: Some(request.arg(2)), ..Conditions::default() };
        let closed = close_matching(cx, &conditions, false);
        if closed == 0 {
            return Err(CommandError::text("ERR No such client"));
        }
        cx.reply.ok();
        return Ok(());
    }
    let (conditions, skips_own) = parse(cx, request)?;
    let closed = close_matching(cx, &conditions, skips_own);
    cx.reply.count(closed);
    Ok(())
}

fn parse<'r>(
    cx: &Context<'_>,
    request: Request<'r>,
) -> Result<(Conditions<'r>, bool), CommandError> {
    let (mut conditions, mut skips_own) = (Conditions::default(), true);
    let mut at = 2;
    while let Some(option) = request.get(at) {
        let value = request.get(at + 1).ok_or(CommandError::SYNTAX)?;
        if is_word(option, "ID") {
            let number = store_resp::parse_integer(value).filter(|number| *number > 0);
            let text = "ERR client-id should be greater than 0";
            conditions.number = Some(number.ok_or(CommandError::text(text))? as u64);
        } else if is_word(option, "TYPE") {
            conditions.kind = Some(ClientType::parse(value)?);
        } else if is_word(option, "ADDR") {
            conditions.address = Some(value);
        } else if is_word(option, "LADDR") {
            conditions.local_address = Some(value);
        } else if is_word(option, "USER") {
            if cx.server.acl.user(value).is_none() {
                let name = String::from_utf8_lossy(value);
                return Err(CommandError::new(format!("ERR No such user '{name}'")));
            }
            conditions.user = Some(value);
        } else if is_word(option, "SKIPME") && is_word(value, "yes") {
            skips_own = true;
        } else if is_word(option, "SKIPME") && is_word(value, "no") {
            skips_own = false;
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 2;
    }
    Ok((conditions, skips_own))
}

fn close_matching(cx: &mut Context<'_>, conditions: &Conditions<'_>, skips_own: bool) -> usize {
    let matching = cx.server.sessions.iter().filter(|session| conditions.admit(session));
    let ids: Vec<SessionId> = matching.map(|session| session.id).collect();
    for id in &ids {
        kill(cx.db, cx.server, *id);
    }
    let own = !skips_own && conditions.admit(cx.session);
    if own {
        cx.session.flags |= session_flag::CLOSING;
        cx.server.effects.requests.push(ServerRequest::CloseAfterOutput(cx.session.id));
    }
    ids.len() + usize::from(own)
}

/// Closes a session other than the running one. It hears, takes and keeps nothing from now on.
pub(crate) fn kill(db: &mut Keyspace, server: &mut ServerState, id: SessionId) {
    let Some(mut session) = server.sessions.take(id) else { return };
    session.flags |= session_flag::CLOSING;
    // What it has not been sent yet it will not get any more.
    session.output.clear();
    crate::commands::forget_session(db, server, &mut session);
    server.sessions.put_back(session);
    server.effects.requests.push(ServerRequest::Close(id));
}
