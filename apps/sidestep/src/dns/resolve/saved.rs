//! The file of the cache: read at the start, written at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clock::Instant;
use dns_resolver::{NotRestored, Resolver};

/// Which names were asked for is nobody else's business.
const OWNER_ONLY: u32 = 0o600;

/// Takes in what an earlier run has left, unless that is more than `octets_max`: a whole cache takes less in its file than in memory. A file
/// that cannot be used is no reason not to resolve.
pub(super) fn restore(path: &Path, octets_max: usize, resolver: &mut Resolver, now: Instant) {
    let why = match read(path, octets_max) {
        Ok(saved) => match resolver.restore(&saved, now) {
            Ok(count) => return log::info!("{count} entries of the cache from {}", path.display()),
            Err(NotRestored::Damaged) => "it is no cache, or has been damaged".to_owned(),
            Err(NotRestored::OfTheFuture) => "it was written later than now, by the calendar".to_owned(),
            Err(NotRestored::OtherTerms) => {
                "what is validated, or asked for elsewhere, was configured otherwise".to_owned()
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => return, // The first start.
        Err(error) => error.to_string(),
    };
    log::warn!("the cache starts empty: {}: {why}", path.display());
}

fn read(path: &Path, octets_max: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.len() > octets_max as u64 {
        return Err(io::Error::other("it is larger than the cache may be"));
    }
    let mut octets = Vec::new();
    file.take(octets_max as u64).read_to_end(&mut octets)?; // It may grow meanwhile.
    Ok(octets)
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
    let count = resolver.save(now, &mut file)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(count)
}
