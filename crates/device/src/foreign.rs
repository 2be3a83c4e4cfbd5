//! Frames of other devices' pools.

use arrayvec::ArrayVec;
use frame::{Frame, Pool};

use crate::BURST;

/// Sent frames of other pools, waiting for [`crate::Device::take_foreign`].
#[derive(Debug, Default)]
pub struct ForeignFrames(ArrayVec<Frame, BURST>);

impl ForeignFrames {
    /// Number of frames at the front of `frames` that [`ForeignFrames::retire`] has room for.
    pub fn room_for(&self, pool: &Pool, frames: &[Frame]) -> usize {
        let mut room = self.0.remaining_capacity();
        let fits = |frame: &&Frame| {
            let foreign = frame.pool() != pool.id();
            let fits = !foreign || room > 0;
            room -= usize::from(fits && foreign);
            fits
        };
        frames.iter().take_while(fits).count()
    }

    /// Releases a frame into `pool` if it is its own, else keeps it here.
    ///
    /// # Panics
    /// If it is foreign and there is no room: see [`ForeignFrames::room_for`].
    pub fn retire(&mut self, pool: &mut Pool, frame: Frame) {
        match frame.pool() == pool.id() {
            true => pool.release(frame),
            false => self.0.push(frame),
        }
    }

    /// Takes one frame out.
    pub fn take(&mut self) -> Option<Frame> {
        self.0.pop()
    }
}
