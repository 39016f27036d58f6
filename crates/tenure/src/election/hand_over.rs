//! Giving the term to somebody else, and waiting until that one leads.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::protocol::{Call, Outcome, Request};
use tenure_core::{InstanceId, Token};
use tokio::sync::oneshot;

use crate::Error;
use crate::driver::Message;
use crate::observe::Leadership;
use crate::operate::{NEXT_LOOKED_FOR_EVERY, NEXT_WAITED_FOR, leads_instead};
use crate::state::{ElectionState, HandOverWish, Successor};

/// How many hand-overs may wait for the driver. Each has a caller that waits for it.
const HAND_OVERS_QUEUED_MAX: usize = 64;
/// The first pause between two looks: a successor that is there takes over within a round trip.
const LOOK_FIRST_AFTER: Duration = Duration::from_millis(2);
/// How long one look at the store may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// Hands over and returns who leads since. One outcome per call: whatever becomes of the term, of
/// the store or of other hand-overs, this ends.
pub(crate) async fn hand_over(
    state: &Arc<ElectionState>,
    successor: Successor,
) -> Result<InstanceId, Error> {
    state.check_process()?;
    let stopped = || Error::Stopped { name: state.resource.name().to_owned() };
    let (reply, settled) = oneshot::channel();
    let mut is_full = false;
    state.wish(|wishes| {
        is_full = wishes.hand_overs.len() >= HAND_OVERS_QUEUED_MAX;
        if !is_full {
            wishes.hand_overs.push(HandOverWish { successor, reply });
        }
    });
    if is_full {
        return Err(Error::Overloaded { limit: HAND_OVERS_QUEUED_MAX });
    }
    if state.has_stopped() {
        // Nobody takes wishes any more; whoever stopped may have looked before this one was there.
        state.drop_hand_overs();
    }
    let settled = settled.await.map_err(|_| stopped())?;
    let (token, to) = settled.map_err(|why| Error::Refused { why })?;
    until_led_by(state, token, to).await
}

/// Waits until the successor has claimed what was reserved for it. It may die at that very moment,
/// and then whoever else comes leads, or nobody.
async fn until_led_by(
    state: &ElectionState,
    ended: Token,
    to: InstanceId,
) -> Result<InstanceId, Error> {
    let gives_up_at = state.clock.now() + NEXT_WAITED_FOR;
    let mut pause = LOOK_FIRST_AFTER;
    loop {
        let looked = look(state).await;
        if let Ok(Leadership::Led { leader, .. }) = &looked
            && leader.token > Some(ended)
        {
            return match leader.id == to {
                true => Ok(to),
                false => Err(Error::Refused { why: leads_instead(to.as_str(), leader) }),
            };
        }
        if state.clock.now() >= gives_up_at {
            let why = match looked {
                Ok(_) => format!("the term ended, but {to} did not take over"),
                Err(error) => format!("the term was given to {to}, but whether it leads: {error}"),
            };
            return Err(Error::Refused { why });
        }
        state.sleep(pause).await?;
        pause = (pause * 2).min(NEXT_LOOKED_FOR_EVERY);
    }
}

async fn look(state: &ElectionState) -> Result<Leadership, Error> {
    let call = Call {
        resource: state.resource.clone(),
        id: state.id.clone(),
        request: Request::Observe { members: false },
        timeout: LOOK_TIMEOUT,
        // Whoever only looks begins no quarantine.
        fleet_max_ttl: Duration::ZERO,
    };
    let (reply, answer) = oneshot::channel();
    let backend = Arc::clone(&state.backend);
    state.inbox.request(Message::Call { backend, call: Box::new(call), reply })?;
    let answer = tokio::select! {
        biased;
        answer = answer => answer.map_err(|_| Error::Closed)??,
        slept = state.sleep(LOOK_TIMEOUT) => {
            slept?;
            return Err(Error::Store(tenure_core::StoreError::timed_out(LOOK_TIMEOUT)));
        }
    };
    match answer.outcome {
        Outcome::Conflict { what } => Err(Error::Conflict { what }),
        _ => Ok(Leadership::of(&answer.view)),
    }
}
