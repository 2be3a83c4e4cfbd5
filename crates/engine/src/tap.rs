//! Observing an engine's frames while it runs.

use clock::Instant;
use frame::Frame;

use crate::handle::DeviceId;

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Queued for transmission, which the device may still refuse.
    Outbound,
}

/// Sees the frames of an engine's primary devices. It runs on the engine's thread and must not block; what the shadows
/// receive is the kernel's, where other tools see it.
pub trait Tap: Send {
    /// From `now` on, by the engine's clock.
    fn on_start(&mut self, now: Instant);

    /// A frame of `device`. Checksums that the device fills in are not there yet.
    fn on_frame(&mut self, frame: &[u8], device: DeviceId, direction: Direction, now: Instant);

    /// Whether the tap has ended: then it is removed.
    fn is_over(&self) -> bool;
}

/// The taps of an engine; hardly ever any.
#[derive(Default)]
pub(crate) struct Taps(Vec<Box<dyn Tap>>);

impl Taps {
    pub(crate) fn add(&mut self, mut tap: Box<dyn Tap>, now: Instant) {
        self.forget_those_over();
        tap.on_start(now);
        self.0.push(tap);
    }

    pub(crate) fn forget_those_over(&mut self) {
        self.0.retain(|tap| !tap.is_over());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Shows a burst. Only called when there are taps, so that the engine's turn stays small.
    #[cold]
    pub(crate) fn show(&mut self, frames: &[Frame], device: DeviceId, direction: Direction, now: Instant) {
        self.forget_those_over();
        for tap in &mut self.0 {
            frames.iter().for_each(|frame| tap.on_frame(frame.bytes(), device, direction, now));
        }
    }

    /// Shows a packet that leaves in pieces, as one frame.
    #[cold]
    pub(crate) fn show_pieces(&mut self, headers: &[u8], payload: &[&[u8]], device: DeviceId, now: Instant) {
        self.forget_those_over();
        let frame = [headers, &payload.concat()].concat();
        self.0.iter_mut().for_each(|tap| tap.on_frame(&frame, device, Direction::Outbound, now));
    }
}
