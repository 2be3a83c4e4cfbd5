//! Which engines serve the queues of an interface themselves, and which ones work for them.

use anyhow::bail;
use device_xdp::AttachMode;
use native::Dispatch;

use super::config::{ConfigError, DeviceChoice, Link, in_range};
use super::load::random_seed;

/// The user's choice. Without dispatchers each engine has queues of its own: it runs to completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// The engines of the first so many cores serve all queues; the others are workers.
    dispatchers: usize,
    /// Percentage of UDP flows that dispatchers answer themselves.
    own_percent: u8,
}

impl Sharing {
    /// Checks what the user said, as far as that needs no interface.
    pub(crate) fn new(
        dispatchers: Option<u64>,
        own_percent: Option<u64>,
        device: &DeviceChoice,
    ) -> Result<Sharing, ConfigError> {
        let dispatchers = in_range("dispatchers", dispatchers.unwrap_or(0), 0, 1024)? as usize;
        if own_percent.is_some() && dispatchers == 0 {
            return Err(ConfigError::NoDispatchers("dispatcher-share has a meaning with dispatchers only"));
        }
        if dispatchers > 0 && matches!(device, DeviceChoice::Kernel(_)) {
            return Err(ConfigError::NoDispatchers(
                "dispatchers are for the queues of an interface: the kernel spreads packets of its sockets over all engines itself",
            ));
        }
        let own_percent = in_range("dispatcher-share", own_percent.unwrap_or(0), 0, 99)? as u8;
        Ok(Sharing { dispatchers, own_percent })
    }

    /// How many engines of `engines` have queues.
    pub(crate) fn with_queues(self, engines: usize) -> usize {
        if self.dispatchers == 0 { engines } else { self.dispatchers.min(engines) }
    }

    /// Cores that are of use to an interface with so many queues.
    pub(crate) fn useful_cores(self, available: usize, queues: usize) -> usize {
        if self.dispatchers == 0 { available.min(queues.max(1)) } else { available }
    }

    /// Whether there is something to do for each of `cores` engines on this interface.
    pub(crate) fn check(self, cores: usize, link: &Link, mode: Option<AttachMode>) -> anyhow::Result<()> {
        let dispatchers = self.dispatchers;
        if dispatchers == 0 {
            return Ok(());
        }
        if dispatchers >= cores {
            bail!(
                "dispatchers: {dispatchers} of {cores} cores leave none for workers: give more cores, or fewer dispatchers"
            );
        }
        if let Link::Xdp(name) = link {
            let queues = usize::from(device_xdp::queue_pairs_in(name, mode)?);
            if dispatchers > queues {
                bail!("dispatchers: {dispatchers}, and {name} has queues for {queues} of them");
            }
        }
        Ok(())
    }

    /// For the engines.
    pub(crate) fn dispatch(self) -> Option<Dispatch> {
        let Sharing { dispatchers, own_percent } = self;
        (dispatchers > 0).then(|| Dispatch { dispatchers, own_percent, key: random_seed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_dispatchers_each_engine_has_queues_and_there_are_as_many_as_those() {
        let alone = Sharing::default();
        assert_eq!((alone.with_queues(4), alone.useful_cores(4, 2), alone.dispatch()), (4, 2, None));
        let shared = Sharing { dispatchers: 1, own_percent: 0 };
        assert_eq!((shared.with_queues(4), shared.useful_cores(4, 1)), (1, 4));
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        let interface = DeviceChoice::Interface(Link::Xdp("eth0".to_owned()), Vec::new());
        let kernel = DeviceChoice::Kernel(Vec::new());
        let error =
            |dispatchers, share, device| Sharing::new(dispatchers, share, device).unwrap_err().to_string();
        assert!(error(Some(1), None, &kernel).starts_with("dispatchers are for the queues of an interface"));
        assert!(error(None, Some(20), &interface).starts_with("dispatcher-share has a meaning"));
        assert!(error(Some(1), Some(100), &interface).starts_with("dispatcher-share"));
        let all = Sharing { dispatchers: 2, own_percent: 0 }.check(2, &Link::Xdp("lo".to_owned()), None);
        assert!(all.unwrap_err().to_string().contains("leave none for workers"));
        let none = Sharing { dispatchers: 3, own_percent: 0 }.check(9, &Link::Xdp("lo".to_owned()), None);
        assert!(none.unwrap_err().to_string().contains("lo has queues for 1 of them"));
    }
}
