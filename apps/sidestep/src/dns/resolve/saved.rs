//! The file of the cache: read at the start, written at the end. Its first eight octets are the time at which it was written, in milliseconds
//! since 1970.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clock::{Duration, Instant};
use dns_resolver::{NotRestored, Resolver};

/// How far the calendar may have been set back since: as much longer do entries last.
const CALENDAR_OFF_MAX_MS: u64 = 60_000;
/// Which names were asked for is nobody else's business.
const OWNER_ONLY: u32 = 0o600;

/// Takes in what an earlier run has left. A file that cannot be used is no reason not to resolve.
pub(super) fn restore(path: &Path, resolver: &mut Resolver, now: Instant) {
    let octets = match fs::read(path) {
        Ok(octets) => octets,
        Err(error) if error.kind() == ErrorKind::NotFound => return, // The first start.
        Err(error) => return log::warn!("the cache starts empty: {}: {error}", path.display()),
    };
    let Some((written, saved)) = octets.split_first_chunk::<8>() else {
        return log::warn!("the cache starts empty: {} is no cache", path.display());
    };
    let (written, today) = (u64::from_be_bytes(*written), unix_millis());
    if written > today + CALENDAR_OFF_MAX_MS {
        // Nobody knows how old it is: the calendar was set back, or a host without a clock has not asked for the time yet.
        return log::warn!("the cache starts empty: {} is of the future", path.display());
    }
    let passed = Duration::from_millis(today.saturating_sub(written));
    match resolver.restore(saved, passed, now) {
        Ok(count) => log::info!("{count} entries of the cache from {}", path.display()),
        Err(NotRestored::Damaged) => {
            log::warn!("the cache starts empty: {} is no cache, or has been damaged", path.display());
        }
        Err(NotRestored::OtherTerms) => {
            log::info!(
                "the cache starts empty: what is validated, or asked for elsewhere, was configured otherwise"
            );
        }
    }
}

/// Leaves the cache for the next run. It replaces the file of the one before, or nothing.
pub(super) fn save(path: &Path, resolver: &Resolver, now: Instant) {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    match write(&part, resolver, now).and_then(|count| fs::rename(&part, path).map(|()| count)) {
        Ok(count) => log::info!("{count} entries of the cache to {}", path.display()),
        Err(error) => {
            let _ = fs::remove_file(&part); // It may not be there.
            log::error!("the cache is lost: {}: {error}", path.display());
        }
    }
}

fn write(path: &Path, resolver: &Resolver, now: Instant) -> io::Result<usize> {
    let mut file = BufWriter::new(
        OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(path)?,
    );
    file.write_all(&unix_millis().to_be_bytes())?;
    let count = resolver.save(now, &mut file)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(count)
}

/// A calendar before 1970 is as wrong as one that stands there.
fn unix_millis() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.as_millis() as u64
}
