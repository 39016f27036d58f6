//! What operators do in a world.

use tenure_core::InstanceId;
use tenure_core::protocol::{Request, Token, WishKind};

use crate::algorithm::Op;
use crate::clock::MILLISECOND;
use crate::fault::Fault;
use crate::flaw::{CLEAR_CONSTANT, Flaw};
use crate::world::{World, span};

/// Below the tokens of all terms: the store's clock is far beyond it.
pub(crate) const LOWEST: Token = Token::new(1).expect("not zero");

impl World<'_> {
    pub(crate) fn token_now(&mut self) -> Option<Token> {
        if self.quorum.is_some() {
            return self.majority_token();
        }
        let (now, resource) = (self.now, self.resource.clone());
        let node = self.cluster.primary();
        node.store.token_of(node.server_time(now), &resource)
    }

    pub(crate) fn operate(&mut self, fault: Fault) {
        let token = self.token_now().unwrap_or(LOWEST);
        let stands_for = span(self.climate.lease * 2);
        let request = match fault {
            Fault::AskToResign => Request::Ask { token, wish: WishKind::Resign, stands_for },
            Fault::AskToHandOver => {
                let party = self.random.below(self.parties.len() as u64) as usize;
                let to = self.id_in(party).as_str().to_owned();
                Request::Ask { token, wish: WishKind::HandOver { to }, stands_for }
            }
            Fault::OperatorPause => Request::Pause { lasts: span(self.climate.lease * 3) },
            Fault::OperatorResume => Request::Resume,
            _ => {
                let quarantine = match self.subject.flaw() {
                    Some(Flaw::ClearForConstant) => CLEAR_CONSTANT,
                    _ => span(self.climate.lease * 101 / 100 + 2 * MILLISECOND),
                };
                Request::Clear { reason: "test".into(), quarantine }
            }
        };
        self.operator_says(request);
    }

    pub(crate) fn operator_says(&mut self, request: Request) {
        let now = self.now;
        if self.quorum.is_some() {
            return self.operator_says_to_all(&request);
        }
        let node = self.cluster.primary();
        if now < node.paused_until || !self.subject.speaks_protocol() {
            return;
        }
        let mut id = InstanceId::seen("operator");
        let mut request = request;
        if self.subject.flaw() == Some(Flaw::ThirdPartyRelease)
            && let Request::Ask { token, wish: WishKind::Resign, .. } = request
        {
            let node = self.cluster.primary();
            let holder = node.store.get(node.server_time(now), self.resource.key());
            id = InstanceId::seen(holder.unwrap_or_default());
            let reason = tenure_core::protocol::CloseReason::Released;
            request = Request::Release { token, reason };
        }
        let caller = self.operator(id);
        let node = self.cluster.primary;
        self.execute(node, &Op::Call(request), &caller);
    }

    fn operator_says_to_all(&mut self, request: &Request) {
        let caller = self.operator(InstanceId::seen("operator"));
        for node in 0..self.cluster.nodes.len() {
            if self.now >= self.cluster.nodes[node].paused_until {
                self.execute(node, &Op::Call(request.clone()), &caller);
            }
        }
    }
}
