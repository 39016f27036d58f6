//! Signatures of what is posted, as the Standard Webhooks specification describes them: HMAC-SHA256
//! over `id.timestamp.body`, so that an old message cannot be sent again as a new one.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use tenure::Secret;

use super::Happening;
use super::base64::{base64, from_base64};

/// What secrets begin with that are written in base64.
const ENCODED: &str = "whsec_";
/// Below it a signature can be forged by trying.
const KEY_LEN_MIN: usize = 16;

/// Signs with one secret.
#[derive(Clone)]
pub(super) struct Signer(Hmac<Sha256>);

impl Signer {
    /// `None` if the secret is not what its beginning says, or too short.
    pub(super) fn new(secret: &Secret) -> Option<Self> {
        let text = secret.reveal();
        let key = match text.strip_prefix(ENCODED) {
            Some(encoded) => from_base64(encoded)?,
            None => text.as_bytes().to_vec(),
        };
        if key.len() < KEY_LEN_MIN {
            return None;
        }
        Some(Signer(Hmac::new_from_slice(&key).ok()?))
    }

    /// The value of the header.
    pub(super) fn sign(&self, id: &str, sent_at: u64, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{sent_at}.").as_bytes());
        mac.update(body);
        format!("v1,{}", base64(&mac.finalize().into_bytes()))
    }
}

/// The same for every try of one event, so that a receiver knows what it has seen; another one for
/// every other event.
pub(super) fn message_id(happening: &Happening) -> String {
    const BYTES: usize = 16;
    let mut hash = Sha256::new();
    for part in [happening.turn.as_str(), &happening.name, &happening.id] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(happening.token.to_be_bytes());
    let hash = hash.finalize();
    let hex: String = hash.iter().take(BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("msg_{hex}")
}

#[cfg(test)]
mod tests {
    use super::super::Turn;
    use super::*;

    /// The example of the Standard Webhooks specification and its libraries.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signer = Signer::new(&secret).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signature = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_that_is_too_short_or_no_base64_signs_nothing() {
        for bad in ["", "short", "whsec_", "whsec_Zm9v", "whsec_not base64 at all, is it?"] {
            assert!(Signer::new(&Secret::new(bad)).is_none(), "{bad}");
        }
    }

    #[test]
    fn every_event_has_an_id_of_its_own() {
        let of = |turn, name: &str, token| {
            let (name, id) = (name.to_owned(), "ada_1".to_owned());
            message_id(&Happening { turn, name, id, token, reason: "granted" })
        };
        let all = [
            of(Turn::Gain, "report", 1),
            of(Turn::Loss, "report", 1),
            of(Turn::Gain, "report", 2),
            of(Turn::Gain, "mailer", 1),
        ];
        let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(all[0], of(Turn::Gain, "report", 1), "the same for every try");
    }
}
