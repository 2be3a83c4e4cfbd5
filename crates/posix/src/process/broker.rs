//! The broker, as far as it is there: reaching it, and giving claims back.

use crate::broker_side::{Attachment, ClaimId};
use crate::process::state::State;

impl State {
    /// Sees to it that the broker can be asked.
    pub(crate) fn reach(&mut self) -> bool {
        let is_reached = self.attachment.as_mut().is_some_and(|attachment| attachment.reach());
        self.hide_attachment();
        is_reached
    }

    /// Whether the broker's client has news that its descriptor does not tell of.
    pub(crate) fn has_incident(&self) -> bool {
        self.attachment.as_ref().is_some_and(|attachment| attachment.has_incident())
    }

    pub(crate) fn release_claim(&mut self, claim: Option<ClaimId>) {
        if let Some(claim) = claim {
            self.queue.resting_ports.forget(claim);
            self.release_claims(&[claim]);
        }
    }

    pub(crate) fn release_claims(&mut self, claims: &[ClaimId]) {
        if let Some(attachment) = self.attachment.as_mut().filter(|_| !claims.is_empty()) {
            attachment.release(claims);
        }
    }

    /// The attachment, for calls that need it and the rest of the state.
    pub(crate) fn attachment(&mut self) -> Option<&mut (dyn Attachment + 'static)> {
        self.attachment.as_deref_mut()
    }
}
