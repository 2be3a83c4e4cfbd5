//! Who has which queue: not the steering program's business, but kept with it for who takes it over.

use aya::maps::{Array, MapData};

use crate::XdpError;
use crate::error::map_error;

/// Who has a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOwner {
    /// What it alone knows.
    pub secret: [u64; 2],
    /// Its user id.
    pub user: u32,
}

/// The map `owners`.
pub(crate) struct Owners(pub(crate) Array<MapData, [u64; 3]>);

/// In the third word of an entry, beside the user: somebody has the queue.
const TAKEN: u64 = 1 << 32;

impl Owners {
    pub(crate) fn set(&mut self, queue: u16, owner: Option<QueueOwner>) -> Result<(), XdpError> {
        let entry = owner.map(|it| [it.secret[0], it.secret[1], TAKEN | u64::from(it.user)]);
        self.0.set(u32::from(queue), entry.unwrap_or_default(), 0).map_err(map_error("owners"))
    }

    pub(crate) fn all(&self) -> Result<Vec<(u16, QueueOwner)>, XdpError> {
        let mut owners = Vec::new();
        for (queue, entry) in (0..).zip(self.0.iter()) {
            let [first, second, third] = entry.map_err(map_error("owners"))?;
            if third & TAKEN != 0 {
                let user = (third & u64::from(u32::MAX)) as u32;
                owners.push((queue, QueueOwner { secret: [first, second], user }));
            }
        }
        Ok(owners)
    }
}
