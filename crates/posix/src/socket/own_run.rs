//! What a shadow has must not wait for ever where the stack always has something: now and then it is asked first.

/// What is taken from the stack before the shadow's turn comes.
const RUN_MAX: u32 = 64;

/// How much was taken from the stack since the shadow was last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnRun {
    taken: u32,
    /// The program has looked at what the stack has: that is what it is to get next.
    is_seen: bool,
}

impl OwnRun {
    /// Something of the stack's was taken.
    pub(super) fn note_taken(&mut self) {
        self.taken = self.taken.saturating_add(1);
        self.is_seen = false;
    }

    /// Something of the stack's was looked at, and stays (`MSG_PEEK`).
    pub(super) fn note_seen(&mut self) {
        self.is_seen = true;
    }

    /// Whether the shadow is to be asked first.
    pub(super) fn is_shadows_turn(&self) -> bool {
        self.taken >= RUN_MAX && !self.is_seen
    }

    /// The shadow has had its turn, or had nothing.
    pub(super) fn begin(&mut self) {
        self.taken = 0;
    }
}
