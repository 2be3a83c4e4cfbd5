//! Keeps the shadow from starving while the stack always has something: now and then the shadow is asked first.

/// What is taken from the stack before the shadow's turn comes.
const RUN_MAX: u32 = 64;

/// How much was taken from the stack since the shadow was last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnRun {
    taken: u32,
    seen: Option<Seen>,
}

/// Whose datagram the program has looked at, and not taken (`MSG_PEEK`, `FIONREAD`): that is what it is to get next.
#[derive(Clone, Copy, Debug)]
enum Seen {
    OfStack,
    OfShadow,
}

impl OwnRun {
    /// Something of the stack's was taken.
    pub(crate) fn note_taken(&mut self) {
        self.taken = self.taken.saturating_add(1);
        self.seen = None;
    }

    /// Something of the stack's was looked at, and stays.
    pub(crate) fn note_seen(&mut self) {
        self.seen = Some(Seen::OfStack);
    }

    /// The shadow is looked at.
    pub(crate) fn note_seen_at_shadow(&mut self) {
        self.seen = Some(Seen::OfShadow);
    }

    /// Whether to ask the shadow first.
    pub(crate) fn is_shadows_turn(&self) -> bool {
        match self.seen {
            Some(Seen::OfStack) => false,
            Some(Seen::OfShadow) => true,
            None => self.taken >= RUN_MAX,
        }
    }

    /// The shadow has had its turn, or had nothing.
    pub(crate) fn begin(&mut self) {
        *self = OwnRun::default();
    }
}
